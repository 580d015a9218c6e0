// SPDX-License-Identifier: Apache-2.0

//! Random numbers that are the same on every machine and in every version, so that a seed in a result means something.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each as likely as the others to within 1 in 2^64 / `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.bits()) * (bound as u128);
        // The upper half of a product with a usize is below that usize.
        usize::try_from(product >> 64).unwrap_or(0)
    }

    /// Evenly in [0, 1), 53 bits.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are exact in a double.
        #[expect(clippy::cast_precision_loss)]
        let high = (self.bits() >> 11) as f64;
        high / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First values of SplitMix64 for seed 1234567, as printed by its authors' C code.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..70_000 {
            seen[random.below(7)] += 1;
        }
        for count in seen {
            assert!((9_600..10_400).contains(&count), "{seen:?}");
        }
        assert_eq!(random.below(0), 0);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
