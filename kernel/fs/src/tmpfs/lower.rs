// SPDX-License-Identifier: Apache-2.0
//! The read-only layer below a writable root (what overlayfs calls the lower directory).
//!
//! A file of the lower layer gets a node when it is looked up. As long as nothing about it changes, the node is only a
//! view: it is dropped when nobody uses it, and made again. The first change keeps it; from then on it lives as long as
//! the file has a name. So nothing is copied up as a whole: content is replaced page by page, names one by one, and
//! memory is used for what was changed, besides a bounded cache of names.
//!
//! Differences from Linux's overlayfs, all towards what a file system without layers does: a descriptor that was opened
//! before a file changed sees the change; inode numbers never change; hard links stay linked; directories can be renamed.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use coracle_abi::raw::general as g;
use coracle_core::file::DirEntry;
use coracle_core::sync::{Once, SpinLock};

use super::Shared;
use super::base::Base;
use super::directory::{Directory, Own, Parent};
use super::node::{Attributes, Body, Node};
use crate::pipe::Pipe;
use crate::vfs::{Inode, Kind};
use crate::{Errno, Result};

/// Inode numbers of files that the lower layer does not have begin here, so that its own stay as they are.
pub(super) const FIRST_OWN_NUMBER: u64 = 1 << 48;

/// Position of an entry of the lower directory, above the lower directory's own positions.
pub(super) const LOWER_POSITION: u64 = 1 << 62;

/// Position of an entry that the lower directory does not have.
pub(super) const OWN_POSITION: u64 = 1 << 61;

/// Where a node comes from.
pub(super) struct Origin {
    inode: Arc<dyn Inode>,
    /// Length in the lower layer, for directories.
    pub(super) size: u64,
    /// Something changed: see [`Node::keep`].
    is_kept: AtomicBool,
}

struct Known {
    node: Weak<Node>,
    kept: Option<Arc<Node>>,
}

/// What a file system knows about its lower layer.
pub(super) struct Lower {
    /// The nodes there are, by inode number: two names of a file mean one node.
    known: SpinLock<BTreeMap<u64, Known>>,
    names: SpinLock<NameCache>,
}

impl Lower {
    /// Keeps at most about `names` names in mind that were looked up.
    pub(super) fn new(names: usize) -> Self {
        Self {
            known: SpinLock::new(BTreeMap::new()),
            names: SpinLock::new(NameCache::new(names / 2)),
        }
    }
}

impl Node {
    /// The node for an inode of the lower layer: the one there is, or a new one at that place, which is where a
    /// directory is and does not matter for others.
    pub(super) fn over(
        fs: &Arc<Shared>,
        inode: Arc<dyn Inode>,
        place: Option<(&Node, &[u8])>,
    ) -> Result<Arc<Self>> {
        let lower = fs.lower.as_ref().ok_or(Errno::EIO)?;
        let metadata = inode.metadata()?;
        let number = metadata.inode;
        let there = |known: &BTreeMap<u64, Known>| known.get(&number)?.node.upgrade();
        if let Some(node) = there(&lower.known.lock()) {
            return Ok(node);
        }
        let kind = inode.kind();
        let body = match kind {
            Kind::File => {
                let file = inode.clone().open(g::O_RDONLY)?;
                let len = metadata.size;
                Body::file(fs, Some(Base::Lower { file, len }))
            }
            Kind::Directory => {
                let mut directory = Directory::new();
                if let Some((parent, name)) = place {
                    directory.parent = Parent::Lower(parent.me.upgrade().ok_or(Errno::ENOENT)?);
                    directory.name = Arc::from(name);
                }
                Body::Directory(SpinLock::new(directory))
            }
            Kind::Symlink => Body::Symlink(inode.read_link()?),
            Kind::CharDevice | Kind::BlockDevice => Body::Device(metadata.special_device),
            Kind::Fifo => Body::Fifo(Pipe::new()),
            Kind::Socket => Body::Socket(Once::new()),
        };
        let made = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            fs: fs.clone(),
            number,
            kind,
            attributes: SpinLock::new(Attributes {
                mode: metadata.mode & 0o7777,
                links: metadata.links,
                linkable: false,
                uid: metadata.uid,
                gid: metadata.gid,
                accessed_ns: metadata.accessed_ns,
                modified_ns: metadata.modified_ns,
                changed_ns: metadata.changed_ns,
                extended: None,
            }),
            body,
            origin: Some(Origin {
                inode,
                size: metadata.size,
                is_kept: AtomicBool::new(false),
            }),
        });
        let mut known = lower.known.lock();
        if let Some(node) = there(&known) {
            drop(known);
            return Ok(node); // another thread was faster
        }
        let entry = Known {
            node: made.me.clone(),
            kept: None,
        };
        known.insert(number, entry);
        Ok(made)
    }

    fn lower(&self) -> Option<(&Lower, &Origin)> {
        Some((self.fs.lower.as_ref()?, self.origin.as_ref()?))
    }

    /// The lower layer's file that this node was made from.
    pub(super) fn below(&self) -> Option<&Arc<dyn Inode>> {
        self.origin.as_ref().map(|origin| &origin.inode)
    }

    /// Whether this node shows the lower layer's file as it is.
    pub(super) fn is_as_below(&self) -> bool {
        self.origin
            .as_ref()
            .is_some_and(|origin| !origin.is_kept.load(Ordering::Acquire))
    }

    /// Something is about to change: from now on the node is held as long as the file has a name.
    pub(super) fn keep(&self) {
        let Some((lower, origin)) = self.lower() else {
            return;
        };
        if origin.is_kept.load(Ordering::Acquire) {
            return;
        }
        if let Some(known) = lower.known.lock().get_mut(&self.number) {
            known.kept = self.me.upgrade();
        }
        origin.is_kept.store(true, Ordering::Release);
    }

    /// The name `name` of this directory does not mean `node` any more; if that was its last name, it goes with its last
    /// user.
    pub(super) fn forget(&self, name: &[u8], node: &Node) {
        let Some(lower) = &self.fs.lower else { return };
        let cached = lower.names.lock().remove(self.number, name);
        let mut kept = None;
        if node.origin.is_some() && node.attributes.lock().links == 0 {
            kept = lower
                .known
                .lock()
                .get_mut(&node.number)
                .and_then(|known| known.kept.take());
        }
        drop((cached, kept)); // outside the locks
    }

    /// The node that the lower directory has for a name. `ENOENT`.
    pub(super) fn lower_entry(&self, name: &[u8]) -> Result<Arc<Node>> {
        let (lower, origin) = self.lower().ok_or(Errno::ENOENT)?;
        if let Some(known) = lower.names.lock().find(self.number, name) {
            return known.ok_or(Errno::ENOENT);
        }
        let found = match origin.inode.lookup(name) {
            Ok(inode) => Some(Self::over(&self.fs, inode, Some((self, name)))?),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        let forgotten = lower.names.lock().insert(self.number, name, found.clone());
        drop(forgotten); // outside the lock
        found.ok_or(Errno::ENOENT)
    }

    /// Calls `emit` for the entries of the lower directory from `cursor` on that this one does not say anything about,
    /// without `.` and `..`. Returns whether it was told to stop.
    pub(super) fn read_lower(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<bool> {
        let (Some(origin), directory) = (&self.origin, self.directory()?) else {
            return Ok(false);
        };
        let below = origin.inode.clone().open(g::O_RDONLY | g::O_DIRECTORY)?;
        let (mut stopped, mut wrong) = (false, false);
        below.read_directory(cursor, &mut |entry| {
            wrong = entry.next >= OWN_POSITION;
            let is_shown = !matches!(entry.name, b"." | b"..")
                && matches!(directory.lock().get(entry.name), Own::Unknown);
            let entry = DirEntry {
                next: entry.next | LOWER_POSITION,
                ..entry
            };
            stopped = wrong || is_shown && !emit(entry);
            !stopped
        })?;
        if wrong {
            return Err(Errno::EIO);
        }
        Ok(stopped)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some((lower, _)) = self.lower() else {
            return;
        };
        let mut known = lower.known.lock();
        // Another node may have taken the place already.
        if known
            .get(&self.number)
            .is_some_and(|known| known.node.ptr_eq(&self.me))
        {
            known.remove(&self.number);
        }
    }
}

/// Names of the lower layer that were looked up, found or not: the layer never changes, so what was once true stays true.
/// Two generations: a name that was not asked for during a whole one goes.
struct NameCache {
    limit: usize,
    young: Generation,
    old: Generation,
}

/// By a hash of directory and name; of two names with one hash only the last is known.
type Generation = BTreeMap<u64, CachedName>;

struct CachedName {
    directory: u64,
    name: Box<[u8]>,
    /// `None` if there is no such name.
    node: Option<Arc<Node>>,
}

impl CachedName {
    fn is(&self, directory: u64, name: &[u8]) -> bool {
        self.directory == directory && *self.name == *name
    }
}

impl NameCache {
    const fn new(limit: usize) -> Self {
        Self {
            limit,
            young: Generation::new(),
            old: Generation::new(),
        }
    }

    /// FNV-1a. Names that collide on purpose only slow their author down.
    fn hash(directory: u64, name: &[u8]) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let start = directory
            .to_ne_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, step);
        name.iter().fold(start, step)
    }

    /// What is known: the node, or that there is none.
    fn find(&mut self, directory: u64, name: &[u8]) -> Option<Option<Arc<Node>>> {
        let hash = Self::hash(directory, name);
        let is_it = |found: &&CachedName| found.is(directory, name);
        if let Some(found) = self.young.get(&hash).filter(is_it) {
            return Some(found.node.clone());
        }
        self.old.get(&hash).filter(is_it)?;
        let found = self.old.remove(&hash)?;
        let node = found.node.clone();
        self.young.insert(hash, found);
        Some(node)
    }

    /// Adds what was looked up. Returns what is forgotten for it.
    fn insert(
        &mut self,
        directory: u64,
        name: &[u8],
        node: Option<Arc<Node>>,
    ) -> (Option<CachedName>, Generation) {
        let entry = CachedName {
            directory,
            name: Box::from(name),
            node,
        };
        let collided = self.young.insert(Self::hash(directory, name), entry);
        if self.young.len() < self.limit {
            return (collided, Generation::new());
        }
        let young = core::mem::take(&mut self.young);
        (collided, core::mem::replace(&mut self.old, young))
    }

    fn remove(&mut self, directory: u64, name: &[u8]) -> [Option<CachedName>; 2] {
        let hash = Self::hash(directory, name);
        [&mut self.young, &mut self.old].map(|generation| {
            generation
                .get(&hash)
                .filter(|found| found.is(directory, name))?;
            generation.remove(&hash)
        })
    }
}

#[cfg(test)]
mod tests;
