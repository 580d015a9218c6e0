// SPDX-License-Identifier: Apache-2.0

//! JMeter: runs a plan (`.jmx`) and reads its log of samples (JTL, as CSV). The plan takes from properties what the lab knows:
//! `${__P(host)}`, `${__P(port)}`, and `connections`, `requests`, `duration_s`, `rate_per_s`, `path` if the point has them.
//! One row for all samples, and one for each label if there are several.
//!
//! Found as `$JMETER_HOME/bin/jmeter`, or `jmeter` on PATH. Debian's package is too old; JMeter is an archive from
//! <https://jmeter.apache.org/download_jmeter.cgi> that needs to be unpacked only (and Java 8 or newer).

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::engine::Tally;
use super::parameters::Parameters;
use super::tool::{self, on_path};
use super::units::parse_int;
use super::{Generator, Job, Outcome, Point, Row, csv};
use crate::{Error, Result};

/// JMeter.
#[derive(Debug)]
pub(super) struct Jmeter;

const KNOWN: &[&str] = &[
    "plan",
    "connections",
    "requests",
    "duration_s",
    "rate_per_s",
    "path",
    "limit_s",
];

struct Settings<'a> {
    plan: &'a str,
    properties: Vec<(&'static str, String)>,
    duration: Option<Duration>,
    limit: Option<Duration>,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("jmeter", KNOWN, point)?;
    let plan = parameters.text("plan")?.ok_or_else(|| {
        Error::Input("jmeter: `plan` is missing: a .jmx file of the experiment".to_owned())
    })?;
    let mut properties = Vec::new();
    for name in ["connections", "requests"] {
        if let Some(value) = parameters.count(name)? {
            properties.push((name, value.to_string()));
        }
    }
    if let Some(rate) = parameters.number("rate_per_s")? {
        properties.push(("rate_per_s", rate.to_string()));
    }
    if let Some(path) = parameters.word("path")? {
        properties.push(("path", path.to_owned()));
    }
    Ok(Settings {
        plan,
        properties,
        duration: parameters.seconds("duration_s")?,
        limit: parameters.seconds("limit_s")?,
    })
}

/// How a sample is logged, whatever the user's own properties say.
const FORM: &[&str] = &[
    "-Jjmeter.save.saveservice.output_format=csv",
    "-Jjmeter.save.saveservice.print_field_names=true",
    "-Jjmeter.save.saveservice.timestamp_format=ms",
    "-Jjmeter.save.saveservice.default_delimiter=,",
    "-Jjmeter.save.saveservice.time=true",
    "-Jjmeter.save.saveservice.label=true",
    "-Jjmeter.save.saveservice.response_code=true",
    "-Jjmeter.save.saveservice.successful=true",
    "-Jjmeter.save.saveservice.bytes=true",
    "-Jjmeter.save.saveservice.sent_bytes=true",
    "-Jjmeter.save.saveservice.subresults=false",
];

fn program() -> Result<PathBuf> {
    let of_home =
        std::env::var_os("JMETER_HOME").map(|home| PathBuf::from(home).join("bin/jmeter"));
    match of_home {
        Some(path) if path.is_file() => Ok(path),
        Some(path) => Err(Error::Host(format!(
            "JMETER_HOME is set, but there is no {}",
            path.display()
        ))),
        None => on_path("jmeter").ok_or_else(|| {
            Error::Host(
                "jmeter is not installed: unpack the archive from \
                 https://jmeter.apache.org/download_jmeter.cgi and set JMETER_HOME to its folder"
                    .to_owned(),
            )
        }),
    }
}

impl Generator for Jmeter {
    fn name(&self) -> &'static str {
        "jmeter"
    }

    fn method(&self) -> &'static str {
        "as its plan says, in general a closed loop of threads; a sample's time in whole ms, from before it connects or sends \
         to the end of the answer"
    }

    fn find(&self) -> Result<String> {
        let mut command = Command::new(program()?);
        command.arg("--version");
        let never = AtomicBool::new(false);
        let printed = tool::run(&mut command, None, Duration::from_secs(60), &never)?;
        let version = version(&printed.stdout).ok_or_else(|| {
            tool::failed("`jmeter --version` does not say it".to_owned(), &printed)
        })?;
        // 3.0 logs CSV with the fields that are read here.
        tool::at_least("jmeter", version, &[3, 0])?;
        Ok(format!("JMeter {version}"))
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let plan = job.experiment.join(settings.plan);
        if !plan.is_file() {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::file(plan)(missing));
        }
        let scratch = tempfile::tempdir_in(&job.folder).map_err(Error::file(&job.folder))?;
        let samples = scratch.path().join("samples.jtl");
        let mut command = Command::new(program()?);
        command
            .arg("-n")
            .arg("-t")
            .arg(&plan)
            .arg("-l")
            .arg(&samples)
            .arg("-j")
            .arg(scratch.path().join("jmeter.log"))
            .arg(format!("-Jhost={}", job.target.ip()))
            .arg(format!("-Jport={}", job.target.port()));
        for (name, value) in &settings.properties {
            command.arg(format!("-J{name}={value}"));
        }
        if let Some(rate) = job.rate_per_s {
            command.arg(format!("-Jrate_per_s={rate}"));
        }
        let duration = job.duration.or(settings.duration);
        if let Some(duration) = duration {
            let whole = super::wrk::whole_seconds(duration).as_secs();
            command.arg(format!("-Jduration_s={whole}"));
        }
        command.args(FORM);
        let limit = settings.limit.unwrap_or(match duration {
            // It takes its time to start, and to end its threads.
            Some(duration) => duration + Duration::from_secs(120),
            None => Duration::from_secs(3 * 3600),
        });
        let printed = tool::run_job(&mut command, job, limit)?;
        printed.expect_success(&command)?;
        let table = std::fs::read_to_string(&samples).map_err(Error::file(&samples))?;
        // The samples are many; they are kept, but not in what is shown.
        let kept = job.folder.join("samples.jtl");
        if job.folder.is_dir() {
            std::fs::write(&kept, &table).map_err(Error::file(&kept))?;
        }
        let raw = printed.raw();
        let rows = rows(&table).map_err(|why| tool::not_understood("jmeter", &why, &raw))?;
        Ok(Outcome {
            rows,
            command: tool::shown_job(&command, job),
            raw,
        })
    }
}

/// The version is the last word of the head, which is drawn with letters; older ones say `Version 2.13 r1665067`.
fn version(text: &str) -> Option<&str> {
    let number = |word: &&str| {
        let mut parts = word.split('.');
        parts.clone().count() >= 2
            && parts.all(|part| parse_int(part).is_some() && !part.is_empty())
    };
    text.split_whitespace().find(number)
}

/// One sample.
struct Sample<'a> {
    label: &'a str,
    begin_ms: u64,
    took_ms: u64,
    /// The kind of error.
    error: Option<String>,
    received_bytes: u64,
    sent_bytes: u64,
}

/// The rows of a log.
fn rows(table: &str) -> std::result::Result<Vec<Row>, String> {
    let records = csv::records(table).ok_or("its log is not CSV")?;
    let (head, records) = records.split_first().ok_or("its log is empty")?;
    let column = |name: &str| {
        head.iter()
            .position(|have| have == name)
            .ok_or_else(|| format!("its log has no column `{name}`"))
    };
    let columns = [
        column("timeStamp")?,
        column("elapsed")?,
        column("label")?,
        column("responseCode")?,
        column("success")?,
        column("bytes")?,
        column("sentBytes")?,
    ];
    let mut samples = Vec::new();
    for record in records {
        let sample = sample(record, columns);
        samples.push(sample.ok_or_else(|| format!("sample `{}`", record.join(",")))?);
    }
    let mut labels: Vec<&str> = samples.iter().map(|sample| sample.label).collect();
    labels.sort_unstable();
    labels.dedup();
    match labels[..] {
        [] => {
            Err("its log has no sample: does the plan use the properties host and port?".to_owned())
        }
        [_] => Ok(vec![row(&samples, None)?]),
        _ => {
            let mut rows = vec![row(&samples, None)?];
            rows[0].label.insert("request".to_owned(), "all".to_owned());
            for label in labels {
                rows.push(row(&samples, Some(label))?);
            }
            Ok(rows)
        }
    }
}

fn sample(record: &[String], columns: [usize; 7]) -> Option<Sample<'_>> {
    let [begin, took, label, code, success, received, sent] =
        columns.map(|column| record.get(column).map(String::as_str));
    let code = code?;
    let error = match success? {
        "true" => None,
        "false" if code.parse::<u16>().is_ok_and(|code| code < 400) => Some("assertion".to_owned()),
        "false" if code.parse::<u16>().is_ok() => Some(format!("status {code}")),
        // "Non HTTP response code: java.net.SocketTimeoutException"
        "false" => Some(code.rsplit(['.', ' ']).next().unwrap_or(code).to_owned()),
        _ => return None,
    };
    // A clock that is set back or forth by a century is not a sample.
    let in_range = |ms: &u64| *ms < 10_000_000_000_000;
    Some(Sample {
        label: label?,
        begin_ms: parse_int(begin?).filter(in_range)?,
        took_ms: parse_int(took?).filter(in_range)?,
        error,
        received_bytes: parse_int(received?).filter(in_range)?,
        sent_bytes: parse_int(sent?).filter(in_range)?,
    })
}

/// The row of all samples, or of those with one label. The time is that of all.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
fn row(samples: &[Sample<'_>], label: Option<&str>) -> std::result::Result<Row, String> {
    let begin_ms = samples
        .iter()
        .map(|sample| sample.begin_ms)
        .min()
        .unwrap_or(0);
    let end = |sample: &Sample<'_>| sample.begin_ms + sample.took_ms;
    let end_ms = samples.iter().map(end).max().unwrap_or(0);
    let took = Duration::from_millis(end_ms - begin_ms);
    if took > Duration::from_secs(30 * 86_400) {
        return Err("its samples lie a month apart".to_owned());
    }
    let base = Instant::now();
    let mut tally = Tally::new(base, took);
    let (mut count, mut received, mut sent) = (0_u64, 0_u64, 0_u64);
    for sample in samples {
        if label.is_some_and(|label| label != sample.label) {
            continue;
        }
        count += 1;
        received += sample.received_bytes;
        sent += sample.sent_bytes;
        let start = base + Duration::from_millis(sample.begin_ms - begin_ms);
        match &sample.error {
            None => tally.answer(start, start + Duration::from_millis(sample.took_ms)),
            Some(kind) => tally.error(kind, 1),
        }
    }
    let mut row = tally.row(took);
    if let Some(label) = label {
        row.label.insert("request".to_owned(), label.to_owned());
    }
    let each = count.max(1) as f64;
    row.metrics
        .insert("sent_per_request_bytes".to_owned(), sent as f64 / each);
    row.metrics.insert(
        "received_per_request_bytes".to_owned(),
        received as f64 / each,
    );
    Ok(row)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{rows, version};

    const RUN: &str = include_str!("../../tests/recorded/jmeter-5.6.3.jtl");
    const ERRORS: &str = include_str!("../../tests/recorded/jmeter-5.6.3-errors.jtl");

    #[test]
    fn versions() {
        let head = "/_/   \\_\\_| /_/   \\_\\____|_| |_|_____|  \\___/|_|  |_|_____| |_| |_____|_| \\_\\ 5.6.3\n\nCopyright";
        assert_eq!(version(head), Some("5.6.3"));
        assert_eq!(
            version("Copyright (c) 1998-2015\nVersion 2.13 r1665067"),
            Some("2.13")
        );
        assert_eq!(version("command not found"), None);
    }

    #[test]
    fn a_log_is_read() {
        let rows = rows(RUN).unwrap();
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.answers, row.errors.len()), (60, 0));
        // As its own summary said: at least 2 ms, at most 118 ms, 26 ms in the mean.
        let latency = row.latency.as_ref().unwrap();
        assert_eq!(
            (latency.min() / 1_000_000, latency.max() / 1_000_000),
            (1, 118)
        );
        assert!((latency.mean() / 1e6 - 26.0).abs() < 1.0);
        assert!((row.metrics["sent_per_request_bytes"] - 123.0).abs() < 1e-9);
        assert!((row.metrics["received_per_request_bytes"] - 41.0).abs() < 1e-9);
        assert!(row.took > Duration::from_millis(118) && row.took < Duration::from_secs(2));
    }

    #[test]
    fn errors_are_counted_by_kind() {
        let row = &rows(ERRORS).unwrap()[0];
        assert_eq!(
            (row.answers, row.errors["HttpHostConnectException"]),
            (0, 3)
        );
        let text = RUN.replacen(",200,OK,users 1-3,,true,", ",503,Busy,users 1-3,,false,", 2);
        let row = &rows(&text).unwrap()[0];
        assert_eq!((row.answers, row.errors["status 503"]), (58, 2));
        let text = RUN.replacen(
            ",users 1-3,,true,",
            ",users 1-3,,false,\"not \"\"a\"\", b",
            1,
        );
        assert!(rows(&text).is_err(), "an open quotation mark");
    }

    #[test]
    fn labels_have_rows() {
        let rows = rows(&RUN.replacen(",todos,", ",home,", 10)).unwrap();
        let answers: Vec<(&str, u64)> = rows
            .iter()
            .map(|row| (row.label["request"].as_str(), row.answers))
            .collect();
        assert_eq!(answers, [("all", 60), ("home", 10), ("todos", 50)]);
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (from, to) in [
            ("elapsed", "duration"),
            (",true,", ",yes,"),
            ("1795224186374,", "1795224186,374,"),
            (",41,", ",,"),
        ] {
            assert!(rows(&RUN.replacen(from, to, 1)).is_err(), "{from}");
        }
        assert!(rows("").is_err());
        assert!(rows(RUN.lines().next().unwrap()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_logged_does_not_panic(text in crate::load::mutated::mutated(RUN)) {
            if let Ok(rows) = rows(&text) {
                proptest::prop_assert!(rows.iter().all(crate::load::mutated::is_sane));
            }
        }
    }
}
