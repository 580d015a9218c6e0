// SPDX-License-Identifier: Apache-2.0
//! Time from the time stamp counter.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering};

/// Counter at the kernel's start.
static START: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per count, as a fraction of 2^32.
static SCALE: AtomicU64 = AtomicU64::new(1 << 32);
/// Counts per nanosecond, as a fraction of 2^32.
static INVERSE: AtomicU64 = AtomicU64::new(1 << 32);

/// The counter.
#[inline]
#[must_use]
pub fn tsc() -> u64 {
    // SAFETY: the instruction exists on every 64-bit CPU and has no effect.
    unsafe { _rdtsc() }
}

/// Starts the clock. Until [`set_frequency`] one count counts as one nanosecond.
pub fn start() {
    START.store(tsc(), Ordering::Relaxed);
}

/// Sets the counter's frequency in kHz.
pub fn set_frequency(khz: u64) {
    SCALE.store((1_000_000 << 32) / khz, Ordering::Relaxed);
    INVERSE.store(
        (u128::from(khz) << 32)
            .checked_div(1_000_000)
            .map_or(1, coerce),
        Ordering::Relaxed,
    );
}

fn coerce(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Start of the clock and scale, for the vDSO: `ns = (tsc - start) * scale >> 32`.
#[must_use]
pub fn parameters() -> (u64, u64) {
    (START.load(Ordering::Relaxed), SCALE.load(Ordering::Relaxed))
}

/// Nanoseconds since [`start`].
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let counts = tsc().wrapping_sub(START.load(Ordering::Relaxed));
    coerce((u128::from(counts) * u128::from(SCALE.load(Ordering::Relaxed))) >> 32)
}

/// The counter at a time of the monotonic clock.
#[must_use]
pub fn tsc_at(ns: u64) -> u64 {
    START.load(Ordering::Relaxed)
        + coerce((u128::from(ns) * u128::from(INVERSE.load(Ordering::Relaxed))) >> 32)
}
