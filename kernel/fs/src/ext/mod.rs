// SPDX-License-Identifier: Apache-2.0
//! Volumes: a file system on a disk that keeps what was written, also when the machine ends at any moment.
//!
//! The format is ext3's, the subset of ext4 with a map of blocks and a journal, so Linux can mount and check a volume
//! (decision 0013). All metadata goes through the journal ([`journal`]); what was synced can be read after the next mount,
//! and the file system is whole.
//!
//! Lock order: journal (held by whoever commits, across its writes) -> state of the volume (sleeps for metadata that is
//! not cached) -> attributes, pages and home of an inode (spinning). Reads of cached content take the last only.

mod allocate;
mod content;
mod crc;
mod directory;
mod file;
mod journal;
mod layout;
mod map;
mod node;
mod ranges;
mod state;
mod sync;
mod tree;

#[cfg(test)]
mod tests;

pub use layout::MountError;
pub use node::Node;

use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use coracle_abi::convert::usize_from;
use coracle_core::device::BlockDevice;
use coracle_core::memory::Page;
use coracle_core::sync::{SleepGuard, SleepLock, SpinLock};
use coracle_core::time;

use crate::vfs::{FileSystem, FsStatus, Inode, Kind};
use crate::{Errno, Result};
use journal::Journal;
use layout::{BLOCK, Layout, RECOVER, ROOT, encode_time, get32, ino, put32, sb};
use state::State;

/// `EXT4_SUPER_MAGIC` of statfs(2).
const MAGIC: u32 = 0xef53;

/// How to mount a volume.
#[derive(Clone, Copy, Debug)]
pub struct VolumeOptions {
    /// Nothing is written to the disk, not even to finish what the last user left.
    pub read_only: bool,
    /// Memory for cached content, in bytes.
    pub cache_bytes: u64,
    /// What `stat(2)` reports as the device.
    pub device_number: u64,
}

/// How much is kept in memory before something is given back or written, in blocks or pieces.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Cached pages of files.
    pages: usize,
    /// Pages that wait to be written.
    dirty: usize,
    /// Changed blocks of metadata in one transaction.
    changed: usize,
    /// Cached blocks of metadata.
    metadata: usize,
    /// Blocks in the journal that are not at their place.
    live: usize,
    /// Inodes.
    nodes: usize,
    /// Names in indexes of directories.
    names: usize,
}

impl Limits {
    fn new(cache_bytes: u64) -> Self {
        let pages = usize_from(cache_bytes / BLOCK).max(64);
        Self {
            pages,
            dirty: (pages / 2).min(16384),
            changed: (pages / 8).clamp(32, 256),
            metadata: (pages / 4).clamp(64, 4096),
            live: (pages / 8).clamp(32, 1024),
            nodes: pages.clamp(64, 16384),
            names: (pages * 4).clamp(1024, 1 << 18),
        }
    }
}

/// A mounted volume.
pub struct Volume {
    device: Arc<dyn BlockDevice>,
    device_number: u64,
    read_only: bool,
    limits: Limits,
    state: SleepLock<State>,
    journal: SleepLock<Journal>,
    /// Nothing may be written any more, since what is in memory and what is on the disk do not fit together.
    failed: AtomicBool,
    /// The damage that was found was told.
    told: AtomicBool,
    root: SpinLock<Option<Arc<Node>>>,
}

impl Volume {
    /// Mounts the volume on `device`: replays the journal if the last user was ended, and frees what it had left without a
    /// name. With `read_only` the replay happens in memory.
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        options: &VolumeOptions,
    ) -> Result<Arc<Self>, MountError> {
        let read_only = options.read_only || device.is_read_only();
        let page = Page::zeroed()?;
        if device.sectors() < 8 {
            return Err(MountError::NotExt);
        }
        device.read(0, core::slice::from_ref(&page))?;
        let layout = Layout::parse(&page, device.sectors() / state::SECTORS)?;
        let mut st = State::new(device.clone(), layout);
        if !st.check_tables()? {
            return Err(MountError::Damaged("where the groups' tables are"));
        }
        let mut journal = Journal::open(&device, &mut st)?;
        if journal.needs_replay() {
            let mut live = BTreeMap::new();
            let count = journal.replay(&mut st, &mut |blocks| {
                if read_only {
                    live.append(blocks);
                    return Ok(());
                }
                let blocks: Vec<_> = core::mem::take(blocks).into_iter().collect();
                sync::write_sorted(&*device, &blocks)
            })?;
            log::info!("volume: {count} transactions replayed");
            st = State::new(device.clone(), layout);
            st.live = live;
            if !read_only {
                device.flush()?;
                journal.empty(true)?;
                device.read(0, core::slice::from_ref(&page))?;
                put32(&page, sb::INCOMPAT, get32(&page, sb::INCOMPAT) & !RECOVER);
                device.write(0, core::slice::from_ref(&page))?;
                device.flush()?;
            }
            // What was replayed may be damaged as well as what was there.
            let layout = Layout::parse(&st.block(0)?, device.sectors() / state::SECTORS)?;
            st.layout = layout;
            if !st.check_tables()? {
                return Err(MountError::Damaged("where the groups' tables are"));
            }
        }
        let volume = Arc::new(Self {
            device,
            device_number: options.device_number,
            read_only,
            limits: Limits::new(options.cache_bytes),
            state: SleepLock::new(st),
            journal: SleepLock::new(journal),
            failed: AtomicBool::new(false),
            told: AtomicBool::new(false),
            root: SpinLock::new(None),
        });
        volume.find_root().inspect_err(|_| volume.forget())?;
        if !read_only {
            volume.free_orphans().inspect_err(|_| volume.forget())?;
        }
        Ok(volume)
    }

    fn find_root(self: &Arc<Self>) -> Result<(), MountError> {
        let mut st = self.state.lock();
        let root = self.node(&mut st, ROOT)?;
        if root.kind() != Kind::Directory || root.attributes.lock().links == 0 {
            return Err(MountError::Damaged("the root directory"));
        }
        root.index(&mut st)?;
        drop(st);
        *self.root.lock() = Some(root);
        Ok(())
    }

    /// Finishes what the last user had begun to remove.
    fn free_orphans(self: &Arc<Self>) -> Result<(), MountError> {
        const DAMAGED: MountError = MountError::Damaged("the list of files without a name");
        let mut chain = Vec::new();
        let mut seen = BTreeSet::new();
        {
            let mut st = self.state.lock();
            let mut number = get32(&st.block(0)?, sb::LAST_ORPHAN);
            while number != 0 {
                let known = number >= st.layout.first_inode && seen.insert(number);
                if !known || !st.is_inode_used(number)? {
                    return Err(DAMAGED);
                }
                chain.push(number);
                let (block, at) = st.inode_at(number)?;
                number = get32(&st.block(block)?, at + ino::DELETED);
            }
            st.orphans.clone_from(&chain);
        }
        for number in chain {
            // Loaded, so that it can be found; nobody else has it, so it goes.
            self.node(&mut self.state.lock(), number)?;
            while !self.change(|st| self.reap(st))? {}
        }
        Ok(())
    }

    /// The volume's state, with what is not needed given back.
    fn lock(&self) -> SleepGuard<'_, State> {
        let mut st = self.state.lock();
        st.trim_metadata(self.limits.metadata);
        st.trim_indexes(self.limits.names);
        st.trim_nodes(self.limits.nodes);
        st
    }

    /// Runs an operation that changes the volume, as part of one transaction. It may run twice: blocks that were freed a
    /// moment ago count only after a commit, so `ENOSPC` is believed the second time.
    fn change<R>(&self, mut operation: impl FnMut(&mut State) -> Result<R>) -> Result<R> {
        let mut committed = false;
        loop {
            if self.read_only || self.failed.load(Ordering::Relaxed) {
                return Err(Errno::EROFS);
            }
            let mut st = self.lock();
            if !committed
                && (st.changed.len() > self.limits.changed || st.dirty.len() > self.limits.dirty)
            {
                drop(st);
                self.sync_all()?;
                committed = true;
                continue;
            }
            if !st.orphans.is_empty() {
                let reaped = self.reap(&mut st);
                self.guard(&st, u64::MAX, reaped)?;
            }
            let before = st.changes;
            match operation(&mut st) {
                Err(Errno::ENOSPC) if !committed && st.gains_by_commit() => {
                    drop(st);
                    self.sync_all()?;
                    committed = true;
                }
                result => return self.guard(&st, before, result),
            }
        }
    }

    /// After an operation that failed half-way the volume is not written any more: that would make the damage permanent.
    fn guard<R>(&self, st: &State, changes_before: u64, result: Result<R>) -> Result<R> {
        if let Err(error @ (Errno::EIO | Errno::EUCLEAN | Errno::ENOMEM)) = result
            && st.changes != changes_before
        {
            self.fail(error);
        }
        self.noted(result)
    }

    /// Tells the first time that something on the disk makes no sense.
    fn noted<R>(&self, result: Result<R>) -> Result<R> {
        if matches!(result, Err(Errno::EUCLEAN)) && !self.told.swap(true, Ordering::Relaxed) {
            log::error!("a volume's file system is damaged; check it: e2fsck -f with its file");
        }
        result
    }

    /// Stops all writing.
    fn fail(&self, error: Errno) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            log::error!(
                "a volume failed ({error}) and is read-only from now on; what was synced is safe"
            );
        }
    }

    /// Lets go of all inodes, which refer to the volume: it can be freed when nobody else has it, and is not used any
    /// more. What was not written is lost.
    pub fn forget(&self) {
        let mut st = self.state.lock();
        let nodes = core::mem::take(&mut st.nodes);
        st.dirty.clear();
        st.mapped.clear();
        for node in nodes.values() {
            *node.home.lock() = None;
        }
        drop(st);
        let root = self.root.lock().take();
        drop((nodes, root));
    }
}

impl FileSystem for Volume {
    fn type_name(&self) -> &'static str {
        "ext4"
    }

    fn root(&self) -> Arc<dyn Inode> {
        let root = self.root.lock().clone();
        root.expect("found when it was mounted, and not forgotten")
    }

    fn status(&self) -> FsStatus {
        let mut st = self.lock();
        // What nobody has open any more is free, as soon as somebody asks.
        if !self.read_only && !self.failed.load(Ordering::Relaxed) && !st.orphans.is_empty() {
            let before = st.changes;
            let reaped = self.reap(&mut st);
            let _ = self.guard(&st, before, reaped);
        }
        let (blocks, inodes) = (st.layout.blocks, st.layout.inodes);
        let tables = u64::from(st.layout.groups) * u64::from(st.layout.table_blocks() + 2);
        FsStatus {
            magic: MAGIC,
            block_bytes: BLOCK,
            blocks: u64::from(blocks).saturating_sub(tables),
            free_blocks: st.free_blocks().unwrap_or(0).into(),
            inodes: inodes.into(),
            free_inodes: st.free_inodes().unwrap_or(0).into(),
        }
    }

    fn sync(&self) -> Result<()> {
        self.sync_all()
    }

    fn is_persistent(&self) -> bool {
        !self.read_only
    }

    fn settle(&self) -> Result<()> {
        {
            let mut st = self.lock();
            // Linux shows when a volume was last written.
            if !st.changed.is_empty() {
                let (seconds, _) = encode_time(time::wall());
                put32(&st.change(0)?, sb::WRITTEN, seconds);
            }
        }
        Volume::settle(self)
    }
}
