// SPDX-License-Identifier: Apache-2.0
//! Time-outs as system calls state them, turned into deadlines of the monotonic clock.

use coracle_abi::raw::general as g;
use coracle_core::user::{User, UserIn};
use coracle_core::{Errno, Result, time};

const NS_PER_S: u64 = 1_000_000_000;

/// Milliseconds from now; negative for no limit.
pub(crate) fn in_milliseconds(timeout_ms: i32) -> Option<u64> {
    let ms = u64::try_from(timeout_ms).ok()?;
    Some(after(ms * 1_000_000))
}

/// The moment `ns` from now. Zero is always past.
pub(crate) fn after(ns: u64) -> u64 {
    match ns {
        0 => 0,
        _ => time::now().saturating_add(ns),
    }
}

/// Nanoseconds of a `struct timespec`; `EINVAL` if it is negative or not normal.
pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> Result<u64> {
    let s = u64::try_from(seconds).map_err(|_| Errno::EINVAL)?;
    let ns = u64::try_from(nanoseconds)
        .ok()
        .filter(|ns| *ns < NS_PER_S)
        .ok_or(Errno::EINVAL)?;
    Ok(s.saturating_mul(NS_PER_S).saturating_add(ns))
}

/// The deadline behind a pointer to a relative time; NULL for none.
pub(crate) fn from_pointer(limit: User) -> Result<Option<u64>> {
    let Some(limit) = UserIn::<g::__kernel_timespec>::new(limit.0).optional() else {
        return Ok(None);
    };
    let limit = limit.read()?;
    nanoseconds(limit.tv_sec, limit.tv_nsec).map(|ns| Some(after(ns)))
}
