// SPDX-License-Identifier: Apache-2.0

//! Density: instances are added until memory or latency breaks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Runner;
use super::host;
use super::plan::{Planned, Task};
use super::session::{Live, place, sample};
use crate::experiment::parameters::Density;
use crate::meter;
use crate::record::Sample;
use crate::{Error, Result};

/// What was seen so far.
struct Seen {
    sample: Sample,
    /// Memory in use before the first instance, bytes.
    before: f64,
    began: Instant,
}

impl Runner<'_> {
    /// One sample with series over the number of instances.
    pub(super) fn density(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        density: &Density,
    ) -> Result<()> {
        let used = || host::memory().map_or(0.0, |(free, all)| all - free);
        let mut seen = Seen {
            sample: sample(id, planned, &task.name, task.label.clone()),
            before: used(),
            began: Instant::now(),
        };
        let mut lives = Vec::new();
        let result = self.add_until(id, planned, task, density, &mut lives, &mut seen);
        let count = seen
            .sample
            .metrics
            .get("running_instances")
            .copied()
            .unwrap_or(0.0);
        let mut sample = seen.sample;
        sample.metrics.extend(memory_of_each(&lives));
        sample.partial = matches!(result, Err(Error::Interrupted));
        if count > 0.0 {
            self.say(planned, Some(task), &format!("{count} instances"));
            self.samples(vec![sample])?;
        }
        result
    }

    /// Adds instances. That the next one does not come up is the end sought for, not a failure, unless it is the first.
    fn add_until(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        density: &Density,
        lives: &mut Vec<Live>,
        seen: &mut Seen,
    ) -> Result<()> {
        for number in 0..density.max_instances {
            let at = place(planned, Some(task));
            self.progress.now(&format!("{at}: instance {}", number + 1));
            let started = self
                .launch(id, planned, None, Some(number))
                .and_then(|mut live| {
                    let up = self.wait_until_up(planned, &mut live, None)?;
                    live.took = up - live.since;
                    Ok(live)
                });
            match started {
                Ok(live) => lives.push(live),
                Err(error) if error.ends_run() || number == 0 => return Err(error),
                Err(error) => {
                    self.progress
                        .say(&format!("{at}: ends at {number} instances: {error}"));
                    return Ok(());
                }
            }
            let slowest = match slowest(lives, density.latency) {
                Ok(slowest) => slowest,
                Err(why) => {
                    self.progress
                        .say(&format!("{at}: ends at {number} instances: {why}"));
                    return Ok(());
                }
            };
            let Some((free, all)) = host::memory() else {
                return Err(Error::Host("/proc/meminfo cannot be read".to_owned()));
            };
            let share = (all - free) / all;
            if share > density.memory_share {
                let percent = share * 100.0;
                self.progress.say(&format!(
                    "{at}: ends at {number} instances: {percent:.0} % of the memory is in use"
                ));
                return Ok(());
            }
            seen.add(number + 1, all - free, slowest);
            self.watch.check()?;
        }
        Ok(())
    }
}

impl Seen {
    fn add(&mut self, count: u32, used: f64, slowest: Duration) {
        let at = self.began.elapsed().as_secs_f64();
        let each = (used - self.before) / f64::from(count);
        let mut figures = vec![
            ("running_instances", f64::from(count)),
            ("slowest_answer_ms", slowest.as_secs_f64() * 1e3),
        ];
        // What else goes on on the host is in it too, and may give back more than the first instances take.
        if each > 0.0 {
            figures.push(("host_memory_per_instance_bytes", each));
        }
        for (name, value) in figures {
            self.sample.metrics.insert(name.to_owned(), value);
            self.sample
                .series
                .entry(name.to_owned())
                .or_default()
                .push((at, value));
        }
    }
}

/// The memory of one instance, as the mean of all while all run.
fn memory_of_each(lives: &[Live]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    for live in lives {
        for (name, value) in meter::memory(&live.instance.processes()) {
            let (sum, count) = sums.entry(name).or_default();
            *sum += value;
            *count += 1;
        }
    }
    let mean = |(name, (sum, count)): (String, (f64, u32))| (name, sum / f64::from(count));
    sums.into_iter().map(mean).collect()
}

/// Asks all instances; the longest time one took.
fn slowest(lives: &[Live], limit: Duration) -> std::result::Result<Duration, String> {
    let mut slowest = Duration::ZERO;
    for (number, live) in lives.iter().enumerate() {
        let took = live
            .question
            .ask(limit)
            .map_err(|why| format!("instance {} did not answer: {why}", number + 1))?;
        if took > limit {
            return Err(format!(
                "instance {} took {:.0} ms to answer",
                number + 1,
                took.as_secs_f64() * 1e3
            ));
        }
        slowest = slowest.max(took);
    }
    Ok(slowest)
}
