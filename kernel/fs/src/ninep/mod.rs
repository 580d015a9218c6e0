// SPDX-License-Identifier: Apache-2.0
//! Files of the host, shared by 9P2000.L over a virtio device: what `coracle run -v` makes.
//!
//! As with a bind mount, both sides see each other's changes: attributes and names are asked for each time, reads and
//! writes go to the host at once. Only pages of mapped files are kept, as long as the file is in use; they are read again
//! if the file has changed when it is opened. Changes through a mapping reach the host with msync(2), fsync(2), or when
//! the file is closed by its last user.
//!
//! Two differences that cannot be helped with QEMU's server: advisory locks hold within one guest only, and a file that
//! was removed while it is open keeps its content but not its attributes.

mod client;
mod file;
mod left;
mod node;
mod pages;
#[cfg(test)]
mod tests;
mod wire;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use core::sync::atomic::AtomicBool;

use coracle_core::device::ShareDevice;
use coracle_core::sync::SpinLock;

use crate::Result;
use crate::vfs::{FileSystem, FsStatus, Inode};
use client::{Client, Fid};
pub use left::write_back;
use node::Node;

/// What all nodes of one share have in common.
struct Shared {
    /// Device number that `stat(2)` reports.
    device: u64,
    /// The nodes that are in use, by the host's number: a file has one node, whatever its names.
    nodes: SpinLock<BTreeMap<u64, Weak<Node>>>,
    /// Names of sockets, which mean something as long as this guest runs.
    sockets: SpinLock<BTreeMap<u64, Arc<Node>>>,
    /// The host refused to give a file away: its server runs as an ordinary user, to whom all files belong.
    no_owners: AtomicBool,
}

/// A share of the host's files.
pub struct NinepFs {
    source: String,
    shared: Arc<Shared>,
    root: Arc<Node>,
    /// For questions about the whole.
    fid: Fid,
}

impl NinepFs {
    /// Connects to the share behind `device`. `EPROTO` if the host speaks another protocol; `EIO`; the host's error for
    /// the root of the share.
    pub fn mount(device: Arc<dyn ShareDevice>) -> Result<Arc<Self>> {
        let source = device.tag().to_string();
        let (_, fid) = Client::connect(device)?;
        let shared = Arc::new(Shared {
            device: crate::tmpfs::next_device(),
            nodes: SpinLock::new(BTreeMap::new()),
            sockets: SpinLock::new(BTreeMap::new()),
            no_owners: AtomicBool::new(false),
        });
        let (root, _) = fid.walk(None)?;
        let attributes = root.attributes()?;
        let root = Node::of(&shared, root, attributes.qid, None)?;
        Ok(Arc::new(Self {
            source,
            shared,
            root,
            fid,
        }))
    }

    /// The only file of a share of one file, to be mounted on a file. `ENOENT` if it is not there.
    pub fn only_file(self: &Arc<Self>, name: &[u8]) -> Result<Arc<dyn FileSystem>> {
        let root = self.root.lookup(name)?;
        Ok(Arc::new(OneFile {
            fs: self.clone(),
            root,
        }))
    }
}

impl Drop for NinepFs {
    /// The names of sockets refer to what all have in common, which refers to them.
    fn drop(&mut self) {
        let sockets = core::mem::take(&mut *self.shared.sockets.lock());
        drop(sockets);
    }
}

impl FileSystem for NinepFs {
    fn type_name(&self) -> &'static str {
        "9p"
    }

    fn source(&self) -> &str {
        &self.source
    }

    fn options(&self) -> &'static str {
        ",access=client,trans=virtio"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    /// What was written through descriptors is the host's already; only mappings keep something back.
    fn sync(&self) -> Result<()> {
        write_back(true);
        Ok(())
    }

    /// When the program ends there is something to do only if mappings are left.
    fn is_persistent(&self) -> bool {
        left::is_any()
    }

    fn status(&self) -> FsStatus {
        // As on Linux the host's own file system shows through.
        let Ok(sizes) = self.fid.client().status(&self.fid) else {
            return FsStatus::default();
        };
        FsStatus {
            magic: sizes.magic,
            block_bytes: sizes.block_bytes,
            blocks: sizes.blocks,
            free_blocks: sizes.free_blocks,
            inodes: sizes.inodes,
            free_inodes: sizes.free_inodes,
        }
    }
}

/// One file of a share.
struct OneFile {
    fs: Arc<NinepFs>,
    root: Arc<dyn Inode>,
}

impl FileSystem for OneFile {
    fn type_name(&self) -> &'static str {
        self.fs.type_name()
    }

    fn source(&self) -> &str {
        self.fs.source()
    }

    fn options(&self) -> &'static str {
        self.fs.options()
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn status(&self) -> FsStatus {
        self.fs.status()
    }

    fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    fn is_persistent(&self) -> bool {
        self.fs.is_persistent()
    }
}
