// SPDX-License-Identifier: Apache-2.0
//! Timers: call somebody at a time.
//!
//! A timer belongs to its owner and is armed, re-armed and cancelled by it. The call comes from the timer interrupt or
//! from a system call on its way out, with interrupts off, and must not sleep.

use alloc::sync::Weak;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_logic::timer_queue::{TimerHandle, TimerQueue};

use crate::sync::SpinLock;

/// Called when a timer expires.
pub trait TimerTarget: Send + Sync {
    /// The timer's time has come. The timer is not armed any more.
    fn on_timer(&self);
}

/// One timer. Dropping it cancels it. It does not keep its target alive, so a target may own its timer.
pub struct Timer {
    target: Weak<dyn TimerTarget>,
    handle: SpinLock<Option<TimerHandle>>,
}

static QUEUE: SpinLock<TimerQueue<Weak<dyn TimerTarget>>> = SpinLock::new(TimerQueue::new());

/// The earliest deadline, readable without the lock; `u64::MAX` for none.
static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);

impl Timer {
    /// A timer that is not armed.
    #[must_use]
    pub fn new(target: Weak<dyn TimerTarget>) -> Self {
        Self {
            target,
            handle: SpinLock::new(None),
        }
    }

    /// Lets the timer expire at `deadline_ns` of the monotonic clock; replaces an earlier deadline.
    pub fn arm(&self, deadline_ns: u64) {
        let mut handle = self.handle.lock();
        let old = {
            let mut queue = QUEUE.lock();
            let old = handle.take().and_then(|h| queue.cancel(h));
            *handle = Some(queue.insert(deadline_ns, self.target.clone()));
            NEXT.store(queue.next_deadline().unwrap_or(u64::MAX), Ordering::Release);
            old
        };
        drop(handle);
        drop(old);
        #[cfg(target_os = "none")]
        crate::thread::scheduler::on_deadline_changed();
    }

    /// Disarms the timer. A call that is under way still happens.
    pub fn cancel(&self) {
        let mut handle = self.handle.lock();
        let old = handle.take().and_then(|h| {
            let mut queue = QUEUE.lock();
            let old = queue.cancel(h);
            NEXT.store(queue.next_deadline().unwrap_or(u64::MAX), Ordering::Release);
            old
        });
        drop(handle);
        drop(old);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The earliest deadline of all timers; `u64::MAX` if none is armed.
#[inline]
#[must_use]
pub fn next_deadline() -> u64 {
    NEXT.load(Ordering::Acquire)
}

/// Calls the targets of all timers whose deadline is not after `now_ns`.
pub fn expire(now_ns: u64) {
    while next_deadline() <= now_ns {
        let target = {
            let mut queue = QUEUE.lock();
            let target = queue.pop_expired(now_ns);
            NEXT.store(queue.next_deadline().unwrap_or(u64::MAX), Ordering::Release);
            target
        };
        let Some(target) = target else { return };
        if let Some(target) = target.upgrade() {
            target.on_timer();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use core::sync::atomic::AtomicUsize;

    struct Count(AtomicUsize);
    impl TimerTarget for Count {
        fn on_timer(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn timers_expire_once_and_can_be_cancelled() {
        let target = Arc::new(Count(AtomicUsize::new(0)));
        let weak = Arc::downgrade(&target);
        let (a, b) = (Timer::new(weak.clone()), Timer::new(weak));
        a.arm(100);
        b.arm(50);
        a.arm(200);
        b.cancel();
        expire(150);
        assert_eq!(target.0.load(Ordering::Relaxed), 0);
        assert_eq!(next_deadline(), 200);
        expire(200);
        expire(300);
        assert_eq!(target.0.load(Ordering::Relaxed), 1);
        assert_eq!(next_deadline(), u64::MAX);
    }
}
