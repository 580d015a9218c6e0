// SPDX-License-Identifier: Apache-2.0

//! Runs the load of one row.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::table::{Load, Tool, WRK_SECONDS};
use crate::demo::load;
use crate::sh;

/// The most redis-benchmark may take.
const REDIS_LIMIT: Duration = Duration::from_secs(120);

/// What one run gave: one figure, or several for a tool that tests several things.
pub(crate) struct Measured {
    /// A name for readers, the same on each platform.
    pub(crate) figure: String,
    /// Requests a second.
    pub(crate) rate: f64,
    /// What else the tool said.
    pub(crate) context: Value,
    /// Requests without a good answer.
    pub(crate) errors: u64,
}

/// Loads `service` as the row says.
pub(crate) fn run(load: &Load, service: SocketAddr) -> Result<Vec<Measured>> {
    match load.tool {
        Tool::Wrk { path, connections } => wrk(load.name, path, connections, WRK_SECONDS, service),
        Tool::Redis {
            test,
            connections,
            pipeline,
            requests,
        } => redis(test, connections, pipeline, requests, service),
    }
}

fn wrk(
    name: &str,
    path: &str,
    connections: u32,
    seconds: u32,
    service: SocketAddr,
) -> Result<Vec<Measured>> {
    let load = load::wrk(service, path, connections, seconds)?;
    Ok(vec![Measured {
        figure: format!("{name}, {}", over(connections)),
        rate: load.requests_per_second,
        context: json!({
            "seconds": seconds, "requests": load.requests, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms,
            "max_ms": load.max_ms,
        }),
        errors: load.errors,
    }])
}

fn redis(
    test: &str,
    connections: u32,
    pipeline: u32,
    requests: u32,
    service: SocketAddr,
) -> Result<Vec<Measured>> {
    let (host, port) = (service.ip().to_string(), service.port().to_string());
    let numbers = [connections, pipeline, requests].map(|number| number.to_string());
    let mut command = sh::cmd("redis-benchmark", ["--csv", "-h", &host, "-p", &port]);
    command.args(["-c", &numbers[0], "-P", &numbers[1], "-n", &numbers[2]]);
    if !test.is_empty() {
        command.args(["-t", test]);
    }
    let result = sh::output_within(&mut command, REDIS_LIMIT)?;
    if !result.success() {
        bail!(
            "`{}` failed: {}{}",
            sh::shown(&command),
            result.stdout,
            result.stderr
        );
    }
    let rows = parse_csv(&result.stdout)
        .with_context(|| format!("redis-benchmark is not understood:\n{}", result.stdout))?;
    let deep = if pipeline > 1 {
        format!(", pipeline {pipeline}")
    } else {
        String::new()
    };
    Ok(rows
        .into_iter()
        .map(|row| Measured {
            figure: format!("{}, {}{deep}", row.test, over(connections)),
            rate: row.rate,
            context: json!({ "requests": requests, "p50_ms": row.p50_ms, "p99_ms": row.p99_ms, "max_ms": row.max_ms }),
            errors: 0,
        })
        .collect())
}

fn over(connections: u32) -> String {
    if connections == 1 {
        "1 connection".to_owned()
    } else {
        format!("{connections} connections")
    }
}

#[derive(Debug, PartialEq)]
struct Row {
    test: String,
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// The rows of `redis-benchmark --csv`: test, requests a second, and latencies: average, least, p50, p95, p99, most.
fn parse_csv(text: &str) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('"')) {
        // Names of tests contain commas, but not quotation marks.
        let cells: Vec<&str> = line.trim_matches('"').split("\",\"").collect();
        let [test, rate, _, _, p50, _, p99, max] = cells[..] else {
            return None;
        };
        if test == "test" {
            continue;
        }
        rows.push(Row {
            test: test.to_owned(),
            rate: rate.parse().ok()?,
            p50_ms: p50.parse().ok()?,
            p99_ms: p99.parse().ok()?,
            max_ms: max.parse().ok()?,
        });
    }
    (!rows.is_empty()).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::{Row, parse_csv};

    #[test]
    fn the_benchmark_of_redis_is_understood() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"LRANGE_100 (first 100 elements)\",\"8595.99\",\"0.112\",\"0.048\",\"0.111\",\"0.159\",\"0.199\",\"3.287\"\n";
        let row = Row {
            test: "LRANGE_100 (first 100 elements)".to_owned(),
            rate: 8595.99,
            p50_ms: 0.111,
            p99_ms: 0.199,
            max_ms: 3.287,
        };
        assert_eq!(parse_csv(text), Some(vec![row]));
        assert_eq!(parse_csv("Could not connect"), None);
        assert_eq!(parse_csv("\"SET\",\"1\""), None);
    }
}
