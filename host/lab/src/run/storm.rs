// SPDX-License-Identifier: Apache-2.0

//! Boot storm: many instances run; one at random is killed and started again, and again.

use std::time::{Duration, Instant};

use super::Runner;
use super::plan::{Planned, Task};
use super::probe::Question;
use super::random::Random;
use super::session::{Live, place, sample};
use crate::Result;
use crate::experiment::Ready;
use crate::experiment::parameters::Storm;
use crate::record::Sample;

/// The figure of the sample that closes a storm.
pub(super) const CLOSES: &str = "restarts";
/// How long it may take to kill an instance.
const KILL_LIMIT: Duration = Duration::from_secs(60);
/// So many restarts that fail one after the other end it.
const FAILURES_MAX: u32 = 5;

impl Runner<'_> {
    /// One sample for each restart, and one that closes it.
    pub(super) fn storm(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        storm: &Storm,
    ) -> Result<()> {
        let mut lives: Vec<Option<Live>> = Vec::new();
        for number in 0..storm.instances {
            let what = format!(
                "{}: instance {} of {}",
                place(planned, Some(task)),
                number + 1,
                storm.instances
            );
            self.progress.now(&what);
            lives.push(Some(self.another(id, planned, storm, number)?));
        }
        let stream = u64::from(planned.round) << 32 | u64::from(storm.instances);
        let mut random = Random::new(self.seed, stream);
        let (mut restarts, mut failures) = (0_u32, 0);
        let end = Instant::now() + storm.duration;
        while Instant::now() < end {
            let chosen = random.below(lives.len());
            if let Some(Live {
                instance,
                attachment,
                ..
            }) = lives[chosen].take()
            {
                let ended = self
                    .watch
                    .phase("kill", KILL_LIMIT, &[], |_| instance.stop(Duration::ZERO));
                drop(attachment);
                match ended {
                    // It is gone all the same: what is left of it went with it.
                    Err(error) if !error.ends_run() => {
                        self.progress
                            .say(&format!("an instance did not end in order: {error}"));
                    }
                    ended => drop(ended?),
                }
            }
            match self.another(id, planned, storm, u32::MAX) {
                Ok(live) => {
                    let took = live.took;
                    lives[chosen] = Some(live);
                    failures = 0;
                    restarts += 1;
                    let one = restart(sample(id, planned, &task.name, task.label.clone()), took);
                    self.samples(vec![one])?;
                    let line =
                        format!("restart {restarts} took {:.1} ms", took.as_secs_f64() * 1e3);
                    self.progress
                        .now(&format!("{}: {line}", place(planned, Some(task))));
                }
                Err(error) => {
                    failures += 1;
                    if failures >= FAILURES_MAX {
                        return Err(error);
                    }
                    self.failed(id, planned, Some(task), error)?;
                }
            }
            self.watch.rest(storm.pause)?;
        }
        self.say(planned, Some(task), &format!("{restarts} restarts"));
        let mut close = sample(id, planned, &task.name, task.label.clone());
        close.metrics.insert(CLOSES.to_owned(), f64::from(restarts));
        self.samples(vec![close])
    }

    /// Starts one of many and waits for its answer. They are not pinned: they share all processors.
    fn another(&mut self, id: u32, planned: &Planned, storm: &Storm, number: u32) -> Result<Live> {
        let mut live = self.launch(id, planned, None, Some(number))?;
        if storm.ping {
            live.question = Question {
                ready: Ready::Ping,
                ..live.question
            };
        }
        let answered = self.wait_until_up(planned, &mut live, None)?;
        live.took = answered - live.since;
        Ok(live)
    }
}

fn restart(mut sample: Sample, took: Duration) -> Sample {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    sample.metrics.insert("restart_ms".to_owned(), ms(took));
    // The study read the microseconds of a time difference and left out its seconds.
    let fraction = Duration::from_micros(took.subsec_micros().into());
    sample
        .metrics
        .insert("restart_legacy_ms".to_owned(), ms(fraction));
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cell;

    #[test]
    fn the_studys_timer_drops_whole_seconds() {
        let planned = Planned {
            round: 0,
            cell: Cell {
                platform: "unikernel".into(),
                service: "dns".into(),
                vcpus: 1,
            },
            service: 0,
            tasks: Vec::new(),
        };
        let of = |ms| {
            let one = sample(0, &planned, "storm", std::collections::BTreeMap::new());
            let one = restart(one, Duration::from_millis(ms));
            (one.metrics["restart_ms"], one.metrics["restart_legacy_ms"])
        };
        assert_eq!(of(99), (99.0, 99.0));
        assert_eq!(of(2099), (2099.0, 99.0));
    }
}
