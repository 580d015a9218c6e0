// SPDX-License-Identifier: Apache-2.0

//! The smallest memory with which a service starts and answers, found by halving.

use std::time::Duration;

use super::Runner;
use super::plan::{Planned, Task};
use super::session::{Live, number, place, sample};
use crate::experiment::parameters::Smallest;
use crate::{Error, Result};

/// The figure.
const METRIC: &str = "smallest_memory_bytes";
/// The search ends when it is known to this.
const STEP: u64 = 1 << 20;
/// The most an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

impl Runner<'_> {
    /// One sample. That an instance does not come up is what is looked for, unless it has all the machine's memory.
    pub(super) fn smallest(
        &mut self,
        id: u32,
        planned: &Planned,
        task: &Task,
        smallest: &Smallest,
    ) -> Result<()> {
        let all = self.memory_bytes(planned)?;
        let mut tried = 0;
        let mut serves = |runner: &mut Self, memory_bytes: u64| {
            let at = place(planned, Some(task));
            runner
                .progress
                .now(&format!("{at}: {} MiB", memory_bytes >> 20));
            let result = runner.serves(id, planned, tried, memory_bytes, smallest);
            tried += 1;
            result
        };
        serves(self, all)?;
        let found = halve(all / STEP, |steps| match serves(self, steps * STEP) {
            Err(error) if error.ends_run() => Err(error),
            result => Ok(result.is_ok()),
        })?;
        let mut sample = sample(id, planned, &task.name, task.label.clone());
        sample
            .metrics
            .insert(METRIC.to_owned(), number(found * STEP));
        self.say(planned, Some(task), &format!("serves in {found} MiB"));
        self.samples(vec![sample])
    }

    /// Starts an instance with so much memory, and asks it.
    fn serves(
        &mut self,
        id: u32,
        planned: &Planned,
        tried: u32,
        memory_bytes: u64,
        smallest: &Smallest,
    ) -> Result<()> {
        let mut live: Live = self.launch_with(id, planned, None, Some(tried), memory_bytes)?;
        self.wait_until_up(planned, &mut live, Some(smallest.limit))?;
        for _ in 0..smallest.answers {
            self.watch.check()?;
            live.question
                .ask(ANSWER_LIMIT)
                .map_err(|what| Error::Platform {
                    what,
                    log: String::new(),
                })?;
        }
        self.stop(live)
    }
}

/// The smallest number from 1 to `works` that works, if all above it do.
fn halve(works: u64, mut try_it: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let (mut fails, mut works) = (0, works);
    while works - fails > 1 {
        let middle = fails.midpoint(works);
        if try_it(middle)? {
            works = middle;
        } else {
            fails = middle;
        }
    }
    Ok(works)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_is_found_in_few_steps() {
        for wanted in 1..=100 {
            let mut steps = 0;
            let found = halve(100, |number| {
                steps += 1;
                Ok(number >= wanted)
            });
            assert_eq!(found.unwrap(), wanted);
            assert!(steps <= 7);
        }
        assert!(halve(9, |_| Err(Error::Interrupted)).is_err());
    }
}
