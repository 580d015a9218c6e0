// SPDX-License-Identifier: Apache-2.0

//! Nothing may hang without limit: each phase has a time, after which its work is cancelled, and a little later what it
//! waits for is killed. The user's Ctrl-C cancels in the same way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::leftovers;
use crate::{Error, Result};

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(20);
/// How long what was cancelled may take to end of itself.
const GRACE: Duration = Duration::from_secs(30);

/// Watches over a run.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The user wants the run to end.
    interrupted: Arc<AtomicBool>,
    /// The work of this phase shall end.
    cancel: AtomicBool,
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Phase {
    deadline: Option<Instant>,
    /// Processes without which the work has no sense: all of them gone end it.
    needs: Vec<u32>,
    ended: Option<Ended>,
    over: bool,
}

/// Why a phase was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// Its time was over.
    Late,
    /// The processes it needs are gone.
    Alone,
}

impl Watch {
    /// Begins to watch. `interrupted` is set by whoever hears Ctrl-C.
    #[must_use]
    pub fn new(interrupted: Arc<AtomicBool>) -> Watch {
        let shared = Arc::new(Shared {
            interrupted,
            cancel: AtomicBool::new(false),
            phase: Mutex::default(),
            changed: Condvar::new(),
        });
        let watching = Arc::clone(&shared);
        let thread = std::thread::spawn(move || watching.watch());
        Watch {
            shared,
            thread: Some(thread),
        }
    }

    /// Whether the user wants the run to end.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.shared.interrupted.load(Ordering::SeqCst)
    }

    /// [`Error::Interrupted`] if so.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self) -> Result<()> {
        if self.is_interrupted() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Does `work`, whose flag is set when the user wants it to end, `limit` is over or all the processes it `needs` are gone.
    /// Work that ends because of the latter two has failed.
    ///
    /// # Errors
    /// Those of the work; [`Error::Interrupted`] only when the user wants it.
    pub fn phase<T>(
        &self,
        what: &str,
        limit: Duration,
        needs: &[u32],
        work: impl FnOnce(&AtomicBool) -> Result<T>,
    ) -> Result<T> {
        self.set(Some(Instant::now() + limit), needs);
        let result = work(&self.shared.cancel);
        let ended = self.set(None, &[]);
        let fail = |what, error: Error| {
            Err(Error::Platform {
                what,
                log: error.to_string(),
            })
        };
        match (result, ended) {
            (Err(_), _) if self.is_interrupted() => Err(Error::Interrupted),
            (Err(error), Some(Ended::Late)) => {
                let limit = limit.as_secs_f64();
                fail(format!("{what}: not done within {limit:.0} s"), error)
            }
            (Err(error), Some(Ended::Alone)) => {
                fail(format!("{what}: the service ended under it"), error)
            }
            (result, _) => result,
        }
    }

    /// Rests; shorter when the user wants the run to end.
    ///
    /// # Errors
    /// [`Error::Interrupted`]
    pub fn rest(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.check()?;
            std::thread::sleep(left.min(TICK));
        }
        self.check()
    }

    /// Begins another phase; answers why the one before was ended, if it was.
    fn set(&self, deadline: Option<Instant>, needs: &[u32]) -> Option<Ended> {
        let mut phase = self.shared.lock();
        let ended = phase.ended.take();
        phase.deadline = deadline;
        phase.needs = needs.to_owned();
        self.shared.cancel.store(false, Ordering::SeqCst);
        ended
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A watch that panicked has nothing left to end.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut phase = self.lock();
        let mut cancelled: Option<Instant> = None;
        while !phase.over {
            let now = Instant::now();
            let interrupted = self.interrupted.load(Ordering::SeqCst);
            if let Some(deadline) = phase.deadline {
                let alone = !phase.needs.is_empty() && !phase.needs.iter().any(|pid| lives(*pid));
                if now >= deadline {
                    phase.ended = phase.ended.or(Some(Ended::Late));
                } else if alone {
                    phase.ended = phase.ended.or(Some(Ended::Alone));
                }
            }
            if phase.deadline.is_some() && (phase.ended.is_some() || interrupted) {
                self.cancel.store(true, Ordering::SeqCst);
                let since = *cancelled.get_or_insert(now);
                if now.duration_since(since) > GRACE {
                    // What the phase waits for does not hear; without it the wait ends.
                    for name in leftovers::kill_own() {
                        eprintln!("coracle lab: {name} did not end and was killed");
                    }
                    cancelled = Some(now);
                }
            } else {
                cancelled = None;
            }
            phase = self
                .changed
                .wait_timeout(phase, TICK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Whether a process runs: there, and no zombie (`proc_pid_stat(5)`).
fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for(cancel: &AtomicBool) -> Result<()> {
        let begin = Instant::now();
        while !cancel.load(Ordering::SeqCst) {
            assert!(begin.elapsed() < Duration::from_secs(10), "never cancelled");
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Error::Interrupted)
    }

    #[test]
    fn work_is_cancelled_when_its_time_is_over() {
        let watch = Watch::new(Arc::default());
        let error = watch
            .phase("load", Duration::from_millis(30), &[], wait_for)
            .unwrap_err();
        assert!(
            error.to_string().contains("load: not done within"),
            "{error}"
        );
        // The next phase is not.
        watch
            .phase("next", Duration::from_secs(9), &[], |cancel| {
                std::thread::sleep(TICK * 3);
                assert!(!cancel.load(Ordering::SeqCst));
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn work_is_cancelled_when_the_user_wants_it() {
        let interrupted = Arc::new(AtomicBool::new(false));
        let watch = Watch::new(Arc::clone(&interrupted));
        watch.rest(Duration::from_millis(1)).unwrap();
        interrupted.store(true, Ordering::SeqCst);
        let error = watch.phase("load", Duration::from_secs(9), &[], wait_for);
        assert!(matches!(error, Err(Error::Interrupted)));
        assert!(matches!(
            watch.rest(Duration::from_secs(9)),
            Err(Error::Interrupted)
        ));
    }

    #[test]
    fn work_is_cancelled_when_the_service_is_gone() {
        let watch = Watch::new(Arc::default());
        let mut child = std::process::Command::new("sleep")
            .arg("9")
            .spawn()
            .unwrap();
        let pid = child.id();
        child.kill().unwrap();
        // Still a zombie here.
        let error = watch
            .phase("load", Duration::from_secs(9), &[pid], wait_for)
            .unwrap_err();
        assert!(error.to_string().contains("the service ended"), "{error}");
        child.wait().unwrap();
        let own = [std::process::id(), pid];
        let limit = Duration::from_millis(60);
        let error = watch.phase("load", limit, &own, wait_for).unwrap_err();
        assert!(error.to_string().contains("not done"), "{error}");
    }
}
