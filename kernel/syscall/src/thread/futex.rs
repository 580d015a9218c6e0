// SPDX-License-Identifier: Apache-2.0
//! futex(2) and the robust list.

use core::sync::atomic::Ordering;

use coracle_abi::Errno;
use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::user::{User, UserIn, UserOut};
use coracle_core::{Result, futex as table, thread, time};

/// Words of a `struct timespec` to nanoseconds; `EINVAL` if out of range.
fn read_timespec(at: usize) -> Result<u64> {
    let [seconds, nanoseconds] = UserIn::<[i64; 2]>::new(at).read()?;
    let seconds = u64::try_from(seconds).map_err(|_| Errno::EINVAL)?;
    let nanoseconds = u64::try_from(nanoseconds)
        .ok()
        .filter(|n| *n < 1_000_000_000)
        .ok_or(Errno::EINVAL)?;
    Ok(seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds))
}

/// Time of the wall clock to time of the monotonic clock.
fn from_wall(wall_ns: u64) -> u64 {
    time::now().saturating_add(wall_ns.saturating_sub(time::wall()))
}

/// `futex(2)`. `timeout` is a count for operations that move waiters.
pub(crate) fn futex(
    at: User,
    operation: u32,
    value: u32,
    timeout: usize,
    at2: User,
    value3: u32,
) -> Result<usize> {
    let command = operation & !(g::FUTEX_PRIVATE_FLAG | g::FUTEX_CLOCK_REALTIME);
    let realtime = operation & g::FUTEX_CLOCK_REALTIME != 0;
    if realtime && !matches!(command, g::FUTEX_WAIT | g::FUTEX_WAIT_BITSET) {
        return Err(Errno::ENOSYS);
    }
    let count = |raw: u32| usize::try_from(raw.cast_signed()).unwrap_or(0);
    let shared = operation & g::FUTEX_PRIVATE_FLAG == 0;
    // The register holds an `int` for these operations.
    let count2 = count(coracle_abi::convert::low_u32(u64_from(timeout)));
    match command {
        g::FUTEX_WAIT => {
            let deadline = if timeout == 0 {
                None
            } else {
                Some(time::now().saturating_add(read_timespec(timeout)?))
            };
            wait(at.0, shared, value, u32::MAX, deadline)
        }
        g::FUTEX_WAIT_BITSET => {
            let deadline = if timeout == 0 {
                None
            } else {
                Some(read_timespec(timeout)?)
            };
            wait(
                at.0,
                shared,
                value,
                value3,
                deadline.map(|ns| if realtime { from_wall(ns) } else { ns }),
            )
        }
        // Waking nobody still wakes one on Linux.
        g::FUTEX_WAKE => table::wake(at.0, shared, u32::MAX, count(value).max(1)),
        g::FUTEX_WAKE_BITSET => table::wake(at.0, shared, value3, count(value).max(1)),
        g::FUTEX_REQUEUE | g::FUTEX_CMP_REQUEUE => {
            if value.cast_signed() < 0
                || coracle_abi::convert::low_u32(u64_from(timeout)).cast_signed() < 0
            {
                return Err(Errno::EINVAL);
            }
            let expected = (command == g::FUTEX_CMP_REQUEUE).then_some(value3);
            table::requeue([at.0, at2.0], shared, count(value), count2, expected)
        }
        g::FUTEX_WAKE_OP => table::wake_op(
            [at.0, at2.0],
            shared,
            [count(value).max(1), count2.max(1)],
            value3,
        ),
        _ => Err(Errno::ENOSYS),
    }
}

fn wait(at: usize, shared: bool, expected: u32, bits: u32, deadline: Option<u64>) -> Result<usize> {
    let result = table::wait(at, shared, expected, bits, deadline);
    if result == Err(Errno::EINTR) {
        // A wait with a time-out would begin anew with the full time (futex(2)): it is not restarted.
        thread::set_restart(deadline.is_none());
    }
    result.map(|()| 0)
}

const ROBUST_HEAD_BYTES: usize = 24;

/// `set_robust_list(2)`
pub(crate) fn set_robust_list(head: usize, len: usize) -> Result<usize> {
    if len != ROBUST_HEAD_BYTES {
        return Err(Errno::EINVAL);
    }
    thread::current().robust_list.store(head, Ordering::Relaxed);
    Ok(0)
}

/// `get_robust_list(2)`
pub(crate) fn get_robust_list(tid: i32, head: User, len: User) -> Result<usize> {
    let value = if tid == 0 {
        thread::current().robust_list.load(Ordering::Relaxed)
    } else {
        let tid = u32::try_from(tid).map_err(|_| Errno::ESRCH)?;
        thread::find(tid)
            .ok_or(Errno::ESRCH)?
            .robust_list
            .load(Ordering::Relaxed)
    };
    UserOut::<usize>::new(len.0).write(ROBUST_HEAD_BYTES)?;
    UserOut::<usize>::new(head.0).write(value)?;
    Ok(0)
}
