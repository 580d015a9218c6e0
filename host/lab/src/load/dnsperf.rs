// SPDX-License-Identifier: Apache-2.0

//! dnsperf: UDP queries at up to a given rate, with a bound on the queries under way (100): when that many are, it waits,
//! and does not count the wait.

use std::collections::BTreeMap;
use std::time::Duration;

use super::parameters::Parameters;
use super::tool::{self, Tool};
use super::units::{parse_int, parse_number, seconds};
use super::{Generator, Job, Outcome, Point, Row};
use crate::{Error, Result};

const TOOL: Tool = Tool::packaged("dnsperf", "dnsperf");

/// dnsperf.
#[derive(Debug)]
pub(super) struct Dnsperf;

const KNOWN: &[&str] = &[
    "query_file",
    "connections",
    "threads",
    "duration_s",
    "rate_per_s",
    "timeout_s",
    "outstanding",
];

struct Settings<'a> {
    query_file: &'a str,
    connections: u64,
    threads: u64,
    duration: Duration,
    rate_per_s: Option<f64>,
    timeout: Duration,
    outstanding: Option<u64>,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("dnsperf", KNOWN, point)?;
    let connections = parameters.count_to("connections", 10_000)?.unwrap_or(1);
    let threads = parameters.count_to("threads", 256)?.unwrap_or(1);
    if threads > connections {
        return Err(Error::Input(format!(
            "dnsperf: {threads} `threads` need at least as many `connections`, not {connections}"
        )));
    }
    Ok(Settings {
        query_file: parameters.text("query_file")?.ok_or_else(|| {
            Error::Input(
                "dnsperf: `query_file` is missing: lines such as `example.com A`".to_owned(),
            )
        })?,
        connections,
        threads,
        duration: parameters
            .seconds("duration_s")?
            .unwrap_or(Duration::from_secs(10)),
        rate_per_s: parameters.number("rate_per_s")?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(5)),
        outstanding: parameters.count_to("outstanding", 65_536)?,
    })
}

impl Generator for Dnsperf {
    fn name(&self) -> &'static str {
        "dnsperf"
    }

    fn method(&self) -> &'static str {
        "at most the given rate (without one: as fast as answers come), and a bounded number of queries under way; a query's \
         time counts from its sending; any answer but SERVFAIL, REFUSED, FORMERR and NOTIMP is right"
    }

    fn package(&self) -> Option<&'static str> {
        TOOL.package
    }

    fn find(&self) -> Result<String> {
        let text = TOOL.about("-h")?;
        // 2.10 says it in the head of each output but this one; the statistics have not changed since 2.1.
        if text.contains("Usage: dnsperf") {
            Ok(version(&TOOL.about("-H")?).unwrap_or_else(|| "dnsperf".to_owned()))
        } else {
            Err(Error::Host(
                "`dnsperf -h` does not say how to use it".to_owned(),
            ))
        }
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let queries = job.experiment.join(settings.query_file);
        if !queries.is_file() {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::file(queries)(missing));
        }
        let duration = job.duration.unwrap_or(settings.duration);
        let mut command = TOOL.command()?;
        command
            .args(["-s", &job.target.ip().to_string()])
            .args(["-p", &job.target.port().to_string()])
            .arg("-d")
            .arg(&queries)
            .args(["-l", &format!("{:.3}", duration.as_secs_f64())])
            .args(["-T", &settings.threads.to_string()])
            .args(["-c", &settings.connections.to_string()])
            .args(["-t", &format!("{:.3}", settings.timeout.as_secs_f64())]);
        let rate_per_s = job.rate_per_s.or(settings.rate_per_s);
        if let Some(rate) = rate_per_s {
            // It takes whole numbers only.
            command.args(["-Q", &format!("{:.0}", rate.max(1.0))]);
        }
        if let Some(outstanding) = settings.outstanding {
            command.args(["-q", &outstanding.to_string()]);
        }
        let limit = duration + settings.timeout + Duration::from_secs(30);
        let printed = tool::run_job(&mut command, job, limit)?;
        printed.expect_success(&command)?;
        let raw = printed.raw();
        let mut row =
            row(&printed.stdout).map_err(|why| tool::not_understood("dnsperf", &why, &raw))?;
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

fn version(text: &str) -> Option<String> {
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("Version "))?;
    Some(format!("dnsperf {}", version.trim()))
}

/// Codes of answers that a server gives when it could not do its work.
const WRONG: &[&str] = &["SERVFAIL", "REFUSED", "FORMERR", "NOTIMP"];

fn row(text: &str) -> std::result::Result<Row, String> {
    let mut lines = text.lines().skip_while(|line| *line != "Statistics:");
    lines.next().ok_or("no statistics in it")?;
    let mut numbers: BTreeMap<&str, f64> = BTreeMap::new();
    let mut errors = BTreeMap::new();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let unknown = || format!("unknown line `{line}`");
        let (name, value) = line.trim().split_once(':').ok_or_else(unknown)?;
        let words: Vec<&str> = value.split_whitespace().collect();
        let share = |text: &str| text.starts_with('(') && text.ends_with("%)");
        match (name, &words[..]) {
            (
                "Queries sent" | "Queries completed" | "Queries lost" | "Queries interrupted",
                [count, rest @ ..],
            ) if rest.iter().all(|word| share(word)) => {
                counts.insert(name, parse_int(count).ok_or_else(unknown)?);
            }
            ("Response codes", _) => {
                for part in value
                    .split(',')
                    .map(str::trim)
                    .filter(|part| !part.is_empty())
                {
                    let words: Vec<&str> = part.split_whitespace().collect();
                    let [code, count, last] = words[..] else {
                        return Err(unknown());
                    };
                    let count = parse_int(count)
                        .filter(|_| share(last))
                        .ok_or_else(unknown)?;
                    if WRONG.contains(&code) {
                        errors.insert(code.to_owned(), count);
                    }
                }
            }
            ("Run time (s)" | "Queries per second" | "Latency StdDev (s)", [value]) => {
                numbers.insert(name, parse_number(value).ok_or_else(unknown)?);
            }
            ("Average Latency (s)", [mean, "(min", min, "max", max]) => {
                parse_number(min.trim_end_matches(',')).ok_or_else(unknown)?;
                let max = max.trim_end_matches(')');
                numbers.insert("mean", parse_number(mean).ok_or_else(unknown)?);
                numbers.insert("max", parse_number(max).ok_or_else(unknown)?);
            }
            ("Average packet size", _) => {}
            _ => return Err(unknown()),
        }
    }
    let count = |name: &str| {
        counts
            .get(name)
            .copied()
            .ok_or_else(|| format!("no line `{name}`"))
    };
    let lost = count("Queries lost")? + counts.get("Queries interrupted").copied().unwrap_or(0);
    let wrong: u64 = errors.values().sum();
    let answers = count("Queries completed")?
        .checked_sub(wrong)
        .ok_or("more wrong answers than answers")?;
    count("Queries sent")?;
    if lost > 0 {
        errors.insert("lost".to_owned(), lost);
    }
    let took = numbers
        .get("Run time (s)")
        .and_then(|value| seconds(*value))
        .ok_or("no line `Run time (s)`")?;
    let mut metrics = BTreeMap::new();
    let (mean, max) = numbers
        .get("mean")
        .zip(numbers.get("max"))
        .ok_or("no line `Average Latency (s)`")?;
    if answers > 0 {
        metrics.insert("latency_mean_ms".to_owned(), mean * 1e3);
        metrics.insert("latency_max_ms".to_owned(), max * 1e3);
    }
    Ok(Row {
        label: BTreeMap::new(),
        answers,
        took,
        errors,
        latency: None,
        metrics,
        series: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::{row, version};

    const RUN: &str = include_str!("../../tests/recorded/dnsperf-2.10.0.txt");

    #[test]
    fn a_run_is_read() {
        let row = row(RUN).unwrap();
        assert_eq!((row.answers, row.errors["lost"]), (392, 8));
        assert!((row.took.as_secs_f64() - 2.000_119).abs() < 1e-9);
        assert!((row.metrics["latency_mean_ms"] - 0.056).abs() < 1e-9);
        assert!((row.metrics["latency_max_ms"] - 3.063).abs() < 1e-9);
        assert_eq!(version(RUN).unwrap(), "dnsperf 2.10.0");
    }

    #[test]
    fn a_server_in_trouble_is_an_error() {
        let row = row(&RUN.replace("NXDOMAIN 192", "SERVFAIL 192")).unwrap();
        assert_eq!((row.answers, row.errors["SERVFAIL"]), (200, 192));
    }

    #[test]
    fn nothing_answered_has_no_times() {
        let text = include_str!("../../tests/recorded/dnsperf-2.10.0-silent.txt");
        let row = row(text).unwrap();
        assert_eq!((row.answers, row.errors["lost"]), (0, 100));
        assert!(row.metrics.is_empty());
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (from, to) in [
            ("Statistics:", "Numbers:"),
            ("Latency (s)", "Latency (ms)"),
            ("Run time (s)", "Run time (m)"),
            ("Queries lost", "Queries gone"),
            ("(51.02%)", "(51.02)"),
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
