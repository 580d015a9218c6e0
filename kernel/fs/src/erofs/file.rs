// SPDX-License-Identifier: Apache-2.0
//! Reading and mapping a file of an image.

use alloc::sync::Arc;
use core::any::Any;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::cache::ReadAhead;
use coracle_core::file::{DirEntry, File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;

use super::Wait;
use super::format::BLOCK;
use super::node::{Node, Place};
use crate::vfs::Kind;
use crate::{Errno, Result};

/// A regular file or directory as it was opened.
pub(super) struct ErofsFile {
    node: Arc<Node>,
    ahead: ReadAhead,
}

impl ErofsFile {
    pub(super) fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            ahead: ReadAhead::default(),
        }
    }

    /// Copies a part of one block; `behind` is the block behind all that the caller wants.
    fn read_block(
        &self,
        index: u64,
        offset: usize,
        len: usize,
        behind: u64,
        dst: &mut IoDst<'_>,
    ) -> Result<usize> {
        match self.node.place(index, Wait::Yes)? {
            Place::Hole => dst.write_zeros(len),
            Place::Tail { .. } | Place::Block { .. } => {
                let page = self.node.page(index, Wait::Yes, |block, run| {
                    let wanted = block + (behind - index);
                    self.ahead.for_read(block, wanted, run.end)
                })?;
                page.read_to(offset, len, dst)
            }
        }
    }
}

impl File for ErofsFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        if self.node.facts.kind == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        let left = self.node.facts.size.saturating_sub(position);
        let total = u64_from(dst.remaining()).min(left);
        let behind = (position + total).div_ceil(BLOCK);
        let mut done = 0;
        while done < total {
            let at = position + done;
            let offset = at % BLOCK;
            let len = usize_from((BLOCK - offset).min(total - done));
            match self.read_block(at / BLOCK, usize_from(offset), len, behind, dst) {
                Ok(0) => break,
                Ok(count) => done += u64_from(count),
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if dst.faulted().is_some() {
                break;
            }
        }
        Ok(usize_from(done))
    }

    fn write_at(
        &self,
        _position: u64,
        _append: bool,
        _src: &mut IoSrc<'_>,
    ) -> Result<(usize, u64)> {
        Err(Errno::EROFS)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.node.metadata())
    }

    fn truncate(&self, _size: u64) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn sync(&self) -> Result<()> {
        Ok(()) // nothing can be changed
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        if self.node.facts.kind != Kind::File {
            return Err(Errno::ENODEV);
        }
        if write {
            return Err(Errno::EROFS);
        }
        self.node.page(index, Wait::No, |block, _| block..block)
    }

    fn fetch(&self, index: u64, _write: bool) -> Result<()> {
        self.node
            .page(index, Wait::Yes, |block, run| {
                // Windows are aligned to the file, not to the device.
                let window = self.ahead.for_touch(block - run.start, run.end - run.start);
                run.start + window.start..run.start + window.end
            })
            .map(drop)
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.node.each_entry(cursor, emit)
    }
}
