// SPDX-License-Identifier: Apache-2.0
//! Nice values (setpriority(2)): a thread with another value than 0 is charged more or less time than it ran, so that each
//! step changes its share of a CPU by a quarter against others that want it, as on Linux.

use core::ops::RangeInclusive;

/// From the largest share to the least.
pub const NICE: RangeInclusive<i32> = -20..=19;

/// Bits behind the point of a factor.
const BITS: u32 = 16;

/// What a nanosecond counts as: 1.25 to the power of the nice value.
const FACTORS: [u64; 40] = factors();

const fn factors() -> [u64; 40] {
    let mut table = [1 << BITS; 40];
    // Each from its neighbour nearer to 0, with more bits, so that rounding does not add up.
    let (mut more, mut less, mut step) = (1u64 << 40, 1u64 << 40, 0);
    while step < 20 {
        step += 1;
        more = more / 4 * 5;
        less = less / 5 * 4;
        if step < 20 {
            table[20 + step] = more >> (40 - BITS);
        }
        table[20 - step] = less >> (40 - BITS);
    }
    table
}

/// What a run of `ran_ns` counts as for a thread with that nice value.
#[must_use]
pub fn charged(ran_ns: u64, nice: i32) -> u64 {
    match usize::try_from(nice + 20)
        .ok()
        .and_then(|at| FACTORS.get(at))
    {
        Some(factor) if nice != 0 => ran_ns.saturating_mul(*factor) >> BITS,
        _ => ran_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_quarter() {
        assert_eq!(charged(1000, 0), 1000);
        assert_eq!(charged(1024, 1), 1280);
        assert_eq!(charged(1024, -1), 819);
        for nice in NICE.skip(1) {
            let (this, before) = (charged(1 << 30, nice), charged(1 << 30, nice - 1));
            let step = this * 1000 / before;
            assert!((1230..=1270).contains(&step), "{nice}: {step}");
        }
        assert_eq!(charged(1000, 77), 1000, "no such value");
        assert!(charged(u64::MAX, 19) > 0);
    }
}
