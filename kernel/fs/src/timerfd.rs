// SPDX-License-Identifier: Apache-2.0
//! Timers that are read: timerfd_create(2).
//!
//! After an expiry the timer is not armed again before somebody reads or sets it: the expirations meanwhile follow from
//! the clock. So a short interval costs one interrupt per read, not one per interval.

use alloc::sync::{Arc, Weak};
use core::any::Any;

use coracle_core::file::{File, Metadata};
use coracle_core::io::IoDst;
use coracle_core::poll::{PollSource, WaitToken, Waiter};
use coracle_core::sync::SpinLock;
use coracle_core::time;
use coracle_core::timer::{Timer, TimerTarget};

use crate::{Errno, PollEvents, Result};

/// Which clock absolute times are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time of day.
    Realtime,
    /// Time since boot.
    Monotonic,
}

/// `struct itimerspec` in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// First expiry; 0 disarms.
    pub value_ns: u64,
    /// Distance of further expiries; 0 for none.
    pub interval_ns: u64,
}

#[derive(Default)]
struct State {
    /// The next expiry, monotonic; 0 if disarmed.
    next_ns: u64,
    interval_ns: u64,
    /// The next expiry as a time of day, if that is what was asked for.
    wall_ns: Option<u64>,
    /// `TFD_TIMER_CANCEL_ON_SET`
    cancel_on_set: bool,
    /// The wall clock was set since; the next read says so.
    canceled: bool,
}

impl State {
    /// Expirations up to `now` that were not read yet.
    fn expired(&self, now: u64) -> u64 {
        if self.next_ns == 0 || now < self.next_ns {
            return 0;
        }
        let more = (now - self.next_ns).checked_div(self.interval_ns);
        more.unwrap_or(0) + 1
    }
}

/// A timer with a descriptor.
pub struct TimerFd {
    clock: Clock,
    state: SpinLock<State>,
    timer: Timer,
    source: PollSource,
    wall_watch: Option<WaitToken>,
}

/// Tells a timer that the wall clock was set.
struct WallWatch(Weak<TimerFd>);

impl Waiter for WallWatch {
    fn notify(&self, _: PollEvents) -> bool {
        self.0.upgrade().is_some_and(|timer| timer.on_wall_set())
    }
}

/// The time of the monotonic clock at which a time of day comes. One that is past expires at once.
fn at_wall(wall_ns: u64) -> u64 {
    time::monotonic_of_wall(wall_ns).max(1)
}

impl Drop for TimerFd {
    fn drop(&mut self) {
        if let Some(token) = self.wall_watch {
            time::wall_changed().detach(token);
        }
    }
}

impl TimerFd {
    /// A disarmed timer.
    #[must_use]
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| Self {
            clock,
            state: SpinLock::default(),
            timer: Timer::new(me.clone()),
            source: PollSource::new(),
            wall_watch: (clock == Clock::Realtime).then(|| {
                let watch = Arc::new(WallWatch(me.clone()));
                time::wall_changed().attach(watch, PollEvents::IN, false)
            }),
        })
    }

    /// `timerfd_settime(2)`; returns the old setting. With `cancel_on_set` a read fails with `ECANCELED` once when the
    /// wall clock was set and the timer waits for a time of day.
    pub fn set(&self, setting: Setting, absolute: bool, cancel_on_set: bool) -> Setting {
        let now = time::now();
        let is_wall = absolute && self.clock == Clock::Realtime;
        let next_ns = match setting.value_ns {
            0 => 0,
            value if !absolute => now.saturating_add(value),
            value if is_wall => at_wall(value),
            value => value,
        };
        let mut state = self.state.lock();
        let old = left(&state, now);
        *state = State {
            next_ns,
            interval_ns: setting.interval_ns,
            wall_ns: (is_wall && next_ns != 0).then_some(setting.value_ns),
            cancel_on_set: is_wall && cancel_on_set,
            canceled: false,
        };
        // Under the lock, so that two settings arm the timer in the order in which they are stored.
        if next_ns == 0 {
            self.timer.cancel();
        } else {
            self.timer.arm(next_ns);
        }
        old
    }

    /// The wall clock was set: a timer that waits for a time of day waits for the new one. Returns whether it does.
    fn on_wall_set(&self) -> bool {
        let mut state = self.state.lock();
        let Some(wall_ns) = state.wall_ns else {
            return false;
        };
        state.next_ns = at_wall(wall_ns);
        self.timer.arm(state.next_ns);
        state.canceled = state.cancel_on_set;
        let canceled = state.canceled;
        drop(state);
        if canceled {
            self.source.notify(PollEvents::IN | PollEvents::RDNORM);
        }
        true
    }

    /// `timerfd_gettime(2)`: the time left and the interval.
    #[must_use]
    pub fn get(&self) -> Setting {
        left(&self.state.lock(), time::now())
    }
}

fn left(state: &State, now: u64) -> Setting {
    let value_ns = match (state.next_ns, state.interval_ns) {
        (0, _) => 0,
        (next, _) if next > now => next - now,
        (_, 0) => 0,
        (next, interval) => interval - (now - next) % interval,
    };
    Setting {
        value_ns,
        interval_ns: state.interval_ns,
    }
}

impl TimerTarget for TimerFd {
    fn on_timer(&self) {
        self.source.notify(PollEvents::IN | PollEvents::RDNORM);
    }
}

impl File for TimerFd {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        if dst.remaining() < size_of::<u64>() {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        if core::mem::take(&mut state.canceled) {
            return Err(Errno::ECANCELED);
        }
        let count = state.expired(time::now());
        if count == 0 {
            return Err(Errno::EAGAIN);
        }
        let written = dst.write(&count.to_ne_bytes())?;
        if written < size_of::<u64>() {
            return Err(Errno::EFAULT);
        }
        if state.interval_ns == 0 {
            state.next_ns = 0;
            state.wall_ns = None;
        } else {
            let step = state.interval_ns.saturating_mul(count);
            state.next_ns = state.next_ns.saturating_add(step);
            state.wall_ns = state.wall_ns.map(|wall| wall.saturating_add(step));
            self.timer.arm(state.next_ns);
        }
        Ok(written)
    }

    fn poll(&self) -> PollEvents {
        let state = self.state.lock();
        if state.canceled || state.expired(time::now()) > 0 {
            PollEvents::IN | PollEvents::RDNORM
        } else {
            PollEvents::empty()
        }
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(&self.source)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(crate::anonymous::metadata())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(timer: &TimerFd) -> Result<u64> {
        let mut out = [0; 8];
        timer.read(&mut IoDst::kernel(&mut out))?;
        Ok(u64::from_ne_bytes(out))
    }

    fn setting(value_ns: u64, interval_ns: u64) -> Setting {
        Setting {
            value_ns,
            interval_ns,
        }
    }

    fn sleep(ms: u64) {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }

    #[test]
    fn expirations_are_counted_by_the_clock() {
        let timer = TimerFd::new(Clock::Monotonic);
        assert_eq!(
            (read(&timer), timer.get()),
            (Err(Errno::EAGAIN), Setting::default())
        );
        timer.set(setting(2 * MS, 5 * MS), false, false);
        let left = timer.get();
        assert!(left.value_ns <= 2 * MS && left.interval_ns == 5 * MS);
        sleep(15);
        assert!(timer.poll().contains(PollEvents::IN));
        let count = read(&timer).unwrap();
        assert!(count >= 3, "{count} expirations in 15 ms");
        assert!(timer.get().value_ns <= 5 * MS);
        let old = timer.set(Setting::default(), false, false);
        assert_eq!(old.interval_ns, 5 * MS);
        sleep(10);
        assert_eq!(read(&timer), Err(Errno::EAGAIN));
    }

    #[test]
    fn one_shot_and_absolute_times() {
        let timer = TimerFd::new(Clock::Monotonic);
        timer.set(setting(1, 0), true, false);
        assert_eq!(read(&timer), Ok(1), "a time that is past");
        assert_eq!(read(&timer), Err(Errno::EAGAIN));
        let wall = TimerFd::new(Clock::Realtime);
        wall.set(setting(time::wall() + 3 * MS, 0), true, false);
        assert_eq!(read(&wall), Err(Errno::EAGAIN));
        sleep(5);
        assert_eq!(read(&wall), Ok(1));
    }

    #[test]
    fn setting_the_clock_concerns_times_of_day_only() {
        let wall = TimerFd::new(Clock::Realtime);
        wall.set(setting(time::wall() + 1000 * MS, 0), true, true);
        assert!(wall.on_wall_set());
        assert!(wall.poll().contains(PollEvents::IN));
        assert_eq!(read(&wall), Err(Errno::ECANCELED));
        assert_eq!(read(&wall), Err(Errno::EAGAIN), "told once; still armed");
        assert!(wall.get().value_ns > 0);
        wall.set(setting(1000 * MS, 0), false, true);
        assert!(!wall.on_wall_set(), "a relative time");
        assert_eq!(read(&wall), Err(Errno::EAGAIN));
    }

    #[test]
    fn expiry_notifies() {
        let timer = TimerFd::new(Clock::Monotonic);
        let epoll = crate::epoll::Epoll::new();
        let open = coracle_core::file::OpenFile::new(timer.clone(), 0);
        let interest = crate::epoll::Interest {
            flags: 1 | 1 << 31,
            data: 5,
        };
        epoll.add(1, &open, interest).unwrap();
        timer.set(setting(MS, 0), false, false);
        sleep(3);
        coracle_core::timer::expire(time::now());
        assert_eq!(epoll.wait(4, |event| event.data == 5), 1);
    }
}
