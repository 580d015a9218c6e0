// SPDX-License-Identifier: Apache-2.0
//! Nodes of the file system in memory as open files: transfers, sizes, mappings, listings.

use core::any::Any;

use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::file::{DirEntry, File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;

use super::directory::FIRST_COOKIE;
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
        let mut total = 0;
        loop {
            let step =
                self.content()?
                    .lock()
                    .read(position.saturating_add(u64_from(total)), CHUNK, dst);
            match step {
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
        let mut at = position;
        let mut total = 0;
        loop {
            let mut content = self.content()?.lock();
            if append {
                at = content.size();
            }
            let end = at.saturating_add(u64_from(src.remaining().min(CHUNK)));
            if end > content.size() {
                self.sealed(g::F_SEAL_GROW)?;
            }
            let step = content.write(at, CHUNK, src);
            drop(content);
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
        let mut content = self.content()?.lock();
        match mode {
            0 | g::FALLOC_FL_KEEP_SIZE => {
                let keep_size = mode != 0;
                if !keep_size && offset.saturating_add(len) > content.size() {
                    self.sealed(g::F_SEAL_GROW)?;
                }
                content.allocate(offset, len, keep_size)?;
            }
            PUNCH => {
                self.sealed(g::F_SEAL_WRITE | g::F_SEAL_FUTURE_WRITE)?;
                content.punch(offset, len)?;
            }
            _ => return Err(Errno::EOPNOTSUPP),
        }
        drop(content);
        self.touch_modified();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // memory is all there is
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        match &self.body {
            Body::File { content, .. } => content.lock().page(index, write),
            _ => Err(Errno::ENODEV),
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
        let parent = entries.parent.upgrade();
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
        for (next, name, node) in entries.from(cursor.max(FIRST_COOKIE)) {
            let entry = DirEntry {
                inode: node.number,
                next,
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
