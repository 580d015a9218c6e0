// SPDX-License-Identifier: Apache-2.0
//! POSIX timers: timer_create(2) and its kind.
//!
//! A repeating timer has one signal on its way at most. The expirations between that signal and its being taken are
//! counted as overruns, and only then the next one is armed: a timer cannot flood the application.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

use coracle_abi::convert::{low_u32, usize_from};
use coracle_abi::raw::general as g;
use coracle_abi::signal::{SigInfo, Signal};
use coracle_core::sync::SpinLock;
use coracle_core::thread::{self, Thread};
use coracle_core::timer::{Timer, TimerTarget};
use coracle_core::user::User;
use coracle_core::{Errno, Result, signal, time as kernel_time};

use super::clock::{Clock, cpu_time_patience, timespec_of};
use crate::wait::timeout::nanoseconds;

/// Most timers of the process (each may have a signal queued: `RLIMIT_SIGPENDING`).
const LIMIT: usize = 1024;

/// How long after an expiration a repeating timer looks whether its signal is still queued. Usually the signal is
/// taken before and re-arms the timer; if it was dropped (because it is ignored), nobody else would.
const LOOK_AGAIN_NS: u64 = 10_000_000;

/// A repeating timer fires at most this often, so that a tiny interval leaves time for the application.
const LEAST_INTERVAL_NS: u64 = 20_000;

struct PosixTimer {
    id: u32,
    clock: Measure,
    notify: Notify,
    state: SpinLock<State>,
    timer: Timer,
}

/// By what a timer measures.
enum Measure {
    Wall,
    Monotonic,
    Process,
    Thread(Weak<Thread>),
}

enum Notify {
    Nobody,
    Process(Signal, u64),
    Thread(Weak<Thread>, Signal, u64),
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The next expiration, or the one whose signal is on its way.
    next_ns: Option<u64>,
    /// 0 for once.
    interval_ns: u64,
    /// `next_ns` is a time of day; else it is of the monotonic clock even if the timer's clock is the wall clock.
    is_wall: bool,
    /// The signal of `next_ns` was sent and not taken.
    sent: bool,
    /// Overruns of the signal taken last.
    overruns: u32,
}

#[derive(Default)]
struct Table {
    timers: BTreeMap<u32, Arc<PosixTimer>>,
    next_id: u32,
}

static TABLE: SpinLock<Table> = SpinLock::new(Table {
    timers: BTreeMap::new(),
    next_id: 0,
});

fn find(id: i32) -> Result<Arc<PosixTimer>> {
    let id = u32::try_from(id).map_err(|_| Errno::EINVAL)?;
    TABLE.lock().timers.get(&id).cloned().ok_or(Errno::EINVAL)
}

impl Notify {
    /// From `struct sigevent`: value, signal, kind, thread. To the kernel `SIGEV_THREAD` is `SIGEV_SIGNAL`.
    fn parse(event: [u64; 8]) -> Result<Self> {
        let (value, number, kind) = (event[0], low_u32(event[1]), low_u32(event[1] >> 32));
        let signal = Signal::new(number).ok_or(Errno::EINVAL);
        match kind {
            g::SIGEV_NONE => Ok(Self::Nobody),
            g::SIGEV_SIGNAL | g::SIGEV_THREAD => Ok(Self::Process(signal?, value)),
            g::SIGEV_THREAD_ID => {
                let thread = thread::find(low_u32(event[2])).ok_or(Errno::EINVAL)?;
                Ok(Self::Thread(Arc::downgrade(&thread), signal?, value))
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

impl PosixTimer {
    /// What its clock shows; `None` if that was the clock of a thread that is gone.
    fn now(&self, is_wall: bool) -> Option<u64> {
        match &self.clock {
            Measure::Wall if is_wall => Some(kernel_time::wall()),
            Measure::Wall | Measure::Monotonic => Some(kernel_time::now()),
            Measure::Process => Some(thread::process_cpu_ns()),
            Measure::Thread(thread) => thread.upgrade().map(|t| t.cpu_ns()),
        }
    }

    /// Arms the kernel's timer for `next_ns`, but not before `least_ns` from now.
    fn arm(&self, state: &State, least_ns: u64) {
        let (Some(next), Some(now)) = (state.next_ns, self.now(state.is_wall)) else {
            return self.timer.cancel();
        };
        if matches!(self.notify, Notify::Nobody) {
            return; // its state follows from the clock when it is asked for
        }
        let at = match self.clock {
            Measure::Wall if state.is_wall => kernel_time::monotonic_of_wall(next),
            Measure::Wall | Measure::Monotonic => next,
            Measure::Process | Measure::Thread(_) if next <= now => 0,
            Measure::Process | Measure::Thread(_) => {
                kernel_time::now().saturating_add(cpu_time_patience(next - now))
            }
        };
        let least = if least_ns > 0 {
            kernel_time::now() + least_ns
        } else {
            0
        };
        self.timer.arm(at.max(least));
    }

    /// Time left and interval, in nanoseconds.
    fn left(&self, state: &State) -> (u64, u64) {
        let (Some(next), Some(now)) = (state.next_ns, self.now(state.is_wall)) else {
            return (0, state.interval_ns);
        };
        let left = if now < next {
            next - now
        } else if state.interval_ns > 0 {
            state.interval_ns - (now - next) % state.interval_ns
        } else {
            // Over, but whoever is to be told was not yet.
            u64::from(!matches!(self.notify, Notify::Nobody))
        };
        (left, state.interval_ns)
    }

    fn set(&self, value_ns: u64, interval_ns: u64, absolute: bool) -> (u64, u64) {
        let mut state = self.state.lock();
        let before = self.left(&state);
        let is_wall = absolute && matches!(self.clock, Measure::Wall);
        let base = if absolute { Some(0) } else { self.now(false) };
        *state = State {
            next_ns: base
                .filter(|_| value_ns > 0)
                .map(|base| base.saturating_add(value_ns)),
            interval_ns,
            is_wall,
            ..State::default()
        };
        self.arm(&state, 0);
        before
    }

    fn is_queued(&self) -> bool {
        match &self.notify {
            Notify::Nobody => false,
            Notify::Process(..) => signal::is_timer_pending(None, self.id),
            Notify::Thread(thread, ..) => thread
                .upgrade()
                .is_some_and(|t| signal::is_timer_pending(Some(&t), self.id)),
        }
    }

    fn send(&self) {
        // A full queue loses the expiration; it is counted with the next one.
        let _ = match &self.notify {
            Notify::Nobody => Ok(()),
            Notify::Process(signal, value) => {
                signal::send_to_process(SigInfo::timer(*signal, self.id, 0, *value))
            }
            Notify::Thread(thread, signal, value) => thread.upgrade().map_or(Ok(()), |t| {
                signal::send_to_thread(&t, SigInfo::timer(*signal, self.id, 0, *value))
            }),
        };
    }

    /// The signal is being taken: counts the overruns and arms the next expiration.
    fn on_taken(&self) -> u32 {
        let mut state = self.state.lock();
        if !core::mem::take(&mut state.sent) {
            return 0;
        }
        state.overruns = 0;
        if let (Some(next), Some(now)) = (state.next_ns, self.now(state.is_wall)) {
            state.next_ns = None;
            if let Some(missed) = now.saturating_sub(next).checked_div(state.interval_ns) {
                state.next_ns =
                    Some(next.saturating_add((missed + 1).saturating_mul(state.interval_ns)));
                state.overruns = u32::try_from(missed)
                    .unwrap_or(u32::MAX)
                    .min(i32::MAX as u32);
                self.arm(&state, LEAST_INTERVAL_NS);
            }
        }
        state.overruns
    }
}

impl TimerTarget for PosixTimer {
    fn on_timer(&self) {
        let mut state = self.state.lock();
        let (Some(next), Some(now)) = (state.next_ns, self.now(state.is_wall)) else {
            return;
        };
        if now < next {
            return self.arm(&state, 0); // processor time advanced less than it could
        }
        let queued = self.is_queued();
        state.sent = true;
        if state.interval_ns == 0 {
            state.next_ns = None;
        } else {
            let wait = state.interval_ns.max(LOOK_AGAIN_NS);
            self.timer.arm(kernel_time::now().saturating_add(wait));
        }
        drop(state);
        if !queued {
            self.send();
        }
    }
}

/// Completes the signal of a timer that is being taken.
fn complete(info: &mut SigInfo) {
    let id = low_u32(info.fields[0]);
    let timer = TABLE.lock().timers.get(&id).cloned();
    let overruns = timer.map_or(0, |t| t.on_taken());
    info.fields[0] = u64::from(overruns) << 32 | u64::from(id);
}

/// The wall clock was set: timers that wait for a time of day wait for the new one.
pub(super) fn on_wall_changed() {
    let timers: alloc::vec::Vec<_> = TABLE.lock().timers.values().cloned().collect();
    for timer in timers {
        let state = timer.state.lock();
        if state.is_wall && !state.sent {
            timer.arm(&state, 0);
        }
    }
}

/// `timer_create(2)`. `EAGAIN` when there are too many.
pub(crate) fn timer_create(clock: i32, event: User, out: User) -> Result<usize> {
    let event: Option<[u64; 8]> = event.optional().map(User::read).transpose()?;
    let clock = match Clock::parse(clock)? {
        Clock::Wall => Measure::Wall,
        Clock::Monotonic => Measure::Monotonic,
        Clock::ReadOnly(_) => return Err(Errno::EOPNOTSUPP),
        Clock::Process => Measure::Process,
        Clock::Thread(tid) => {
            Measure::Thread(Arc::downgrade(&thread::find(tid).ok_or(Errno::EINVAL)?))
        }
    };
    let notify = event.map(Notify::parse).transpose()?;
    signal::set_timer_hook(complete);
    let id = {
        let mut table = TABLE.lock();
        if table.timers.len() >= LIMIT {
            return Err(Errno::EAGAIN);
        }
        let mut id = table.next_id;
        while table.timers.contains_key(&id) {
            id = (id + 1) & 0x7fff_ffff;
        }
        table.next_id = (id + 1) & 0x7fff_ffff;
        let timer = Arc::new_cyclic(|me: &Weak<PosixTimer>| PosixTimer {
            id,
            clock,
            notify: notify.unwrap_or(Notify::Process(Signal::SIGALRM, u64::from(id))),
            state: SpinLock::new(State::default()),
            timer: Timer::new(me.clone()),
        });
        table.timers.insert(id, timer);
        id
    };
    if let Err(error) = out.write(id) {
        let removed = TABLE.lock().timers.remove(&id);
        drop(removed);
        return Err(error);
    }
    Ok(0)
}

/// `timer_settime(2)`
pub(crate) fn timer_settime(id: i32, flags: u32, new: User, old: User) -> Result<usize> {
    if new.is_null() || flags & !g::TIMER_ABSTIME != 0 {
        return Err(Errno::EINVAL);
    }
    let new: g::__kernel_itimerspec = new.read()?;
    let value_ns = nanoseconds(new.it_value.tv_sec, new.it_value.tv_nsec)?;
    let interval_ns = nanoseconds(new.it_interval.tv_sec, new.it_interval.tv_nsec)?;
    let before = find(id)?.set(value_ns, interval_ns, flags & g::TIMER_ABSTIME != 0);
    if let Some(old) = old.optional() {
        old.write(itimerspec(before))?;
    }
    Ok(0)
}

/// `timer_gettime(2)`
pub(crate) fn timer_gettime(id: i32, out: User) -> Result<usize> {
    let timer = find(id)?;
    let left = timer.left(&timer.state.lock());
    out.write(itimerspec(left))?;
    Ok(0)
}

/// `timer_getoverrun(2)`: overruns of the signal that was taken last.
pub(crate) fn timer_getoverrun(id: i32) -> Result<usize> {
    let overruns = find(id)?.state.lock().overruns;
    Ok(usize_from(u64::from(overruns)))
}

/// `timer_delete(2)`. A signal that is queued already stays.
pub(crate) fn timer_delete(id: i32) -> Result<usize> {
    let timer = find(id)?;
    let removed = TABLE.lock().timers.remove(&timer.id);
    timer.timer.cancel();
    drop(removed);
    Ok(0)
}

/// Deletes all timers, as `execve(2)` does.
pub(crate) fn forget_program() {
    let timers = core::mem::take(&mut TABLE.lock().timers);
    for timer in timers.values() {
        timer.timer.cancel();
    }
}

fn itimerspec((value_ns, interval_ns): (u64, u64)) -> g::__kernel_itimerspec {
    g::__kernel_itimerspec {
        it_interval: timespec_of(interval_ns),
        it_value: timespec_of(value_ns),
    }
}
