// SPDX-License-Identifier: Apache-2.0
//! The file system in memory: root, `/dev`, `/tmp`, `/dev/shm` and memfd_create(2). The root may lie above a read-only
//! file system, whose files it shows and changes in memory ([`TmpFs::over`]).
//!
//! Changes of the tree (create, link, unlink, rename) are serialised by one lock per file system; look-ups take only
//! the lock of their directory.

mod base;
mod content;
mod directory;
mod extended;
mod file;
mod lower;
mod names;
mod node;

pub use base::StaticBytes;
pub use node::Node;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coracle_abi::convert::usize_from;
use coracle_abi::raw::general as g;
use coracle_core::sync::SleepLock;

use crate::vfs::{FileSystem, FsStatus, Inode, NewKind, NewNode};
use crate::{Errno, Result};
use base::Base;
use content::Space;
use lower::Lower;

/// What all nodes of one file system share.
struct Shared {
    /// Device number that `stat(2)` reports (major 0, as all file systems without a device).
    device: u64,
    space: Arc<Space>,
    next_inode: AtomicU64,
    /// Held while names change.
    tree: SleepLock<()>,
    lower: Option<Lower>,
}

/// A file system in memory.
pub struct TmpFs {
    shared: Arc<Shared>,
    root: Arc<Node>,
}

impl Shared {
    fn new(limit_bytes: u64, lower: Option<Lower>) -> Arc<Self> {
        let first = lower.as_ref().map_or(1, |_| lower::FIRST_OWN_NUMBER);
        Arc::new(Self {
            device: next_device(),
            space: Space::new(limit_bytes),
            next_inode: AtomicU64::new(first),
            tree: SleepLock::new(()),
            lower,
        })
    }
}

static NEXT_DEVICE: AtomicU32 = AtomicU32::new(1);

/// A device number for one more file system without a device.
pub(crate) fn next_device() -> u64 {
    crate::vfs::device_number(0, NEXT_DEVICE.fetch_add(1, Ordering::Relaxed))
}

impl TmpFs {
    /// An empty file system that holds at most `limit_bytes` of content; its root directory has permission bits
    /// `mode`. More content gives `ENOSPC`.
    #[must_use]
    pub fn new(limit_bytes: u64, mode: u32) -> Arc<Self> {
        let shared = Shared::new(limit_bytes, None);
        let root = Node::new(
            &shared,
            &NewNode {
                kind: NewKind::Directory,
                mode,
                uid: 0,
                gid: 0,
            },
            None,
        );
        Arc::new(Self { shared, root })
    }

    /// A file system that shows what `lower` has and keeps all changes in memory, at most `limit_bytes` of content.
    /// Nobody else may change `lower` meanwhile. Errors are those of reading its root.
    pub fn over(lower: &dyn FileSystem, limit_bytes: u64) -> Result<Arc<Self>> {
        // A name in the cache costs some hundred bytes.
        let names = usize_from(limit_bytes / (64 << 10)).clamp(256, 4096);
        let shared = Shared::new(limit_bytes, Some(Lower::new(names)));
        let root = Node::over(&shared, lower.root(), None)?;
        Ok(Arc::new(Self { shared, root }))
    }

    /// A regular file without a name, as for memfd_create(2).
    #[must_use]
    pub fn unnamed_file(&self, node: &NewNode<'_>) -> Arc<Node> {
        Node::unnamed(&self.shared, node)
    }

    /// Adds a regular file to `directory` whose content is bytes that live for ever. `EXDEV` if the directory is in
    /// another file system; otherwise as [`Inode::create`].
    pub fn add_static_file(
        &self,
        directory: &Arc<dyn Inode>,
        name: &[u8],
        node: &NewNode<'_>,
        content: StaticBytes,
    ) -> Result<Arc<Node>> {
        let directory = self.own(directory)?;
        let file = Node::new(&self.shared, node, Some(Base::Static(content)));
        directory.insert_new(name, &file)?;
        Ok(file)
    }

    fn own<'a>(&self, inode: &'a Arc<dyn Inode>) -> Result<&'a Node> {
        inode
            .as_any()
            .downcast_ref::<Node>()
            .filter(|node| node.is_in(&self.shared))
            .ok_or(Errno::EXDEV)
    }
}

impl FileSystem for TmpFs {
    fn type_name(&self) -> &'static str {
        if self.shared.lower.is_some() {
            "overlay"
        } else {
            "tmpfs"
        }
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn status(&self) -> FsStatus {
        FsStatus {
            magic: if self.shared.lower.is_some() {
                g::OVERLAYFS_SUPER_MAGIC
            } else {
                g::TMPFS_MAGIC
            },
            block_bytes: 4096,
            blocks: self.shared.space.limit(),
            free_blocks: self.shared.space.free(),
            inodes: 0,
            free_inodes: 0,
        }
    }
}

#[cfg(test)]
mod tests;
