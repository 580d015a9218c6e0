// SPDX-License-Identifier: Apache-2.0
//! Inodes in memory: their attributes, how these are read and written, and what one inode answers by itself. What
//! changes names is in `tree`.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use coracle_abi::convert::{low_u16, low_u32, u64_from, usize_from};
use coracle_core::file::{File, Metadata};
use coracle_core::memory::Page;
use coracle_core::sync::{Once, SpinLock};
use coracle_core::time;

use super::Volume;
use super::file::SyncingFile;
use super::layout::{
    BLOCK, EXTRA_BYTES, FAST_LINK, FLAG_INDEX, FLAGS_FOREIGN, INODE_BYTES, MAX_SIZE, decode_time,
    encode_time, get16, get32, ino, put16, put32,
};
use super::state::State;
use crate::pipe::Pipe;
use crate::vfs::{
    AttributeChange, Inode, Kind, NewKind, NewNode, Rename, device_major, device_minor,
    device_number,
};
use crate::{Errno, Result};

/// Time after which a read renews the access time though nothing was written since (`relatime` of mount(8)).
const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// What `stat(2)` shows, as the program sees it now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// Units of 512 bytes.
    pub(super) sectors: u32,
    pub(super) accessed_ns: u64,
    pub(super) modified_ns: u64,
    pub(super) changed_ns: u64,
}

/// A page of a file's content.
pub(super) struct CachedPage {
    pub(super) page: Page,
    /// Read since it was last considered for eviction.
    pub(super) used: bool,
    /// Shared mappings may write it: it has a block, and is known as such to the volume.
    pub(super) writable: bool,
}

/// Where a directory is: the one it is in, and its name there.
type Home = Option<(Arc<Node>, Box<[u8]>)>;

/// An inode in use.
pub struct Node {
    pub(super) me: Weak<Node>,
    pub(super) fs: Arc<Volume>,
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) attributes: SpinLock<Attributes>,
    /// Cached content; entered and removed under the volume's lock only.
    pub(super) pages: SpinLock<BTreeMap<u64, CachedPage>>,
    pub(super) home: SpinLock<Home>,
    /// Counts truncations: content read from the disk before one is not taken for what is there after it.
    pub(super) cuts: AtomicU64,
    /// Last page that was read, for reading ahead.
    pub(super) last_read: AtomicU64,
    /// The transaction that last changed the inode, and the one that last changed size or blocks.
    pub(super) changed_in: AtomicU64,
    pub(super) resized_in: AtomicU64,
    /// It never had a name and may get one (`O_TMPFILE`).
    pub(super) linkable: AtomicBool,
    special: u64,
    pipe: Option<Arc<Pipe>>,
    socket: Once<Arc<dyn Any + Send + Sync>>,
}

impl Volume {
    /// The inode of that number. `EUCLEAN` if it is damaged, `EOPNOTSUPP` if it needs something unknown.
    pub(super) fn node(self: &Arc<Self>, st: &mut State, number: u32) -> Result<Arc<Node>> {
        if let Some(node) = st.nodes.get(&number) {
            return Ok(node.clone());
        }
        let (block, at) = st.inode_at(number)?;
        let page = st.block(block)?;
        let mode = u32::from(get16(&page, at + ino::MODE));
        let kind = Kind::from_mode(mode).ok_or(Errno::EUCLEAN)?;
        if get32(&page, at + ino::FLAGS) & FLAGS_FOREIGN != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let low_high = |low: usize, high: usize| {
            u32::from(get16(&page, at + low)) | u32::from(get16(&page, at + high)) << 16
        };
        let extra = get16(&page, at + ino::EXTRA);
        let time = |low: usize, high: usize| {
            let more = if extra >= EXTRA_BYTES {
                get32(&page, at + high)
            } else {
                0
            };
            decode_time(get32(&page, at + low), more)
        };
        let size = u64::from(get32(&page, at + ino::SIZE))
            | if matches!(kind, Kind::File | Kind::Directory) {
                u64::from(get32(&page, at + ino::SIZE_HIGH)) << 32
            } else {
                0
            };
        if size > MAX_SIZE {
            return Err(Errno::EUCLEAN);
        }
        let attributes = Attributes {
            mode: mode & 0o7777,
            links: get16(&page, at + ino::LINKS).into(),
            uid: low_high(ino::UID, ino::UID_HIGH),
            gid: low_high(ino::GID, ino::GID_HIGH),
            size,
            sectors: get32(&page, at + ino::SECTORS),
            accessed_ns: time(ino::ACCESSED, ino::ACCESSED_EXTRA),
            modified_ns: time(ino::MODIFIED, ino::MODIFIED_EXTRA),
            changed_ns: time(ino::CHANGED, ino::CHANGED_EXTRA),
        };
        let special = match kind {
            Kind::CharDevice | Kind::BlockDevice => {
                let old = get32(&page, at + ino::POINTERS);
                let new = get32(&page, at + ino::POINTERS + 4);
                if old != 0 {
                    device_number(old >> 8 & 0xff, old & 0xff)
                } else {
                    device_number(new >> 8 & 0xfff, new & 0xff | new >> 12 & 0xf_ff00)
                }
            }
            _ => 0,
        };
        let node = self.new_node(number, kind, attributes, special);
        st.nodes.insert(number, node.clone());
        Ok(node)
    }

    fn new_node(
        self: &Arc<Self>,
        number: u32,
        kind: Kind,
        attributes: Attributes,
        special: u64,
    ) -> Arc<Node> {
        Arc::new_cyclic(|me| Node {
            me: me.clone(),
            fs: self.clone(),
            number,
            kind,
            attributes: SpinLock::new(attributes),
            pages: SpinLock::new(BTreeMap::new()),
            home: SpinLock::new(None),
            cuts: AtomicU64::new(0),
            last_read: AtomicU64::new(u64::MAX),
            changed_in: AtomicU64::new(0),
            resized_in: AtomicU64::new(0),
            linkable: AtomicBool::new(false),
            special,
            pipe: (kind == Kind::Fifo).then(Pipe::new),
            socket: Once::new(),
        })
    }

    /// Makes an inode, near that of the directory `parent`, with no content yet. `ENOSPC`.
    pub(super) fn make_inode(
        self: &Arc<Self>,
        st: &mut State,
        parent: u32,
        new: &NewNode<'_>,
    ) -> Result<Arc<Node>> {
        let kind = new.kind.kind();
        let is_directory = kind == Kind::Directory;
        let number = st.allocate_inode(parent, is_directory)?;
        let (block, at) = st.inode_at(number)?;
        let page = st.change(block)?;
        let generation = get32(&page, at + ino::GENERATION).wrapping_add(1);
        page.zero(at, INODE_BYTES);
        put32(&page, at + ino::GENERATION, generation);
        put16(&page, at + ino::EXTRA, EXTRA_BYTES);
        let now = time::wall();
        let (seconds, extra) = encode_time(now);
        put32(&page, at + ino::CREATED, seconds);
        put32(&page, at + ino::CREATED_EXTRA, extra);
        let mut special = 0;
        match new.kind {
            NewKind::CharDevice(device) | NewKind::BlockDevice(device) => {
                special = device;
                let (major, minor) = (device_major(device), device_minor(device));
                if major < 256 && minor < 256 {
                    put32(&page, at + ino::POINTERS, major << 8 | minor);
                } else {
                    let number = minor & 0xff | major << 8 | (minor & !0xff) << 12;
                    put32(&page, at + ino::POINTERS + 4, number);
                }
            }
            _ => {}
        }
        let attributes = Attributes {
            mode: if kind == Kind::Symlink {
                0o777
            } else {
                new.mode & 0o7777
            },
            links: 0,
            uid: new.uid,
            gid: new.gid,
            size: 0,
            sectors: 0,
            accessed_ns: now,
            modified_ns: now,
            changed_ns: now,
        };
        let node = self.new_node(number, kind, attributes, special);
        st.nodes.insert(number, node.clone());
        node.store(st)?;
        node.resized(st);
        Ok(node)
    }
}

impl Node {
    /// Writes the attributes into the inode, as part of the running transaction.
    pub(super) fn store(&self, st: &mut State) -> Result<()> {
        let (block, at) = st.inode_at(self.number)?;
        let page = st.change(block)?;
        let a = *self.attributes.lock();
        put16(
            &page,
            at + ino::MODE,
            low_u16((self.kind.mode_bits() | a.mode).into()),
        );
        for (value, low, high) in [
            (a.uid, ino::UID, ino::UID_HIGH),
            (a.gid, ino::GID, ino::GID_HIGH),
        ] {
            put16(&page, at + low, low_u16(value.into()));
            put16(&page, at + high, low_u16(u64::from(value >> 16)));
        }
        put16(&page, at + ino::LINKS, low_u16(a.links.into()));
        put32(&page, at + ino::SIZE, low_u32(a.size));
        if matches!(self.kind, Kind::File | Kind::Directory) {
            put32(&page, at + ino::SIZE_HIGH, low_u32(a.size >> 32));
        }
        put32(&page, at + ino::SECTORS, a.sectors);
        let has_extra = get16(&page, at + ino::EXTRA) >= EXTRA_BYTES;
        for (time, low, high) in [
            (a.accessed_ns, ino::ACCESSED, ino::ACCESSED_EXTRA),
            (a.modified_ns, ino::MODIFIED, ino::MODIFIED_EXTRA),
            (a.changed_ns, ino::CHANGED, ino::CHANGED_EXTRA),
        ] {
            let (seconds, extra) = encode_time(time);
            put32(&page, at + low, seconds);
            if has_extra {
                put32(&page, at + high, extra);
            }
        }
        if self.kind == Kind::Directory {
            // The index of a large directory made by Linux is not kept up.
            let flags = get32(&page, at + ino::FLAGS);
            put32(&page, at + ino::FLAGS, flags & !FLAG_INDEX);
        }
        self.changed_in.store(st.running, Ordering::Relaxed);
        Ok(())
    }

    /// Says that size or blocks are different from what the disk has: fdatasync(2) must wait for the transaction.
    pub(super) fn resized(&self, st: &State) {
        self.resized_in.store(st.running, Ordering::Relaxed);
    }

    pub(super) fn size(&self) -> u64 {
        self.attributes.lock().size
    }

    /// Sets the times of a change of content, and of nothing else.
    pub(super) fn touch_modified(&self) {
        let now = time::wall();
        let mut attributes = self.attributes.lock();
        attributes.modified_ns = now;
        attributes.changed_ns = now;
    }

    /// Sets the time of a read. It reaches the disk with the inode's next change.
    pub(super) fn touch_accessed(&self) {
        if self.fs.read_only {
            return;
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

    pub(super) fn change_links(&self, by: i32) {
        let mut attributes = self.attributes.lock();
        attributes.links = attributes.links.saturating_add_signed(by);
        attributes.changed_ns = time::wall();
    }

    pub(super) fn add_sectors(&self, blocks: u32) {
        let mut attributes = self.attributes.lock();
        attributes.sectors = attributes.sectors.saturating_add(blocks * 8);
    }

    pub(super) fn remove_sectors(&self, blocks: u32) {
        let mut attributes = self.attributes.lock();
        attributes.sectors = attributes.sectors.saturating_sub(blocks.saturating_mul(8));
    }

    /// The node of the same volume behind a trait object; `EXDEV` for another one's.
    pub(super) fn own(&self, inode: &Arc<dyn Inode>) -> Result<Arc<Node>> {
        inode
            .as_any()
            .downcast_ref::<Node>()
            .filter(|node| Arc::ptr_eq(&node.fs, &self.fs))
            .and_then(|node| node.me.upgrade())
            .ok_or(Errno::EXDEV)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Sets the text of a new link.
    pub(super) fn set_text(&self, st: &mut State, text: &[u8]) -> Result<()> {
        if text.len() <= FAST_LINK {
            let (block, at) = st.inode_at(self.number)?;
            st.change(block)?.write(at + ino::POINTERS, text);
        } else {
            if text.len() >= usize_from(BLOCK) {
                return Err(Errno::ENAMETOOLONG);
            }
            let assigned = st.assign_block(self.number, 0, 0)?;
            st.fresh(assigned.block)?.write(0, text);
            self.add_sectors(assigned.taken);
        }
        self.attributes.lock().size = u64_from(text.len());
        Ok(())
    }

    fn text(&self, st: &mut State) -> Result<Vec<u8>> {
        let (size, sectors) = {
            let attributes = self.attributes.lock();
            (usize_from(attributes.size), attributes.sectors)
        };
        let mut text = vec![0; size];
        if sectors == 0 {
            if size > FAST_LINK {
                return Err(Errno::EUCLEAN);
            }
            let (block, at) = st.inode_at(self.number)?;
            st.block(block)?.read(at + ino::POINTERS, &mut text);
        } else {
            if u64_from(size) >= BLOCK {
                return Err(Errno::EUCLEAN);
            }
            let block = st.find_block(self.number, 0)?.ok_or(Errno::EUCLEAN)?;
            st.block(block)?.read(0, &mut text);
        }
        Ok(text)
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
        let a = *self.attributes.lock();
        Ok(Metadata {
            device: self.fs.device_number,
            inode: self.number.into(),
            mode: self.kind.mode_bits() | a.mode,
            links: a.links,
            uid: a.uid,
            gid: a.gid,
            special_device: self.special,
            size: a.size,
            blocks: a.sectors.into(),
            accessed_ns: a.accessed_ns,
            modified_ns: a.modified_ns,
            changed_ns: a.changed_ns,
        })
    }

    fn change(&self, change: &AttributeChange) -> Result<()> {
        self.fs.change(|st| {
            let mut a = self.attributes.lock();
            if let Some(mode) = change.mode {
                a.mode = mode & 0o7777;
            }
            a.uid = change.uid.unwrap_or(a.uid);
            a.gid = change.gid.unwrap_or(a.gid);
            a.accessed_ns = change.accessed_ns.unwrap_or(a.accessed_ns);
            a.modified_ns = change.modified_ns.unwrap_or(a.modified_ns);
            a.changed_ns = time::wall();
            drop(a);
            self.store(st)
        })
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let node: Arc<dyn Inode> = self.find(name)?;
        Ok(node)
    }

    fn create(&self, name: &[u8], node: &NewNode<'_>) -> Result<Arc<dyn Inode>> {
        let node: Arc<dyn Inode> = self.add(name, node)?;
        Ok(node)
    }

    fn create_unnamed(&self, node: &NewNode<'_>, linkable: bool) -> Result<Arc<dyn Inode>> {
        let node: Arc<dyn Inode> = self.add_unnamed(node, linkable)?;
        Ok(node)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.add_link(name, &self.own(target)?)
    }

    fn unlink(&self, name: &[u8]) -> Result<()> {
        self.remove(name, false)
    }

    fn remove_directory(&self, name: &[u8]) -> Result<()> {
        self.remove(name, true)
    }

    fn rename(&self, name: &[u8], to: &Arc<dyn Inode>, new_name: &[u8], how: Rename) -> Result<()> {
        let to = self.own(to)?;
        if how == Rename::Exchange {
            self.exchange(name, &to, new_name)
        } else {
            self.move_entry(name, &to, new_name, how)
        }
    }

    fn parent(&self) -> Option<(Arc<dyn Inode>, Vec<u8>)> {
        let home = self.home.lock();
        let (parent, name) = home.as_ref()?;
        let parent: Arc<dyn Inode> = parent.clone();
        Some((parent, name.to_vec()))
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != Kind::Symlink {
            return Err(Errno::EINVAL);
        }
        self.touch_accessed();
        let text = self.text(&mut self.fs.lock());
        self.fs.noted(text)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.set_size(size)
    }

    fn seek_content(&self, offset: u64, hole: bool) -> Result<u64> {
        self.seek(offset, hole)
    }

    fn open(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        Ok(match SyncingFile::wanted(&self, flags) {
            Some(file) => file,
            None => self,
        })
    }

    fn pipe(&self) -> Option<Arc<Pipe>> {
        self.pipe.clone()
    }

    fn socket(&self) -> Option<&Once<Arc<dyn Any + Send + Sync>>> {
        (self.kind == Kind::Socket).then_some(&self.socket)
    }
}
