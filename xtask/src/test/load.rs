// SPDX-License-Identifier: Apache-2.0

//! Load by wrk: one thread, kept connections, closed loop.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::sh;

/// What one run of wrk gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Connect, read, write errors and timeouts, and answers other than 2xx and 3xx.
    pub(crate) errors: u64,
}

/// Loads `path` for `seconds` over `connections` connections.
pub(crate) fn wrk(service: SocketAddr, path: &str, connections: u32, seconds: u32) -> Result<Load> {
    let url = format!("http://{service}{path}");
    let args = [
        "-t1",
        &format!("-c{connections}"),
        &format!("-d{seconds}s"),
        "--latency",
        "--timeout",
        "5s",
        &url,
    ];
    let limit = Duration::from_secs(u64::from(seconds) + 20);
    let result = sh::output_within(&mut sh::cmd("wrk", args), limit)?;
    if !result.success() {
        bail!("wrk on {url} failed: {}{}", result.stdout, result.stderr);
    }
    parse(&result.stdout)
        .with_context(|| format!("wrk's output is not understood:\n{}", result.stdout))
}

fn parse(text: &str) -> Option<Load> {
    let mut load = Load {
        requests: 0,
        requests_per_second: 0.0,
        p50_ms: 0.0,
        p99_ms: 0.0,
        max_ms: 0.0,
        errors: 0,
    };
    let mut found = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["50%", value] => load.p50_ms = milliseconds(value)?,
            ["99%", value] => load.p99_ms = milliseconds(value)?,
            // Thread statistics: average, deviation, maximum, share within one deviation.
            ["Latency", _, _, maximum, _] => load.max_ms = milliseconds(maximum)?,
            ["Requests/sec:", value] => load.requests_per_second = value.parse().ok()?,
            [count, "requests", "in", ..] => load.requests = count.parse().ok()?,
            // Both lines appear only when there is something to report.
            [
                "Socket",
                "errors:",
                "connect",
                a,
                "read",
                b,
                "write",
                c,
                "timeout",
                d,
            ] => {
                for count in [a, b, c, d] {
                    load.errors += count.trim_end_matches(',').parse::<u64>().ok()?;
                }
                continue;
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => {
                load.errors += count.parse::<u64>().ok()?;
                continue;
            }
            _ => continue,
        }
        found += 1;
    }
    (found == 5).then_some(load)
}

/// A time as wrk writes it: `310.00us`, `1.53ms`, `1.01s`, `1.00m`.
fn milliseconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "us" => 0.001,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::{Load, parse};

    const CLEAN: &str = "\
Running 4s test @ http://10.0.0.2:8080/todos
  1 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     3.21ms    1.50ms  31.02ms   91.21%
    Req/Sec     3.20k   210.21     3.61k    75.00%
  Latency Distribution
     50%  980.00us
     75%    3.61ms
     90%    4.52ms
     99%    1.01s
  12751 requests in 4.00s, 5.84MB read
Requests/sec:   3186.42
Transfer/sec:      1.46MB
";

    #[test]
    fn reads_a_report() {
        let want = Load {
            requests: 12751,
            requests_per_second: 3186.42,
            p50_ms: 0.98,
            p99_ms: 1010.0,
            max_ms: 31.02,
            errors: 0,
        };
        assert_eq!(parse(CLEAN), Some(want));
    }

    #[test]
    fn counts_errors() {
        let text = format!("{CLEAN}  Socket errors: connect 1, read 20, write 300, timeout 4000\n");
        assert_eq!(parse(&text).unwrap().errors, 4321);
        let text = format!("{CLEAN}  Non-2xx or 3xx responses: 7\n");
        assert_eq!(parse(&text).unwrap().errors, 7);
    }

    #[test]
    fn half_a_report_is_none() {
        assert_eq!(parse(&CLEAN.replace("Requests/sec", "Requests")), None);
    }
}
