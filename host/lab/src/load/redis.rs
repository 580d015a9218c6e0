// SPDX-License-Identifier: Apache-2.0

//! redis-benchmark: each of its tests asks for one command, in a closed loop over kept connections, with `pipeline`
//! requests under way on each. One row for each test.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::parameters::{Parameters, hint};
use super::tool::{self, Tool};
use super::units::{parse_number, seconds};
use super::{Generator, Job, Outcome, Point, Row};
use crate::{Error, Result};

const TOOL: Tool = Tool::packaged("redis-benchmark", "redis-tools");

/// redis-benchmark.
#[derive(Debug)]
pub(super) struct RedisBenchmark;

const KNOWN: &[&str] = &[
    "connections",
    "pipeline",
    "requests",
    "tests",
    "threads",
    "data_bytes",
    "keyspace",
    "limit_s",
];

/// What `-t` takes.
const TESTS: &[&str] = &[
    "ping",
    "ping_inline",
    "ping_mbulk",
    "set",
    "get",
    "incr",
    "lpush",
    "rpush",
    "lpop",
    "rpop",
    "sadd",
    "hset",
    "spop",
    "zadd",
    "zpopmin",
    "lrange",
    "lrange_100",
    "lrange_300",
    "lrange_500",
    "lrange_600",
    "mset",
    "xadd",
];

struct Settings<'a> {
    connections: u64,
    pipeline: u64,
    requests: u64,
    threads: Option<u64>,
    data_bytes: Option<u64>,
    keyspace: Option<u64>,
    tests: Option<&'a str>,
    limit: Duration,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("redis-benchmark", KNOWN, point)?;
    let tests = parameters.word("tests")?;
    for test in tests.iter().flat_map(|tests| tests.split(',')) {
        if !TESTS.contains(&test) {
            return Err(Error::Input(format!(
                "redis-benchmark has no test `{test}`{}",
                hint(test, TESTS)
            )));
        }
    }
    Ok(Settings {
        connections: parameters.count_to("connections", 100_000)?.unwrap_or(50),
        pipeline: parameters.count_to("pipeline", 10_000)?.unwrap_or(1),
        requests: parameters.count("requests")?.unwrap_or(100_000),
        threads: parameters.count_to("threads", 256)?,
        data_bytes: parameters.count_to("data_bytes", 1 << 30)?,
        keyspace: parameters.count("keyspace")?,
        tests,
        limit: parameters
            .seconds("limit_s")?
            .unwrap_or(Duration::from_secs(900)),
    })
}

impl Generator for RedisBenchmark {
    fn name(&self) -> &'static str {
        "redis-benchmark"
    }

    fn method(&self) -> &'static str {
        "closed loop; with a pipeline the response time is that of the whole pipeline"
    }

    fn package(&self) -> Option<&'static str> {
        TOOL.package
    }

    fn find(&self) -> Result<String> {
        let text = TOOL.about("--version")?;
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("redis-benchmark "))
            .and_then(|rest| rest.split_whitespace().next())
            .ok_or_else(|| {
                Error::Host("`redis-benchmark --version` does not say its version".to_owned())
            })?;
        tool::at_least("redis-benchmark", version, &[3])?;
        Ok(format!("redis-benchmark {version}"))
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    /// With `job.duration` it is run again and again, with a tenth of the requests, until the time is over.
    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let begin = Instant::now();
        let Some(duration) = job.duration else {
            return once(&settings, settings.requests, job);
        };
        let least = settings.connections.saturating_mul(settings.pipeline);
        let requests = (settings.requests / 10).max(least).max(1);
        let mut sum = once(&settings, requests, job)?;
        while begin.elapsed() < duration {
            let next = once(&settings, requests, job)?;
            add(&mut sum, next)?;
        }
        Ok(sum)
    }
}

fn once(settings: &Settings<'_>, requests: u64, job: &Job<'_>) -> Result<Outcome> {
    let mut command = TOOL.command()?;
    command
        .arg("--csv")
        .args(["-h", &job.target.ip().to_string()])
        .args(["-p", &job.target.port().to_string()])
        .args(["-c", &settings.connections.to_string()])
        .args(["-P", &settings.pipeline.to_string()])
        .args(["-n", &requests.to_string()]);
    for (flag, value) in [
        ("-d", settings.data_bytes),
        ("-r", settings.keyspace),
        ("--threads", settings.threads),
    ] {
        if let Some(value) = value {
            command.args([flag, &value.to_string()]);
        }
    }
    if let Some(tests) = settings.tests {
        command.args(["-t", tests]);
    }
    let printed = tool::run_job(&mut command, job, settings.limit)?;
    printed.expect_success(&command)?;
    let raw = printed.raw();
    let rows = rows(&printed.stdout, requests)
        .map_err(|why| tool::not_understood("redis-benchmark", &why, &raw))?;
    Ok(Outcome {
        rows,
        command: tool::shown_job(&command, job),
        raw,
    })
}

/// Adds the answers of a further run of the same tests. Percentiles cannot be added: the last ones stay out.
fn add(sum: &mut Outcome, next: Outcome) -> Result<()> {
    if sum.rows.len() != next.rows.len() {
        return Err(tool::not_understood(
            "redis-benchmark",
            "two runs with different tests",
            &next.raw,
        ));
    }
    for (row, more) in sum.rows.iter_mut().zip(next.rows) {
        row.answers += more.answers;
        row.took += more.took;
        row.metrics.clear();
    }
    sum.raw.push_str(&next.raw);
    Ok(())
}

/// The rows of `--csv`. Since 6.2 there is a head, and there are response times; before, test and rate only.
fn rows(text: &str, requests: u64) -> std::result::Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let unknown = || format!("unknown line `{line}`");
        // Names of tests contain commas, but no quotation marks.
        let cells: Vec<&str> = line
            .strip_prefix('"')
            .and_then(|line| line.strip_suffix('"'))
            .ok_or_else(unknown)?
            .split("\",\"")
            .collect();
        if cells[0] == "test" {
            if cells != HEAD {
                return Err(format!("other columns: `{line}`"));
            }
            continue;
        }
        let [test, rate, times @ ..] = &cells[..] else {
            return Err(unknown());
        };
        let mut metrics = BTreeMap::new();
        if !times.is_empty() {
            let [mean, _, p50, p95, p99, max] = times else {
                return Err(unknown());
            };
            for (name, value) in [
                ("latency_mean_ms", mean),
                ("latency_p50_ms", p50),
                ("latency_p95_ms", p95),
                ("latency_p99_ms", p99),
                ("latency_max_ms", max),
            ] {
                metrics.insert(name.to_owned(), parse_number(value).ok_or_else(unknown)?);
            }
        }
        let rate = parse_number(rate)
            .filter(|rate| *rate > 0.0)
            .ok_or_else(unknown)?;
        // It fills a list for LRANGE, and shows that as a test.
        if test.contains("needed to benchmark") {
            continue;
        }
        rows.push(Row {
            label: BTreeMap::from([("test".to_owned(), label(test))]),
            answers: requests,
            took: took(requests, rate).ok_or_else(unknown)?,
            errors: BTreeMap::new(),
            latency: None,
            metrics,
            series: BTreeMap::new(),
        });
    }
    if rows.is_empty() {
        return Err("no test in it".to_owned());
    }
    Ok(rows)
}

const HEAD: [&str; 8] = [
    "test",
    "rps",
    "avg_latency_ms",
    "min_latency_ms",
    "p50_latency_ms",
    "p95_latency_ms",
    "p99_latency_ms",
    "max_latency_ms",
];

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn took(requests: u64, rate: f64) -> Option<Duration> {
    seconds(requests as f64 / rate)
}

/// The test as one word: "LRANGE_100 (first 100 elements)" is LRANGE_100, and "PING_MBULK" has its old name PING_BULK.
fn label(test: &str) -> String {
    match test.split(' ').next().unwrap_or(test) {
        "PING_MBULK" => "PING_BULK".to_owned(),
        word => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{rows, settings};

    const ALL: &str = include_str!("../../tests/recorded/redis-benchmark-7.0.15.csv");

    #[test]
    fn the_tests_of_the_study_are_found_by_their_names() {
        let rows = rows(ALL, 1000).unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.label["test"].as_str()).collect();
        for name in [
            "PING_INLINE",
            "PING_BULK",
            "SET",
            "GET",
            "INCR",
            "LPUSH",
            "LPOP",
            "SADD",
            "SPOP",
            "LRANGE_100",
            "LRANGE_300",
            "LRANGE_500",
            "LRANGE_600",
            "MSET",
        ] {
            assert_eq!(
                names.iter().filter(|have| **have == name).count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn figures_are_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"MSET (10 keys)\",\"500.00\",\"0.112\",\"0.048\",\"0.111\",\"0.159\",\"0.199\",\"3.287\"\n";
        let rows = rows(text, 1000).unwrap();
        assert_eq!(rows[0].label["test"], "MSET");
        assert_eq!(rows[0].answers, 1000);
        assert!((rows[0].took.as_secs_f64() - 2.0).abs() < 1e-9);
        assert!((rows[0].metrics["latency_max_ms"] - 3.287).abs() < 1e-9);
    }

    #[test]
    fn the_form_before_6_2_has_no_times() {
        let rows = rows(
            "\"PING_INLINE\",\"389105.06\"\n\"PING_BULK\",\"578034.69\"\n",
            100,
        )
        .unwrap();
        assert_eq!(rows[1].label["test"], "PING_BULK");
        assert!(rows[1].metrics.is_empty());
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for wrong in [
            "",
            "Could not connect to Redis at 10.0.0.2:6379",
            "\"SET\"",
            "\"SET\",\"-1\"",
            "\"SET\",\"0.00\"",
            "\"SET\",\"1\",\"2\"",
            "\"test\",\"rate\"",
            "\"",
        ] {
            assert!(rows(wrong, 10).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tests_are_checked_by_name() {
        let point = toml::from_str("tests = 'get,sett'").unwrap();
        let why = settings(&point).err().unwrap().to_string();
        assert_eq!(
            why,
            "redis-benchmark has no test `sett`; did you mean `set`?"
        );
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_printed_does_not_panic(text in crate::load::mutated::mutated(ALL)) {
            if let Ok(rows) = rows(&text, 1000) {
                proptest::prop_assert!(rows.iter().all(crate::load::mutated::is_sane));
            }
        }
    }
}
