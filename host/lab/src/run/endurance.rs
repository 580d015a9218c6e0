// SPDX-License-Identifier: Apache-2.0

//! Throughput over a long time: no error, no decay, no growth without end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Runner;
use super::load::{Pace, metrics};
use super::pin::Pins;
use super::plan::{Planned, Task};
use super::session::{Live, number, sample};
use crate::experiment::parameters::Endurance;
use crate::record::Sample;
use crate::{Error, Result};

/// What the slices give together.
#[derive(Debug, Default)]
struct Sum {
    answers: u64,
    took: Duration,
    errors: BTreeMap<String, u64>,
    cpu_s: f64,
    /// By name of metric: seconds since the begin, at the end of a slice.
    series: BTreeMap<String, Vec<(f64, f64)>>,
    last: BTreeMap<String, f64>,
}

impl Runner<'_> {
    /// One sample with a series of slices. What was measured before an interruption or a failure is kept as partial.
    pub(super) fn endurance(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        endurance: &Endurance,
        live: &mut Live,
        pins: &Pins,
    ) -> Result<()> {
        self.warm_up(task, live, pins, None)?;
        let mut sum = Sum::default();
        let result = self.slices(planned, task, endurance, live, pins, &mut sum);
        if sum.took > Duration::ZERO {
            let mut sample = Sample {
                metrics: sum.metrics(),
                errors: sum.errors,
                series: sum.series,
                ..sample(id, planned, &task.name, task.label.clone())
            };
            sample.partial = result.is_err();
            self.samples(vec![sample])?;
        }
        result
    }

    fn slices(
        &mut self,
        planned: &Planned,
        task: &Task,
        endurance: &Endurance,
        live: &mut Live,
        pins: &Pins,
        sum: &mut Sum,
    ) -> Result<()> {
        let begin = Instant::now();
        while let Some(left) = endurance.duration.checked_sub(begin.elapsed()) {
            // The last slice is not cut so short that it says nothing.
            if left < endurance.slice / 2 && sum.took > Duration::ZERO {
                break;
            }
            let pace = Pace {
                duration: Some(endurance.slice.min(left)),
                rate_per_s: None,
            };
            let ran = self.generate(task, live, pins, pace)?;
            let Some(row) = ran.outcome.rows.first() else {
                return Err(Error::Input("the load generator gave no row".to_owned()));
            };
            let at = begin.elapsed().as_secs_f64();
            let mut slice = metrics(row);
            slice.extend(ran.used.metrics.clone());
            let rate = slice.get("throughput_per_s").copied().unwrap_or(0.0);
            sum.answers += row.answers;
            sum.took += row.took;
            sum.cpu_s += slice.get("cpu_s").copied().unwrap_or(0.0);
            for (kind, count) in &row.errors {
                *sum.errors.entry(kind.clone()).or_insert(0) += count;
            }
            for (name, value) in &slice {
                sum.series
                    .entry(name.clone())
                    .or_default()
                    .push((at, *value));
            }
            sum.last = ran.used.metrics;
            self.say(
                planned,
                Some(task),
                &format!("{rate:.1} answers/s after {at:.0} s"),
            );
        }
        Ok(())
    }
}

impl Sum {
    fn metrics(&self) -> BTreeMap<String, f64> {
        // Memory as it was at the end; CPU time over all of it.
        let mut metrics = self.last.clone();
        metrics.retain(|name, _| name.contains("memory"));
        let seconds = self.took.as_secs_f64();
        let mut add = |name: &str, value: f64| {
            metrics.insert(name.to_owned(), value);
        };
        add("throughput_per_s", number(self.answers) / seconds);
        add("errors", number(self.errors.values().sum()));
        let rates = self.values("throughput_per_s");
        if let Some(kept) = kept(&rates) {
            add("kept_percent", kept);
        }
        if self.cpu_s > 0.0 {
            add("cpu_s", self.cpu_s);
            add("cpu_percent", self.cpu_s / seconds * 100.0);
            if self.answers > 0 {
                add(
                    "cpu_us_per_request",
                    self.cpu_s * 1e6 / number(self.answers),
                );
            }
            let costs = self.values("cpu_us_per_request");
            let answers_per_cpu: Vec<f64> = costs.iter().map(|cost| 1.0 / cost).collect();
            if let Some(kept) = kept(&answers_per_cpu) {
                add("kept_cpu_percent", kept);
            }
        }
        metrics
    }

    fn values(&self, name: &str) -> Vec<f64> {
        let points = self.series.get(name).map(Vec::as_slice).unwrap_or_default();
        points.iter().map(|(_, value)| *value).collect()
    }
}

/// The median of the last quarter by that of the first, in percent. `None` for fewer than four values.
fn kept(values: &[f64]) -> Option<f64> {
    let quarter = values.len() / 4;
    if quarter == 0 {
        return None;
    }
    let first = median(&values[..quarter])?;
    let last = median(&values[values.len() - quarter..])?;
    (first > 0.0).then_some(last / first * 100.0)
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(middle).copied();
    }
    Some(f64::midpoint(
        *values.get(middle.checked_sub(1)?)?,
        *values.get(middle)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_is_the_last_quarter_by_the_first() {
        assert_eq!(kept(&[10.0, 10.0, 10.0, 9.0]), Some(90.0));
        let long = [
            9.0, 10.0, 11.0, 50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 4.0, 6.0,
        ];
        assert_eq!(kept(&long), Some(50.0));
        assert_eq!(kept(&[1.0, 2.0, 3.0]), None);
        assert_eq!(kept(&[0.0, 1.0, 1.0, 1.0]), None);
    }
}
