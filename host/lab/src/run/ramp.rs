// SPDX-License-Identifier: Apache-2.0

//! The rate is raised step by step until the service stops keeping up.

use super::Runner;
use super::load::Pace;
use super::pin::Pins;
use super::plan::{Planned, Task};
use super::session::{Live, sample};
use crate::experiment::parameters::Ramp;
use crate::record::Sample;
use crate::{Error, Result};

/// What names a step in its point.
const STEP: &str = "rate_per_s";
/// The figure of the sample that closes a ramp.
pub(super) const CLOSES: &str = "sustained_per_s";

impl Runner<'_> {
    /// One sample for each step, and one that closes it.
    pub(super) fn ramp(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        ramp: &Ramp,
        live: &mut Live,
        pins: &Pins,
    ) -> Result<()> {
        self.warm_up(task, live, pins, Some(ramp.start_per_s))?;
        let mut sustained = 0.0;
        for rate in rates(ramp) {
            let pace = Pace {
                duration: Some(ramp.step),
                rate_per_s: Some(rate),
            };
            let ran = self.generate(task, live, pins, pace)?;
            let mut samples = self.samples_of(id, planned, task, &ran);
            for step in &mut samples {
                step.point.insert(STEP.to_owned(), rate.to_string());
                step.metrics.insert("offered_per_s".to_owned(), rate);
            }
            let Some(step) = samples.first().cloned() else {
                return Err(Error::Input("the load generator gave no row".to_owned()));
            };
            let reached = step.metrics.get("throughput_per_s").copied().unwrap_or(0.0);
            self.say(
                planned,
                Some(task),
                &format!("{rate} offered, {reached:.1} answered a second"),
            );
            self.samples(samples)?;
            if !keeps_up(ramp, rate, &step) {
                break;
            }
            sustained = rate;
            self.watch.rest(ramp.pause)?;
        }
        let mut close = sample(id, planned, &task.name, task.label.clone());
        close.metrics.insert(CLOSES.to_owned(), sustained);
        self.say(
            planned,
            Some(task),
            &format!("kept up with {sustained} a second"),
        );
        self.samples(vec![close])
    }
}

/// The rates of all steps; the last is the highest, also where the steps do not meet it.
fn rates(ramp: &Ramp) -> Vec<f64> {
    let mut rates = Vec::new();
    let mut rate = ramp.start_per_s;
    while rate < ramp.max_per_s {
        rates.push(rate);
        rate += ramp.step_per_s;
    }
    rates.push(ramp.max_per_s);
    rates
}

fn keeps_up(ramp: &Ramp, rate: f64, step: &Sample) -> bool {
    let reached = step.metrics.get("throughput_per_s").copied().unwrap_or(0.0);
    let slow = ramp.stop_latency_ms.is_some_and(|limit| {
        step.metrics
            .get("latency_p99_ms")
            .is_some_and(|latency| *latency > limit)
    });
    reached >= rate * ramp.stop_below && !slow
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_step_is_the_highest() {
        let ramp = |start_per_s, step_per_s, max_per_s| Ramp {
            start_per_s,
            step_per_s,
            max_per_s,
            step: Duration::from_secs(1),
            pause: Duration::ZERO,
            stop_below: 0.95,
            stop_latency_ms: None,
            warmup: Duration::ZERO,
        };
        assert_eq!(rates(&ramp(100.0, 100.0, 300.0)), [100.0, 200.0, 300.0]);
        assert_eq!(rates(&ramp(100.0, 150.0, 300.0)), [100.0, 250.0, 300.0]);
        assert_eq!(rates(&ramp(5.0, 1.0, 5.0)), [5.0]);
    }
}
