// SPDX-License-Identifier: Apache-2.0
//! A set of block numbers, kept as ranges: a removed file is a few long ones.

use alloc::collections::BTreeMap;

/// A set of numbers.
#[derive(Default)]
pub(super) struct Ranges {
    /// First number of each range, and the one behind its last.
    ranges: BTreeMap<u32, u32>,
}

impl Ranges {
    fn contains(&self, number: u32) -> bool {
        self.end_of(number).is_some()
    }

    /// If the number is in the set, the next one that is not.
    pub(super) fn end_of(&self, number: u32) -> Option<u32> {
        let (_, end) = self.ranges.range(..=number).next_back()?;
        (number < *end).then_some(*end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn insert(&mut self, number: u32) {
        if self.contains(number) || number == u32::MAX {
            return;
        }
        let behind = number + 1;
        let end = self.ranges.remove(&behind).unwrap_or(behind);
        if let Some((_, before)) = self.ranges.range_mut(..number).next_back()
            && *before == number
        {
            *before = end;
        } else {
            self.ranges.insert(number, end);
        }
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join() {
        let mut set = Ranges::default();
        for n in [5, 3, 4, 9, 1, 2, 5] {
            set.insert(n);
        }
        assert_eq!(
            set.ranges.iter().collect::<alloc::vec::Vec<_>>(),
            [(&1, &6), (&9, &10)]
        );
        assert_eq!((set.end_of(3), set.end_of(6)), (Some(6), None));
        assert!(set.contains(1) && set.contains(5) && !set.contains(6) && !set.contains(0));
        set.clear();
        assert!(set.is_empty());
    }
}
