// SPDX-License-Identifier: Apache-2.0
//! Which block holds which part of a file: twelve pointers in the inode, and trees of one to three levels of blocks of
//! pointers behind them.

use alloc::vec::Vec;

use coracle_abi::convert::{low_u32, usize_from};

use super::layout::{DIRECT, POINTERS, get32, ino, put32};
use super::state::State;
use crate::{Errno, Result};

/// Where a pointer is kept: block and offset.
type Slot = (u32, usize);

/// A way from the inode to a block of a file: which pointer in the inode, and which in each block below.
struct Path {
    top: u64,
    below: [u64; 3],
    depth: usize,
}

impl Path {
    /// `EFBIG` behind what three levels reach.
    fn new(index: u64) -> Result<Self> {
        let direct = |top| Self {
            top,
            below: [0; 3],
            depth: 0,
        };
        if index < DIRECT {
            return Ok(direct(index));
        }
        let mut rest = index - DIRECT;
        let mut reach = POINTERS;
        for depth in 1..=3 {
            if rest < reach {
                let mut path = Self {
                    depth,
                    ..direct(DIRECT - 1 + depth as u64)
                };
                for level in (0..depth).rev() {
                    path.below[level] = rest % POINTERS;
                    rest /= POINTERS;
                }
                return Ok(path);
            }
            rest -= reach;
            reach *= POINTERS;
        }
        Err(Errno::EFBIG)
    }
}

/// What assigning a block came to.
pub(super) struct Assigned {
    pub(super) block: u32,
    /// The block is new.
    pub(super) fresh: bool,
    /// Blocks taken, those of pointers included.
    pub(super) taken: u32,
}

impl State {
    fn pointer_slot(&mut self, inode: u32, top: u64) -> Result<Slot> {
        let (block, at) = self.inode_at(inode)?;
        Ok((block, at + ino::POINTERS + usize_from(top * 4)))
    }

    fn pointer(&mut self, slot: Slot) -> Result<u32> {
        Ok(get32(&self.block(slot.0)?, slot.1))
    }

    /// Where the pointer to the block with that index is kept, and how many pointers to the next ones follow it there;
    /// or how many blocks from `index` on lie in the same hole.
    fn leaf(&mut self, inode: u32, index: u64) -> Result<Result<(Slot, u64), u64>> {
        let path = Path::new(index)?;
        let mut slot = self.pointer_slot(inode, path.top)?;
        if path.depth == 0 {
            return Ok(Ok((slot, DIRECT - path.top)));
        }
        let mut rest = 0;
        for (level, at) in path.below[..path.depth].iter().enumerate() {
            let block = self.pointer(slot)?;
            if block == 0 {
                // What lies below this pointer, from the index on.
                let mut span = 1;
                let mut offset = 0;
                for at in path.below[level..path.depth].iter().rev() {
                    offset += at * span;
                    span *= POINTERS;
                }
                return Ok(Err(span - offset));
            }
            self.check(block)?;
            slot = (block, usize_from(at * 4));
            rest = POINTERS - at;
        }
        Ok(Ok((slot, rest)))
    }

    /// The block of a file with that index, and how many behind it on the disk are the file's next ones, at most `most`
    /// in all; `None` for a hole.
    pub(super) fn find_blocks(
        &mut self,
        inode: u32,
        index: u64,
        most: u32,
    ) -> Result<Option<(u32, u32)>> {
        let ((number, at), rest) = match self.leaf(inode, index) {
            Ok(Ok(found)) => found,
            Ok(Err(_)) | Err(Errno::EFBIG) => return Ok(None),
            Err(error) => return Err(error),
        };
        let page = self.block(number)?;
        let first = get32(&page, at);
        if first == 0 {
            return Ok(None);
        }
        self.check(first)?;
        let (mut count, mut at) = (1, at);
        while count < most && u64::from(count) < rest {
            at += 4;
            let next = get32(&page, at);
            if Some(next) != first.checked_add(count) || self.check(next).is_err() {
                break;
            }
            count += 1;
        }
        Ok(Some((first, count)))
    }

    /// The first index from `index` to before `end` that has a block, or that has none (`hole`).
    pub(super) fn seek_block(
        &mut self,
        inode: u32,
        mut index: u64,
        end: u64,
        hole: bool,
    ) -> Result<Option<u64>> {
        while index < end {
            match self.leaf(inode, index)? {
                Err(_) if hole => return Ok(Some(index)),
                Err(absent) => index += absent,
                Ok(((number, at), rest)) => {
                    let page = self.block(number)?;
                    let found =
                        (0..rest).find(|n| (get32(&page, at + usize_from(n * 4)) == 0) == hole);
                    match found {
                        Some(n) => return Ok(Some(index + n).filter(|found| *found < end)),
                        None => index += rest,
                    }
                }
            }
        }
        Ok(None)
    }

    /// The block of a file with that index; `None` for a hole. `EUCLEAN` if a pointer leads nowhere.
    pub(super) fn find_block(&mut self, inode: u32, index: u64) -> Result<Option<u32>> {
        Ok(self.find_blocks(inode, index, 1)?.map(|(block, _)| block))
    }

    fn check(&mut self, block: u32) -> Result<()> {
        if self.is_data_block(block)? {
            Ok(())
        } else {
            Err(Errno::EUCLEAN)
        }
    }

    /// The block of a file with that index, which is allocated if there is none, near `goal`. `ENOSPC` without any
    /// change.
    pub(super) fn assign_block(&mut self, inode: u32, index: u64, goal: u32) -> Result<Assigned> {
        let path = Path::new(index)?;
        let mut slot = self.pointer_slot(inode, path.top)?;
        let mut level = 0;
        // Down as far as there is a way.
        loop {
            let block = self.pointer(slot)?;
            if block == 0 {
                break;
            }
            self.check(block)?;
            if level == path.depth {
                return Ok(Assigned {
                    block,
                    fresh: false,
                    taken: 0,
                });
            }
            slot = (block, usize_from(path.below[level] * 4));
            level += 1;
        }
        // All blocks that are missing, before any is entered: the blocks of pointers come before what they point to.
        let mut taken: Vec<u32> = Vec::with_capacity(4);
        for _ in level..=path.depth {
            let goal = taken.last().map_or(goal, |last| last + 1);
            match self.allocate_block(goal) {
                Ok(block) => taken.push(block),
                Err(error) => {
                    for block in taken {
                        self.free_block(block)?;
                    }
                    return Err(error);
                }
            }
        }
        for (n, block) in taken.iter().enumerate() {
            let page = self.change(slot.0)?;
            put32(&page, slot.1, *block);
            let level = level + n;
            if level < path.depth {
                self.fresh(*block)?;
                slot = (*block, usize_from(path.below[level] * 4));
            }
        }
        let block = *taken.last().ok_or(Errno::EIO)?;
        Ok(Assigned {
            block,
            fresh: true,
            taken: low_u32(taken.len() as u64),
        })
    }

    /// Frees the blocks of a file with an index from `from` up to before `to`, and blocks of pointers with nothing left.
    /// Takes `budget` down by each and stops when it is used up: then there may be more. Returns how many blocks that
    /// were.
    pub(super) fn release_blocks(
        &mut self,
        inode: u32,
        from: u64,
        to: u64,
        budget: &mut u32,
    ) -> Result<u32> {
        let before = *budget;
        for top in from..to.min(DIRECT) {
            let slot = self.pointer_slot(inode, top)?;
            self.release_below(slot, 0, 0, 0..1, budget)?;
        }
        let (mut first, mut reach) = (DIRECT, POINTERS);
        for depth in 1..=3 {
            let slot = self.pointer_slot(inode, DIRECT - 1 + u64::from(depth))?;
            let range = from.max(first)..to.min(first + reach);
            if range.start < range.end {
                self.release_below(slot, depth, first, range, budget)?;
            }
            first += reach;
            reach *= POINTERS;
        }
        Ok(before - *budget)
    }

    /// Frees what lies in `range` of the tree that hangs on the pointer at `slot`; `first` is the index of the first
    /// block of that tree. The pointer is cleared if nothing is left below it.
    fn release_below(
        &mut self,
        slot: Slot,
        depth: u32,
        first: u64,
        range: core::ops::Range<u64>,
        budget: &mut u32,
    ) -> Result<()> {
        let block = self.pointer(slot)?;
        if block == 0 || *budget == 0 {
            return Ok(());
        }
        self.check(block)?;
        if depth > 0 {
            let span = POINTERS.pow(depth - 1);
            let reach = range.start.saturating_sub(first) / span
                ..(range.end - first).div_ceil(span).min(POINTERS);
            for n in reach {
                let below = first + n * span;
                let part = range.start.max(below)..range.end.min(below + span);
                self.release_below((block, usize_from(n * 4)), depth - 1, below, part, budget)?;
            }
            if *budget == 0 || !self.is_empty(block)? {
                return Ok(());
            }
        }
        let page = self.change(slot.0)?;
        put32(&page, slot.1, 0);
        self.free_block(block)?;
        *budget -= 1;
        Ok(())
    }

    fn is_empty(&mut self, block: u32) -> Result<bool> {
        let page = self.block(block)?;
        Ok((0..usize_from(POINTERS)).all(|n| get32(&page, n * 4) == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_through_the_right_pointers() {
        let path = |index| {
            let path = Path::new(index).unwrap();
            (path.top, path.below[..path.depth].to_vec())
        };
        assert_eq!(path(0), (0, alloc::vec![]));
        assert_eq!(path(11), (11, alloc::vec![]));
        assert_eq!(path(12), (12, alloc::vec![0]));
        assert_eq!(path(12 + 1023), (12, alloc::vec![1023]));
        assert_eq!(path(12 + 1024), (13, alloc::vec![0, 0]));
        assert_eq!(path(12 + 1024 + 1025), (13, alloc::vec![1, 1]));
        assert_eq!(path(12 + 1024 + 1024 * 1024), (14, alloc::vec![0, 0, 0]));
        assert!(Path::new(12 + 1024 + 1024 * 1024 + 1024 * 1024 * 1024).is_err());
    }
}
