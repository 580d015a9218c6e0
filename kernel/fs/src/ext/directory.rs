// SPDX-License-Identifier: Apache-2.0
//! Directories: a list of entries in blocks on the disk, and an index of it in memory while the directory is in use.
//!
//! An entry is inode, length, length of the name, type, name. Entries fill their block without gaps: one that is removed
//! is joined to the one before it, so those that stay do not move and positions stay good for getdents64(2).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{low_u16, low_u32, u64_from, usize_from, usize_from_u32};
use coracle_core::memory::Page;

use super::layout::{BLOCK, get16, get32, put16, put32, within};
use super::state::State;
use crate::vfs::Kind;
use crate::{Errno, Result};

/// Bytes before the name.
const HEAD: usize = 8;
/// Longest directory that is read: two million names of usual length.
const SIZE_MAX: u64 = 64 << 20;

/// One name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) inode: u32,
    /// Position in the directory.
    at: u32,
}

/// A directory's names in memory.
#[derive(Default)]
pub(super) struct Index {
    names: BTreeMap<Box<[u8]>, Entry>,
    /// Bytes of the largest gap in each block.
    room: Vec<u16>,
    /// No block before this one has room for a name.
    hint: usize,
}

impl Index {
    pub(super) fn get(&self, name: &[u8]) -> Option<Entry> {
        self.names.get(name).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// An entry as it is in its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    pub(super) inode: u32,
    /// Offset in the block.
    pub(super) at: usize,
    length: usize,
    name_length: usize,
    pub(super) kind: u8,
}

impl Raw {
    /// The entry at `at`; `EUCLEAN` if it does not fit into the block or has no valid lengths.
    pub(super) fn read(page: &Page, at: usize) -> Result<Self> {
        if at + HEAD > PAGE_SIZE {
            return Err(Errno::EUCLEAN);
        }
        let mut bytes = [0; 2];
        page.read(at + 6, &mut bytes);
        let raw = Self {
            inode: get32(page, at),
            at,
            length: usize::from(get16(page, at + 4)),
            name_length: usize::from(bytes[0]),
            kind: bytes[1],
        };
        let least = if raw.inode == 0 {
            HEAD
        } else {
            used(raw.name_length)
        };
        if raw.length < least || !raw.length.is_multiple_of(4) || at + raw.length > PAGE_SIZE {
            return Err(Errno::EUCLEAN);
        }
        Ok(raw)
    }

    /// Offset of the next entry, or the end of the block.
    pub(super) fn end(&self) -> usize {
        self.at + self.length
    }

    pub(super) fn name<'a>(&self, page: &Page, buffer: &'a mut [u8; 255]) -> &'a [u8] {
        let name = &mut buffer[..self.name_length];
        page.read(self.at + HEAD, name);
        name
    }

    /// Bytes behind the entry that another one could have.
    fn gap(&self) -> usize {
        if self.inode == 0 {
            self.length
        } else {
            self.length - used(self.name_length)
        }
    }
}

/// Bytes of an entry with a name of that length.
fn used(name_length: usize) -> usize {
    (HEAD + name_length).next_multiple_of(4)
}

/// The type in an entry.
pub(super) fn type_byte(kind: Kind) -> u8 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::CharDevice => 3,
        Kind::BlockDevice => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Symlink => 7,
    }
}

/// The `DT_*` value for the type in an entry.
pub(super) fn dirent_type(byte: u8) -> u8 {
    let kind = match byte {
        1 => Kind::File,
        2 => Kind::Directory,
        3 => Kind::CharDevice,
        4 => Kind::BlockDevice,
        5 => Kind::Fifo,
        6 => Kind::Socket,
        7 => Kind::Symlink,
        _ => return 0,
    };
    kind.dirent_type()
}

fn write_entry(page: &Page, at: usize, length: usize, inode: u32, kind: u8, name: &[u8]) {
    put32(page, at, inode);
    put16(page, at + 4, low_u16(u64_from(length)));
    let name_length = coracle_abi::convert::low_u8(u64_from(name.len()));
    page.write(at + 6, &[name_length, kind]);
    page.write(at + HEAD, name);
}

/// Fills the first block of a new directory.
pub(super) fn write_first(page: &Page, own: u32, parent: u32) {
    write_entry(page, 0, 12, own, 2, b".");
    write_entry(page, 12, PAGE_SIZE - 12, parent, 2, b"..");
}

impl State {
    /// The block of a directory with that index; `EUCLEAN` for a hole.
    pub(super) fn directory_block(&mut self, directory: u32, index: u64) -> Result<u32> {
        self.find_block(directory, index)?.ok_or(Errno::EUCLEAN)
    }

    /// Reads a directory of `size` bytes into its index, unless it is there.
    pub(super) fn index(&mut self, directory: u32, size: u64) -> Result<()> {
        if self.directories.contains_key(&directory) {
            return Ok(());
        }
        if !size.is_multiple_of(BLOCK) || size == 0 || size > SIZE_MAX {
            return Err(Errno::EUCLEAN);
        }
        let mut index = Index::default();
        let mut name = [0; 255];
        for n in 0..size / BLOCK {
            let block = self.directory_block(directory, n)?;
            let page = self.block(block)?;
            let (mut at, mut room) = (0, 0);
            while at < PAGE_SIZE {
                let raw = Raw::read(&page, at)?;
                room = room.max(raw.gap());
                if raw.inode != 0 {
                    let name = raw.name(&page, &mut name);
                    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                        return Err(Errno::EUCLEAN);
                    }
                    if name != b"." && name != b".." {
                        let position = low_u32(n * BLOCK + u64_from(at));
                        let entry = Entry {
                            inode: raw.inode,
                            at: position,
                        };
                        if index.names.insert(name.into(), entry).is_some() {
                            return Err(Errno::EUCLEAN);
                        }
                    }
                }
                at = raw.end();
            }
            index.room.push(low_u16(u64_from(room)));
        }
        self.names += index.names.len();
        self.directories.insert(directory, index);
        Ok(())
    }

    fn indexed(&mut self, directory: u32) -> Result<&mut Index> {
        self.directories.get_mut(&directory).ok_or(Errno::EIO)
    }

    /// The index of the block with room for the name; `None` if the directory has to grow. It is indexed.
    pub(super) fn room_for(&mut self, directory: u32, name: &[u8]) -> Result<Option<usize>> {
        let needed = used(name.len());
        let index = self.indexed(directory)?;
        let from = index.hint.min(index.room.len());
        let found = index.room[from..]
            .iter()
            .position(|room| usize::from(*room) >= needed);
        Ok(found.map(|n| from + n))
    }

    /// Enters a block that was added at the end of a directory: one empty entry.
    pub(super) fn add_directory_block(&mut self, directory: u32, block: u32) -> Result<()> {
        let page = self.fresh(block)?;
        put16(&page, 4, low_u16(BLOCK));
        self.indexed(directory)?.room.push(low_u16(BLOCK));
        Ok(())
    }

    /// Adds a name in the block with that index, which has room for it (see [`State::room_for`]).
    pub(super) fn add_entry(
        &mut self,
        directory: u32,
        n: usize,
        name: &[u8],
        inode: u32,
        kind: u8,
    ) -> Result<()> {
        let block = self.directory_block(directory, u64_from(n))?;
        let page = self.change(block)?;
        let needed = used(name.len());
        let (mut at, mut room, mut placed) = (0, 0, None);
        while at < PAGE_SIZE {
            let raw = Raw::read(&page, at)?;
            at = raw.end();
            if placed.is_some() || raw.gap() < needed {
                room = room.max(raw.gap());
                continue;
            }
            let start = if raw.inode == 0 {
                raw.at
            } else {
                raw.at + used(raw.name_length)
            };
            if raw.inode != 0 {
                put16(&page, raw.at + 4, low_u16(u64_from(start - raw.at)));
            }
            write_entry(&page, start, raw.end() - start, inode, kind, name);
            room = room.max(raw.end() - start - needed);
            placed = Some(start);
        }
        let start = placed.ok_or(Errno::EUCLEAN)?;
        let position = low_u32(u64_from(n) * BLOCK + u64_from(start));
        let index = self.indexed(directory)?;
        if let Some(slot) = index.room.get_mut(n) {
            *slot = low_u16(u64_from(room));
        }
        // Names of 255 bytes may still fit into earlier blocks; what matters is not to look at all blocks each time.
        if n == index.hint && room < used(16) {
            index.hint += 1;
        }
        index.names.insert(
            name.into(),
            Entry {
                inode,
                at: position,
            },
        );
        self.names += 1;
        Ok(())
    }

    /// Lets an existing name mean another inode.
    pub(super) fn set_entry(
        &mut self,
        directory: u32,
        name: &[u8],
        inode: u32,
        kind: u8,
    ) -> Result<()> {
        let entry = self.indexed(directory)?.get(name).ok_or(Errno::ENOENT)?;
        let block = self.directory_block(directory, u64::from(entry.at) / BLOCK)?;
        let page = self.change(block)?;
        let at = within(entry.at.into());
        put32(&page, at, inode);
        page.write(at + 7, &[kind]);
        let index = self.indexed(directory)?;
        index.names.insert(name.into(), Entry { inode, ..entry });
        Ok(())
    }

    /// Removes a name.
    pub(super) fn remove_entry(&mut self, directory: u32, name: &[u8]) -> Result<()> {
        let entry = self.indexed(directory)?.get(name).ok_or(Errno::ENOENT)?;
        let n = u64::from(entry.at) / BLOCK;
        let block = self.directory_block(directory, n)?;
        let page = self.change(block)?;
        let target = within(entry.at.into());
        let (mut at, mut before, mut room) = (0, None, 0);
        while at < PAGE_SIZE {
            let raw = Raw::read(&page, at)?;
            at = raw.end();
            let mut gap = raw.gap();
            if raw.at == target {
                match before {
                    Some(Raw {
                        at: start,
                        inode,
                        name_length,
                        ..
                    }) => {
                        put16(&page, start + 4, low_u16(u64_from(raw.end() - start)));
                        gap = raw.end() - start - if inode == 0 { 0 } else { used(name_length) };
                    }
                    None => {
                        put32(&page, target, 0);
                        gap = raw.length;
                    }
                }
            } else {
                before = Some(raw);
            }
            room = room.max(gap);
        }
        let index = self.indexed(directory)?;
        index.names.remove(name);
        let n = usize_from(n);
        if let Some(slot) = index.room.get_mut(n) {
            *slot = low_u16(u64_from(room));
        }
        index.hint = index.hint.min(n);
        Ok(())
    }

    /// Lets `..` of a directory mean another one.
    pub(super) fn set_parent(&mut self, directory: u32, parent: u32) -> Result<()> {
        let block = self.directory_block(directory, 0)?;
        let page = self.change(block)?;
        let first = Raw::read(&page, 0)?;
        let second = Raw::read(&page, first.end())?;
        let mut name = [0; 255];
        if second.name(&page, &mut name) != b".." {
            return Err(Errno::EUCLEAN);
        }
        put32(&page, second.at, parent);
        Ok(())
    }

    /// Gives indexes of directories back if they hold many names.
    pub(super) fn trim_indexes(&mut self, limit: usize) {
        if self.names > limit {
            self.directories.clear();
            self.names = 0;
        }
    }
}

/// Position of the first entry behind `cursor` in its block is found by walking from the block's start; this is the
/// offset at which to begin to emit.
pub(super) fn offset_of(cursor: u64) -> usize {
    usize_from_u32(low_u32(cursor % BLOCK))
}
