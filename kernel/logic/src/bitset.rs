// SPDX-License-Identifier: Apache-2.0
//! A set of small integers as a growing bitmap that finds the lowest absent member quickly.

use alloc::vec::Vec;

const BITS: usize = 64;

/// A set of `usize`. Memory is proportional to the largest member, one bit each.
#[derive(Debug, Clone, Default)]
pub struct BitSet {
    words: Vec<u64>,
    /// Every word before this one is full, so the search for the lowest absent member starts here.
    first_gap: usize,
}

impl BitSet {
    /// An empty set; does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            words: Vec::new(),
            first_gap: 0,
        }
    }

    /// Whether `bit` is a member.
    #[must_use]
    pub fn contains(&self, bit: usize) -> bool {
        self.words
            .get(bit / BITS)
            .is_some_and(|word| word >> (bit % BITS) & 1 != 0)
    }

    /// Adds `bit`; whether it was absent before.
    pub fn insert(&mut self, bit: usize) -> bool {
        let at = bit / BITS;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let old = self.words[at];
        self.words[at] = old | 1 << (bit % BITS);
        old != self.words[at]
    }

    /// Removes `bit`; whether it was present before.
    pub fn remove(&mut self, bit: usize) -> bool {
        let at = bit / BITS;
        let Some(word) = self.words.get_mut(at) else {
            return false;
        };
        let old = *word;
        *word = old & !(1 << (bit % BITS));
        self.first_gap = self.first_gap.min(at);
        old != *word
    }

    /// The lowest number at or above `min` that is not a member. From 0 amortised O(1); from elsewhere it looks at
    /// 64 members at a time.
    pub fn first_absent(&mut self, min: usize) -> usize {
        while self.words.get(self.first_gap) == Some(&u64::MAX) {
            self.first_gap += 1;
        }
        let from = min.max(self.first_gap * BITS);
        let mut at = from / BITS;
        // Members below `from` in its word count as present.
        let mut below = (1 << (from % BITS)) - 1;
        while let Some(word) = self.words.get(at) {
            let taken = word | below;
            if taken != u64::MAX {
                return at * BITS + taken.trailing_ones() as usize;
            }
            below = 0;
            at += 1;
        }
        from.max(at * BITS)
    }

    /// The lowest member at or above `min`.
    #[must_use]
    pub fn first_present(&self, min: usize) -> Option<usize> {
        let mut at = min / BITS;
        let mut mask = u64::MAX << (min % BITS);
        loop {
            let word = self.words.get(at)? & mask;
            if word != 0 {
                return Some(at * BITS + word.trailing_zeros() as usize);
            }
            mask = u64::MAX;
            at += 1;
        }
    }

    /// The members in rising order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let mut next = 0;
        core::iter::from_fn(move || {
            let bit = self.first_present(next)?;
            next = bit + 1;
            Some(bit)
        })
    }

    /// How many members there are; looks at every word.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::BitSet;
    use proptest::prelude::{any, proptest};
    use proptest::prop_assert_eq;
    use std::collections::BTreeSet;

    #[test]
    fn full_words_are_skipped() {
        let mut set = BitSet::new();
        assert_eq!(set.first_absent(70), 70);
        for bit in 0..200 {
            assert_eq!(set.first_absent(0), bit);
            assert!(set.insert(bit));
        }
        assert_eq!(set.first_absent(0), 200);
        assert!(set.remove(64));
        assert!(!set.remove(64));
        assert!(!set.remove(10_000));
        assert_eq!(set.first_absent(0), 64);
        assert_eq!(set.first_absent(65), 200);
        assert_eq!(set.first_absent(1 << 20), 1 << 20);
    }

    proptest! {
        #[test]
        fn behaves_like_a_tree_set(ops in proptest::collection::vec((any::<bool>(), 0..300usize, 0..320usize), 1..200)) {
            let mut set = BitSet::new();
            let mut model = BTreeSet::new();
            for (add, bit, min) in ops {
                if add {
                    prop_assert_eq!(set.insert(bit), model.insert(bit));
                } else {
                    prop_assert_eq!(set.remove(bit), model.remove(&bit));
                }
                prop_assert_eq!(set.contains(bit), add);
                prop_assert_eq!(set.first_absent(min), (min..).find(|b| !model.contains(b)).unwrap());
                prop_assert_eq!(set.first_present(min), model.range(min..).next().copied());
            }
            prop_assert_eq!(set.count(), model.len());
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
