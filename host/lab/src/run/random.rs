// SPDX-License-Identifier: Apache-2.0

//! The order of a run comes from its recorded seed, by a generator that will never change: SplitMix64 (Steele, Lea, Flood,
//! "Fast splittable pseudorandom number generators", OOPSLA 2014).

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The stream of that number of a seed. Streams do not depend on how much was drawn from others, so that a run that is
    /// resumed draws what the whole run would have drawn.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random { state: seed };
        let first = random.bits();
        Random {
            state: first ^ stream.wrapping_mul(GOLDEN).rotate_left(17),
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, all equally likely but for one part in 2^64 / `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.bits()) * bound as u128;
        usize::try_from(product >> 64).unwrap_or(0)
    }

    /// Any order of the items, all equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_splitmix64() {
        // First numbers for seed 1234567, as in the reference implementation (Vigna, splitmix64.c).
        let mut random = Random { state: 1_234_567 };
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn an_order_never_changes_between_versions() {
        let mut items: Vec<u32> = (0..8).collect();
        Random::new(42, 0).shuffle(&mut items);
        let mut again: Vec<u32> = (0..8).collect();
        Random::new(42, 0).shuffle(&mut again);
        assert_eq!(items, again);
        let mut other: Vec<u32> = (0..8).collect();
        Random::new(42, 1).shuffle(&mut other);
        assert_ne!(items, other);
        other.sort_unstable();
        assert_eq!(other, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn every_order_is_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for stream in 0..6000 {
            let mut items = [0, 1, 2];
            Random::new(7, stream).shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // 1000 each; 4 standard deviations are 115.
        assert!(
            counts.values().all(|count| (885..1115).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn numbers_stay_below_the_bound() {
        let mut random = Random::new(1, 2);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
