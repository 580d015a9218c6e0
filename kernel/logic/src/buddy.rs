// SPDX-License-Identifier: Apache-2.0
//! The frame allocator: binary buddies over frame numbers.
//!
//! It owns no storage. Free blocks are linked through a table with one [`FrameMeta`] for each frame, which the caller
//! provides zeroed; only the entries of block heads are ever written, so a machine with 64 GiB starts as fast as one
//! with 64 MiB and untouched table pages cost the host nothing. The table's fields are atomics so that the rest of the
//! kernel can keep reference counts in the same table without holding the allocator's lock; the allocator itself is
//! used under one lock and needs no ordering.
//!
//! Single frames that come back wait in a short *hot* list before they are merged: the next allocation gets the frame
//! that is in the cache and already backed by the host, and a free-allocate pair does not merge and split a gigabyte.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The largest block is `1 << MAX_ORDER` frames: 1 GiB with 4 KiB frames.
pub const MAX_ORDER: u32 = 18;
/// How many single frames wait unmerged at most.
const HOT_LIMIT: u32 = 64;
const ORDERS: usize = MAX_ORDER as usize + 1;
/// End of a list.
const NONE: u32 = u32::MAX;
/// `state` of a frame in the hot list. A free block's head has `1 + order`, everything else 0.
const HOT: u32 = 0x100;

/// What is known about one frame. All zero bits mean: not free, not counted.
#[derive(Debug, Default)]
#[repr(C)]
pub struct FrameMeta {
    next: AtomicU32,
    prev: AtomicU32,
    state: AtomicU32,
    /// For the owner of an allocated frame: how many mappings share it. The allocator never touches it.
    pub refcount: AtomicU32,
}

/// A doubly linked list threaded through the table.
#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    fn push(&mut self, frames: &[FrameMeta], frame: u32, state: u32) {
        let meta = &frames[frame as usize];
        meta.next.store(self.head, Relaxed);
        meta.prev.store(NONE, Relaxed);
        meta.state.store(state, Relaxed);
        match self.head {
            NONE => self.tail = frame,
            head => frames[head as usize].prev.store(frame, Relaxed),
        }
        self.head = frame;
    }

    fn unlink(&mut self, frames: &[FrameMeta], frame: u32) {
        let meta = &frames[frame as usize];
        let (next, prev) = (meta.next.load(Relaxed), meta.prev.load(Relaxed));
        meta.state.store(0, Relaxed);
        match prev {
            NONE => self.head = next,
            prev => frames[prev as usize].next.store(next, Relaxed),
        }
        match next {
            NONE => self.tail = prev,
            next => frames[next as usize].prev.store(prev, Relaxed),
        }
    }
}

/// The allocator. Frame numbers index the table, so frame 0 is the first entry whether or not it is ever added.
#[derive(Debug)]
pub struct Buddy<'a> {
    frames: &'a [FrameMeta],
    lists: [List; ORDERS],
    /// Bit `order` is set if that list is not empty.
    nonempty: u32,
    hot: List,
    hot_len: u32,
    free: u64,
}

impl<'a> Buddy<'a> {
    /// An allocator without any free frame. `frames` must be zeroed (or used by nobody since `Default`); frame
    /// numbers at or beyond its length do not exist.
    #[must_use]
    pub const fn new(frames: &'a [FrameMeta]) -> Self {
        Self {
            frames,
            lists: [List::EMPTY; ORDERS],
            nonempty: 0,
            hot: List::EMPTY,
            hot_len: 0,
            free: 0,
        }
    }

    /// The table, for reference counts.
    #[must_use]
    pub const fn frames(&self) -> &'a [FrameMeta] {
        self.frames
    }

    /// The number of free frames.
    #[must_use]
    pub const fn free_frames(&self) -> u64 {
        self.free
    }

    /// The order of the largest block that [`alloc`](Self::alloc) can give now without merging hot frames; `None` if
    /// there is none.
    #[must_use]
    pub const fn largest_order(&self) -> Option<u32> {
        match self.nonempty.checked_ilog2() {
            None if self.hot_len > 0 => Some(0),
            other => other,
        }
    }

    /// Gives the frames `[start, end)` to the allocator; what lies beyond the table is left out. Takes time
    /// proportional to the number of aligned blocks, not of frames. None of the frames may be known already.
    pub fn add_range(&mut self, start: u32, end: u32) {
        let end = end.min(u32::try_from(self.frames.len()).unwrap_or(u32::MAX));
        // From the top, so that the lowest block ends up first in its list.
        let mut top = end;
        while top > start {
            let order = top
                .trailing_zeros()
                .min((top - start).ilog2())
                .min(MAX_ORDER);
            top -= 1 << order;
            self.free += 1 << order;
            self.merge_in(top, order);
        }
    }

    /// Takes `1 << order` contiguous frames, aligned to their number, and returns the first. The most recently freed
    /// block that fits is preferred; a larger block is split and its low part used. `None` if there is none or
    /// `order` exceeds [`MAX_ORDER`].
    pub fn alloc(&mut self, order: u32) -> Option<u32> {
        if order == 0 && self.hot.head != NONE {
            let frame = self.hot.head;
            self.hot.unlink(self.frames, frame);
            self.hot_len -= 1;
            self.free -= 1;
            return Some(frame);
        }
        if order > MAX_ORDER {
            return None;
        }
        if self.nonempty >> order == 0 && self.hot_len > 0 {
            self.drain_hot(0);
        }
        let fitting = self.nonempty & (u32::MAX << order);
        if fitting == 0 {
            return None;
        }
        let mut from = fitting.trailing_zeros();
        let frame = self.lists[from as usize].head;
        self.unlink(frame, from);
        while from > order {
            from -= 1;
            self.link(frame + (1 << from), from);
        }
        self.free -= 1 << order;
        Some(frame)
    }

    /// Returns a block to the allocator. Parts of a larger allocation may be returned one by one.
    ///
    /// # Panics
    /// If the block reaches beyond the table; with debug assertions also if it is not aligned or is already free.
    pub fn free(&mut self, frame: u32, order: u32) {
        debug_assert!(
            frame.is_multiple_of(1 << order),
            "block {frame} is not aligned to order {order}"
        );
        debug_assert_eq!(
            self.frames[frame as usize].state.load(Relaxed),
            0,
            "frame {frame} is freed twice"
        );
        self.free += 1 << order;
        if order > 0 {
            self.merge_in(frame, order);
            return;
        }
        self.hot.push(self.frames, frame, HOT);
        self.hot_len += 1;
        if self.hot_len > HOT_LIMIT {
            self.drain_hot(HOT_LIMIT / 2);
        }
    }

    /// Gives the frames of `range` that are free and lie in blocks of at least `order` to `visit`, for the caller who
    /// wants to hand free memory back to the host. Walks block heads only.
    pub fn for_each_free_block(&self, min_order: u32, mut visit: impl FnMut(Range<u32>)) {
        for order in min_order..=MAX_ORDER {
            let mut frame = self.lists[order as usize].head;
            while frame != NONE {
                visit(frame..frame + (1 << order));
                frame = self.frames[frame as usize].next.load(Relaxed);
            }
        }
    }

    /// Merges the coldest hot frames until `keep` are left.
    fn drain_hot(&mut self, keep: u32) {
        while self.hot_len > keep {
            let frame = self.hot.tail;
            self.hot.unlink(self.frames, frame);
            self.hot_len -= 1;
            self.merge_in(frame, 0);
        }
    }

    /// Links a block, as part of the largest block its free buddies allow.
    fn merge_in(&mut self, mut frame: u32, mut order: u32) {
        while order < MAX_ORDER {
            let buddy = frame ^ (1 << order);
            let free = self
                .frames
                .get(buddy as usize)
                .is_some_and(|m| m.state.load(Relaxed) == 1 + order);
            if !free {
                break;
            }
            self.unlink(buddy, order);
            frame &= !(1 << order);
            order += 1;
        }
        self.link(frame, order);
    }

    fn link(&mut self, frame: u32, order: u32) {
        self.lists[order as usize].push(self.frames, frame, 1 + order);
        self.nonempty |= 1 << order;
    }

    fn unlink(&mut self, frame: u32, order: u32) {
        let list = &mut self.lists[order as usize];
        list.unlink(self.frames, frame);
        if list.head == NONE {
            self.nonempty &= !(1 << order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buddy, FrameMeta, HOT_LIMIT, MAX_ORDER};
    use core::sync::atomic::Ordering::Relaxed;
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    fn table(frames: usize) -> Vec<FrameMeta> {
        core::iter::repeat_with(FrameMeta::default)
            .take(frames)
            .collect()
    }

    #[test]
    fn metadata_is_sixteen_bytes() {
        assert_eq!(size_of::<FrameMeta>(), 16);
    }

    #[test]
    fn construction_touches_few_entries() {
        let frames = table(3 << 20);
        let mut buddy = Buddy::new(&frames);
        buddy.add_range(1, 3 << 20);
        assert_eq!(buddy.free_frames(), (3 << 20) - 1);
        assert_eq!(buddy.largest_order(), Some(MAX_ORDER));
        let touched = frames.iter().filter(|m| m.state.load(Relaxed) != 0).count();
        assert!(touched <= 11 + 18, "{touched} entries written");
    }

    #[test]
    fn low_frames_first_and_the_last_freed_again() {
        let frames = table(1024);
        let mut buddy = Buddy::new(&frames);
        buddy.add_range(256, 1024);
        assert_eq!(buddy.alloc(0), Some(256));
        assert_eq!(buddy.alloc(0), Some(257));
        assert_eq!(buddy.alloc(1), Some(258));
        buddy.free(256, 0);
        buddy.free(257, 0);
        assert_eq!(buddy.alloc(0), Some(257));
        assert_eq!(buddy.alloc(0), Some(256));
    }

    #[test]
    fn hot_frames_are_merged_when_a_large_block_is_wanted() {
        let frames = table(HOT_LIMIT as usize / 2);
        let mut buddy = Buddy::new(&frames);
        buddy.add_range(0, HOT_LIMIT / 2);
        let all: Vec<_> = core::iter::from_fn(|| buddy.alloc(0)).collect();
        assert_eq!(all.len(), HOT_LIMIT as usize / 2);
        assert_eq!(buddy.largest_order(), None);
        all.into_iter().for_each(|f| buddy.free(f, 0));
        assert_eq!(buddy.largest_order(), Some(0));
        assert_eq!(buddy.alloc((HOT_LIMIT / 2).ilog2()), Some(0));
        assert_eq!(buddy.free_frames(), 0);
    }

    #[test]
    fn impossible_wishes() {
        let frames = table(16);
        let mut buddy = Buddy::new(&frames);
        assert_eq!(buddy.alloc(0), None);
        buddy.add_range(3, 400);
        assert_eq!(buddy.free_frames(), 13);
        assert_eq!(buddy.alloc(4), None);
        assert_eq!(buddy.alloc(MAX_ORDER + 1), None);
        assert_eq!(buddy.alloc(3), Some(8));
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_noticed() {
        let frames = table(16);
        let mut buddy = Buddy::new(&frames);
        buddy.add_range(0, 16);
        let frame = buddy.alloc(0).unwrap();
        buddy.free(frame, 0);
        buddy.free(frame, 0);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Alloc(u32),
        Free(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0..6u32).prop_map(Op::Alloc),
            2 => (0..1u32).prop_map(Op::Alloc),
            4 => any::<usize>().prop_map(Op::Free),
        ]
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_everything_comes_back(
            start in 0..40u32, len in 1..700u32, ops in proptest::collection::vec(op(), 1..400),
        ) {
            let end = start + len;
            let frames = table(1024);
            let mut buddy = Buddy::new(&frames);
            buddy.add_range(start, end);
            let initial: Vec<bool> = (0..=MAX_ORDER).map(|o| buddy.nonempty & (1 << o) != 0).collect();
            let mut held: Vec<(u32, u32)> = Vec::new();
            let mut owner = vec![false; 1024];
            for op in ops {
                match op {
                    Op::Alloc(order) => {
                        let Some(frame) = buddy.alloc(order) else { continue };
                        prop_assert!(frame.is_multiple_of(1 << order));
                        prop_assert!(frame >= start && frame + (1 << order) <= end);
                        for taken in &mut owner[frame as usize..(frame + (1 << order)) as usize] {
                            prop_assert!(!*taken);
                            *taken = true;
                        }
                        held.push((frame, order));
                    }
                    Op::Free(which) if !held.is_empty() => {
                        let (frame, order) = held.swap_remove(which % held.len());
                        owner[frame as usize..(frame + (1 << order)) as usize].fill(false);
                        buddy.free(frame, order);
                    }
                    Op::Free(_) => {}
                }
                let used: u64 = held.iter().map(|(_, o)| 1 << o).sum();
                prop_assert_eq!(buddy.free_frames(), u64::from(len) - used);
            }
            for (frame, order) in held {
                buddy.free(frame, order);
            }
            buddy.drain_hot(0);
            let finally: Vec<bool> = (0..=MAX_ORDER).map(|o| buddy.nonempty & (1 << o) != 0).collect();
            prop_assert_eq!(initial, finally, "everything merged back");
            let mut seen = 0;
            buddy.for_each_free_block(0, |block| seen += block.len() as u64);
            prop_assert_eq!(seen, u64::from(len));
        }
    }
}
