// SPDX-License-Identifier: Apache-2.0

//! What wrk prints: its own report, of which every line must be known, and the lines of our script.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::units::{parse_int, parse_number, time_ns};
use crate::load::{Row, histogram};
use crate::{Error, Result};

/// The version in `wrk -v`: "wrk debian/4.1.0-3+b2 [epoll] Copyright ..." or "wrk 4.2.0 [epoll] ...".
pub(super) fn version(text: &str) -> Result<String> {
    text.lines()
        .find_map(|line| line.strip_prefix("wrk "))
        .and_then(|rest| rest.split_whitespace().next())
        .map(|word| word.rsplit('/').next().unwrap_or(word).to_owned())
        .ok_or_else(|| Error::Host("`wrk -v` does not say its version".to_owned()))
}

/// The one row of a run.
pub(super) fn row(text: &str) -> std::result::Result<Row, String> {
    let mut of_script = Script::default();
    let mut report = Report::default();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("lab ") {
            of_script
                .take(rest)
                .ok_or_else(|| format!("line `{line}`"))?;
        } else {
            report
                .take(line)
                .ok_or_else(|| format!("unknown line `{line}`"))?;
        }
    }
    let row = of_script.row()?;
    let requests = report.requests.ok_or("no line `N requests in ...`")?;
    if of_script.numbers.get("requests") != Some(&requests) {
        return Err("its report and its counts do not agree".to_owned());
    }
    report.rate.ok_or("no line `Requests/sec:`")?;
    report.maximum_ns.ok_or("no line `Latency ...`")?;
    Ok(row)
}

/// The lines of the script.
#[derive(Default)]
struct Script {
    numbers: BTreeMap<String, u64>,
    mean_us: Option<f64>,
    values: Vec<(u64, u64)>,
    percentiles: Vec<(f64, u64)>,
}

impl Script {
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["value", value, count] => self.values.push((parse_int(value)?, parse_int(count)?)),
            ["percentile", share, value] => self
                .percentiles
                .push((parse_number(share)?, parse_int(value)?)),
            ["mean", value] => self.mean_us = Some(parse_number(value)?),
            [
                name @ ("requests" | "duration" | "bytes" | "error_connect" | "error_read"
                | "error_write" | "error_status" | "error_timeout" | "max" | "end"),
                value,
            ] => {
                self.numbers.insert(name.to_owned(), parse_int(value)?);
            }
            _ => return None,
        }
        Some(())
    }

    fn row(&self) -> std::result::Result<Row, String> {
        let number = |name: &str| {
            self.numbers
                .get(name)
                .copied()
                .ok_or_else(|| format!("no line `lab {name}`"))
        };
        let distinct = number("end")?;
        let requests = number("requests")?;
        let mut errors = BTreeMap::new();
        for (name, kind) in [
            ("error_connect", "connect"),
            ("error_read", "read"),
            ("error_write", "write"),
            ("error_status", "status"),
            ("error_timeout", "timeout"),
        ] {
            let count = number(name)?;
            if count > 0 {
                errors.insert(kind.to_owned(), count);
            }
        }
        let mut latency = histogram();
        if self.percentiles.is_empty() {
            if self.values.len() as u64 != distinct {
                return Err(format!(
                    "{} of {distinct} values of the histogram",
                    self.values.len()
                ));
            }
            for &(value_us, count) in &self.values {
                record(&mut latency, value_us, count)?;
            }
        } else {
            from_percentiles(&mut latency, &self.percentiles, requests, number("max")?)?;
        }
        let answers = requests
            .checked_sub(number("error_status")?)
            .ok_or("more wrong answers than answers")?;
        let mean_us = self.mean_us.ok_or("no line `lab mean`")?;
        let mut metrics = BTreeMap::new();
        if distinct > 0 {
            metrics.insert("latency_mean_ms".to_owned(), mean_us / 1e3);
        }
        Ok(Row {
            label: BTreeMap::new(),
            answers,
            took: Duration::from_micros(number("duration")?),
            errors,
            latency: Some(latency),
            metrics,
            series: BTreeMap::new(),
        })
    }
}

fn record(
    histogram: &mut Histogram<u64>,
    value_us: u64,
    count: u64,
) -> std::result::Result<(), String> {
    histogram
        .record_n(value_us.saturating_mul(1000), count)
        .map_err(|why| format!("{value_us} us: {why}"))
}

/// Counts that have these percentiles; `total` is their sum.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are below 2^53, and shares between 0 and 100"
)]
fn from_percentiles(
    histogram: &mut Histogram<u64>,
    percentiles: &[(f64, u64)],
    total: u64,
    max_us: u64,
) -> std::result::Result<(), String> {
    let mut before = 0;
    let mut last_us = 0;
    for &(share, value_us) in percentiles {
        if !(0.0..100.0).contains(&share) || value_us < last_us {
            return Err(format!("percentile {share} is out of order"));
        }
        let count = ((share / 100.0) * total as f64) as u64;
        record(histogram, value_us, count.saturating_sub(before))?;
        before = before.max(count);
        last_us = value_us;
    }
    record(histogram, max_us, total.saturating_sub(before))
}

/// wrk's report. Times are read to be sure that their units are known.
#[derive(Default)]
struct Report {
    requests: Option<u64>,
    rate: Option<f64>,
    maximum_ns: Option<f64>,
}

impl Report {
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] | ["Running", ..] | ["Latency", "Distribution"] => {}
            [_, "threads", "and", _, "connections"] => {}
            ["Thread", "Stats", "Avg", "Stdev", "Max", "+/-", "Stdev"] => {}
            ["Latency", mean, deviation, maximum, _] => {
                time_ns(mean)?;
                time_ns(deviation)?;
                self.maximum_ns = Some(time_ns(maximum)?);
            }
            ["Req/Sec", _, _, _, _] | ["Transfer/sec:", _] => {}
            ["50%" | "75%" | "90%" | "99%", value] => {
                time_ns(value)?;
            }
            [count, "requests", "in", took, _, "read"] => {
                time_ns(took.trim_end_matches(','))?;
                self.requests = Some(parse_int(count)?);
            }
            ["Requests/sec:", rate] => self.rate = Some(parse_number(rate)?),
            [
                "Socket",
                "errors:",
                "connect",
                _,
                "read",
                _,
                "write",
                _,
                "timeout",
                _,
            ]
            | ["Non-2xx", "or", "3xx", "responses:", _] => {}
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{from_percentiles, row, version};
    use crate::load::histogram;

    const CLEAN: &str = include_str!("../../../tests/recorded/wrk-4.1.0.txt");
    const ERRORS: &str = include_str!("../../../tests/recorded/wrk-4.1.0-errors.txt");

    #[test]
    fn versions() {
        let debian = "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\nUsage: wrk";
        assert_eq!(version(debian).unwrap(), "4.1.0-3+b2");
        assert_eq!(version("wrk 4.2.0 [epoll] Copyright").unwrap(), "4.2.0");
        assert!(version("wrk: not found").is_err());
    }

    #[test]
    fn a_run_is_read() {
        let row = row(CLEAN).unwrap();
        assert_eq!((row.answers, row.took.as_micros()), (184, 2_009_242));
        assert!(row.errors.is_empty());
        assert!((row.metrics["latency_mean_ms"] - 43.111_897).abs() < 1e-9);
        // The percentiles of wrk's own report; the histogram keeps three digits.
        let latency = row.latency.unwrap();
        assert_eq!(latency.len(), 184);
        for (quantile, us) in [(0.5, 43_880.0), (0.9, 44_010.0), (0.99, 44_110.0)] {
            let have_us = latency.value_at_quantile(quantile) as f64 / 1e3;
            assert!((have_us / us - 1.0).abs() < 0.002, "{quantile}: {have_us}");
        }
    }

    #[test]
    fn errors_are_counted_by_kind() {
        let row = row(ERRORS).unwrap();
        assert_eq!(row.answers, 0);
        assert_eq!(row.errors["status"], 46);
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        for (from, to) in [
            ("Requests/sec:", "Requests/min:"),
            ("lab end", "lab done"),
            ("lab value", "lab walue"),
            ("44.12ms", "44.12ns"),
        ] {
            assert!(row(&CLEAN.replace(from, to)).is_err(), "{from}");
        }
        assert!(row("").is_err());
    }

    #[test]
    fn counts_come_back_from_percentiles() {
        let mut counts = histogram();
        let percentiles: Vec<(f64, u64)> = (1_u32..1000)
            .map(|i| (f64::from(i) / 10.0, u64::from(i)))
            .collect();
        from_percentiles(&mut counts, &percentiles, 100_000, 5000).unwrap();
        assert_eq!(counts.len(), 100_000);
        let p50_us = counts.value_at_quantile(0.5) / 1000;
        assert!((499..=501).contains(&p50_us), "{p50_us}");
        assert!(from_percentiles(&mut counts, &[(50.0, 2), (60.0, 1)], 10, 3).is_err());
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_printed_does_not_panic(text in crate::load::mutated::mutated(CLEAN)) {
            if let Ok(row) = row(&text) {
                proptest::prop_assert!(crate::load::mutated::is_sane(&row));
            }
        }
    }
}
