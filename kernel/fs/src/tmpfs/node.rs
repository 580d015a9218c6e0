// SPDX-License-Identifier: Apache-2.0
//! The inodes of the file system in memory.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::file::{File, Metadata};
use coracle_core::memory;
use coracle_core::sync::{Once, SpinLock};
use coracle_core::time;

use super::Shared;
use super::base::{Base, Step, Stop};
use super::content::Content;
use super::directory::Directory;
use super::extended::Extended;
use super::lower::Origin;
use crate::pipe::Pipe;
use crate::vfs::{AttributeChange, Inode, Kind, NewKind, NewNode, Rename, SetExtended};
use crate::{Errno, Result};

/// Time after which a read renews the access time though nothing was written since (`relatime` of mount(8)).
const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// An object in memory.
pub struct Node {
    pub(super) me: Weak<Node>,
    pub(super) fs: Arc<Shared>,
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) attributes: SpinLock<Attributes>,
    pub(super) body: Body,
    /// Where it comes from, if from the lower layer.
    pub(super) origin: Option<Origin>,
}

pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) links: u32,
    /// A file that never had a name may get one (`O_TMPFILE`).
    pub(super) linkable: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed_ns: u64,
    pub(super) modified_ns: u64,
    pub(super) changed_ns: u64,
    /// Extended attributes; `None` as long as they are those of the lower layer, or there are none.
    pub(super) extended: Option<Extended>,
}

pub(super) enum Body {
    File {
        content: SpinLock<Content>,
        seals: AtomicU32,
    },
    Directory(SpinLock<Directory>),
    Symlink(Vec<u8>),
    Device(u64),
    Fifo(Arc<Pipe>),
    Socket(Once<Arc<dyn Any + Send + Sync>>),
}

impl Body {
    pub(super) fn file(fs: &Arc<Shared>, base: Option<Base>) -> Self {
        Self::File {
            content: SpinLock::new(Content::new(fs.space.clone(), base)),
            // Only files made by memfd_create(2) may be sealed.
            seals: AtomicU32::new(g::F_SEAL_SEAL),
        }
    }
}

impl Node {
    pub(super) fn new(fs: &Arc<Shared>, new: &NewNode<'_>, content: Option<Base>) -> Arc<Self> {
        let body = match new.kind {
            NewKind::File => Body::file(fs, content),
            NewKind::Directory => Body::Directory(SpinLock::new(Directory::new())),
            NewKind::Symlink(text) => Body::Symlink(text.to_vec()),
            NewKind::CharDevice(number) | NewKind::BlockDevice(number) => Body::Device(number),
            NewKind::Fifo => Body::Fifo(Pipe::new()),
            NewKind::Socket => Body::Socket(Once::new()),
        };
        let kind = new.kind.kind();
        let now = time::wall();
        let number = fs.next_inode.fetch_add(1, Ordering::Relaxed);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            fs: fs.clone(),
            number,
            kind,
            attributes: SpinLock::new(Attributes {
                mode: if kind == Kind::Symlink {
                    0o777
                } else {
                    new.mode & 0o7777
                },
                links: if kind == Kind::Directory { 2 } else { 1 },
                linkable: false,
                uid: new.uid,
                gid: new.gid,
                accessed_ns: now,
                modified_ns: now,
                changed_ns: now,
                extended: None,
            }),
            body,
            origin: None,
        })
    }

    pub(super) fn unnamed(fs: &Arc<Shared>, new: &NewNode<'_>) -> Arc<Self> {
        let node = Self::new(fs, new, None);
        node.attributes.lock().links = 0;
        node
    }

    /// Lets `F_ADD_SEALS` work on this file (`MFD_ALLOW_SEALING` of memfd_create(2)).
    pub fn allow_sealing(&self) {
        if let Body::File { seals, .. } = &self.body {
            seals.fetch_and(!g::F_SEAL_SEAL, Ordering::Relaxed);
        }
    }

    pub(super) fn is_in(&self, fs: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.fs, fs)
    }

    pub(super) fn directory(&self) -> Result<&SpinLock<Directory>> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn content(&self) -> Result<&SpinLock<Content>> {
        match &self.body {
            Body::File { content, .. } => Ok(content),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Takes a step over the content until it needs no page of the lower layer any more. Sleeps while one is fetched.
    pub(super) fn with_content<T>(
        &self,
        mut step: impl FnMut(&mut Content) -> Step<T>,
    ) -> Result<T> {
        loop {
            let mut content = self.content()?.lock();
            let result = step(&mut content);
            let replaced = content.take_replaced();
            drop(content);
            for old in replaced {
                memory::replace_page(Inode::content_id(self), old.index, &old.page);
            }
            match result {
                Ok(value) => return Ok(value),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Fetch(lower, index)) => lower.fetch(index, false)?,
            }
        }
    }

    pub(super) fn sealed(&self, seal: u32) -> Result<()> {
        match &self.body {
            Body::File { seals, .. } if seals.load(Ordering::Relaxed) & seal != 0 => {
                Err(Errno::EPERM)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn touch_accessed(&self) {
        if self.is_as_below() {
            return; // the lower layer does not change, nor does memory hold what was only read
        }
        let now = time::wall();
        let mut attributes = self.attributes.lock();
        let stale = attributes.accessed_ns <= attributes.modified_ns
            || attributes.accessed_ns <= attributes.changed_ns
            || now.saturating_sub(attributes.accessed_ns) >= DAY_NS;
        if stale {
            attributes.accessed_ns = now;
        }
    }

    pub(super) fn touch_modified(&self) {
        self.keep();
        let now = time::wall();
        let mut attributes = self.attributes.lock();
        attributes.modified_ns = now;
        attributes.changed_ns = now;
    }

    pub(super) fn change_links(&self, difference: i32) {
        self.keep();
        let mut attributes = self.attributes.lock();
        attributes.links = attributes.links.saturating_add_signed(difference);
        attributes.changed_ns = time::wall();
    }
}

impl Inode for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn metadata(&self) -> Result<Metadata> {
        let (size, blocks) = match &self.body {
            Body::File { content, .. } => {
                let content = content.lock();
                (content.size(), content.page_count() * 8)
            }
            Body::Directory(entries) => {
                let below = self.origin.as_ref().map_or(40, |origin| origin.size);
                (u64_from(entries.lock().len()) * 20 + below, 0)
            }
            Body::Symlink(text) => (u64_from(text.len()), 0),
            _ => (0, 0),
        };
        let special_device = match &self.body {
            Body::Device(number) => *number,
            _ => 0,
        };
        let attributes = self.attributes.lock();
        Ok(Metadata {
            device: self.fs.device,
            inode: self.number,
            mode: self.kind.mode_bits() | attributes.mode,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            special_device,
            size,
            blocks,
            accessed_ns: attributes.accessed_ns,
            modified_ns: attributes.modified_ns,
            changed_ns: attributes.changed_ns,
        })
    }

    fn change(&self, change: &AttributeChange) -> Result<()> {
        self.keep();
        let mut attributes = self.attributes.lock();
        if let Some(mode) = change.mode {
            attributes.mode = mode & 0o7777;
        }
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.accessed_ns = change.accessed_ns.unwrap_or(attributes.accessed_ns);
        attributes.modified_ns = change.modified_ns.unwrap_or(attributes.modified_ns);
        attributes.changed_ns = time::wall();
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let node: Arc<dyn Inode> = self.entry(name)?;
        Ok(node)
    }

    fn create(&self, name: &[u8], node: &NewNode<'_>) -> Result<Arc<dyn Inode>> {
        let mut node = *node;
        {
            // A directory with the set-group-ID bit passes its group on (inode(7)).
            let attributes = self.attributes.lock();
            if attributes.mode & g::S_ISGID != 0 {
                node.gid = attributes.gid;
                if matches!(node.kind, NewKind::Directory) {
                    node.mode |= g::S_ISGID;
                }
            }
        }
        let node = Node::new(&self.fs, &node, None);
        self.insert_new(name, &node)?;
        Ok(node)
    }

    fn create_unnamed(&self, node: &NewNode<'_>, linkable: bool) -> Result<Arc<dyn Inode>> {
        let file = Node::unnamed(&self.fs, node);
        file.attributes.lock().linkable = linkable;
        Ok(file)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let target = target
            .as_any()
            .downcast_ref::<Node>()
            .filter(|node| node.is_in(&self.fs))
            .and_then(|node| node.me.upgrade())
            .ok_or(Errno::EXDEV)?;
        let attributes = target.attributes.lock();
        if attributes.links == 0 && !attributes.linkable {
            return Err(Errno::ENOENT);
        }
        drop(attributes);
        self.insert_new(name, &target)?;
        target.change_links(1);
        target.attributes.lock().linkable = false;
        Ok(())
    }

    fn unlink(&self, name: &[u8]) -> Result<()> {
        self.remove_entry(name, false)
    }

    fn remove_directory(&self, name: &[u8]) -> Result<()> {
        self.remove_entry(name, true)
    }

    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, new_name: &[u8], how: Rename) -> Result<()> {
        let to = to
            .as_any()
            .downcast_ref::<Node>()
            .filter(|node| node.is_in(&self.fs))
            .ok_or(Errno::EXDEV)?;
        self.rename_entry(name, to, new_name, how)
    }

    fn parent(&self) -> Option<(Arc<dyn Inode>, Vec<u8>)> {
        let directory = self.directory().ok()?.lock();
        let parent: Arc<dyn Inode> = directory.parent.get()?;
        Some((parent, directory.name.to_vec()))
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.body {
            Body::Symlink(text) => {
                self.touch_accessed();
                Ok(text.clone())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.keep();
        self.with_content(|content| {
            if size < content.size() {
                self.sealed(g::F_SEAL_SHRINK)?;
            } else if size > content.size() {
                self.sealed(g::F_SEAL_GROW)?;
            }
            content.truncate(size)
        })?;
        self.touch_modified();
        Ok(())
    }

    fn seek_content(&self, offset: u64, hole: bool) -> Result<u64> {
        self.content()?.lock().seek(offset, hole)
    }

    fn open(self: Arc<Self>, _flags: u32) -> Result<Arc<dyn File>> {
        Ok(self)
    }

    fn pipe(&self) -> Option<Arc<Pipe>> {
        match &self.body {
            Body::Fifo(pipe) => Some(pipe.clone()),
            _ => None,
        }
    }

    fn socket(&self) -> Option<&Once<Arc<dyn Any + Send + Sync>>> {
        match &self.body {
            Body::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    fn extended(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.get_extended(name)
    }

    fn extended_names(&self) -> Result<Vec<Vec<u8>>> {
        self.list_extended()
    }

    fn change_extended(&self, name: &[u8], value: Option<&[u8]>, how: SetExtended) -> Result<()> {
        Node::change_extended(self, name, value, how)
    }

    fn seals(&self, add: u32) -> Result<u32> {
        let Body::File { seals, .. } = &self.body else {
            return Err(Errno::EINVAL);
        };
        if add != 0 {
            self.sealed(g::F_SEAL_SEAL)?;
        }
        Ok(seals.fetch_or(add, Ordering::Relaxed) | add)
    }
}
