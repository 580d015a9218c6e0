// SPDX-License-Identifier: Apache-2.0
//! Sleeping as an ordinary thread does, for host tests.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use coracle_core::PollEvents;
use coracle_core::poll::Waiter;
use coracle_core::time;

#[derive(Default)]
struct Sleeper {
    notified: Mutex<bool>,
    wake: Condvar,
}

impl Waiter for Sleeper {
    fn notify(&self, _: PollEvents) -> bool {
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
        !core::mem::replace(&mut notified, true)
    }
}

thread_local! {
    static SLEEPER: RefCell<Arc<Sleeper>> = RefCell::default();
}

fn sleeper() -> Arc<Sleeper> {
    SLEEPER.with_borrow(Arc::clone)
}

/// As `coracle_core::thread::Wake`; nothing interrupts a host test.
pub(super) enum Wake {
    Notified,
    TimedOut,
    #[expect(dead_code, reason = "host tests have no signals")]
    Interrupted,
}

pub(super) fn current_waiter() -> Arc<dyn Waiter> {
    sleeper()
}

pub(super) fn prepare_to_wait() {
    let sleeper = sleeper();
    *sleeper.notified.lock().unwrap_or_else(PoisonError::into_inner) = false;
}

pub(super) fn sleep_until(deadline: Option<u64>) -> Wake {
    let sleeper = sleeper();
    let notified = sleeper.notified.lock().unwrap_or_else(PoisonError::into_inner);
    // Without a deadline a lost notification fails the test instead of hanging it.
    let patience = deadline.map_or(Duration::from_secs(30), |deadline| {
        Duration::from_nanos(deadline.saturating_sub(time::now()))
    });
    let (notified, outcome) = sleeper
        .wake
        .wait_timeout_while(notified, patience, |notified| !*notified)
        .unwrap_or_else(PoisonError::into_inner);
    if *notified {
        Wake::Notified
    } else {
        assert!(deadline.is_some() || !outcome.timed_out(), "nobody woke the thread");
        Wake::TimedOut
    }
}

pub(super) fn set_restart(_allowed: bool) {}
