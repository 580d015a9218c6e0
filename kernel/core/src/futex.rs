// SPDX-License-Identifier: Apache-2.0
//! Fast user-space locks (futex(2)): threads that wait for a word of the application to change.
//!
//! Waiters of one address lie in one bucket, in order of arrival. The word is read under the bucket's lock, so a waker
//! that changed it before either sees the waiter or is seen by it. The key is the address, or for a word in a shared
//! mapping of a file (without `FUTEX_PRIVATE_FLAG`) its place in physical memory, so that each mapping of the file
//! names the same futex.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::convert::usize_from;
use coracle_abi::raw::general as g;
use coracle_abi::{Errno, USER_END};

use crate::sync::{SpinGuard, SpinLock};
use crate::thread::{self, Thread, Wake};
use crate::user::{self, UserIn};
use crate::{Result, memory};

struct Waiting {
    key: usize,
    bits: u32,
    thread: Arc<Thread>,
}

const BUCKETS: usize = 256;

static TABLE: [SpinLock<Vec<Waiting>>; BUCKETS] = [const { SpinLock::new(Vec::new()) }; BUCKETS];

/// What a thread remembers about its wait.
#[derive(Default)]
pub struct FutexState {
    /// Address it waits for; 0 once it was woken.
    key: AtomicUsize,
}

fn bucket(key: usize) -> &'static SpinLock<Vec<Waiting>> {
    &TABLE[(key >> 2 ^ key >> 12) % BUCKETS]
}

/// Marks keys that are physical.
const PHYSICAL: usize = 1 << 63;

/// The key of a word: see the module's head. `shared` is the absence of `FUTEX_PRIVATE_FLAG`.
fn key(at: usize, shared: bool) -> Result<usize> {
    check(at)?;
    if !shared {
        return Ok(at);
    }
    // The page must be present before it is asked where it lies.
    if peek(at).is_none() {
        memory::fault_in(at, false)?;
    }
    Ok(memory::space::shared_location(at).map_or(at, |physical| usize_from(physical) | PHYSICAL))
}

fn check(at: usize) -> Result<()> {
    if !at.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    if at >= USER_END {
        Err(Errno::EFAULT)
    } else {
        Ok(())
    }
}

/// Reads the word without making its page present; `None` if it is missing.
fn peek(at: usize) -> Option<u32> {
    let mut bytes = [0; 4];
    (user::read_bytes(&mut bytes, at) == 0).then(|| u32::from_ne_bytes(bytes))
}

/// `FUTEX_WAIT_BITSET`: sleeps while the word is `expected`. `EAGAIN` if it is something else, `ETIMEDOUT` after
/// `deadline_ns` of the monotonic clock, `EINTR` for a signal.
pub fn wait(
    at: usize,
    shared: bool,
    expected: u32,
    bits: u32,
    deadline_ns: Option<u64>,
) -> Result<()> {
    let key = key(at, shared)?;
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    let me = thread::current();
    loop {
        let mut waiters = bucket(key).lock();
        match peek(at) {
            Some(value) if value == expected => {}
            Some(_) => return Err(Errno::EAGAIN),
            None => {
                drop(waiters);
                memory::fault_in(at, false)?;
                continue;
            }
        }
        thread::prepare_to_wait();
        me.futex.key.store(key, Ordering::Relaxed);
        waiters.push(Waiting {
            key,
            bits,
            thread: me.arc(),
        });
        break;
    }
    loop {
        let wake = thread::sleep_until(deadline_ns);
        if me.futex.key.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let error = match wake {
            Wake::TimedOut => Errno::ETIMEDOUT,
            Wake::Interrupted => Errno::EINTR,
            Wake::Notified => {
                thread::prepare_to_wait();
                if me.futex.key.load(Ordering::Acquire) == 0 {
                    return Ok(());
                }
                continue;
            }
        };
        if give_up(me) {
            return Err(error);
        }
        return Ok(());
    }
}

/// Takes the thread out of the table. Returns `false` if somebody woke it first.
fn give_up(me: &Thread) -> bool {
    loop {
        let key = me.futex.key.load(Ordering::Acquire);
        if key == 0 {
            return false;
        }
        let mut waiters = bucket(key).lock();
        // A requeue may have moved it between the look and the lock.
        if me.futex.key.load(Ordering::Acquire) != key {
            continue;
        }
        let found = waiters
            .iter()
            .position(|w| w.thread.tid() == me.tid())
            .map(|n| waiters.remove(n));
        me.futex.key.store(0, Ordering::Release);
        drop(waiters);
        drop(found);
        return true;
    }
}

/// Takes up to `count` waiters of `key` out of a locked bucket and wakes them.
fn wake_locked(
    mut waiters: SpinGuard<'_, Vec<Waiting>>,
    key: usize,
    bits: u32,
    count: usize,
) -> usize {
    let mut woken = 0;
    let mut at = 0;
    // Wakes one at a time and lets the lock go in between only at the end: a wake-up takes a run queue's lock, which
    // comes after this one in the lock order.
    while woken < count && at < waiters.len() {
        if waiters[at].key == key && waiters[at].bits & bits != 0 {
            let waiter = waiters.remove(at);
            waiter.thread.futex.key.store(0, Ordering::Release);
            waiter.thread.wake();
            woken += 1;
        } else {
            at += 1;
        }
    }
    woken
}

/// `FUTEX_WAKE_BITSET`: wakes up to `count` threads that wait with any of `bits`; returns how many.
pub fn wake(at: usize, shared: bool, bits: u32, count: usize) -> Result<usize> {
    let key = key(at, shared)?;
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(wake_locked(bucket(key).lock(), key, bits, count))
}

/// `FUTEX_REQUEUE` and `FUTEX_CMP_REQUEUE`: wakes up to `wake_count` waiters of `at` and lets up to `move_count` others
/// wait for `to` instead. With `expected`, `EAGAIN` if the word at `at` is something else. Returns the number woken and
/// moved.
pub fn requeue(
    [at, to]: [usize; 2],
    shared: bool,
    wake_count: usize,
    move_count: usize,
    expected: Option<u32>,
) -> Result<usize> {
    let (from_key, to_key) = (key(at, shared)?, key(to, shared)?);
    let (first, second) = (bucket(from_key), bucket(to_key));
    loop {
        // Two buckets are locked in the order of their addresses.
        let (mut from, mut target) = if core::ptr::eq(first, second) {
            (first.lock(), None)
        } else if core::ptr::from_ref(first) < core::ptr::from_ref(second) {
            let from = first.lock();
            (from, Some(second.lock()))
        } else {
            let target = second.lock();
            (first.lock(), Some(target))
        };
        if let Some(expected) = expected {
            match peek(at) {
                Some(value) if value == expected => {}
                Some(_) => return Err(Errno::EAGAIN),
                None => {
                    drop((from, target));
                    memory::fault_in(at, false)?;
                    continue;
                }
            }
        }
        let (mut woken, mut moved, mut n) = (0, 0, 0);
        while n < from.len() && (woken < wake_count || moved < move_count) {
            if from[n].key != from_key {
                n += 1;
                continue;
            }
            if woken < wake_count {
                let waiter = from.remove(n);
                waiter.thread.futex.key.store(0, Ordering::Release);
                waiter.thread.wake();
                woken += 1;
                continue;
            }
            from[n].thread.futex.key.store(to_key, Ordering::Release);
            moved += 1;
            match &mut target {
                Some(target) => {
                    let mut waiter = from.remove(n);
                    waiter.key = to_key;
                    target.push(waiter);
                }
                None => {
                    from[n].key = to_key;
                    n += 1;
                }
            }
        }
        return Ok(woken + moved);
    }
}

/// `FUTEX_WAKE_OP`: changes the word at `at2` as `operation` says, wakes waiters of `at`, and those of `at2` if the old
/// value meets the comparison in `operation`.
pub fn wake_op(
    [at, at2]: [usize; 2],
    shared: bool,
    [count, count2]: [usize; 2],
    operation: u32,
) -> Result<usize> {
    check(at)?;
    check(at2)?;
    let sign_extend = |v: u32| (v << 20).cast_signed() >> 20;
    let (op, cmp) = (operation >> 28 & 7, operation >> 24 & 15);
    let mut argument = sign_extend(operation >> 12 & 0xfff);
    let compared = sign_extend(operation & 0xfff);
    if operation >> 31 & 1 != 0 {
        argument = 1i32.wrapping_shl(argument.cast_unsigned());
    }
    let old = update_word(at2, |old| {
        let (value, argument) = (old, argument.cast_unsigned());
        Ok(match op {
            g::FUTEX_OP_SET => argument,
            g::FUTEX_OP_ADD => value.wrapping_add(argument),
            g::FUTEX_OP_OR => value | argument,
            g::FUTEX_OP_ANDN => value & !argument,
            g::FUTEX_OP_XOR => value ^ argument,
            _ => return Err(Errno::ENOSYS),
        })
    })?
    .cast_signed();
    let met = match cmp {
        g::FUTEX_OP_CMP_EQ => old == compared,
        g::FUTEX_OP_CMP_NE => old != compared,
        g::FUTEX_OP_CMP_LT => old < compared,
        g::FUTEX_OP_CMP_LE => old <= compared,
        g::FUTEX_OP_CMP_GT => old > compared,
        g::FUTEX_OP_CMP_GE => old >= compared,
        _ => return Err(Errno::ENOSYS),
    };
    let woken = wake(at, shared, u32::MAX, count)?;
    Ok(woken
        + if met {
            wake(at2, shared, u32::MAX, count2)?
        } else {
            0
        })
}

/// Changes a word of the application in one step and returns what was there. `EFAULT` if it cannot be written.
fn update_word(at: usize, change: impl Fn(u32) -> Result<u32>) -> Result<u32> {
    let mut old = UserIn::<u32>::new(at).read()?;
    loop {
        let new = change(old)?;
        // SAFETY: the address was checked to lie in the application's half; a fault is caught.
        match unsafe { coracle_arch::user::compare_exchange_u32(at as *mut u32, old, new) } {
            Some(found) if found == old => return Ok(old),
            Some(found) => old = found,
            None => memory::fault_in(at, true)?,
        }
    }
}

/// Most entries of a robust list that are looked at; a longer one is a cycle (Linux's `ROBUST_LIST_LIMIT`).
const ROBUST_LIMIT: usize = 2048;

/// What a thread leaves behind: locks it holds are marked (`FUTEX_OWNER_DIED`), and the word that
/// `CLONE_CHILD_CLEARTID` named is cleared and its waiters woken.
pub fn on_thread_exit(thread: &Thread) {
    release_robust_locks(thread);
    let cleared = thread.clear_child_tid.swap(0, Ordering::Relaxed);
    if cleared != 0 && user::write_all(cleared, &0u32.to_ne_bytes()).is_ok() {
        let _ = wake(cleared, true, u32::MAX, 1);
    }
}

/// Marks the locks on the thread's robust list as those of a dead owner and wakes who waits for them: at its end, and
/// when it replaces the program.
pub fn release_robust_locks(thread: &Thread) {
    let head = thread.robust_list.swap(0, Ordering::Relaxed);
    if head != 0 {
        // A list that cannot be read ends the walk, as on Linux.
        let _ = release_robust_list(head, thread.tid());
    }
}

fn release_robust_list(head: usize, tid: u32) -> Result<()> {
    let word = |at: usize| UserIn::<usize>::new(at).read();
    let offset = word(head.wrapping_add(8))?;
    let pending = word(head.wrapping_add(16))?;
    let mut entry = word(head)?;
    for _ in 0..ROBUST_LIMIT {
        // The lowest bit marks a lock with priority inheritance.
        let at = entry & !1;
        if at == head {
            break;
        }
        let next = word(at)?;
        if at != pending & !1 {
            release_robust_lock(at.wrapping_add(offset), tid)?;
        }
        entry = next;
    }
    if pending & !1 != 0 {
        release_robust_lock((pending & !1).wrapping_add(offset), tid)?;
    }
    Ok(())
}

fn release_robust_lock(at: usize, tid: u32) -> Result<()> {
    check(at)?;
    let value = UserIn::<u32>::new(at).read()?;
    if value & g::FUTEX_TID_MASK != tid {
        return Ok(());
    }
    let old = update_word(at, |old| {
        Ok(if old & g::FUTEX_TID_MASK == tid {
            old & g::FUTEX_WAITERS | g::FUTEX_OWNER_DIED
        } else {
            old
        })
    })?;
    if old & g::FUTEX_WAITERS != 0 {
        wake(at, true, u32::MAX, 1)?;
    }
    Ok(())
}

/// Threads that wait for a futex, for the counters.
#[must_use]
pub fn waiting() -> usize {
    TABLE.iter().map(|bucket| bucket.lock().len()).sum()
}
