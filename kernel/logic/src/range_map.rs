// SPDX-License-Identifier: Apache-2.0
//! A map from disjoint address ranges to values: the list of mappings of an address space.
//!
//! `mmap`, `munmap`, `mprotect` and `mremap` all reduce to "take these addresses out, splitting what lies across the
//! edge, and put something back". The values decide through [`Split`] how they are cut and when two may become one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// A value that covers a range and can be cut in two.
pub trait Split: Sized {
    /// Cuts `self`, `offset` bytes from its start: `self` keeps what is before, the result describes what follows.
    /// A mapping of a file adds `offset` to its file offset here.
    fn split_off(&mut self, offset: u64) -> Self;

    /// Whether `self`, stretched over `next` as well, would describe both. `next` begins where `self` ends, and
    /// `gap_len` is the distance in bytes between the two starts, that is, the length of `self`.
    fn try_merge(&self, next: &Self, gap_len: u64) -> bool {
        let _ = (next, gap_len);
        false
    }
}

/// Why [`RangeMap::insert`] refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsertError {
    /// The range is empty or ends before it starts.
    Empty,
    /// Part of the range is occupied.
    Overlap,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the range is empty",
            Self::Overlap => "the range overlaps an existing one",
        })
    }
}

/// Disjoint half-open ranges `[start, end)`, each with a value.
#[derive(Debug, Clone)]
pub struct RangeMap<V> {
    /// Keyed by start; the pair is (end, value).
    entries: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> RangeMap<V> {
    /// An empty map; does not allocate.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }

    /// The number of entries (not of bytes).
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry that contains `addr`.
    #[must_use]
    pub fn get(&self, addr: u64) -> Option<(Range<u64>, &V)> {
        let (&start, (end, value)) = self.entries.range(..=addr).next_back()?;
        (addr < *end).then_some((start..*end, value))
    }

    /// The entry that contains `addr`, to be changed in place. The change is not checked for possible merging.
    pub fn get_mut(&mut self, addr: u64) -> Option<(Range<u64>, &mut V)> {
        let (&start, (end, value)) = self.entries.range_mut(..=addr).next_back()?;
        (addr < *end).then_some((start..*end, value))
    }

    /// All entries, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Range<u64>, &V)> {
        self.entries
            .iter()
            .map(|(&start, (end, value))| (start..*end, value))
    }

    /// The entries that have at least one address in `range`, lowest first, with their whole extent.
    pub fn overlapping(
        &self,
        range: Range<u64>,
    ) -> impl DoubleEndedIterator<Item = (Range<u64>, &V)> {
        // Never inverted, which would make BTreeMap panic; what an empty range finds is filtered out.
        let span = self.first_overlap(&range)..range.end.max(range.start);
        let empty = range.start >= range.end;
        self.entries
            .range(span)
            .filter(move |_| !empty)
            .map(|(&start, (end, value))| (start..*end, value))
    }

    /// Whether no address of `range` is occupied.
    #[must_use]
    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// Whether every address of `range` is occupied (by one or several entries). An empty range is covered.
    #[must_use]
    pub fn is_covered(&self, range: Range<u64>) -> bool {
        let mut reached = range.start;
        for (entry, _) in self.overlapping(range.clone()) {
            if entry.start > reached {
                return false;
            }
            reached = entry.end;
        }
        reached >= range.end
    }

    /// The start of the first entry that reaches into or beyond `range.start`.
    fn first_overlap(&self, range: &Range<u64>) -> u64 {
        match self.entries.range(..=range.start).next_back() {
            Some((&start, (end, _))) if *end > range.start => start,
            _ => range.start,
        }
    }

    /// Finds `len` free bytes aligned to `align` (a power of two) inside `within`.
    ///
    /// `near` is tried first, exactly as given if it is aligned. Otherwise the first gap that fits is taken, counted
    /// from the top of `within` if `top_down` (and placed at the top of the gap), else from the bottom. Time is
    /// linear in the number of entries passed before a gap fits.
    #[must_use]
    pub fn find_gap(
        &self,
        len: u64,
        align: u64,
        within: Range<u64>,
        top_down: bool,
        near: Option<u64>,
    ) -> Option<u64> {
        if len == 0 || !align.is_power_of_two() || within.start >= within.end {
            return None;
        }
        if let Some(start) = near
            && start.is_multiple_of(align)
            && start >= within.start
            && let Some(end) = start.checked_add(len)
            && end <= within.end
            && self.is_free(start..end)
        {
            return Some(start);
        }
        let fit = |gap_start: u64, gap_end: u64| {
            let start = if top_down {
                gap_end.checked_sub(len)? & !(align - 1)
            } else {
                gap_start.checked_next_multiple_of(align)?
            };
            (start >= gap_start && start.checked_add(len)? <= gap_end).then_some(start)
        };
        if top_down {
            let mut gap_end = within.end;
            for (entry, _) in self.overlapping(within.clone()).rev() {
                if entry.end < gap_end
                    && let Some(start) = fit(entry.end, gap_end)
                {
                    return Some(start);
                }
                gap_end = entry.start.max(within.start);
            }
            fit(within.start, gap_end)
        } else {
            let mut gap_start = within.start;
            for (entry, _) in self.overlapping(within.clone()) {
                if entry.start > gap_start
                    && let Some(start) = fit(gap_start, entry.start)
                {
                    return Some(start);
                }
                gap_start = entry.end.min(within.end);
            }
            fit(gap_start, within.end)
        }
    }
}

impl<V: Split> RangeMap<V> {
    /// Adds an entry. It becomes one with the entries that end or begin at its edges where [`Split::try_merge`]
    /// agrees.
    ///
    /// # Errors
    /// [`InsertError`] if the range is empty or occupied; the map is unchanged then.
    pub fn insert(&mut self, range: Range<u64>, value: V) -> Result<(), InsertError> {
        if range.start >= range.end {
            return Err(InsertError::Empty);
        }
        if !self.is_free(range.clone()) {
            return Err(InsertError::Overlap);
        }
        let Range { start, mut end } = range;
        if let Some((next_end, next)) = self.entries.get(&end)
            && value.try_merge(next, end - start)
        {
            let next_end = *next_end;
            self.entries.remove(&end);
            end = next_end;
        }
        if let Some((&before, (before_end, before_value))) =
            self.entries.range_mut(..start).next_back()
            && *before_end == start
            && before_value.try_merge(&value, start - before)
        {
            *before_end = end;
            return Ok(());
        }
        self.entries.insert(start, (end, value));
        Ok(())
    }

    /// Takes every address of `range` out of the map and returns what was there, lowest first, cut to `range`.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<(Range<u64>, V)> {
        core::iter::from_fn(|| self.take_first(range.clone())).collect()
    }

    /// Takes the lowest entry that overlaps `range` out of the map, cut to `range`. Calling it until it returns
    /// `None` is [`remove`](Self::remove) without the vector.
    pub fn take_first(&mut self, range: Range<u64>) -> Option<(Range<u64>, V)> {
        let (found, _) = self.overlapping(range.clone()).next()?;
        let (_, mut value) = self.entries.remove(&found.start)?;
        let mut taken = found;
        if taken.end > range.end {
            let rest = value.split_off(range.end - taken.start);
            self.entries.insert(range.end, (taken.end, rest));
            taken.end = range.end;
        }
        if taken.start < range.start {
            let middle = value.split_off(range.start - taken.start);
            self.entries.insert(taken.start, (range.start, value));
            taken.start = range.start;
            value = middle;
        }
        Some((taken, value))
    }

    /// Makes `addr` an edge: an entry that lies across it becomes two.
    pub fn split_at(&mut self, addr: u64) {
        if let Some((&start, (end, value))) = self.entries.range_mut(..addr).next_back()
            && *end > addr
        {
            let rest = value.split_off(addr - start);
            let rest_end = core::mem::replace(end, addr);
            self.entries.insert(addr, (rest_end, rest));
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the addresses of the model are below 64"
)]
mod tests {
    use super::{InsertError, RangeMap, Split};
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    /// A file mapping in miniature: which file, and the offset of the first byte.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Map {
        file: u8,
        offset: u64,
    }

    impl Split for Map {
        fn split_off(&mut self, offset: u64) -> Self {
            Self {
                file: self.file,
                offset: self.offset + offset,
            }
        }
        fn try_merge(&self, next: &Self, gap_len: u64) -> bool {
            self.file == next.file && self.offset + gap_len == next.offset
        }
    }

    fn map(file: u8, offset: u64) -> Map {
        Map { file, offset }
    }

    #[test]
    fn a_hole_in_the_middle_leaves_two_ends_with_their_offsets() {
        let mut maps = RangeMap::new();
        maps.insert(100..200, map(1, 1000)).unwrap();
        assert_eq!(maps.remove(120..150), [(120..150, map(1, 1020))]);
        let left: Vec<_> = maps.iter().map(|(r, v)| (r, v.clone())).collect();
        assert_eq!(left, [(100..120, map(1, 1000)), (150..200, map(1, 1050))]);
        maps.insert(120..150, map(1, 1020)).unwrap();
        assert_eq!(
            maps.len(),
            1,
            "the hole filled with the same file is one entry again"
        );
        assert_eq!(maps.get(199), Some((100..200, &map(1, 1000))));
        assert_eq!(maps.get(200), None);
    }

    #[test]
    fn insert_refuses_overlap_and_nonsense() {
        let mut maps = RangeMap::new();
        maps.insert(10..20, map(0, 0)).unwrap();
        let inverted = core::ops::Range { start: 7, end: 3 };
        assert_eq!(maps.insert(19..30, map(1, 0)), Err(InsertError::Overlap));
        assert_eq!(maps.insert(0..11, map(1, 0)), Err(InsertError::Overlap));
        assert_eq!(maps.insert(12..13, map(1, 0)), Err(InsertError::Overlap));
        assert_eq!(maps.insert(5..5, map(1, 0)), Err(InsertError::Empty));
        assert_eq!(
            maps.insert(inverted.clone(), map(1, 0)),
            Err(InsertError::Empty)
        );
        assert_eq!(maps.overlapping(inverted.clone()).count(), 0);
        assert!(maps.remove(inverted).is_empty());
    }

    #[test]
    fn the_top_of_the_address_space_is_reachable() {
        let mut maps = RangeMap::new();
        maps.insert(u64::MAX - 10..u64::MAX, map(0, 0)).unwrap();
        assert_eq!(
            maps.find_gap(8, 8, 0..u64::MAX, true, None),
            Some((u64::MAX - 18) & !7)
        );
        assert_eq!(maps.find_gap(u64::MAX, 1, 0..u64::MAX, false, None), None);
    }

    #[test]
    fn a_hint_is_used_only_when_free_and_aligned() {
        let mut maps = RangeMap::new();
        maps.insert(0x4000..0x5000, map(0, 0)).unwrap();
        let near = |hint| maps.find_gap(0x1000, 0x1000, 0x1000..0x9000, true, Some(hint));
        assert_eq!(near(0x3000), Some(0x3000));
        assert_eq!(near(0x4000), Some(0x8000));
        assert_eq!(near(0x3800), Some(0x8000));
        assert_eq!(near(0x9000), Some(0x8000));
    }

    #[derive(Debug, Clone)]
    enum Op {
        Insert(u64, u64, u8),
        Remove(u64, u64),
        SplitAt(u64),
    }

    const SPACE: usize = 64;

    fn op() -> impl Strategy<Value = Op> {
        let at = 0..SPACE as u64;
        prop_oneof![
            (at.clone(), 1..20u64, 0..3u8).prop_map(|(s, l, f)| Op::Insert(
                s,
                (s + l).min(SPACE as u64),
                f
            )),
            (at.clone(), 1..30u64).prop_map(|(s, l)| Op::Remove(s, (s + l).min(SPACE as u64))),
            at.prop_map(Op::SplitAt),
            Just(Op::Remove(0, 0)),
        ]
    }

    proptest! {
        /// Against the obvious model: an array with one cell for each address.
        #[test]
        fn behaves_like_an_array(ops in proptest::collection::vec(op(), 1..80), len in 1..16u64, shift in 0..4u32, top in any::<bool>()) {
            let mut maps = RangeMap::new();
            let mut cells: Vec<Option<(u8, u64)>> = vec![None; SPACE];
            for op in ops {
                match op {
                    Op::Insert(start, end, file) => {
                        let slots = &mut cells[start as usize..end as usize];
                        let free = slots.iter().all(Option::is_none);
                        // The offset follows the address, so neighbours of the same file always merge.
                        prop_assert_eq!(maps.insert(start..end, map(file, start)).is_ok(), free);
                        if free {
                            for (i, slot) in slots.iter_mut().enumerate() {
                                *slot = Some((file, start + i as u64));
                            }
                        }
                    }
                    Op::Remove(start, end) => {
                        for (range, value) in maps.remove(start..end) {
                            for addr in range.clone() {
                                let expected = cells[addr as usize].take();
                                prop_assert_eq!(expected, Some((value.file, value.offset + addr - range.start)));
                            }
                        }
                        for addr in start..end {
                            prop_assert!(cells[addr as usize].is_none());
                        }
                    }
                    Op::SplitAt(addr) => maps.split_at(addr),
                }
                for addr in 0..SPACE as u64 {
                    let found = maps.get(addr).map(|(r, v)| (v.file, v.offset + addr - r.start));
                    prop_assert_eq!(found, cells[addr as usize]);
                }
            }
            let align = 1 << shift;
            let fits = |s: u64| s.is_multiple_of(align) && s + len <= SPACE as u64
                && (s..s + len).all(|a| cells[a as usize].is_none());
            let mut starts = 0..SPACE as u64;
            let expected = if top { starts.rfind(|s| fits(*s)) } else { starts.find(|s| fits(*s)) };
            prop_assert_eq!(maps.find_gap(len, align, 0..SPACE as u64, top, None), expected);
            let covered = (0..len).all(|a| cells[a as usize].is_some());
            prop_assert_eq!(maps.is_covered(0..len), covered);
        }
    }
}
