// SPDX-License-Identifier: Apache-2.0
//! Waiting for readiness: who waits, and who says that something changed.
//!
//! A file that can be waited for owns a [`PollSource`] and calls [`PollSource::notify`] after each change of its
//! readiness. A waiter (a sleeping thread, an epoll item) attaches itself, looks at `File::poll` once more, and only
//! then sleeps: no wake-up can be lost between the look and the sleep.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use coracle_abi::PollEvents;

use crate::sync::SpinLock;

/// Something that wants to know about readiness.
pub trait Waiter: Send + Sync {
    /// `events` may have become true. Called with the source's lock not held, possibly from an interrupt, and on any
    /// CPU; must not sleep. Returns whether the call was of use (an exclusive waiter that was already awake says
    /// `false`, so that the next one is tried).
    fn notify(&self, events: PollEvents) -> bool;
}

struct Attached {
    id: usize,
    interest: PollEvents,
    exclusive: bool,
    waiter: Arc<dyn Waiter>,
}

/// The list of those who wait for one file.
#[derive(Default)]
pub struct PollSource {
    count: AtomicUsize,
    waiters: SpinLock<Waiters>,
}

#[derive(Default)]
struct Waiters {
    next_id: usize,
    list: Vec<Attached>,
}

/// Names an attached waiter for [`PollSource::detach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitToken(usize);

impl PollSource {
    /// A source nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            waiters: SpinLock::new(Waiters {
                next_id: 0,
                list: Vec::new(),
            }),
        }
    }

    /// Adds a waiter for any of `interest` (errors and hang-ups are always reported). Of the `exclusive` waiters one
    /// notification wakes only the first that has use for it.
    pub fn attach(
        &self,
        waiter: Arc<dyn Waiter>,
        interest: PollEvents,
        exclusive: bool,
    ) -> WaitToken {
        let mut waiters = self.waiters.lock();
        let id = waiters.next_id;
        waiters.next_id += 1;
        waiters.list.push(Attached {
            id,
            interest: interest | PollEvents::ALWAYS,
            exclusive,
            waiter,
        });
        self.count.store(waiters.list.len(), Ordering::Relaxed);
        drop(waiters);
        // The caller looks at the file's state next. Pairs with the fence in `notify`: either the notifier sees this
        // waiter, or the caller sees the new state.
        fence(Ordering::SeqCst);
        WaitToken(id)
    }

    /// Removes a waiter. It may still be notified by a call that is under way.
    pub fn detach(&self, token: WaitToken) {
        let removed = {
            let mut waiters = self.waiters.lock();
            let found = waiters
                .list
                .iter()
                .position(|w| w.id == token.0)
                .map(|at| waiters.list.remove(at));
            self.count.store(waiters.list.len(), Ordering::Relaxed);
            found
        };
        drop(removed); // outside the lock: dropping a waiter may run other code
    }

    /// Sleeps until `ready` says yes, whatever signals come: for disks and locks, whose turn comes soon. `ready` is asked
    /// first, and after each notification; it may be asked at any time. Before threads run it is asked over and over.
    ///
    /// Takes no part in the caller's own waiting: one who was between `prepare_to_wait` and `sleep_until` looks again.
    pub fn wait(&self, ready: impl FnMut() -> bool) {
        self.wait_as(false, ready);
    }

    /// As [`PollSource::wait`]; one notification wakes one of those who wait this way.
    pub fn wait_exclusive(&self, ready: impl FnMut() -> bool) {
        self.wait_as(true, ready);
    }

    #[cfg(target_os = "none")]
    fn wait_as(&self, exclusive: bool, mut ready: impl FnMut() -> bool) {
        use crate::thread;
        if ready() {
            return;
        }
        if thread::try_current().is_none() {
            while !ready() {
                coracle_arch::cpu::relax();
            }
            return;
        }
        let token = self.attach(thread::current_waiter(), PollEvents::IN, exclusive);
        loop {
            thread::prepare_to_wait();
            if ready() {
                break;
            }
            thread::sleep_uninterruptible();
        }
        self.detach(token);
        // A notification meant for the caller's own wait may have been taken for ours.
        thread::look_again();
    }

    #[cfg(not(target_os = "none"))]
    fn wait_as(&self, _exclusive: bool, mut ready: impl FnMut() -> bool) {
        while !ready() {
            std::thread::yield_now();
        }
    }

    /// Whether anybody waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Tells the waiters that `events` may have become true. Costs a fence and a load when nobody waits.
    #[inline]
    pub fn notify(&self, events: PollEvents) {
        fence(Ordering::SeqCst);
        if !self.is_empty() {
            self.notify_slow(events);
        }
    }

    fn notify_slow(&self, events: PollEvents) {
        // Waiters are called without the lock, so one that attaches or detaches from its call cannot deadlock. The
        // common case, one waiter, needs no allocation.
        let mut cursor = 0;
        let mut exclusive_done = false;
        loop {
            let next = {
                let waiters = self.waiters.lock();
                waiters
                    .list
                    .iter()
                    .find(|w| {
                        w.id >= cursor
                            && w.interest.intersects(events)
                            && !(w.exclusive && exclusive_done)
                    })
                    .map(|w| (w.id, w.exclusive, w.waiter.clone()))
            };
            let Some((id, exclusive, waiter)) = next else {
                return;
            };
            cursor = id + 1;
            let used = waiter.notify(events);
            exclusive_done |= exclusive && used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Count(AtomicUsize);
    impl Waiter for Count {
        fn notify(&self, _: PollEvents) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    fn counter() -> Arc<Count> {
        Arc::new(Count(AtomicUsize::new(0)))
    }

    #[test]
    fn only_interested_and_one_exclusive_waiter_are_told() {
        let source = PollSource::new();
        let (a, b, c, d) = (counter(), counter(), counter(), counter());
        source.attach(a.clone(), PollEvents::IN, false);
        source.attach(b.clone(), PollEvents::OUT, false);
        source.attach(c.clone(), PollEvents::IN, true);
        let token = source.attach(d.clone(), PollEvents::IN, true);
        source.notify(PollEvents::IN);
        let counts = || [&a, &b, &c, &d].map(|w| w.0.load(Ordering::Relaxed));
        assert_eq!(counts(), [1, 0, 1, 0]);
        source.notify(PollEvents::HUP);
        assert_eq!(counts(), [2, 1, 2, 0]);
        source.detach(token);
        assert!(!source.is_empty());
    }
}
