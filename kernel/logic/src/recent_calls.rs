// SPDX-License-Identifier: Apache-2.0
//! The last system calls of a thread, for the report of its crash.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many are kept.
const KEPT: usize = 16;

/// Bits of a result that are kept: addresses and error numbers fit, only absurdly large counts lose their top.
const RESULT_BITS: u32 = 48;

/// The last system calls with their results. Written by one thread only: two plain stores a call.
#[derive(Debug, Default)]
pub struct RecentCalls {
    count: AtomicUsize,
    /// The number of the call above its result.
    calls: [AtomicU64; KEPT],
}

impl RecentCalls {
    /// Keeps a call that returned: its number, below 65536, and what the register of the result holds.
    #[inline]
    pub fn record(&self, number: u32, result: u64) {
        let count = self.count.load(Ordering::Relaxed);
        let call = u64::from(number) << RESULT_BITS | result & ((1 << RESULT_BITS) - 1);
        self.calls[count % KEPT].store(call, Ordering::Relaxed);
        self.count.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// Calls `each` with number and result of every call that is kept, the oldest first.
    pub fn for_each(&self, mut each: impl FnMut(u64, i64)) {
        let count = self.count.load(Ordering::Relaxed);
        for n in count.saturating_sub(KEPT)..count {
            let call = self.calls[n % KEPT].load(Ordering::Relaxed);
            let unused = u64::BITS - RESULT_BITS;
            each(
                call >> RESULT_BITS,
                (call << unused).cast_signed() >> unused,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(calls: &RecentCalls) -> Vec<(u64, i64)> {
        let mut all = Vec::new();
        calls.for_each(|number, result| all.push((number, result)));
        all
    }

    #[test]
    fn the_last_ones_are_kept_in_order() {
        let calls = RecentCalls::default();
        assert_eq!(kept(&calls), []);
        calls.record(1, 5);
        calls.record(65535, 14u64.wrapping_neg());
        calls.record(9, 0x7fff_ffff_f000);
        assert_eq!(kept(&calls), [(1, 5), (65535, -14), (9, 0x7fff_ffff_f000)]);
        for n in 0..20 {
            calls.record(n, n.into());
        }
        let last: Vec<_> = (4..20).map(|n: u32| (n.into(), n.into())).collect();
        assert_eq!(kept(&calls), last);
    }
}
