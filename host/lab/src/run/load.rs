// SPDX-License-Identifier: Apache-2.0

//! One run of a load generator, and what its rows become.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Runner;
use super::pin::Pins;
use super::plan::{Planned, Task};
use super::session::{Live, number, sample};
use crate::experiment;
use crate::load::{Job, Outcome, Row};
use crate::meter::{Measured, Meter};
use crate::record::{Sample, encode};
use crate::{Error, Result};

/// Loads that are given by a number of requests may take as long as this.
const COUNTED_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// Beyond twice the expected length a load is cancelled after this.
const LIMIT_MORE: Duration = Duration::from_secs(60);
/// Nanoseconds in a millisecond.
const NS_PER_MS: f64 = 1e6;

/// Length and rate of one run, instead of the point's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    pub(super) duration: Option<Duration>,
    pub(super) rate_per_s: Option<f64>,
}

/// What one run gave.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    /// What the instance used meanwhile.
    pub(super) used: Measured,
}

impl Runner<'_> {
    /// Warm-up, then the load that counts.
    pub(super) fn load(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        live: &mut Live,
        pins: &Pins,
    ) -> Result<()> {
        self.warm_up(task, live, pins, None)?;
        let ran = self.generate(task, live, pins, Pace::default())?;
        let samples = self.samples_of(id, planned, task, &ran);
        for (sample, row) in samples.iter().zip(&ran.outcome.rows) {
            self.say(planned, Some(task), &figures(sample, row));
        }
        self.samples(samples)
    }

    /// Loads for as long as the task wants without counting.
    pub(super) fn warm_up(
        &mut self,
        task: &Task,
        live: &mut Live,
        pins: &Pins,
        rate_per_s: Option<f64>,
    ) -> Result<()> {
        let duration = task.warmup();
        if duration.is_zero() {
            return Ok(());
        }
        let pace = Pace {
            duration: Some(duration),
            rate_per_s,
        };
        self.generate(task, live, pins, pace).map(drop)
    }

    /// One run of the generator.
    pub(super) fn generate(
        &mut self,
        task: &Task,
        live: &mut Live,
        pins: &Pins,
        pace: Pace,
    ) -> Result<Ran> {
        let workload = &self.experiment.workloads[task.workload];
        let tool = workload.tool.as_deref().unwrap_or_default();
        let generator = self.world.generator(tool)?;
        let length = pace.duration.or_else(|| {
            let length = task.point.get("duration_s").and_then(experiment::number)?;
            Some(Duration::from_secs_f64(length))
        });
        let limit = length.map_or(COUNTED_LIMIT, |length| length * 2 + LIMIT_MORE);
        let processes = live.instance.processes();
        let folder =
            tempfile::tempdir_in(self.scratch.path()).map_err(Error::file(self.scratch.path()))?;
        let meter = Meter::start(processes.clone());
        let outcome = self
            .watch
            .phase(tool, limit, &processes.payload, |cancel| {
                let job = Job {
                    target: live.question.target,
                    point: &task.point,
                    duration: pace.duration,
                    rate_per_s: pace.rate_per_s,
                    pin: Some(&pins.generator),
                    experiment: self.folder,
                    folder: folder.path().to_owned(),
                    cancel,
                };
                generator.run(&job)
            })?;
        let used = meter.stop();
        if let Some(ended) = live.instance.ended() {
            return Err(Error::Platform {
                what: format!("the service ended under the load: {}", ended.reason),
                log: String::new(),
            });
        }
        Ok(Ran { outcome, used })
    }

    /// A sample for each row. What the instance used belongs to the row if there is one only, else to a sample of its own.
    pub(super) fn samples_of(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        ran: &Ran,
    ) -> Vec<Sample> {
        let place = super::session::place(planned, Some(task));
        let name: String = place
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '-' {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let text = format!("$ {}\n{}", ran.outcome.command, ran.outcome.raw);
        let raw = self.writer.raw(&format!("{id:05}-{name}.txt"), &text);
        let rows = &ran.outcome.rows;
        let mut samples: Vec<Sample> = rows
            .iter()
            .map(|row| {
                let mut point = task.label.clone();
                point.extend(row.label.clone());
                Sample {
                    metrics: metrics(row),
                    errors: row.errors.clone(),
                    latency: row.latency.as_ref().and_then(encode),
                    series: row.series.clone(),
                    raw: raw.clone(),
                    ..sample(id, planned, &task.name, point)
                }
            })
            .collect();
        let mut usage = ran.used.metrics.clone();
        if let ([only], [row]) = (&mut samples[..], &rows[..]) {
            let cpu_s = usage.get("cpu_s").copied();
            if let Some(cpu_s) = cpu_s.filter(|_| row.answers > 0) {
                usage.insert(
                    "cpu_us_per_request".to_owned(),
                    cpu_s * 1e6 / number(row.answers),
                );
            }
            only.metrics.extend(usage);
            only.series.extend(ran.used.series.clone());
        } else if !usage.is_empty() {
            samples.push(Sample {
                metrics: usage,
                series: ran.used.series.clone(),
                raw,
                ..sample(id, planned, &task.name, task.label.clone())
            });
        }
        samples
    }
}

/// A row's figures. Percentiles are the tool's own where it says them.
pub(super) fn metrics(row: &Row) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let mut add = |name: &str, value: f64| {
        metrics.insert(name.to_owned(), value);
    };
    // Generators of bytes count no answers.
    let counts = row.answers > 0 || row.errors.values().any(|count| *count > 0);
    if counts && row.took > Duration::ZERO {
        add(
            "throughput_per_s",
            number(row.answers) / row.took.as_secs_f64(),
        );
    }
    add("errors", number(row.errors.values().sum()));
    if let Some(latency) = row.latency.as_ref().filter(|latency| !latency.is_empty()) {
        add("latency_mean_ms", latency.mean() / NS_PER_MS);
        for (name, quantile) in [
            ("latency_p50_ms", 0.5),
            ("latency_p90_ms", 0.9),
            ("latency_p99_ms", 0.99),
            ("latency_p999_ms", 0.999),
            ("latency_max_ms", 1.0),
        ] {
            add(
                name,
                number(latency.value_at_quantile(quantile)) / NS_PER_MS,
            );
        }
    }
    metrics.extend(row.metrics.clone());
    metrics
}

/// The main figures in a line.
fn figures(sample: &Sample, row: &Row) -> String {
    let mut parts: Vec<String> = row.label.values().cloned().collect();
    let mut add = |name: &str, unit: &str| {
        if let Some(value) = sample.metrics.get(name) {
            parts.push(format!("{value:.2} {unit}"));
        }
    };
    if sample.metrics.contains_key("throughput_per_s") {
        add("throughput_per_s", "answers/s");
    } else {
        add("bandwidth_mbit_s", "Mbit/s");
    }
    add("latency_p50_ms", "ms p50");
    add("latency_p99_ms", "ms p99");
    let errors: u64 = sample.errors.values().sum();
    if errors > 0 {
        parts.push(format!("{errors} errors"));
    }
    parts.join(", ")
}
