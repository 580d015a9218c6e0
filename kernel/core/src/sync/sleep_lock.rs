// SPDX-License-Identifier: Apache-2.0
//! A lock for work that may sleep: whoever holds it may wait for a disk, and whoever finds it taken sleeps as well.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, Ordering};

use coracle_abi::PollEvents;

use crate::poll::PollSource;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Taken, and somebody may wait for it.
const AWAITED: u8 = 2;

/// A mutual-exclusion lock that sleeps. It costs one atomic operation each way while nobody competes.
///
/// Never taken while a [`super::SpinLock`] is held, nor from an interrupt. A signal does not end the wait.
#[derive(Default)]
pub struct SleepLock<T: ?Sized> {
    state: AtomicU8,
    waiters: PollSource,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the value, so sharing it needs only that the value may move
// between threads.
unsafe impl<T: ?Sized + Send> Sync for SleepLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: ?Sized + Send> Send for SleepLock<T> {}

/// Access to the value of a locked [`SleepLock`]; unlocks when dropped.
pub struct SleepGuard<'a, T: ?Sized> {
    lock: &'a SleepLock<T>,
}

impl<T> SleepLock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            state: AtomicU8::new(FREE),
            waiters: PollSource::new(),
            value: UnsafeCell::new(value),
        }
    }
}

impl<T: ?Sized> SleepLock<T> {
    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) -> SleepGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        self.wait();
        SleepGuard { lock: self }
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<SleepGuard<'_, T>> {
        self.state
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| SleepGuard { lock: self })
    }

    /// Sleeps until the lock is ours. It is taken as awaited, since others may wait too: the worst that follows is a
    /// notification to nobody.
    #[cold]
    fn wait(&self) {
        self.waiters
            .wait_exclusive(|| self.state.swap(AWAITED, Ordering::Acquire) == FREE);
    }
}

impl<T: ?Sized> Deref for SleepGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while its thread holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SleepGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists only while its thread holds the lock, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SleepGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.state.swap(FREE, Ordering::Release) == AWAITED {
            self.lock.waiters.notify(PollEvents::IN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_and_wakes_all_in_turn() {
        let lock = SleepLock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
