// SPDX-License-Identifier: Apache-2.0
//! Inodes as open files: transfers, sizes, mappings, listings, and bringing all that to the disk.

use alloc::sync::Arc;
use core::any::Any;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::general as g;
use coracle_core::file::{DirEntry, File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;

use super::content::blocks_in;
use super::directory::{Raw, dirent_type, offset_of};
use super::layout::{BLOCK, MAX_SIZE, within};
use super::node::Node;
use crate::vfs::{Inode, Kind};
use crate::{Errno, Result};

/// Most blocks that a large read asks the disk for at once.
const REQUEST_BLOCKS: u32 = 64;
/// Bytes written before the volume's lock is given to others.
const CHUNK: usize = 256 * 1024;

impl Node {
    fn check_content(&self) -> Result<()> {
        match self.kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn emit_block(
        page: &Page,
        base: u64,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<bool> {
        let mut name = [0; 255];
        let mut at = 0;
        while at < PAGE_SIZE {
            let raw = Raw::read(page, at)?;
            at = raw.end();
            if raw.inode == 0 || (cursor > base && raw.at < offset_of(cursor)) {
                continue;
            }
            let entry = DirEntry {
                inode: raw.inode.into(),
                next: base + u64_from(at),
                kind: dirent_type(raw.kind),
                name: raw.name(page, &mut name),
            };
            if !emit(entry) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl File for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        self.check_content()?;
        let mut total = 0;
        while dst.remaining() > 0 && dst.faulted().is_none() {
            let at = position.saturating_add(u64_from(total));
            let left = self.size().saturating_sub(at);
            if left == 0 {
                break;
            }
            let (index, offset) = (at / BLOCK, within(at));
            let len = (PAGE_SIZE - offset)
                .min(usize_from(left))
                .min(dst.remaining());
            let ahead = self.ahead(index);
            let page = match self.cached(index) {
                Some(page) => Ok(Some(page)),
                None => {
                    let wanted = blocks_in(u64_from(offset + dst.remaining()));
                    self.load(index, wanted.min(REQUEST_BLOCKS).max(ahead))
                }
            };
            let copied = match page {
                Ok(Some(page)) => page.read_to(offset, len, dst),
                Ok(None) => dst.write_zeros(len),
                Err(error) => Err(error),
            };
            match copied {
                Ok(0) => break,
                Ok(count) => total += count,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.touch_accessed();
        Ok(total)
    }

    fn write_at(&self, position: u64, append: bool, src: &mut IoSrc<'_>) -> Result<(usize, u64)> {
        self.check_content()?;
        let (mut total, mut at) = (0, position);
        while src.remaining() > 0 {
            let place = if append { None } else { Some(at) };
            let step = self
                .fs
                .change(|st| self.write_locked(st, place, CHUNK, src));
            match step {
                Ok((0, _)) => break,
                Ok((count, end)) => {
                    total += count;
                    at = end;
                }
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
            if src.faulted().is_some() {
                break;
            }
        }
        Ok((total, at))
    }

    fn metadata(&self) -> Result<Metadata> {
        Inode::metadata(self)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.set_size(size)
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.check_content()?;
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= MAX_SIZE)
            .ok_or(Errno::EFBIG)?;
        match mode {
            0 => {
                // All or nothing: what cannot fit is not begun.
                self.fs.change(|st| {
                    let free = u64::from(st.free_blocks()?) * BLOCK;
                    let there = u64::from(self.attributes.lock().sectors) * 512;
                    if len.saturating_sub(there) > free {
                        Err(Errno::ENOSPC)
                    } else {
                        Ok(())
                    }
                })?;
                let mut at = offset;
                while at < end {
                    let step = (end - at).min(u64_from(CHUNK));
                    self.fs.change(|st| self.fill_holes(st, at, step))?;
                    at += step;
                }
                self.fs.change(|st| self.grow(st, end))
            }
            // Blocks behind the end of a file are not known to this format.
            g::FALLOC_FL_KEEP_SIZE if end <= self.size().next_multiple_of(BLOCK) => {
                self.fs.change(|st| {
                    self.fill_holes(st, offset, end.min(self.size()).saturating_sub(offset))
                })
            }
            PUNCH => self.fs.change(|st| self.punch(st, offset, end)),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn sync(&self) -> Result<()> {
        self.fs.sync_node(self, false)
    }

    fn sync_data(&self) -> Result<()> {
        self.fs.sync_node(self, true)
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        if self.kind != Kind::File {
            return Err(Errno::ENODEV);
        }
        if index.checked_mul(BLOCK).is_none_or(|at| at >= self.size()) {
            return Err(Errno::ENXIO);
        }
        let mut pages = self.pages.lock();
        match pages.get_mut(&index) {
            Some(cached) if cached.writable || !write => {
                cached.used = true;
                Ok(cached.page.clone())
            }
            _ => Err(Errno::EAGAIN),
        }
    }

    fn fetch(&self, index: u64, write: bool) -> Result<()> {
        if index.checked_mul(BLOCK).is_none_or(|at| at >= self.size()) {
            return Err(Errno::ENXIO);
        }
        if write {
            return self.fs.change(|st| self.make_writable(st, index));
        }
        if self.load(index, self.ahead(index))?.is_none() {
            // A hole: a mapping needs a page nonetheless.
            self.load_locked(&mut self.fs.lock(), index)?;
        }
        Ok(())
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut st = self.fs.lock();
        let checked = self.index(&mut st);
        self.fs.noted(checked)?;
        let size = self.size();
        let mut base = cursor - cursor % BLOCK;
        while base < size {
            let block = st.directory_block(self.number, base / BLOCK)?;
            let page = st.block(block)?;
            if !Self::emit_block(&page, base, cursor, emit)? {
                break;
            }
            base += BLOCK;
        }
        drop(st);
        self.touch_accessed();
        Ok(())
    }
}

const PUNCH: u32 = g::FALLOC_FL_KEEP_SIZE | g::FALLOC_FL_PUNCH_HOLE;

/// A file opened with `O_SYNC` or `O_DSYNC`: each write is on the disk when it returns.
pub(super) struct SyncingFile {
    node: Arc<Node>,
    data_only: bool,
}

impl SyncingFile {
    /// Such a file, if the flags of open(2) ask for one.
    pub(super) fn wanted(node: &Arc<Node>, flags: u32) -> Option<Arc<dyn File>> {
        if flags & (g::O_SYNC | g::O_DSYNC) == 0 || node.kind != Kind::File {
            return None;
        }
        // `O_SYNC` contains the bit of `O_DSYNC`.
        let data_only = flags & g::O_SYNC != g::O_SYNC;
        Some(Arc::new(Self {
            node: node.clone(),
            data_only,
        }))
    }
}

impl File for SyncingFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        self.node.read_at(position, dst)
    }

    fn write_at(&self, position: u64, append: bool, src: &mut IoSrc<'_>) -> Result<(usize, u64)> {
        let result = self.node.write_at(position, append, src)?;
        self.node.fs.sync_node(&self.node, self.data_only)?;
        Ok(result)
    }

    fn metadata(&self) -> Result<Metadata> {
        Inode::metadata(&*self.node)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.node.set_size(size)
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.node.allocate(mode, offset, len)
    }

    fn sync(&self) -> Result<()> {
        self.node.sync()
    }

    fn sync_data(&self) -> Result<()> {
        self.node.sync_data()
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        self.node.page(index, write)
    }

    fn content_id(&self) -> usize {
        File::content_id(&*self.node)
    }

    fn fetch(&self, index: u64, write: bool) -> Result<()> {
        self.node.fetch(index, write)
    }
}
