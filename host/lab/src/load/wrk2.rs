// SPDX-License-Identifier: Apache-2.0

//! wrk2: HTTP at a constant rate, open loop. Its histogram (`-L`) begins only after ten seconds, in which it finds out how
//! often to look; a run should be much longer. It is not packaged: <https://github.com/giltene/wrk2>, built as `wrk2`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::parameters::Parameters;
use super::tool::{self, Tool};
use super::units::{parse_int, parse_number, time_ns};
use super::wrk::whole_seconds;
use super::{Generator, Job, Outcome, Point, Row, histogram};
use crate::{Error, Result};

const TOOL: Tool = Tool {
    program: "wrk2",
    package: None,
    otherwise: "build https://github.com/giltene/wrk2 and put its `wrk` on PATH as `wrk2`; the lab's own `rate` does the same",
};

/// wrk2.
#[derive(Debug)]
pub(super) struct Wrk2;

const KNOWN: &[&str] = &[
    "connections",
    "threads",
    "duration_s",
    "path",
    "timeout_s",
    "rate_per_s",
];

struct Settings<'a> {
    connections: u64,
    threads: u64,
    duration: Duration,
    path: &'a str,
    timeout: Duration,
    rate_per_s: Option<f64>,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("wrk2", KNOWN, point)?;
    let connections = parameters.count_to("connections", 100_000)?.unwrap_or(10);
    let threads = parameters.count_to("threads", 256)?.unwrap_or(1);
    if threads > connections {
        return Err(Error::Input(format!(
            "wrk2: {threads} `threads` need at least as many `connections`, not {connections}"
        )));
    }
    Ok(Settings {
        connections,
        threads,
        duration: parameters
            .seconds("duration_s")?
            .unwrap_or(Duration::from_secs(30)),
        path: parameters.path()?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(5)),
        rate_per_s: parameters.number("rate_per_s")?,
    })
}

impl Generator for Wrk2 {
    fn name(&self) -> &'static str {
        "wrk2"
    }

    fn method(&self) -> &'static str {
        "open loop at a constant rate, a request's time counts from when it was due; without the first ten seconds"
    }

    fn find(&self) -> Result<String> {
        let text = TOOL.about("-v")?;
        if text.contains("--rate") {
            Ok("wrk2".to_owned())
        } else {
            Err(Error::Host(
                "the `wrk2` on PATH has no option --rate: it is another program".to_owned(),
            ))
        }
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let duration = whole_seconds(job.duration.unwrap_or(settings.duration));
        let rate_per_s = job.rate_per_s.or(settings.rate_per_s).ok_or_else(|| {
            Error::Input("wrk2: `rate_per_s` is missing: how many requests a second?".to_owned())
        })?;
        let mut command = TOOL.command()?;
        command
            .arg(format!("-t{}", settings.threads))
            .arg(format!("-c{}", settings.connections))
            .arg(format!("-d{}s", duration.as_secs()))
            .arg(format!("-R{:.0}", rate_per_s.max(1.0)))
            .args(["-L", "--timeout"])
            .arg(format!("{}s", whole_seconds(settings.timeout).as_secs()))
            .arg(format!("http://{}{}", job.target, settings.path));
        let limit = duration + settings.timeout + Duration::from_secs(30);
        let printed = tool::run_job(&mut command, job, limit)?;
        printed.expect_success(&command)?;
        let raw = printed.raw();
        let mut row =
            row(&printed.stdout).map_err(|why| tool::not_understood("wrk2", &why, &raw))?;
        row.metrics.insert("offered_per_s".to_owned(), rate_per_s);
        Ok(Outcome {
            rows: vec![row],
            command: tool::shown_job(&command, job),
            raw,
        })
    }
}

fn row(text: &str) -> std::result::Result<Row, String> {
    let mut latency = histogram();
    let mut counted = 0;
    let mut total = None;
    let mut requests = None;
    let mut errors = BTreeMap::new();
    let mut wrong = 0;
    for line in text.lines() {
        let unknown = || format!("unknown line `{line}`");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] | ["Running", ..] | ["Thread", "Stats" | "calibration:", ..] => {}
            [_, "threads", "and", _, "connections"] => {}
            ["Latency", "Distribution", ..] | ["Detailed", "Percentile", "spectrum:"] => {}
            ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"] => {}
            ["Latency", _, _, _, _] | ["Req/Sec", _, _, _, _] | ["Transfer/sec:", _] => {}
            ["Requests/sec:", rate] => {
                parse_number(rate).ok_or_else(unknown)?;
            }
            // A line of the spectrum, in ms: so many answers took at most so long.
            [value, share, count, last] if last == "inf" || parse_number(last).is_some() => {
                let ms = parse_number(value).ok_or_else(unknown)?;
                parse_number(share).ok_or_else(unknown)?;
                let count = parse_int(count).ok_or_else(unknown)?;
                let more = count.checked_sub(counted).ok_or_else(unknown)?;
                let ns = Duration::try_from_secs_f64(ms / 1e3).map_err(|_| unknown())?;
                latency
                    .record_n(super::engine::nanoseconds(ns), more)
                    .map_err(|_| unknown())?;
                counted = count;
            }
            [share, time] if share.ends_with('%') => {
                time_ns(time).ok_or_else(unknown)?;
            }
            ["#[Mean", ..] | ["#[Buckets", ..] => {}
            ["#[Max", "=", _, "Total", "count", "=", count] => {
                total = Some(parse_int(count.trim_end_matches(']')).ok_or_else(unknown)?);
            }
            [rule] if rule.bytes().all(|byte| byte == b'-') => {}
            [count, "requests", "in", took, _, "read"] => {
                let took = time_ns(took.trim_end_matches(',')).ok_or_else(unknown)?;
                let took = Duration::try_from_secs_f64(took / 1e9).map_err(|_| unknown())?;
                requests = Some((parse_int(count).ok_or_else(unknown)?, took));
            }
            [
                "Socket",
                "errors:",
                "connect",
                connect,
                "read",
                read,
                "write",
                write,
                "timeout",
                timeout,
            ] => {
                for (kind, count) in [
                    ("connect", connect),
                    ("read", read),
                    ("write", write),
                    ("timeout", timeout),
                ] {
                    let count = parse_int(count.trim_end_matches(',')).ok_or_else(unknown)?;
                    if count > 0 {
                        errors.insert(kind.to_owned(), count);
                    }
                }
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => {
                wrong = parse_int(count).ok_or_else(unknown)?;
                errors.insert("status".to_owned(), wrong);
            }
            _ => return Err(unknown()),
        }
    }
    if total.ok_or("no line `#[Max ... Total count`")? != counted {
        return Err("its spectrum is not complete".to_owned());
    }
    let (requests, took) = requests.ok_or("no line `N requests in ...`")?;
    Ok(Row {
        label: BTreeMap::new(),
        answers: requests
            .checked_sub(wrong)
            .ok_or("more wrong answers than answers")?,
        took,
        errors,
        latency: Some(latency),
        metrics: BTreeMap::new(),
        series: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::row;

    /// Not recorded here: the form is that of wrk2's README, shortened.
    const RUN: &str = "\
Running 30s test @ http://127.0.0.1:80/index.html
  2 threads and 100 connections
  Thread calibration: mean lat.: 1.769ms, rate sampling interval: 10ms
  Thread Stats   Avg      Stdev     99%   +/- Stdev
    Latency     6.60ms    1.92ms  12.40ms   68.67%
    Req/Sec     1.05k     1.12k    2.50k    64.84%
  Latency Distribution (HdrHistogram - Recorded Latency)
 50.000%    6.67ms
 99.000%   11.93ms
100.000%   12.50ms

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       0.921     0.000000            1         1.00
       6.671     0.500000        19783         2.00
      11.935     0.990625        39130       106.67
      12.503     1.000000        39500          inf
#[Mean    =        6.602, StdDeviation   =        1.919]
#[Max     =       12.496, Total count    =        39500]
#[Buckets =           27, SubBuckets     =         2048]
----------------------------------------------------------
  60018 requests in 30.00s, 19.81MB read
  Socket errors: connect 0, read 0, write 0, timeout 7
  Non-2xx or 3xx responses: 18
Requests/sec:   2000.28
Transfer/sec:    676.18KB
";

    #[test]
    fn a_run_is_read() {
        let row = row(RUN).unwrap();
        assert_eq!((row.answers, row.took.as_secs()), (60_000, 30));
        assert_eq!((row.errors["timeout"], row.errors["status"]), (7, 18));
        let latency = row.latency.unwrap();
        assert_eq!(latency.len(), 39_500);
        let p50_ms = latency.value_at_quantile(0.5) as f64 / 1e6;
        assert!((p50_ms / 6.671 - 1.0).abs() < 0.002, "{p50_ms}");
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (from, to) in [
            ("39500          inf", "39499          inf"),
            ("19783", "99783"),
            ("6.67ms", "6.67"),
            ("Running", "Walking"),
            ("60018 requests", "1 requests"),
        ] {
            assert!(row(&RUN.replace(from, to)).is_err(), "{from}");
        }
        assert!(row("").is_err());
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
