// SPDX-License-Identifier: Apache-2.0
//! Clocks. All kernel time is `u64` nanoseconds of the monotonic clock, which starts at boot.

use core::sync::atomic::{AtomicI64, Ordering};

/// Nanoseconds since boot (`CLOCK_MONOTONIC`).
#[inline]
#[must_use]
pub fn now() -> u64 {
    coracle_arch::clock::monotonic_ns()
}

/// Difference between the wall clock and the monotonic clock.
static WALL_OFFSET_NS: AtomicI64 = AtomicI64::new(0);

/// Nanoseconds since 1970 (`CLOCK_REALTIME`).
#[inline]
#[must_use]
pub fn wall() -> u64 {
    now().wrapping_add_signed(WALL_OFFSET_NS.load(Ordering::Relaxed))
}

/// Sets the wall clock: `wall_ns` is the time since 1970 now.
pub fn set_wall(wall_ns: u64) {
    WALL_OFFSET_NS.store(wall_ns.wrapping_sub(now()).cast_signed(), Ordering::Relaxed);
}
