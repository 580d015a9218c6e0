// SPDX-License-Identifier: Apache-2.0
//! Directories: blocks of entries that are sorted by name, within a block and from block to block.

use alloc::vec::Vec;
use core::cmp::Ordering;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::file::DirEntry;

use super::Node;
use super::format::{self, BLOCK, ENTRY, Entry};
use crate::vfs::Kind;
use crate::{Errno, Result};

/// Longest name, `NAME_MAX`.
const NAME_MAX: usize = 255;

/// A name that was read.
struct Name {
    bytes: [u8; NAME_MAX],
    len: usize,
}

impl Name {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// One block of a directory.
struct Block<'a> {
    node: &'a Node,
    /// First byte within the directory.
    at: u64,
    len: usize,
    /// Number of entries.
    count: usize,
}

impl<'a> Block<'a> {
    fn read(node: &'a Node, number: u64) -> Result<Self> {
        let at = number * BLOCK;
        let len = usize_from((node.facts.size - at).min(BLOCK));
        let mut block = Self {
            node,
            at,
            len,
            count: 1,
        };
        if len < ENTRY {
            return Err(Errno::EUCLEAN);
        }
        block.count = format::entry_count(&block.entry(0)?, len)?;
        Ok(block)
    }

    fn entry(&self, index: usize) -> Result<Entry> {
        let mut bytes = [0; ENTRY];
        self.node
            .copy(self.at + u64_from(index * ENTRY), &mut bytes)?;
        Ok(Entry::parse(&bytes))
    }

    /// An entry and its name, which ends where the next begins, or at the end of the block or a NUL.
    fn named(&self, index: usize) -> Result<(Entry, Name)> {
        let entry = self.entry(index)?;
        let last = index + 1 == self.count;
        let end = if last {
            self.len.min(entry.name_at + NAME_MAX)
        } else {
            self.entry(index + 1)?.name_at
        };
        let len = end.checked_sub(entry.name_at).ok_or(Errno::EUCLEAN)?;
        if entry.name_at < self.count * ENTRY || end > self.len || len > NAME_MAX {
            return Err(Errno::EUCLEAN);
        }
        let mut name = Name {
            bytes: [0; NAME_MAX],
            len,
        };
        self.node
            .copy(self.at + u64_from(entry.name_at), &mut name.bytes[..len])?;
        if last && let Some(end) = name.as_slice().iter().position(|byte| *byte == 0) {
            name.len = end;
        }
        if name.as_slice().is_empty()
            || name.as_slice().contains(&b'/')
            || name.as_slice().contains(&0)
        {
            return Err(Errno::EUCLEAN);
        }
        Ok((entry, name))
    }
}

impl Node {
    fn check_directory(&self) -> Result<()> {
        if self.facts.kind == Kind::Directory {
            Ok(())
        } else {
            Err(Errno::ENOTDIR)
        }
    }

    /// The number of the inode with that name.
    pub(super) fn find(&self, name: &[u8]) -> Result<u64> {
        self.check_directory()?;
        // The block is the last one whose first name is not behind the one looked for.
        let (mut low, mut high) = (0, self.facts.blocks());
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let block = Block::read(self, middle)?;
            let (entry, first) = block.named(0)?;
            match first.as_slice().cmp(name) {
                Ordering::Equal => return Ok(entry.inode),
                Ordering::Less => {
                    found = Some(block);
                    low = middle + 1;
                }
                Ordering::Greater => high = middle,
            }
        }
        let block = found.ok_or(Errno::ENOENT)?;
        let (mut low, mut high) = (1, block.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let (entry, here) = block.named(middle)?;
            match here.as_slice().cmp(name) {
                Ordering::Equal => return Ok(entry.inode),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Err(Errno::ENOENT)
    }

    /// The name that the inode of this number has here.
    pub(super) fn name_of(&self, number: u64) -> Result<Option<Vec<u8>>> {
        self.check_directory()?;
        for block in 0..self.facts.blocks() {
            let block = Block::read(self, block)?;
            for index in 0..block.count {
                let (entry, name) = block.named(index)?;
                if entry.inode == number && !matches!(name.as_slice(), b"." | b"..") {
                    return Ok(Some(name.as_slice().to_vec()));
                }
            }
        }
        Ok(None)
    }

    /// Calls `emit` for the entries from `cursor` on, which is the byte position of an entry.
    pub(super) fn each_entry(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.check_directory()?;
        let mut number = cursor / BLOCK;
        let mut index = usize_from(cursor % BLOCK).div_ceil(ENTRY);
        while number < self.facts.blocks() {
            let block = Block::read(self, number)?;
            while index < block.count {
                let (entry, name) = block.named(index)?;
                index += 1;
                let more = emit(DirEntry {
                    inode: entry.inode,
                    next: block.at + u64_from(index * ENTRY),
                    kind: entry.kind,
                    name: name.as_slice(),
                });
                if !more {
                    return Ok(());
                }
            }
            index = 0;
            number += 1;
        }
        Ok(())
    }
}
