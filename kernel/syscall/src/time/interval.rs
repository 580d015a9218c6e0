// SPDX-License-Identifier: Apache-2.0
//! The three timers each process has: setitimer(2), alarm(2).
//!
//! The timer of real time is a kernel timer. Those of processor time look at the processor time when it can have
//! advanced far enough at the earliest, and again until it has; they are late by at most a millisecond.

use alloc::sync::{Arc, Weak};

use coracle_abi::convert::usize_from;
use coracle_abi::raw::general as g;
use coracle_abi::signal::{SI_KERNEL, SigInfo, Signal};
use coracle_core::sync::SpinLock;
use coracle_core::timer::{Timer, TimerTarget};
use coracle_core::user::User;
use coracle_core::{Errno, Result, signal, thread, time as kernel_time};

use super::clock::cpu_time_patience;
use super::{NS_PER_S, timeval_ns, timeval_of};

/// A repeating timer fires at most this often, so that a tiny interval leaves time for the application.
const LEAST_INTERVAL_NS: u64 = 20_000;

struct IntervalTimer {
    kind: Kind,
    setting: SpinLock<Setting>,
    timer: Timer,
}

#[derive(Clone, Copy, Default)]
struct Setting {
    /// When it fires, by its own clock; `None` while it is off.
    next_ns: Option<u64>,
    /// How long after that again; 0 for once.
    interval_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Real,
    Virtual,
    Prof,
}

static TIMERS: SpinLock<[Option<Arc<IntervalTimer>>; 3]> = SpinLock::new([None, None, None]);

impl Kind {
    fn parse(which: i32) -> Result<Self> {
        match u32::try_from(which) {
            Ok(g::ITIMER_REAL) => Ok(Self::Real),
            Ok(g::ITIMER_VIRTUAL) => Ok(Self::Virtual),
            Ok(g::ITIMER_PROF) => Ok(Self::Prof),
            _ => Err(Errno::EINVAL),
        }
    }

    fn signal(self) -> Signal {
        match self {
            Self::Real => Signal::SIGALRM,
            Self::Virtual => Signal::SIGVTALRM,
            Self::Prof => Signal::SIGPROF,
        }
    }

    fn now(self) -> u64 {
        match self {
            Self::Real => kernel_time::now(),
            Self::Virtual | Self::Prof => thread::process_cpu_ns(),
        }
    }

    /// Its timer, made when it is used first.
    fn timer(self) -> Arc<IntervalTimer> {
        let mut timers = TIMERS.lock();
        let slot = &mut timers[self as usize];
        slot.get_or_insert_with(|| {
            Arc::new_cyclic(|me: &Weak<IntervalTimer>| IntervalTimer {
                kind: self,
                setting: SpinLock::new(Setting::default()),
                timer: Timer::new(me.clone()),
            })
        })
        .clone()
    }
}

impl IntervalTimer {
    /// Time left and interval, in nanoseconds.
    fn left(&self, setting: Setting) -> (u64, u64) {
        let left = setting
            .next_ns
            .map_or(0, |next| next.saturating_sub(self.kind.now()).max(1000));
        (left, setting.interval_ns)
    }

    fn get(&self) -> (u64, u64) {
        self.left(*self.setting.lock())
    }

    /// Lets it fire after `value_ns` (0: never) and then every `interval_ns`; returns what `get` did before.
    fn set(&self, value_ns: u64, interval_ns: u64) -> (u64, u64) {
        let mut setting = self.setting.lock();
        let before = self.left(*setting);
        *setting = Setting {
            next_ns: (value_ns > 0).then(|| self.kind.now().saturating_add(value_ns)),
            interval_ns,
        };
        self.arm(*setting, 0);
        before
    }

    fn arm(&self, setting: Setting, least_ns: u64) {
        let Some(next) = setting.next_ns else {
            return self.timer.cancel();
        };
        let now = kernel_time::now();
        self.timer.arm(match self.kind {
            Kind::Real => next.max(now + least_ns),
            Kind::Virtual | Kind::Prof => {
                now.saturating_add(cpu_time_patience(next.saturating_sub(self.kind.now())))
            }
        });
    }
}

impl TimerTarget for IntervalTimer {
    fn on_timer(&self) {
        let mut setting = self.setting.lock();
        let now = self.kind.now();
        let Some(next) = setting.next_ns else { return };
        let due = now >= next;
        if due {
            setting.next_ns = (now - next).checked_div(setting.interval_ns).map(|missed| {
                next.saturating_add((missed + 1).saturating_mul(setting.interval_ns))
            });
        }
        self.arm(*setting, LEAST_INTERVAL_NS);
        drop(setting);
        if due {
            // A standard signal is queued once at most, so this cannot fail.
            let _ = signal::send_to_process(SigInfo::new(self.kind.signal(), SI_KERNEL));
        }
    }
}

fn itimerval((value_ns, interval_ns): (u64, u64)) -> g::itimerval {
    g::itimerval {
        it_interval: timeval_of(interval_ns),
        it_value: timeval_of(value_ns),
    }
}

/// `getitimer(2)`
pub(crate) fn getitimer(which: i32, out: User) -> Result<usize> {
    let kind = Kind::parse(which)?;
    out.write(itimerval(kind.timer().get()))?;
    Ok(0)
}

/// `setitimer(2)`. As on Linux, NULL for the new value turns the timer off.
pub(crate) fn setitimer(which: i32, new: User, old: User) -> Result<usize> {
    let (value_ns, interval_ns) = match new.optional() {
        Some(new) => {
            let new: g::itimerval = new.read()?;
            (timeval_ns(&new.it_value)?, timeval_ns(&new.it_interval)?)
        }
        None => (0, 0),
    };
    let before = Kind::parse(which)?.timer().set(value_ns, interval_ns);
    if let Some(old) = old.optional() {
        old.write(itimerval(before))?;
    }
    Ok(0)
}

/// `alarm(2)`: returns the seconds that were left, rounded, and at least 1 if any time was.
pub(crate) fn alarm(seconds: u32) -> Result<usize> {
    let (left_ns, _) = Kind::Real.timer().set(u64::from(seconds) * NS_PER_S, 0);
    let rounded = (left_ns + NS_PER_S / 2) / NS_PER_S;
    let left = if left_ns > 0 { rounded.max(1) } else { 0 };
    Ok(usize_from(left))
}
