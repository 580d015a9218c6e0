// SPDX-License-Identifier: Apache-2.0
//! Files of a share by name: attributes, directories, changes of names.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::raw::general as g;
use coracle_core::file::{File, Metadata};
use coracle_core::sync::{Once, SleepLock, SpinLock};

use super::Shared;
use super::client::{Attributes, Change, Fid};
use super::file::Opened;
use super::pages::Pages;
use super::wire::Qid;
use crate::pipe::Pipe;
use crate::vfs::{AttributeChange, Inode, Kind, NewKind, NewNode, Rename};
use crate::{Errno, Result};

/// A file of the host.
pub(super) struct Node {
    me: Weak<Node>,
    shared: Arc<Shared>,
    number: u64,
    kind: Kind,
    /// The host's handle, by the last name that was looked up.
    fid: SpinLock<Arc<Fid>>,
    /// For directories: where it is.
    place: SpinLock<Option<(Arc<Node>, Vec<u8>)>>,
    /// What the host said last, for a file that loses its name while it is open.
    last: SpinLock<Metadata>,
    /// Open file descriptions.
    pub(super) users: AtomicUsize,
    /// Handle of a file that was just made, for the one who opens it: its mode may forbid others to.
    made: SpinLock<Option<Fid>>,
    /// Held while the end of the file is looked for and written to.
    pub(super) end: SleepLock<()>,
    /// Pages for mappings.
    pub(super) pages: Pages,
    pipe: Option<Arc<Pipe>>,
    socket: Once<Arc<dyn Any + Send + Sync>>,
}

impl Node {
    /// The node for a file: the one there is, or a new one. `place` is the directory in which it was found, and its name.
    pub(super) fn of(
        shared: &Arc<Shared>,
        fid: Fid,
        qid: Qid,
        place: Option<(&Node, &[u8])>,
    ) -> Result<Arc<Self>> {
        // Only directories and symbolic links show their type in a qid.
        let (kind, metadata) = if qid.is_directory() {
            (Kind::Directory, Metadata::default())
        } else if qid.is_symlink() {
            (Kind::Symlink, Metadata::default())
        } else {
            let attributes = fid.attributes()?;
            let kind = Kind::from_mode(attributes.mode).ok_or(Errno::EIO)?;
            (kind, metadata(shared, &attributes))
        };
        let place = match place {
            Some((parent, name)) if kind == Kind::Directory => {
                let parent = parent.me.upgrade().ok_or(Errno::ENOENT)?;
                Some((parent, name.to_vec()))
            }
            _ => None,
        };
        let mut fid = Arc::new(fid);
        let known = shared.nodes.lock().get(&qid.path).and_then(Weak::upgrade);
        if let Some(node) = known.filter(|node| node.kind == kind) {
            // The host has bound it into itself: a walk upwards would not end.
            if let Some((parent, _)) = &place
                && parent.is_below(&node)
            {
                return Err(Errno::ELOOP);
            }
            // The new handle has a name that is good now; the old one may have lost its name.
            core::mem::swap(&mut *node.fid.lock(), &mut fid);
            let mut place = place;
            if place.is_some() {
                core::mem::swap(&mut *node.place.lock(), &mut place);
            }
            return Ok(node);
        }
        let node = Arc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            shared: shared.clone(),
            number: qid.path,
            kind,
            fid: SpinLock::new(fid),
            place: SpinLock::new(place),
            last: SpinLock::new(metadata),
            users: AtomicUsize::new(0),
            made: SpinLock::new(None),
            end: SleepLock::new(()),
            pages: Pages::new(),
            pipe: (kind == Kind::Fifo).then(Pipe::new),
            socket: Once::new(),
        });
        let mut nodes = shared.nodes.lock();
        let other = nodes.get(&qid.path).and_then(Weak::upgrade);
        if other.as_ref().is_none_or(|other| other.kind != kind) {
            nodes.insert(qid.path, node.me.clone());
        }
        drop(nodes);
        // Another thread may have been faster.
        Ok(other.filter(|other| other.kind == kind).unwrap_or(node))
    }

    /// Whether this directory is `other`, or lies in it at any depth.
    fn is_below(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut at = self.clone();
        loop {
            if Arc::ptr_eq(&at, other) {
                return true;
            }
            let above = at.place.lock().as_ref().map(|(above, _)| above.clone());
            match above {
                Some(above) => at = above,
                None => return false,
            }
        }
    }

    pub(super) fn fid(&self) -> Arc<Fid> {
        self.fid.lock().clone()
    }

    /// The handle, for a change. The host finds the file by name, and another file may have that name by now: then
    /// `ESTALE`.
    fn checked_fid(&self) -> Result<Arc<Fid>> {
        let fid = self.fid();
        self.check(&fid.attributes()?.qid)?;
        Ok(fid)
    }

    /// `ESTALE` if that is another file.
    pub(super) fn check(&self, qid: &Qid) -> Result<()> {
        if qid.path == self.number {
            Ok(())
        } else {
            Err(Errno::ESTALE)
        }
    }

    /// The file was written up to `end`, for the case that the host does not tell any more.
    pub(super) fn note_written(&self, end: u64) {
        let mut last = self.last.lock();
        last.size = last.size.max(end);
    }

    fn own<'a>(&self, inode: &'a Arc<dyn Inode>) -> Result<&'a Self> {
        inode
            .as_any()
            .downcast_ref::<Self>()
            .filter(|node| Arc::ptr_eq(&node.shared, &self.shared))
            .ok_or(Errno::EXDEV)
    }

    fn find(&self, name: &[u8]) -> Result<Arc<Self>> {
        if self.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let (fid, qid) = self.fid().walk(Some(name))?;
        Self::of(
            &self.shared,
            fid,
            qid.ok_or(Errno::EIO)?,
            Some((self, name)),
        )
    }

    /// Gives a new file to its owner. A server that is an ordinary user cannot, and everything belongs to that user.
    fn give_away(&self, directory: &Self, new: &NewNode<'_>) {
        if self.shared.no_owners.load(Ordering::Relaxed) {
            return;
        }
        let Ok(now) = self.metadata() else { return };
        // A directory with the set-group-ID bit gives its group to what is made in it (inode(7)).
        let inherits = || {
            let parent = directory.metadata();
            parent.is_ok_and(|parent| parent.mode & g::S_ISGID != 0)
        };
        let gid = Some(new.gid).filter(|gid| *gid != now.gid && !inherits());
        let uid = Some(new.uid).filter(|uid| *uid != now.uid);
        if uid.is_none() && gid.is_none() {
            return;
        }
        let change = Change {
            uid,
            gid,
            ..Change::default()
        };
        if self.fid().change(&change).is_err() {
            self.shared.no_owners.store(true, Ordering::Relaxed);
        }
    }

    fn unlink_name(&self, name: &[u8], directory: bool) -> Result<()> {
        let node = self.find(name)?;
        match (directory, node.kind == Kind::Directory) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => {}
        }
        let _ = node.metadata(); // what is remembered of it while it is open
        self.fid().unlink(name, directory)?;
        let socket = self.shared.sockets.lock().remove(&node.number);
        let place = node.place.lock().take();
        drop((socket, place));
        Ok(())
    }
}

fn metadata(shared: &Shared, attributes: &Attributes) -> Metadata {
    Metadata {
        device: shared.device,
        inode: attributes.qid.path,
        mode: attributes.mode,
        links: u32::try_from(attributes.links).unwrap_or(u32::MAX),
        uid: attributes.uid,
        gid: attributes.gid,
        special_device: attributes.special_device,
        size: attributes.size.min(i64::MAX.cast_unsigned()),
        blocks: attributes.blocks,
        accessed_ns: attributes.accessed_ns,
        modified_ns: attributes.modified_ns,
        changed_ns: attributes.changed_ns,
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
        let answer = self.fid().attributes();
        match answer.and_then(|now| self.check(&now.qid).map(|()| now)) {
            Ok(attributes) => {
                let metadata = metadata(&self.shared, &attributes);
                *self.last.lock() = metadata;
                Ok(metadata)
            }
            // It lost its name, which is how the host finds it.
            Err(Errno::ENOENT | Errno::ESTALE) if self.users.load(Ordering::Relaxed) > 0 => {
                Ok(Metadata {
                    links: 0,
                    ..*self.last.lock()
                })
            }
            Err(error) => Err(error),
        }
    }

    fn change(&self, change: &AttributeChange) -> Result<()> {
        self.checked_fid()?.change(&Change {
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            size: None,
            accessed_ns: change.accessed_ns,
            modified_ns: change.modified_ns,
        })
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(self.find(name)?)
    }

    fn create(&self, name: &[u8], new: &NewNode<'_>) -> Result<Arc<dyn Inode>> {
        let here = self.fid();
        let mode = new.mode & 0o7777;
        let mut made = None;
        let with_kind = new.kind.kind().mode_bits() | mode;
        match new.kind {
            NewKind::File => {
                let (fid, _) = here.walk(None)?;
                fid.create(name, g::O_RDWR | g::O_CREAT | g::O_EXCL, mode)?;
                made = Some(fid);
            }
            NewKind::Directory => here.make_directory(name, mode)?,
            NewKind::Symlink(text) => here.make_symlink(name, text)?,
            NewKind::CharDevice(number) | NewKind::BlockDevice(number) => {
                here.make_node(name, with_kind, number)?;
            }
            NewKind::Fifo | NewKind::Socket => here.make_node(name, with_kind, 0)?,
        }
        let node = self.find(name)?;
        node.give_away(self, new);
        *node.made.lock() = made;
        if matches!(new.kind, NewKind::Socket) {
            let old = self.shared.sockets.lock().insert(node.number, node.clone());
            drop(old);
        }
        Ok(node)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.fid().link(name, &self.own(target)?.fid())
    }

    fn unlink(&self, name: &[u8]) -> Result<()> {
        self.unlink_name(name, false)
    }

    fn remove_directory(&self, name: &[u8]) -> Result<()> {
        self.unlink_name(name, true)
    }

    /// `EINVAL` for anything but replacing, as on Linux: the protocol has no more.
    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, new_name: &[u8], how: Rename) -> Result<()> {
        if how != Rename::Replace {
            return Err(Errno::EINVAL);
        }
        let to = self.own(to)?;
        let moved = self.find(name)?;
        self.fid().rename(name, &to.fid(), new_name)?;
        if moved.kind == Kind::Directory {
            let place = to.me.upgrade().map(|to| (to, new_name.to_vec()));
            let old = core::mem::replace(&mut *moved.place.lock(), place);
            drop(old);
        }
        Ok(())
    }

    fn parent(&self) -> Option<(Arc<dyn Inode>, Vec<u8>)> {
        let (parent, name) = self.place.lock().clone()?;
        Some((parent, name))
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match self.kind {
            Kind::Symlink => self.fid().read_link(),
            _ => Err(Errno::EINVAL),
        }
    }

    fn truncate(&self, size: u64) -> Result<()> {
        match self.kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        if size > i64::MAX.cast_unsigned() {
            return Err(Errno::EFBIG);
        }
        self.checked_fid()?.change(&Change {
            size: Some(size),
            ..Change::default()
        })?;
        self.last.lock().size = size;
        self.pages.cut(size);
        Ok(())
    }

    fn open(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        let made = self.made.lock().take();
        Opened::open(self, flags, made)
    }

    fn pipe(&self) -> Option<Arc<Pipe>> {
        self.pipe.clone()
    }

    fn socket(&self) -> Option<&Once<Arc<dyn Any + Send + Sync>>> {
        (self.kind == Kind::Socket).then_some(&self.socket)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut nodes = self.shared.nodes.lock();
        if nodes
            .get(&self.number)
            .is_some_and(|known| known.ptr_eq(&self.me))
        {
            nodes.remove(&self.number);
        }
    }
}
