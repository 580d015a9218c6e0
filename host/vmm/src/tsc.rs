// SPDX-License-Identifier: Apache-2.0
//! Measures the frequency of the host's time-stamp counter, which a guest under software emulation sees unscaled
//! (QEMU's `cpu_get_host_ticks`). Told to the guest it saves the calibration against a slow emulated timer.

use std::arch::x86_64::_rdtsc;
use std::time::{Duration, Instant};

/// How long to measure. The two ends are taken to about 100 ns, so the result is good to 10 parts in a million.
const SPAN: Duration = Duration::from_millis(20);

/// Frequency in kHz; `None` where the counter changes its speed or stops in idle states.
pub(crate) fn khz() -> Option<u64> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("flags"))?;
    let has = |flag| flags.split_ascii_whitespace().any(|f| f == flag);
    if !has("constant_tsc") || !has("nonstop_tsc") {
        return None;
    }
    let (start_tsc, start) = pair();
    std::thread::sleep(SPAN);
    let (end_tsc, end) = pair();
    let ticks = u128::from(end_tsc.checked_sub(start_tsc)?);
    let nanos = end.duration_since(start).as_nanos();
    u64::try_from(ticks * 1_000_000 / nanos).ok()
}

/// Both clocks at one moment: the reading with the least time between its two counter values of sixteen.
fn pair() -> (u64, Instant) {
    let read = || {
        // SAFETY: every x86-64 CPU has the instruction, and it has no effect but its result.
        let before = unsafe { _rdtsc() };
        let now = Instant::now();
        // SAFETY: as above.
        let after = unsafe { _rdtsc() };
        (
            after.wrapping_sub(before),
            before + after.wrapping_sub(before) / 2,
            now,
        )
    };
    let mut best = read();
    for _ in 0..15 {
        let next = read();
        if next.0 < best.0 {
            best = next;
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree() {
        let (Some(first), Some(second)) = (khz(), khz()) else {
            return; // no steady counter on this host: nothing is told to guests
        };
        assert!(first > 100_000, "{first} kHz");
        assert!(
            first.abs_diff(second) < first / 1000,
            "{first} and {second} kHz"
        );
    }
}
