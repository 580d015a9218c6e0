// SPDX-License-Identifier: Apache-2.0

//! oha: HTTP, open loop when a rate is given (with its latency correction), closed loop when not.
//! `cargo install oha`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::parameters::Parameters;
use super::tool::{self, Tool};
use super::units::{parse_int, seconds};
use super::{Generator, Job, Outcome, Point, Row};
use crate::Result;

const TOOL: Tool = Tool {
    program: "oha",
    package: None,
    otherwise: "`cargo install oha`; the lab's own `rate` does the same",
};

/// oha.
#[derive(Debug)]
pub(super) struct Oha;

const KNOWN: &[&str] = &[
    "connections",
    "requests",
    "duration_s",
    "path",
    "timeout_s",
    "rate_per_s",
    "limit_s",
];

struct Settings<'a> {
    connections: u64,
    requests: Option<u64>,
    duration: Option<Duration>,
    path: &'a str,
    timeout: Duration,
    rate_per_s: Option<f64>,
    limit: Duration,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("oha", KNOWN, point)?;
    Ok(Settings {
        connections: parameters.count_to("connections", 100_000)?.unwrap_or(10),
        requests: parameters.count("requests")?,
        duration: parameters.seconds("duration_s")?,
        path: parameters.path()?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(5)),
        rate_per_s: parameters.number("rate_per_s")?,
        limit: parameters
            .seconds("limit_s")?
            .unwrap_or(Duration::from_secs(900)),
    })
}

impl Generator for Oha {
    fn name(&self) -> &'static str {
        "oha"
    }

    fn method(&self) -> &'static str {
        "with a rate: open loop, a request's time counts from when it was due; without one: closed loop"
    }

    fn find(&self) -> Result<String> {
        let version = TOOL.about("--version")?;
        let version = version.trim().trim_start_matches("oha ").to_owned();
        // `--output-format` replaced `--json` with 1.9; both have the same fields since 1.0.
        tool::at_least("oha", &version, &[1, 0])?;
        Ok(format!("oha {version}"))
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let mut command = TOOL.command()?;
        command.arg("--no-tui");
        if TOOL.about("--help")?.contains("--output-format") {
            command.args(["--output-format", "json"]);
        } else {
            command.arg("--json");
        }
        let duration = match (job.duration, settings.requests) {
            (None, Some(requests)) => {
                command.args(["-n", &requests.to_string()]);
                None
            }
            (duration, _) => {
                let duration = duration
                    .or(settings.duration)
                    .unwrap_or(Duration::from_secs(10));
                command.args(["-z", &format!("{}ms", duration.as_millis())]);
                Some(duration)
            }
        };
        command
            .args(["-c", &settings.connections.to_string()])
            .args(["-t", &format!("{}ms", settings.timeout.as_millis())]);
        let rate_per_s = job.rate_per_s.or(settings.rate_per_s);
        if let Some(rate) = rate_per_s {
            // Whole numbers are what all versions take.
            command.args([
                "-q",
                &format!("{:.0}", rate.max(1.0)),
                "--latency-correction",
            ]);
        }
        command.arg(format!("http://{}{}", job.target, settings.path));
        let limit = duration.map_or(settings.limit, |duration| {
            duration + settings.timeout + Duration::from_secs(30)
        });
        let printed = tool::run_job(&mut command, job, limit)?;
        printed.expect_success(&command)?;
        let raw = printed.raw();
        let mut row =
            row(&printed.stdout).map_err(|why| tool::not_understood("oha", &why, &raw))?;
        if let Some(rate) = rate_per_s {
            row.metrics.insert("offered_per_s".to_owned(), rate);
        }
        Ok(Outcome {
            rows: vec![row],
            command: tool::shown_job(&command, job),
            raw,
        })
    }
}

/// What it prints as JSON; all times are seconds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    summary: Summary,
    latency_percentiles: BTreeMap<String, Option<f64>>,
    status_code_distribution: BTreeMap<String, u64>,
    #[serde(default)]
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    total: f64,
    /// `null` when nothing was answered.
    slowest: Option<f64>,
    average: Option<f64>,
}

/// What was under way when the time was over is no error.
const AT_THE_END: &str = "aborted due to deadline";

fn row(text: &str) -> std::result::Result<Row, String> {
    let report: Report = serde_json::from_str(text).map_err(|why| why.to_string())?;
    let mut answers = 0_u64;
    let mut errors = report.error_distribution;
    errors.remove(AT_THE_END);
    for (code, count) in report.status_code_distribution {
        let number = code.split(' ').next().and_then(parse_int);
        match number.ok_or_else(|| format!("status `{code}`"))? {
            200..400 => answers = answers.checked_add(count).ok_or("too many answers")?,
            number => {
                errors.insert(format!("status {number}"), count);
            }
        }
    }
    let mut metrics = BTreeMap::new();
    if answers > 0 {
        let percentile = |name: &str| {
            let value = report.latency_percentiles.get(name).copied().flatten();
            value.ok_or_else(|| format!("no percentile `{name}`"))
        };
        for (name, value) in [
            (
                "latency_mean_ms",
                report.summary.average.ok_or("no average")?,
            ),
            ("latency_p50_ms", percentile("p50")?),
            ("latency_p90_ms", percentile("p90")?),
            ("latency_p99_ms", percentile("p99")?),
            ("latency_p999_ms", percentile("p99.9")?),
            (
                "latency_max_ms",
                report.summary.slowest.ok_or("no slowest")?,
            ),
        ] {
            // Above a day it is no time of a request.
            if !(0.0..=86_400.0).contains(&value) {
                return Err(format!("{name} of {value} s"));
            }
            metrics.insert(name.to_owned(), value * 1e3);
        }
    }
    Ok(Row {
        label: BTreeMap::new(),
        answers,
        took: seconds(report.summary.total).ok_or("a total time that cannot be")?,
        errors,
        latency: None,
        metrics,
        series: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::row;

    /// Not recorded here: the fields are those that oha 1.16 writes.
    const RUN: &str = r#"{
  "summary": {"successRate": 1.0, "total": 2.0, "slowest": 0.25, "fastest": 0.001, "average": 0.002,
    "requestsPerSec": 505.0, "totalData": 2000, "sizePerRequest": 2, "sizePerSec": 1000.0},
  "responseTimeHistogram": {"0.001": 900, "0.25": 100},
  "latencyPercentiles": {"p10": 0.001, "p25": 0.001, "p50": 0.0015, "p75": 0.002, "p90": 0.003, "p95": 0.004,
    "p99": 0.005, "p99.9": 0.1, "p99.99": 0.2},
  "rps": {"mean": 500.0, "stddev": 1.0, "max": 600.0, "min": 400.0, "percentiles": {"p50": 500.0}},
  "details": {"DNSDialup": {"average": 0.001, "fastest": 0.001, "slowest": 0.001}},
  "statusCodeDistribution": {"200": 1000, "503": 5},
  "errorDistribution": {"aborted due to deadline": 5, "operation timed out": 2}
}"#;

    #[test]
    fn a_run_is_read() {
        let row = row(RUN).unwrap();
        assert_eq!((row.answers, row.took.as_secs()), (1000, 2));
        assert_eq!(row.errors.len(), 2);
        assert_eq!(
            (row.errors["status 503"], row.errors["operation timed out"]),
            (5, 2)
        );
        assert!((row.metrics["latency_p50_ms"] - 1.5).abs() < 1e-9);
        assert!((row.metrics["latency_max_ms"] - 250.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_answered_has_no_times() {
        let text = RUN
            .replace("\"200\": 1000, ", "")
            .replace("0.25, \"fastest\"", "null, \"fastest\"");
        assert!(row(&text).unwrap().metrics.is_empty());
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (from, to) in [
            ("latencyPercentiles", "latencies"),
            ("\"p99\"", "\"p98\""),
            ("\"total\": 2.0", "\"total\": -2.0"),
            ("\"200\"", "\"OK\""),
            ("0.0015", "null"),
        ] {
            assert!(row(&RUN.replace(from, to)).is_err(), "{from}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_printed_does_not_panic(text in crate::load::mutated::mutated(RUN)) {
            if let Ok(row) = row(&text) {
                proptest::prop_assert!(crate::load::mutated::is_sane(&row));
            }
        }
    }
}
