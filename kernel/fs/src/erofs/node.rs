// SPDX-License-Identifier: Apache-2.0
//! An inode, and where its content lies.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::ops::Range;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::file::{File, Metadata};
use coracle_core::memory::Page;
use coracle_core::sync::Once;

use super::file::ErofsFile;
use super::format::{self, BLOCK, Layout};
use super::{Volume, Wait};
use crate::pipe::Pipe;
use crate::vfs::{Inode, Kind};
use crate::{Errno, Result};

/// Longest symbolic link: `PATH_MAX` with its NUL.
const LINK_MAX: u64 = 4095;

/// An inode.
pub struct Node {
    pub(super) volume: Arc<Volume>,
    pub(super) number: u64,
    pub(super) facts: format::Node,
    /// For a named pipe.
    pipe: Once<Arc<Pipe>>,
    /// For the name of a UNIX-domain socket.
    socket: Once<Arc<dyn Any + Send + Sync>>,
    /// The part of an inline file behind its last whole block, once somebody maps it.
    tail: Once<Page>,
}

/// Where a block of a file lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On the device, in this block; the blocks of the range follow each other in the file as on the device.
    Block { block: u64, run: Range<u64> },
    /// From this byte of the device on: the rest of an inline file.
    Tail { at: u64 },
    /// Nowhere: it reads as zeroes.
    Hole,
}

impl Node {
    pub(super) fn new(volume: Arc<Volume>, number: u64, facts: format::Node) -> Self {
        Self {
            volume,
            number,
            facts,
            pipe: Once::new(),
            socket: Once::new(),
            tail: Once::new(),
        }
    }

    /// Where block `index` of the content lies, which begins before its end. `EUCLEAN` if that cannot be.
    pub(super) fn place(&self, index: u64, wait: Wait) -> Result<Place> {
        let whole = self.facts.size / BLOCK;
        match self.facts.layout {
            Layout::Inline { tail_at, .. } if index >= whole => Ok(Place::Tail { at: tail_at }),
            Layout::Plain { block } => consecutive(block, index, self.facts.blocks()),
            Layout::Inline { block, .. } => consecutive(block, index, whole),
            Layout::Chunks {
                bits,
                table_at,
                indexes,
            } => {
                let width = if indexes { 8 } else { 4 };
                let mut entry = [0; 8];
                let at = (index >> bits)
                    .checked_mul(width)
                    .and_then(|offset| offset.checked_add(table_at))
                    .ok_or(Errno::EUCLEAN)?;
                self.volume
                    .copy(at, &mut entry[..usize_from(width)], wait)?;
                match format::chunk_block(&entry, indexes)? {
                    Some(block) => {
                        let within = index & ((1 << bits) - 1);
                        let left = (self.facts.blocks() - (index - within)).min(1 << bits);
                        consecutive(block, within, left)
                    }
                    None => Ok(Place::Hole),
                }
            }
            Layout::None => Err(Errno::EUCLEAN),
        }
    }

    /// The page with block `index` of the content. `ENXIO` behind the end, `EAGAIN` if it is not in memory and may not
    /// be waited for. `window` says which blocks of the device to read with it, from those that follow each other there.
    pub(super) fn page(
        &self,
        index: u64,
        wait: Wait,
        window: impl FnOnce(u64, &Range<u64>) -> Range<u64>,
    ) -> Result<Page> {
        if index >= self.facts.blocks() {
            return Err(Errno::ENXIO);
        }
        match self.place(index, wait)? {
            Place::Block { block, run } => {
                // Only what is missing says how the file is used.
                if let Some(page) = self.volume.cache.get(block) {
                    return Ok(page);
                }
                let wanted = if wait == Wait::Yes {
                    let window = window(block, &run);
                    window.start.max(run.start)..window.end.min(run.end)
                } else {
                    block..block
                };
                self.volume.block(block, wanted, wait)
            }
            Place::Tail { at } => {
                if let Some(page) = self.tail.get() {
                    return Ok(page.clone());
                }
                let mut bytes = alloc::vec![0; usize_from(self.facts.size % BLOCK)];
                self.volume.copy(at, &mut bytes, wait)?;
                let page = Page::zeroed()?;
                page.write(0, &bytes);
                // Another thread may have been quicker; then its page is the one.
                let _ = self.tail.set(page.clone());
                Ok(self.tail.get().cloned().unwrap_or(page))
            }
            Place::Hole => Page::zeroed(),
        }
    }

    /// Copies bytes of the content, which are there: of a directory or the text of a symbolic link.
    pub(super) fn copy(&self, position: u64, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            let at = position + u64_from(done);
            let offset = at % BLOCK;
            let step = (out.len() - done).min(usize_from(BLOCK - offset));
            let part = &mut out[done..done + step];
            match self.place(at / BLOCK, Wait::Yes)? {
                Place::Block { block, .. } => {
                    let page = self.volume.metadata(block, Wait::Yes)?;
                    page.read(usize_from(offset), part);
                }
                Place::Tail { at } => self.volume.copy(at + offset, part, Wait::Yes)?,
                Place::Hole => part.fill(0),
            }
            done += step;
        }
        Ok(())
    }

    pub(super) fn metadata(&self) -> Metadata {
        let facts = &self.facts;
        Metadata {
            device: self.volume.number,
            inode: self.number,
            mode: facts.mode,
            links: facts.links,
            uid: facts.uid,
            gid: facts.gid,
            special_device: facts.device,
            size: facts.size,
            blocks: facts.blocks() * (BLOCK / 512),
            accessed_ns: facts.time_ns,
            modified_ns: facts.time_ns,
            changed_ns: facts.time_ns,
        }
    }
}

/// Block `index` of `count` that follow each other from `first` on.
fn consecutive(first: u64, index: u64, count: u64) -> Result<Place> {
    let block = first.checked_add(index).ok_or(Errno::EUCLEAN)?;
    if index >= count {
        return Err(Errno::EUCLEAN);
    }
    Ok(Place::Block {
        block,
        run: first..first.saturating_add(count),
    })
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut nodes = self.volume.nodes.lock();
        // A new object of the same inode may have taken the place meanwhile.
        if nodes
            .get(&self.number)
            .is_some_and(|node| node.strong_count() == 0)
        {
            nodes.remove(&self.number);
        }
    }
}

impl Inode for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.facts.kind
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let number = self.find(name)?;
        Ok(self.volume.node(number)?)
    }

    fn parent(&self) -> Option<(Arc<dyn Inode>, Vec<u8>)> {
        if self.facts.kind != Kind::Directory || self.number == self.volume.superblock.root {
            return None;
        }
        let parent = self.volume.node(self.find(b"..").ok()?).ok()?;
        let name = parent.name_of(self.number).ok()??;
        Some((parent, name))
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.facts.kind != Kind::Symlink {
            return Err(Errno::EINVAL);
        }
        if self.facts.size > LINK_MAX {
            return Err(Errno::EUCLEAN);
        }
        let mut text = alloc::vec![0; usize_from(self.facts.size)];
        self.copy(0, &mut text)?;
        Ok(text)
    }

    fn open(self: Arc<Self>, _flags: u32) -> Result<Arc<dyn File>> {
        Ok(Arc::new(ErofsFile::new(self)))
    }

    fn pipe(&self) -> Option<Arc<Pipe>> {
        if self.facts.kind != Kind::Fifo {
            return None;
        }
        if self.pipe.get().is_none() {
            let _ = self.pipe.set(Pipe::new());
        }
        self.pipe.get().cloned()
    }

    fn extended(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.attribute(name)
    }

    fn extended_names(&self) -> Result<Vec<Vec<u8>>> {
        self.attribute_names()
    }

    fn socket(&self) -> Option<&Once<Arc<dyn Any + Send + Sync>>> {
        (self.facts.kind == Kind::Socket).then_some(&self.socket)
    }
}
