// SPDX-License-Identifier: Apache-2.0
//! EROFS, the read-only file system of root images: files, directories, symbolic links, device nodes and extended
//! attributes, not compressed.
//!
//! One page cache holds the device, metadata and content alike: a block of 4096 bytes is a page, so a page of a file is
//! a page of the device and is mapped as it is. Inodes are read again when they are looked up; the table only makes
//! sure that an inode that is in use is one object. Nothing is trusted: `format` reads bytes that were copied out of the
//! cache, and every place is checked against the device before it is read.

mod attributes;
mod directory;
mod file;
pub mod format;
mod node;

pub use format::MountError;
pub use node::Node;

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::ops::Range;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::cache::PageCache;
use coracle_core::device::BlockDevice;
use coracle_core::memory::Page;
use coracle_core::sync::SpinLock;

use crate::vfs::{FileSystem, FsStatus, Inode, Kind};
use crate::{Errno, Result};
use format::{BLOCK, Superblock};

/// `EROFS_SUPER_MAGIC_V1`, as statfs(2) reports it.
const MAGIC: u32 = 0xe0f5_e1e2;

const SECTORS: u64 = BLOCK / 512;

/// Blocks of metadata that are read at once: inodes and directories that are used together lie together.
const METADATA_AHEAD: u64 = 16;

/// What all inodes of a file system share.
struct Volume {
    device: Arc<dyn BlockDevice>,
    cache: Arc<PageCache>,
    superblock: Superblock,
    /// Blocks of the device.
    blocks: u64,
    /// Device number that `stat(2)` reports.
    number: u64,
    /// The inodes that are in use.
    nodes: SpinLock<BTreeMap<u64, Weak<Node>>>,
}

/// A mounted image.
pub struct Erofs {
    volume: Arc<Volume>,
    root: Arc<Node>,
}

/// Whether a missing block may be waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It is read from the device.
    Yes,
    /// `EAGAIN`: the caller holds a lock that spins.
    No,
}

impl Erofs {
    /// Mounts the image on a device.
    pub fn mount(device: Arc<dyn BlockDevice>) -> Result<Arc<Self>, MountError> {
        let cache = PageCache::new();
        let blocks = device.sectors() / SECTORS;
        let bytes = device.sectors() * 512;
        if blocks == 0 {
            return Err(MountError::NotErofs);
        }
        let mut volume = Volume {
            device,
            cache,
            superblock: Superblock::default(),
            blocks,
            number: crate::tmpfs::next_device(),
            nodes: SpinLock::default(),
        };
        let first = volume
            .block(0, 0..blocks.min(METADATA_AHEAD), Wait::Yes)
            .map_err(MountError::Device)?;
        let mut block = alloc::vec![0; PAGE_SIZE];
        first.read(0, &mut block);
        volume.superblock = Superblock::parse(&block)?;
        if volume.superblock.blocks > blocks {
            return Err(MountError::CutShort(
                bytes,
                volume.superblock.blocks * BLOCK,
            ));
        }
        let volume = Arc::new(volume);
        let root = volume
            .node(volume.superblock.root)
            .map_err(MountError::Root)?;
        if root.kind() != Kind::Directory {
            return Err(MountError::Root(Errno::ENOTDIR));
        }
        Ok(Arc::new(Self { volume, root }))
    }
}

impl FileSystem for Erofs {
    fn type_name(&self) -> &'static str {
        "erofs"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn status(&self) -> FsStatus {
        FsStatus {
            magic: MAGIC,
            block_bytes: BLOCK,
            blocks: self.volume.superblock.blocks,
            free_blocks: 0,
            inodes: self.volume.superblock.inodes,
            free_inodes: 0,
        }
    }
}

impl Volume {
    /// The page with a block of the device. If it is missing, what is missing around it in `window` is read as well.
    /// `EUCLEAN` for a block behind the end, `EIO` if the device fails.
    fn block(&self, block: u64, window: Range<u64>, wait: Wait) -> Result<Page> {
        if let Some(page) = self.cache.get(block) {
            return Ok(page);
        }
        if block >= self.blocks {
            return Err(Errno::EUCLEAN);
        }
        if wait == Wait::No {
            return Err(Errno::EAGAIN);
        }
        let window = window.start.min(block)..window.end.min(self.blocks);
        self.cache.fetch(block, window, &mut |first, pages| {
            self.device.read(first * SECTORS, pages)
        })
    }

    /// The page with a block of metadata.
    fn metadata(&self, block: u64, wait: Wait) -> Result<Page> {
        let start = block - block % METADATA_AHEAD;
        self.block(block, start..start.saturating_add(METADATA_AHEAD), wait)
    }

    /// Copies bytes of metadata that begin at byte `at` of the device.
    fn copy(&self, mut at: u64, out: &mut [u8], wait: Wait) -> Result<()> {
        let mut rest = out;
        while !rest.is_empty() {
            let offset = usize_from(at % BLOCK);
            let step = rest.len().min(PAGE_SIZE - offset);
            let (now, later) = rest.split_at_mut(step);
            self.metadata(at / BLOCK, wait)?.read(offset, now);
            at = at.checked_add(u64_from(step)).ok_or(Errno::EUCLEAN)?;
            rest = later;
        }
        Ok(())
    }

    /// The inode of this number.
    fn node(self: &Arc<Self>, number: u64) -> Result<Arc<Node>> {
        if let Some(node) = self.nodes.lock().get(&number).and_then(Weak::upgrade) {
            return Ok(node);
        }
        let at = self.superblock.inode_at(number)?;
        let mut bytes = [0; format::INODE_MAX];
        self.copy(at, &mut bytes[..format::INODE_MIN], Wait::Yes)?;
        if format::is_extended(&bytes) {
            self.copy(at, &mut bytes, Wait::Yes)?;
        }
        let facts = format::Node::parse(&bytes, at, &self.superblock)?;
        // Searches of a directory end, whatever it says of its length.
        if facts.kind == Kind::Directory && facts.blocks() > self.blocks {
            return Err(Errno::EUCLEAN);
        }
        let node = Arc::new(Node::new(self.clone(), number, facts));
        let mut nodes = self.nodes.lock();
        // Another thread may have been quicker; its object is the one then. Ours goes after the lock.
        if let Some(other) = nodes.get(&number).and_then(Weak::upgrade) {
            drop(nodes);
            return Ok(other);
        }
        nodes.insert(number, Arc::downgrade(&node));
        Ok(node)
    }
}
