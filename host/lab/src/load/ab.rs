// SPDX-License-Identifier: Apache-2.0

//! ab (ApacheBench): HTTP/1.0 in a closed loop. Its percentiles are read from the file of `-e`, in us; its report has only
//! whole ms.

use std::collections::BTreeMap;
use std::time::Duration;

use super::parameters::Parameters;
use super::tool::{self, Tool};
use super::units::{parse_int, parse_number, seconds};
use super::{Generator, Job, Outcome, Point, Row};
use crate::{Error, Result};

const TOOL: Tool = Tool::packaged("ab", "apache2-utils");

/// ab.
#[derive(Debug)]
pub(super) struct Ab;

const KNOWN: &[&str] = &[
    "connections",
    "requests",
    "duration_s",
    "path",
    "keep_alive",
    "timeout_s",
    "body_file",
    "content_type",
    "limit_s",
];

/// What ab makes room for in a run that is bounded by time.
const MOST_REQUESTS: u64 = 5_000_000;

struct Settings<'a> {
    connections: u64,
    requests: Option<u64>,
    duration: Option<Duration>,
    path: &'a str,
    keep_alive: bool,
    timeout: Duration,
    body_file: Option<&'a str>,
    content_type: &'a str,
    limit: Duration,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("ab", KNOWN, point)?;
    Ok(Settings {
        connections: parameters.count_to("connections", 20_000)?.unwrap_or(10),
        requests: parameters.count_to("requests", MOST_REQUESTS)?,
        duration: parameters.seconds("duration_s")?,
        path: parameters.path()?,
        keep_alive: parameters.flag("keep_alive")?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(30)),
        body_file: parameters.text("body_file")?,
        content_type: parameters.word("content_type")?.unwrap_or("text/plain"),
        limit: parameters
            .seconds("limit_s")?
            .unwrap_or(Duration::from_secs(900)),
    })
}

impl Generator for Ab {
    fn name(&self) -> &'static str {
        "ab"
    }

    fn method(&self) -> &'static str {
        "closed loop, HTTP/1.0: each connection waits for the answer before it asks again; without keep_alive every request \
         makes its own connection, which is part of its time"
    }

    fn package(&self) -> Option<&'static str> {
        TOOL.package
    }

    fn find(&self) -> Result<String> {
        let text = TOOL.about("-V")?;
        let version = text
            .lines()
            .find_map(|line| line.split_once("Version "))
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .ok_or_else(|| Error::Host("`ab -V` does not say its version".to_owned()))?;
        // `-l`, for answers whose length varies, came with 2.3 (httpd 2.4.7).
        tool::at_least("ab", version, &[2, 3])?;
        Ok(format!("ApacheBench {version}"))
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let scratch = tempfile::tempdir_in(&job.folder).map_err(Error::file(&job.folder))?;
        let percentiles = scratch.path().join("percentiles.csv");
        let mut command = TOOL.command()?;
        // -l: other lengths are no errors; -r: go on after one; -q: no progress.
        command.args(["-l", "-r", "-q"]);
        let duration = match (job.duration, settings.requests) {
            (None, Some(_)) => None,
            (duration, _) => duration
                .or(settings.duration)
                .or(Some(Duration::from_secs(10))),
        };
        let requests = match duration {
            // `-t` sets `-n`, so that must come after it.
            Some(duration) => {
                let whole = super::wrk::whole_seconds(duration).as_secs();
                command.args(["-t", &whole.to_string()]);
                MOST_REQUESTS
            }
            None => settings.requests.unwrap_or(MOST_REQUESTS),
        };
        // Fewer requests than connections are refused by ab.
        let connections = settings.connections.min(requests);
        command
            .args(["-n", &requests.to_string()])
            .args(["-c", &connections.to_string()])
            .args(["-s", &settings.timeout.as_secs().max(1).to_string()])
            .arg("-e")
            .arg(&percentiles);
        if settings.keep_alive {
            command.arg("-k");
        }
        if let Some(name) = settings.body_file {
            let path = job.experiment.join(name);
            if !path.is_file() {
                let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(Error::file(path)(missing));
            }
            command
                .arg("-p")
                .arg(path)
                .args(["-T", settings.content_type]);
        }
        command.arg(format!("http://{}{}", job.target, settings.path));
        let limit = duration.map_or(settings.limit, |duration| {
            duration + settings.timeout + Duration::from_secs(30)
        });
        let printed = tool::run_job(&mut command, job, limit)?;
        printed.expect_success(&command)?;
        let table = std::fs::read_to_string(&percentiles).unwrap_or_default();
        let raw = format!("{}\n--- percentiles ---\n{table}", printed.raw());
        let row =
            row(&printed.stdout, &table).map_err(|why| tool::not_understood("ab", &why, &raw))?;
        Ok(Outcome {
            rows: vec![row],
            command: tool::shown_job(&command, job),
            raw,
        })
    }
}

/// The row of a report and of its percentiles.
fn row(text: &str, table: &str) -> std::result::Result<Row, String> {
    let mut report = Report::default();
    // What comes before it has no fixed form: who made ab, and how far it is.
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("Server Software:"));
    lines.next().ok_or("no report in it")?;
    for line in lines {
        report
            .take(line)
            .ok_or_else(|| format!("unknown line `{line}`"))?;
    }
    let complete = report.complete.ok_or("no line `Complete requests:`")?;
    let took = report.took.ok_or("no line `Time taken for tests:`")?;
    // ab counts a request that failed twice, as failed to receive and as an exception.
    let failed: u64 = report.failed.values().sum();
    let answers = complete
        .saturating_sub(failed)
        .saturating_sub(report.errors.get("status").copied().unwrap_or(0));
    let mut errors = report.errors;
    errors.extend(report.failed);
    let mut metrics = BTreeMap::new();
    if answers > 0 {
        let times = percentiles(table)?;
        for (name, share) in [
            ("latency_p50_ms", 50),
            ("latency_p90_ms", 90),
            ("latency_p99_ms", 99),
            ("latency_max_ms", 100),
        ] {
            metrics.insert(name.to_owned(), times[share]);
        }
        let mean = report.mean_ms.ok_or("no line `Time per request:`")?;
        metrics.insert("latency_mean_ms".to_owned(), mean);
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

/// The times in ms at 0 % to 100 %.
fn percentiles(table: &str) -> std::result::Result<Vec<f64>, String> {
    let mut lines = table.lines();
    if lines.next() != Some("Percentage served,Time in ms") {
        return Err("its percentiles have other columns".to_owned());
    }
    let times: Vec<f64> = lines
        .enumerate()
        .map_while(|(share, line)| {
            let (have, time) = line.split_once(',')?;
            (parse_int(have)? == share as u64).then(|| parse_number(time))?
        })
        .collect();
    if times.len() == 101 {
        Ok(times)
    } else {
        Err(format!("{} of 101 percentiles", times.len()))
    }
}

#[derive(Default)]
struct Report {
    complete: Option<u64>,
    took: Option<Duration>,
    mean_ms: Option<f64>,
    failed: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
}

impl Report {
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["Time", "taken", "for", "tests:", value, "seconds"] => {
                self.took = Some(seconds(parse_number(value)?)?);
            }
            ["Complete", "requests:", count] => self.complete = Some(parse_int(count)?),
            ["Non-2xx", "responses:", count] => {
                self.errors.insert("status".to_owned(), parse_int(count)?);
            }
            ["Write", "errors:", count] => {
                self.errors.insert("write".to_owned(), parse_int(count)?);
            }
            // Since 2.3: kinds stand in the line below, when there are any.
            ["Failed", "requests:", count] => {
                parse_int(count)?;
            }
            [
                "(Connect:",
                connect,
                "Receive:",
                receive,
                "Length:",
                length,
                "Exceptions:",
                exceptions,
            ] => {
                for (kind, count) in [
                    ("connect", connect),
                    ("receive", receive),
                    ("length", length),
                    ("exception", exceptions),
                ] {
                    let count = parse_int(count.trim_end_matches([',', ')']))?;
                    if count > 0 {
                        self.failed.insert(kind.to_owned(), count);
                    }
                }
            }
            ["Time", "per", "request:", value, "[ms]", "(mean)"] => {
                self.mean_ms = Some(parse_number(value)?);
            }
            // Known, and not needed.
            ["Server", "Hostname:" | "Port:", ..]
            | ["Document", "Path:" | "Length:", ..]
            | ["Concurrency", "Level:", _]
            | ["Keep-Alive", "requests:", _]
            | ["Total", "transferred:" | "body", ..]
            | ["HTML", "transferred:", ..]
            | ["Requests", "per", "second:", _, "[#/sec]", "(mean)"]
            | ["Time", "per", "request:", _, "[ms]", "(mean,", ..]
            | ["Transfer", "rate:", ..]
            | [_, "kb/s", ..]
            | ["Connection", "Times", "(ms)"]
            | ["min", "mean[+/-sd]", ..]
            | ["Connect:" | "Processing:" | "Waiting:" | "Total:", _, _, _, _, _]
            | ["Percentage", "of", "the", "requests", ..]
            | ["WARNING:", ..]
            | ["ERROR:", ..]
            // The end of a warning that takes two lines.
            | ["These", "results", "are", ..]
            | ["Only", "some", ..] => {}
            [share, time] | [share, time, "(longest", "request)"] if share.ends_with('%') => {
                parse_int(time)?;
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::row;

    const CLEAN: &str = include_str!("../../tests/recorded/ab-2.3.txt");
    const TABLE: &str = include_str!("../../tests/recorded/ab-2.3.csv");

    #[test]
    fn a_run_is_read() {
        let row = row(CLEAN, TABLE).unwrap();
        assert_eq!((row.answers, row.errors.len()), (500, 0));
        assert!((row.took.as_secs_f64() - 4.379).abs() < 1e-9);
        assert!((row.metrics["latency_mean_ms"] - 43.79).abs() < 1e-9);
        assert!((row.metrics["latency_max_ms"] - 48.165).abs() < 1e-9);
        assert!((row.metrics["latency_p99_ms"] - 47.995).abs() < 1e-9);
    }

    #[test]
    fn errors_are_counted() {
        let row_of = |text| row(text, "").unwrap();
        let wrong = row_of(include_str!("../../tests/recorded/ab-2.3-errors.txt"));
        assert_eq!((wrong.answers, wrong.errors["status"]), (0, 50));
        let refused = row_of(include_str!("../../tests/recorded/ab-2.3-refused.txt"));
        assert_eq!((refused.answers, refused.errors["receive"]), (0, 50));
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (from, to) in [
            ("Complete", "Incomplete"),
            ("[ms] (mean)", "[s] (mean)"),
            ("seconds", "minutes"),
            ("Server Software", "Server"),
        ] {
            assert!(row(&CLEAN.replace(from, to), TABLE).is_err(), "{from}");
        }
        assert!(row(CLEAN, &TABLE.replace("in ms", "in us")).is_err());
        assert!(row(CLEAN, &TABLE.replace("\n50,", "\n51,")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_printed_does_not_panic(text in crate::load::mutated::mutated(CLEAN)) {
            if let Ok(row) = row(&text, TABLE) {
                proptest::prop_assert!(crate::load::mutated::is_sane(&row));
            }
        }
    }
}
