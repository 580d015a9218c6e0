// SPDX-License-Identifier: Apache-2.0

//! memtier_benchmark: sets and gets of Redis or memcached, closed loop. One row for all, one for sets and one for gets.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::parameters::Parameters;
use super::tool::{self, Tool};
use super::{Generator, Job, Outcome, Point, Row};
use crate::{Error, Result};

const TOOL: Tool = Tool {
    program: "memtier_benchmark",
    package: Some("memtier-benchmark"),
    otherwise: "https://github.com/RedisLabs/memtier_benchmark, where Debian has no package (before 13)",
};

/// memtier_benchmark.
#[derive(Debug)]
pub(super) struct Memtier;

const KNOWN: &[&str] = &[
    "connections",
    "threads",
    "pipeline",
    "requests",
    "duration_s",
    "ratio",
    "data_bytes",
    "keyspace",
    "protocol",
    "limit_s",
];

struct Settings<'a> {
    /// Of each thread.
    clients: u64,
    threads: u64,
    pipeline: u64,
    requests: Option<u64>,
    duration: Option<Duration>,
    ratio: &'a str,
    data_bytes: u64,
    keyspace: Option<u64>,
    protocol: &'a str,
    limit: Duration,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("memtier", KNOWN, point)?;
    let connections = parameters.count_to("connections", 100_000)?.unwrap_or(50);
    let threads = parameters.count_to("threads", 256)?.unwrap_or(1);
    if connections % threads != 0 {
        return Err(Error::Input(format!(
            "memtier: {connections} `connections` cannot be shared evenly by {threads} `threads`"
        )));
    }
    let protocol = parameters.word("protocol")?.unwrap_or("redis");
    if ![
        "redis",
        "resp2",
        "resp3",
        "memcache_text",
        "memcache_binary",
    ]
    .contains(&protocol)
    {
        return Err(Error::Input(format!(
            "memtier: `protocol` must be redis, resp2, resp3, memcache_text or memcache_binary, not {protocol}"
        )));
    }
    Ok(Settings {
        clients: connections / threads,
        threads,
        pipeline: parameters.count_to("pipeline", 10_000)?.unwrap_or(1),
        requests: parameters.count("requests")?,
        duration: parameters.seconds("duration_s")?,
        ratio: parameters.word("ratio")?.unwrap_or("1:10"),
        data_bytes: parameters.count_to("data_bytes", 1 << 30)?.unwrap_or(32),
        keyspace: parameters.count("keyspace")?,
        protocol,
        limit: parameters
            .seconds("limit_s")?
            .unwrap_or(Duration::from_secs(900)),
    })
}

impl Generator for Memtier {
    fn name(&self) -> &'static str {
        "memtier"
    }

    fn method(&self) -> &'static str {
        "closed loop over kept connections; sets and gets in the given ratio"
    }

    fn package(&self) -> Option<&'static str> {
        TOOL.package
    }

    fn find(&self) -> Result<String> {
        let text = TOOL.about("--version")?;
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("memtier_benchmark "))
            .and_then(|rest| rest.split_whitespace().next())
            .ok_or_else(|| {
                Error::Host("`memtier_benchmark --version` does not say its version".to_owned())
            })?;
        // 1.4 counts in HDR histograms and writes their percentiles.
        tool::at_least("memtier_benchmark", version, &[1, 4])?;
        Ok(format!("memtier_benchmark {version}"))
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let scratch = tempfile::tempdir().map_err(Error::file(std::env::temp_dir()))?;
        let report = scratch.path().join("report.json");
        let mut command = TOOL.command()?;
        command
            .args(["-s", &job.target.ip().to_string()])
            .args(["-p", &job.target.port().to_string()])
            .arg(format!("--protocol={}", settings.protocol))
            .args(["-c", &settings.clients.to_string()])
            .args(["-t", &settings.threads.to_string()])
            .arg(format!("--pipeline={}", settings.pipeline))
            .arg(format!("--ratio={}", settings.ratio))
            .args(["-d", &settings.data_bytes.to_string()])
            .arg("--hide-histogram")
            .arg(format!("--json-out-file={}", report.display()));
        if let Some(keyspace) = settings.keyspace {
            command.arg(format!("--key-maximum={keyspace}"));
        }
        let duration = match (job.duration, settings.requests) {
            (None, Some(requests)) => {
                // `-n` counts for each client.
                let each = requests.div_ceil(settings.clients * settings.threads);
                command.args(["-n", &each.to_string()]);
                None
            }
            (duration, _) => {
                let duration = duration
                    .or(settings.duration)
                    .unwrap_or(Duration::from_secs(10));
                let whole = super::wrk::whole_seconds(duration).as_secs();
                command.arg(format!("--test-time={whole}"));
                Some(duration)
            }
        };
        let limit = duration.map_or(settings.limit, |duration| {
            duration + Duration::from_secs(30)
        });
        let printed = tool::run_job(&mut command, job, limit)?;
        printed.expect_success(&command)?;
        let text = std::fs::read_to_string(&report).map_err(Error::file(&report))?;
        let rows = rows(&text).map_err(|why| tool::not_understood("memtier", &why, &text))?;
        Ok(Outcome {
            rows,
            command: tool::shown_job(&command, job),
            raw: format!("{}\n--- report ---\n{text}", printed.raw()),
        })
    }
}

#[derive(Debug, Deserialize)]
struct Report {
    #[serde(rename = "ALL STATS")]
    all: All,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct All {
    runtime: Runtime,
    sets: Option<Stats>,
    gets: Option<Stats>,
    totals: Stats,
}

#[derive(Debug, Deserialize)]
struct Runtime {
    #[serde(rename = "Total duration")]
    total: u64,
    #[serde(rename = "Time unit")]
    unit: String,
}

/// Times are ms.
#[derive(Debug, Deserialize)]
struct Stats {
    #[serde(rename = "Count")]
    count: u64,
    #[serde(rename = "Average Latency", alias = "Latency")]
    average: f64,
    #[serde(rename = "Max Latency")]
    max: f64,
    #[serde(rename = "Percentile Latencies")]
    percentiles: Percentiles,
    #[serde(rename = "Connection Errors", default)]
    connection_errors: u64,
}

#[derive(Debug, Deserialize)]
struct Percentiles {
    #[serde(rename = "p50.00")]
    p50: f64,
    #[serde(rename = "p99.00")]
    p99: f64,
    #[serde(rename = "p99.90")]
    p999: f64,
}

fn rows(text: &str) -> std::result::Result<Vec<Row>, String> {
    let report: Report = serde_json::from_str(text).map_err(|why| why.to_string())?;
    let all = report.all;
    if all.runtime.unit != "MILLISECONDS" {
        return Err(format!("times in {}", all.runtime.unit));
    }
    let took = Duration::from_millis(all.runtime.total);
    let mut rows = Vec::new();
    for (name, stats) in [
        ("all", Some(all.totals)),
        ("SET", all.sets),
        ("GET", all.gets),
    ] {
        let Some(stats) = stats.filter(|stats| stats.count > 0 || name == "all") else {
            continue;
        };
        let mut metrics = BTreeMap::new();
        if stats.count > 0 {
            for (metric, value) in [
                ("latency_mean_ms", stats.average),
                ("latency_p50_ms", stats.percentiles.p50),
                ("latency_p99_ms", stats.percentiles.p99),
                ("latency_p999_ms", stats.percentiles.p999),
                ("latency_max_ms", stats.max),
            ] {
                if !(0.0..=86_400_000.0).contains(&value) {
                    return Err(format!("{metric} of {value}"));
                }
                metrics.insert(metric.to_owned(), value);
            }
        }
        let mut errors = BTreeMap::new();
        if stats.connection_errors > 0 {
            errors.insert("connect".to_owned(), stats.connection_errors);
        }
        rows.push(Row {
            label: BTreeMap::from([("test".to_owned(), name.to_owned())]),
            answers: stats.count,
            took,
            errors,
            latency: None,
            metrics,
            series: BTreeMap::new(),
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::rows;

    /// Not recorded here: the fields are those that memtier_benchmark 1.4 to 2.1 write and others read.
    const RUN: &str = r#"{
  "configuration": {"server": "127.0.0.1"},
  "ALL STATS": {
    "Runtime": {"Start time": 1000, "Finish time": 3000, "Total duration": 2000, "Time unit": "MILLISECONDS"},
    "Sets": {"Count": 100, "Ops/sec": 50.0, "Average Latency": 0.5, "Min Latency": 0.1, "Max Latency": 9.5, "KB/sec": 1.0,
      "Percentile Latencies": {"p50.00": 0.4, "p99.00": 5.0, "p99.90": 9.0}},
    "Gets": {"Count": 0, "Ops/sec": 0.0, "Average Latency": 0.0, "Min Latency": 0.0, "Max Latency": 0.0, "KB/sec": 0.0,
      "Percentile Latencies": {"p50.00": 0.0, "p99.00": 0.0, "p99.90": 0.0}},
    "Waits": {"Count": 0},
    "Totals": {"Count": 100, "Ops/sec": 50.0, "Average Latency": 0.5, "Min Latency": 0.1, "Max Latency": 9.5, "KB/sec": 1.0,
      "Percentile Latencies": {"p50.00": 0.4, "p99.00": 5.0, "p99.90": 9.0}}
  }
}"#;

    #[test]
    fn a_run_is_read() {
        let rows = rows(RUN).unwrap();
        let tests: Vec<&str> = rows.iter().map(|row| row.label["test"].as_str()).collect();
        assert_eq!(tests, ["all", "SET"]);
        assert_eq!((rows[0].answers, rows[0].took.as_secs()), (100, 2));
        assert!((rows[0].metrics["latency_p999_ms"] - 9.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (from, to) in [
            ("MILLISECONDS", "SECONDS"),
            ("p99.00", "p99"),
            ("\"Average Latency\": 0.5", "\"Average Latency\": -0.5"),
            ("Totals", "Sums"),
        ] {
            assert!(rows(&RUN.replace(from, to)).is_err(), "{from}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_does_not_panic(text in crate::load::mutated::mutated(RUN)) {
            if let Ok(rows) = rows(&text) {
                proptest::prop_assert!(rows.iter().all(crate::load::mutated::is_sane));
            }
        }
    }
}
