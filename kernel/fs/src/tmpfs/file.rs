// SPDX-License-Identifier: Apache-2.0
//! Nodes of the file system in memory as open files: transfers, sizes, mappings, listings.

use alloc::vec::Vec;
use core::any::Any;

use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::file::{DirEntry, File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;

use super::base::Stop;
use super::directory::FIRST_COOKIE;
use super::lower::{LOWER_POSITION, OWN_POSITION};
use super::node::{Body, Node};
use crate::vfs::{Inode, Kind};
use crate::{Errno, Result};

/// Bytes copied before the content's lock is given to others.
const CHUNK: usize = 256 * 1024;

impl File for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        // The lower layer may know a quicker way than page by page.
        let untouched = self.content()?.lock().untouched();
        if let Some(lower) = untouched {
            return lower.read_at(position, dst);
        }
        let mut total = 0;
        loop {
            let at = position.saturating_add(u64_from(total));
            match self.with_content(|content| content.read(at, CHUNK, dst)) {
                Ok(0) => break,
                Ok(count) => total += count,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
            if dst.faulted().is_some() || dst.remaining() == 0 {
                break;
            }
        }
        self.touch_accessed();
        Ok(total)
    }

    fn write_at(&self, position: u64, append: bool, src: &mut IoSrc<'_>) -> Result<(usize, u64)> {
        if src.remaining() == 0 {
            return Ok((0, position)); // no byte, no step: not even to the end
        }
        self.sealed(g::F_SEAL_WRITE | g::F_SEAL_FUTURE_WRITE)?;
        self.keep();
        let mut at = position;
        let mut total = 0;
        loop {
            let step = self.with_content(|content| {
                if append {
                    at = content.size();
                }
                let end = at.saturating_add(u64_from(src.remaining().min(CHUNK)));
                if end > content.size() {
                    self.sealed(g::F_SEAL_GROW)?;
                }
                content.write(at, CHUNK, src)
            });
            match step {
                Ok(0) => break,
                Ok(count) => {
                    total += count;
                    at += u64_from(count);
                }
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
            if src.faulted().is_some() || src.remaining() == 0 {
                break;
            }
        }
        if total > 0 {
            self.touch_modified();
        }
        Ok((total, at))
    }

    fn metadata(&self) -> Result<Metadata> {
        Inode::metadata(self)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        Inode::truncate(self, size)
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.keep();
        self.with_content(|content| match mode {
            0 | g::FALLOC_FL_KEEP_SIZE => {
                let keep_size = mode != 0;
                if !keep_size && offset.saturating_add(len) > content.size() {
                    self.sealed(g::F_SEAL_GROW)?;
                }
                content.allocate(offset, len, keep_size)
            }
            PUNCH => {
                self.sealed(g::F_SEAL_WRITE | g::F_SEAL_FUTURE_WRITE)?;
                content.punch(offset, len)
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        })?;
        self.touch_modified();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // memory is all there is
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        let Body::File { content, .. } = &self.body else {
            return Err(Errno::ENODEV);
        };
        if write {
            self.keep();
        }
        let mut content = content.lock();
        let result = content.page(index, write);
        // Whoever asks for a page to write it looks after mappings of the one before.
        let replaced = if write {
            content.take_replaced()
        } else {
            Vec::new()
        };
        drop(content);
        drop(replaced);
        match result {
            Ok(page) => Ok(page),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Fetch(..)) => Err(Errno::EAGAIN),
        }
    }

    fn fetch(&self, index: u64, _write: bool) -> Result<()> {
        let lower = self.content()?.lock().lower_of(index);
        match lower {
            Some(lower) => lower.fetch(index, false),
            None => Ok(()), // somebody wrote it meanwhile
        }
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let entries = self.directory()?.lock();
        if entries.removed {
            return Err(Errno::ENOENT);
        }
        let parent = entries.parent.get();
        drop(entries);
        for (at, name) in [(0, &b"."[..]), (1, &b".."[..])] {
            let number = if at == 0 {
                self.number
            } else {
                parent.as_ref().map_or(self.number, |p| p.number)
            };
            let entry = DirEntry {
                inode: number,
                next: at + 1,
                kind: Kind::Directory.dirent_type(),
                name,
            };
            if cursor <= at && !emit(entry) {
                return Ok(());
            }
        }
        // Above a lower layer its entries come first, and positions say which half they belong to.
        let (first, half) = if self.origin.is_none() {
            (cursor, 0)
        } else if cursor & OWN_POSITION != 0 {
            (cursor & !OWN_POSITION, OWN_POSITION)
        } else {
            let below = if cursor & LOWER_POSITION != 0 {
                cursor & !LOWER_POSITION
            } else {
                0
            };
            if self.read_lower(below, emit)? {
                return Ok(());
            }
            (0, OWN_POSITION)
        };
        let entries = self.directory()?.lock();
        for (next, name, node) in entries.from(first.max(FIRST_COOKIE)) {
            let entry = DirEntry {
                inode: node.number,
                next: next | half,
                kind: node.kind.dirent_type(),
                name,
            };
            if !emit(entry) {
                break;
            }
        }
        drop(entries);
        self.touch_accessed();
        Ok(())
    }
}

const PUNCH: u32 = g::FALLOC_FL_KEEP_SIZE | g::FALLOC_FL_PUNCH_HOLE;
