// SPDX-License-Identifier: Apache-2.0

//! iperf3: how many bits a second go over TCP, or UDP at a given rate, to an iperf3 server in the instance; with `reverse`
//! from it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::parameters::Parameters;
use super::tool::{self, Tool};
use super::units::seconds;
use super::{Generator, Job, Outcome, Point, Row};
use crate::{Error, Result};

const TOOL: Tool = Tool::packaged("iperf3", "iperf3");

/// iperf3.
#[derive(Debug)]
pub(super) struct Iperf3;

const KNOWN: &[&str] = &[
    "connections",
    "duration_s",
    "reverse",
    "udp",
    "rate_mbit_s",
    "length_bytes",
];

struct Settings {
    connections: u64,
    duration: Duration,
    reverse: bool,
    udp: bool,
    rate_mbit_s: Option<f64>,
    length_bytes: Option<u64>,
}

fn settings(point: &Point) -> Result<Settings> {
    let parameters = Parameters::new("iperf3", KNOWN, point)?;
    Ok(Settings {
        connections: parameters.count_to("connections", 128)?.unwrap_or(1),
        duration: parameters
            .seconds("duration_s")?
            .unwrap_or(Duration::from_secs(10)),
        reverse: parameters.flag("reverse")?,
        udp: parameters.flag("udp")?,
        rate_mbit_s: parameters.number("rate_mbit_s")?,
        length_bytes: parameters.count_to("length_bytes", 1 << 20)?,
    })
}

impl Generator for Iperf3 {
    fn name(&self) -> &'static str {
        "iperf3"
    }

    fn method(&self) -> &'static str {
        "one test of iperf3; bits of payload at the receiver, by the receiver's clock"
    }

    fn package(&self) -> Option<&'static str> {
        TOOL.package
    }

    fn find(&self) -> Result<String> {
        let text = TOOL.about("--version")?;
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("iperf "))
            .and_then(|rest| rest.split_whitespace().next())
            .ok_or_else(|| Error::Host("`iperf3 --version` does not say its version".to_owned()))?;
        tool::at_least("iperf3", version, &[3, 1])?;
        Ok(format!("iperf {version}"))
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let duration = super::wrk::whole_seconds(job.duration.unwrap_or(settings.duration));
        let mut command = TOOL.command()?;
        command
            .arg("-J")
            .args(["-c", &job.target.ip().to_string()])
            .args(["-p", &job.target.port().to_string()])
            .args(["-t", &duration.as_secs().to_string()])
            .args(["-P", &settings.connections.to_string()]);
        if settings.reverse {
            command.arg("-R");
        }
        if settings.udp {
            command.arg("-u");
        }
        if let Some(rate) = settings.rate_mbit_s {
            command.args(["-b", &format!("{:.0}", rate * 1e6)]);
        }
        if let Some(length) = settings.length_bytes {
            command.args(["-l", &length.to_string()]);
        }
        let printed = tool::run_job(&mut command, job, duration + Duration::from_secs(30))?;
        let raw = printed.raw();
        // It says what went wrong in the same form, and ends with 1.
        let row = row(&printed.stdout).map_err(|why| match why {
            Wrong::Said(what) => Error::Platform {
                what: format!("`{}`: {what}", tool::shown(&command)),
                log: raw.clone(),
            },
            Wrong::Form(why) => tool::not_understood("iperf3", &why, &raw),
        })?;
        Ok(Outcome {
            rows: vec![row],
            command: tool::shown_job(&command, job),
            raw,
        })
    }
}

/// The parts of `-J` that are needed. See iperf_client_api.c and iperf_api.c of iperf3 3.1 to 3.19.
#[derive(Debug, Deserialize)]
struct Report {
    error: Option<String>,
    #[serde(default)]
    intervals: Vec<Interval>,
    end: End,
}

#[derive(Debug, Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Debug, Default, Deserialize)]
struct End {
    /// TCP.
    sum_received: Option<Sum>,
    /// UDP.
    sum: Option<Sum>,
}

#[derive(Debug, Deserialize)]
struct Sum {
    start: f64,
    end: f64,
    bytes: u64,
    bits_per_second: f64,
    lost_packets: Option<i64>,
    lost_percent: Option<f64>,
}

#[derive(Debug)]
enum Wrong {
    /// iperf3 says so itself.
    Said(String),
    /// It is not understood.
    Form(String),
}

fn row(text: &str) -> std::result::Result<Row, Wrong> {
    let form = |why: &str| Wrong::Form(why.to_owned());
    let report: Report = serde_json::from_str(text).map_err(|why| Wrong::Form(why.to_string()))?;
    if let Some(error) = report.error {
        return Err(Wrong::Said(error));
    }
    let end = report.end;
    let mut metrics = BTreeMap::new();
    let mut errors = BTreeMap::new();
    let mut received_bits_per_s = None;
    if let Some(sum) = &end.sum {
        // UDP: `sum` is what was sent, of which some was lost.
        if let Some(lost) = sum.lost_packets.and_then(|lost| u64::try_from(lost).ok())
            && lost > 0
        {
            errors.insert("lost".to_owned(), lost);
        }
        let lost = sum.lost_percent.unwrap_or(0.0) / 100.0;
        received_bits_per_s = Some(sum.bits_per_second * (1.0 - lost));
    }
    // From 3.13 on UDP has this, too.
    if end.sum.is_none()
        && let Some(sum) = &end.sum_received
    {
        received_bits_per_s = Some(sum.bits_per_second);
    }
    let bits_per_s = received_bits_per_s.ok_or_else(|| form("no sum of what was received"))?;
    let sum = end
        .sum
        .or(end.sum_received)
        .ok_or_else(|| form("no sum of what was received"))?;
    let took = seconds(sum.end - sum.start).ok_or_else(|| form("a time below 0"))?;
    if !bits_per_s.is_finite() || bits_per_s < 0.0 || (sum.bytes > 0 && took.is_zero()) {
        return Err(form("a rate that cannot be"));
    }
    metrics.insert("bandwidth_mbit_s".to_owned(), bits_per_s / 1e6);
    let mut series = Vec::new();
    for Interval { sum } in &report.intervals {
        if sum.bits_per_second < 0.0 || sum.start < 0.0 {
            return Err(form("an interval that cannot be"));
        }
        series.push((sum.start, sum.bits_per_second / 1e6));
    }
    Ok(Row {
        label: BTreeMap::new(),
        answers: 0,
        took,
        errors,
        latency: None,
        metrics,
        series: BTreeMap::from([("bandwidth_mbit_s".to_owned(), series)]),
    })
}

#[cfg(test)]
mod tests {
    use super::{Wrong, row};

    const TCP: &str = include_str!("../../tests/recorded/iperf3-3.12.json");
    const UDP: &str = include_str!("../../tests/recorded/iperf3-3.12-udp.json");
    const ERROR: &str = include_str!("../../tests/recorded/iperf3-3.12-error.json");

    #[test]
    fn tcp_counts_at_the_receiver() {
        let row = row(TCP).unwrap();
        assert!((row.metrics["bandwidth_mbit_s"] - 13_314.894_860_912_78).abs() < 1e-6);
        assert_eq!(row.series["bandwidth_mbit_s"].len(), 2);
    }

    #[test]
    fn udp_counts_what_was_not_lost() {
        let row = row(UDP).unwrap();
        let mbit_s = row.metrics["bandwidth_mbit_s"];
        assert!((10.0..10.5).contains(&mbit_s), "{mbit_s}");
    }

    #[test]
    fn what_it_says_is_passed_on() {
        let Err(Wrong::Said(what)) = row(ERROR) else {
            panic!("an error is taken for a result");
        };
        assert_eq!(what, "unable to connect to server: Connection refused");
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for text in [
            "",
            "{}",
            "[]",
            "{\"end\":{}}",
            &TCP.replace("sum_received", "sum_gotten"),
        ] {
            assert!(matches!(row(text), Err(Wrong::Form(_))), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_printed_does_not_panic(text in crate::load::mutated::mutated(TCP)) {
            if let Ok(row) = row(&text) {
                proptest::prop_assert!(crate::load::mutated::is_sane(&row), "{row:?}");
            }
        }
    }
}
