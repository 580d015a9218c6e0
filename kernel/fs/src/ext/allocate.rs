// SPDX-License-Identifier: Apache-2.0
//! Taking and giving back blocks and inodes: the two bitmaps of each group, its descriptor, and the superblock's sums.

use coracle_abi::convert::{low_u32, usize_from_u32};
use coracle_core::memory::Page;

use super::layout::{Layout, gd, get16, get32, put16, put32, sb};
use super::state::State;
use crate::{Errno, Result};

/// The first clear bit in `[from, len)` of a bitmap that may be taken. Of one that may not, `skip` says where to go on.
fn clear_bit(
    page: &Page,
    from: u32,
    len: u32,
    mut skip: impl FnMut(u32) -> Option<u32>,
) -> Option<u32> {
    let mut at = from;
    while at < len {
        let mut word = [0; 8];
        page.read(usize_from_u32(at / 64 * 8), &mut word);
        // Bits before the first one looked at count as taken.
        let taken = u64::from_le_bytes(word) | ((1 << (at % 64)) - 1);
        let free = !taken;
        if free != 0 {
            let bit = at / 64 * 64 + free.trailing_zeros();
            if bit >= len {
                return None;
            }
            let Some(next) = skip(bit) else {
                return Some(bit);
            };
            at = next.max(bit + 1);
            continue;
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// Whether a bit is set.
fn bit(page: &Page, n: u32) -> bool {
    let mut byte = [0];
    page.read(usize_from_u32(n / 8), &mut byte);
    byte[0] & (1 << (n % 8)) != 0
}

fn set_bit(page: &Page, n: u32, on: bool) {
    let mut byte = [0];
    let at = usize_from_u32(n / 8);
    page.read(at, &mut byte);
    if on {
        byte[0] |= 1 << (n % 8);
    } else {
        byte[0] &= !(1 << (n % 8));
    }
    page.write(at, &byte);
}

impl State {
    /// A block number from a group's descriptor.
    fn table(&mut self, group: u32, field: usize) -> Result<u32> {
        let (block, at) = Layout::descriptor(group);
        Ok(get32(&self.block(block)?, at + field))
    }

    /// Adds to counters of a group's descriptor and of the superblock.
    fn count(&mut self, group: u32, field: usize, total: Option<usize>, by: i16) -> Result<()> {
        let (block, at) = Layout::descriptor(group);
        let page = self.change(block)?;
        let value = get16(&page, at + field).wrapping_add_signed(by);
        put16(&page, at + field, value);
        if let Some(total) = total {
            let page = self.change(0)?;
            let value = get32(&page, total).wrapping_add_signed(by.into());
            put32(&page, total, value);
        }
        Ok(())
    }

    /// Free blocks, those that come free with the next commit included.
    pub(super) fn free_blocks(&mut self) -> Result<u32> {
        Ok(get32(&self.block(0)?, sb::FREE_BLOCKS).min(self.layout.blocks))
    }

    /// Free inodes.
    pub(super) fn free_inodes(&mut self) -> Result<u32> {
        Ok(get32(&self.block(0)?, sb::FREE_INODES).min(self.layout.inodes))
    }

    /// Whether files may have this block: it exists and holds none of the tables.
    pub(super) fn is_data_block(&mut self, block: u32) -> Result<bool> {
        if block == 0 || block >= self.layout.blocks {
            return Ok(false);
        }
        let group = block / self.layout.blocks_per_group;
        let bitmap = self.table(group, gd::BLOCK_BITMAP)?;
        // In volumes of this kind the tables lie at the start of their group.
        let tables = self.layout.table_blocks() + 2;
        Ok(block >= bitmap.saturating_add(tables))
    }

    /// Takes a free block, at `goal` or as soon behind it as there is one. `ENOSPC`.
    pub(super) fn allocate_block(&mut self, goal: u32) -> Result<u32> {
        let layout = self.layout;
        let goal = if goal < layout.blocks { goal } else { 0 };
        let first = goal / layout.blocks_per_group;
        // The goal's group is looked at twice: from the goal on, and last before it.
        for n in 0..=layout.groups {
            let group = (first + n) % layout.groups;
            let (block, at) = Layout::descriptor(group);
            if get16(&self.block(block)?, at + gd::FREE_BLOCKS) == 0 {
                continue;
            }
            let from = if n == 0 {
                goal % layout.blocks_per_group
            } else {
                0
            };
            let number = self.table(group, gd::BLOCK_BITMAP)?;
            let bitmap = self.block(number)?;
            let base = group * layout.blocks_per_group;
            let found = clear_bit(&bitmap, from, layout.blocks_of(group), |bit| {
                self.reusable_from(base + bit).map(|next| next - base)
            });
            let Some(bit) = found else { continue };
            if !self.is_data_block(base + bit)? {
                return Err(Errno::EUCLEAN);
            }
            set_bit(&self.change(number)?, bit, true);
            self.count(group, gd::FREE_BLOCKS, Some(sb::FREE_BLOCKS), -1)?;
            self.last_taken = base + bit;
            return Ok(base + bit);
        }
        Err(Errno::ENOSPC)
    }

    /// Where to look for the first block of a file: in the group of its inode, behind what was taken there last.
    pub(super) fn first_goal(&self, inode: u32) -> Result<u32> {
        let (group, _) = self.layout.inode_place(inode)?;
        if self.last_taken / self.layout.blocks_per_group == group {
            return Ok(self.last_taken + 1);
        }
        Ok(group * self.layout.blocks_per_group)
    }

    /// Gives a block back; it is not used again before this is committed. `EUCLEAN` if it is free already.
    pub(super) fn free_block(&mut self, block: u32) -> Result<()> {
        if !self.is_data_block(block)? {
            return Err(Errno::EUCLEAN);
        }
        let group = block / self.layout.blocks_per_group;
        let number = self.table(group, gd::BLOCK_BITMAP)?;
        let bitmap = self.change(number)?;
        let index = block % self.layout.blocks_per_group;
        if !bit(&bitmap, index) {
            return Err(Errno::EUCLEAN);
        }
        set_bit(&bitmap, index, false);
        self.count(group, gd::FREE_BLOCKS, Some(sb::FREE_BLOCKS), 1)?;
        self.forget(block);
        self.freed.insert(block);
        Ok(())
    }

    /// Takes a free inode, near that of the directory `parent`. `ENOSPC`.
    pub(super) fn allocate_inode(&mut self, parent: u32, directory: bool) -> Result<u32> {
        let layout = self.layout;
        let (first, _) = layout.inode_place(parent)?;
        for n in 0..layout.groups {
            let group = (first + n) % layout.groups;
            let (block, at) = Layout::descriptor(group);
            if get16(&self.block(block)?, at + gd::FREE_INODES) == 0 {
                continue;
            }
            let number = self.table(group, gd::INODE_BITMAP)?;
            let bitmap = self.block(number)?;
            let from = if group == 0 {
                layout.first_inode - 1
            } else {
                0
            };
            let Some(bit) = clear_bit(&bitmap, from, layout.inodes_per_group, |_| None) else {
                continue;
            };
            set_bit(&self.change(number)?, bit, true);
            self.count(group, gd::FREE_INODES, Some(sb::FREE_INODES), -1)?;
            if directory {
                self.count(group, gd::DIRECTORIES, None, 1)?;
            }
            return Ok(group * layout.inodes_per_group + bit + 1);
        }
        Err(Errno::ENOSPC)
    }

    /// Gives an inode back. `EUCLEAN` if it is free already.
    pub(super) fn free_inode(&mut self, number: u32, directory: bool) -> Result<()> {
        let (group, index) = self.layout.inode_place(number)?;
        let block = self.table(group, gd::INODE_BITMAP)?;
        let bitmap = self.change(block)?;
        if number < self.layout.first_inode || !bit(&bitmap, index) {
            return Err(Errno::EUCLEAN);
        }
        set_bit(&bitmap, index, false);
        self.count(group, gd::FREE_INODES, Some(sb::FREE_INODES), 1)?;
        if directory {
            self.count(group, gd::DIRECTORIES, None, -1)?;
        }
        Ok(())
    }

    /// Block and offset of an inode.
    pub(super) fn inode_at(&mut self, number: u32) -> Result<(u32, usize)> {
        let (group, index) = self.layout.inode_place(number)?;
        let table = self.table(group, gd::INODE_TABLE)?;
        let block = u64::from(table) + u64::from(index / 16);
        if block >= u64::from(self.layout.blocks) {
            return Err(Errno::EUCLEAN);
        }
        Ok((low_u32(block), usize_from_u32(index % 16 * 256)))
    }

    /// Whether an inode is taken.
    pub(super) fn is_inode_used(&mut self, number: u32) -> Result<bool> {
        let (group, index) = self.layout.inode_place(number)?;
        let block = self.table(group, gd::INODE_BITMAP)?;
        Ok(bit(&self.block(block)?, index))
    }

    /// Checks the tables of all groups: within their group, and one behind the other as in every volume of this kind.
    pub(super) fn check_tables(&mut self) -> Result<bool> {
        for group in 0..self.layout.groups {
            let bitmap = self.table(group, gd::BLOCK_BITMAP)?;
            let inodes = self.table(group, gd::INODE_BITMAP)?;
            let table = self.table(group, gd::INODE_TABLE)?;
            let first = group * self.layout.blocks_per_group;
            let end = u64::from(table) + u64::from(self.layout.table_blocks());
            let whole = bitmap > first || (bitmap == first && group > 0);
            let limit = u64::from(first) + u64::from(self.layout.blocks_of(group));
            if !whole
                || Some(inodes) != bitmap.checked_add(1)
                || Some(table) != bitmap.checked_add(2)
                || end > limit
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_bits_are_found() {
        let page = Page::zeroed().unwrap();
        for n in 0..200 {
            set_bit(&page, n, true);
        }
        set_bit(&page, 77, false);
        assert_eq!(clear_bit(&page, 0, 32768, |_| None), Some(77));
        assert_eq!(clear_bit(&page, 78, 32768, |_| None), Some(200));
        let skip = |n| (n < 250).then_some(250);
        assert_eq!(clear_bit(&page, 0, 32768, skip), Some(250));
        assert_eq!(clear_bit(&page, 78, 200, |_| None), None);
        assert!(bit(&page, 199) && !bit(&page, 77));
    }
}
