// SPDX-License-Identifier: Apache-2.0
//! Clocks. All kernel time is `u64` nanoseconds of the monotonic clock, which starts at boot.

use core::sync::atomic::{AtomicI64, Ordering};

use coracle_abi::PollEvents;

use crate::poll::PollSource;

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

/// Notified when the wall clock was set: who waits for a time of day must look again.
static WALL_CHANGED: PollSource = PollSource::new();

/// What [`wall`] adds to [`now`].
#[must_use]
pub fn wall_offset() -> u64 {
    WALL_OFFSET_NS.load(Ordering::Relaxed).cast_unsigned()
}

/// Sets the wall clock: `wall_ns` is the time since 1970 now.
pub fn set_wall(wall_ns: u64) {
    WALL_OFFSET_NS.store(wall_ns.wrapping_sub(now()).cast_signed(), Ordering::Relaxed);
    #[cfg(target_os = "none")]
    crate::vdso::update();
    WALL_CHANGED.notify(PollEvents::IN);
}

/// Refines a wall clock of whole seconds: the host's clock showed `started_ns` shortly before this kernel began. A clock
/// that differs by more was set on purpose, or the machine began much later, and stays as it is.
pub fn refine_wall(started_ns: u64) {
    const RESOLUTION_NS: u64 = 1_000_000_000;
    let at_least = started_ns.saturating_add(now());
    if let Some(late_ns) = at_least.checked_sub(wall())
        && late_ns <= RESOLUTION_NS
    {
        set_wall(at_least);
    }
}

/// Notified by [`set_wall`].
#[must_use]
pub fn wall_changed() -> &'static PollSource {
    &WALL_CHANGED
}

/// The time of the monotonic clock at which the wall clock will show `wall_ns`, as it is set now; 0 if that was before
/// boot.
#[must_use]
pub fn monotonic_of_wall(wall_ns: u64) -> u64 {
    let offset = i128::from(WALL_OFFSET_NS.load(Ordering::Relaxed));
    u64::try_from((i128::from(wall_ns) - offset).max(0)).unwrap_or(u64::MAX)
}
