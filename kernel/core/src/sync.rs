// SPDX-License-Identifier: Apache-2.0
//! Locks for a kernel that is never preempted.
//!
//! Interrupts are off while kernel code runs, so a lock needs no interrupt-saving variant and is held for short,
//! bounded work only. A CPU that waits serves TLB shootdowns meanwhile (`cpu::relax`), so holding a lock while waiting
//! for another CPU to flush cannot deadlock. No such lock is held across a sleep. A lock that is not to be had for many
//! seconds ends the kernel, with the place of the one who waits and what all CPUs do.
//!
//! A [`SleepLock`] is for work that may wait for a disk or a share (decision 0010): who finds it taken sleeps.
//!
//! Lock order (take from left to right, never back); the sleeping locks come before all that spin:
//! file position -> file system or inode (sleeping) -> file or socket -> network tables -> connection -> device queue ->
//! address space -> run queue -> timer queue -> frame allocator -> heap -> console.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use coracle_arch::Patience;

mod sleep_lock;

pub use sleep_lock::{SleepGuard, SleepLock};

/// A mutual-exclusion lock that spins.
#[derive(Default)]
pub struct SpinLock<T: ?Sized> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives one CPU at a time access to the value, so sharing it needs only that the value may move
// between CPUs.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: moving the lock moves the value.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

/// Access to the value of a locked [`SpinLock`]; unlocks when dropped.
pub struct SpinGuard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
}

impl<T> SpinLock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Gives the value back.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Waits for the lock and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        if self
            .locked
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            wait_for(&self.locked, Location::caller());
        }
        SpinGuard { lock: self }
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.locked
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| SpinGuard { lock: self })
    }

    /// The value, without locking: an exclusive borrow proves that nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Waits until the lock is free and takes it.
#[cold]
fn wait_for(locked: &AtomicBool, place: &Location<'_>) {
    let mut patience = Patience::new();
    loop {
        while locked.load(Ordering::Relaxed) {
            assert!(
                patience.wait(),
                "the lock taken at {place} is held for ever"
            );
        }
        if locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
    }
}

impl<T: ?Sized> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while this CPU holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists only while this CPU holds the lock, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.locked.store(false, Ordering::Release);
    }
}

/// A value that is set once during boot and only read afterwards.
pub struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
}

const EMPTY: u8 = 0;
const SETTING: u8 = 1;
const SET: u8 = 2;

// SAFETY: the value is written by the one caller that moved the state from EMPTY to SETTING, and shared only after the
// state is SET.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// An empty cell.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: AtomicU8::new(EMPTY),
            value: UnsafeCell::new(None),
        }
    }

    /// Sets the value; the first caller wins, a later value is given back.
    pub fn set(&self, value: T) -> core::result::Result<(), T> {
        if self
            .state
            .compare_exchange(EMPTY, SETTING, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return Err(value);
        }
        // SAFETY: only the caller that made the step from EMPTY to SETTING is here, and readers wait for SET.
        unsafe { *self.value.get() = Some(value) };
        self.state.store(SET, Ordering::Release);
        Ok(())
    }

    /// The value, if it has been set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) == SET {
            // SAFETY: after SET nobody writes the cell again.
            unsafe { (*self.value.get()).as_ref() }
        } else {
            None
        }
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_excludes() {
        let lock = SpinLock::new(0u64);
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

    #[test]
    fn once_keeps_the_first_value() {
        let cell = Once::new();
        assert!(cell.get().is_none());
        assert_eq!(cell.set(1), Ok(()));
        assert_eq!(cell.set(2), Err(2));
        assert_eq!(cell.get(), Some(&1));
    }
}
