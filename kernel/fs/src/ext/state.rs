// SPDX-License-Identifier: Apache-2.0
//! What changes while a volume is mounted: cached metadata, the running transaction, and what waits to be written.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_core::device::BlockDevice;
use coracle_core::memory::Page;

use super::directory::Index;
use super::layout::{BLOCK, Layout};
use super::node::Node;
use super::ranges::Ranges;
use crate::{Errno, Result};

/// Sectors of a block.
pub(super) const SECTORS: u64 = BLOCK / 512;

/// A page of a file that the disk does not have yet.
pub(super) struct DirtyPage {
    /// Where it belongs.
    pub(super) block: u32,
    /// The running transaction may not be committed before it is written: its block is new, or the file grew.
    pub(super) ordered: bool,
}

struct CachedBlock {
    page: Page,
    used: bool,
}

/// All that the volume's lock protects.
pub(super) struct State {
    device: Arc<dyn BlockDevice>,
    pub(super) layout: Layout,
    /// Metadata as of now, changes of the running transaction included.
    cache: BTreeMap<u32, CachedBlock>,
    /// Metadata blocks the running transaction has changed.
    pub(super) changed: BTreeSet<u32>,
    /// Counts changes, to see whether a failed operation left some behind.
    pub(super) changes: u64,
    /// Number of the running transaction.
    pub(super) running: u64,
    /// All transactions before this one are on the disk.
    pub(super) committed: u64,
    /// Blocks freed by the running transaction: its predecessor may still need their content after a crash.
    pub(super) freed: Ranges,
    /// The same, of a transaction that is being written.
    pub(super) freed_committing: Ranges,
    /// Blocks whose newest committed content is in the journal and not yet at its place. Until a checkpoint, such a
    /// block is written through the journal only, or a replay would put old content over new.
    pub(super) live: BTreeMap<u32, Page>,
    /// The blocks of the transaction that is being written to the journal; they become live.
    pub(super) writing: BTreeMap<u32, Page>,
    /// A commit is under way.
    pub(super) busy: bool,
    pub(super) nodes: BTreeMap<u32, Arc<Node>>,
    pub(super) directories: BTreeMap<u32, Index>,
    /// Names in these indexes, at most.
    pub(super) names: usize,
    /// Pages to be written, by inode and index.
    pub(super) dirty: BTreeMap<(u32, u64), DirtyPage>,
    /// Pages that shared mappings may write at any time, with a hash of what was written last.
    pub(super) mapped: BTreeMap<(u32, u64), u64>,
    /// Cached pages in the order in which they came; some may be gone already.
    pub(super) queue: VecDeque<(u32, u64)>,
    /// Number of cached pages of files.
    pub(super) cached: usize,
    /// Files without a name that are still open, newest first, as they are chained on the disk.
    pub(super) orphans: Vec<u32>,
    /// The block that was taken last.
    pub(super) last_taken: u32,
    /// Who waits for a commit: inodes, with whether times may be left out, and whether all is to be written.
    pub(super) requests: Vec<(u32, bool)>,
    pub(super) all_requested: bool,
    pub(super) next_ticket: u64,
}

impl State {
    pub(super) fn new(device: Arc<dyn BlockDevice>, layout: Layout) -> Self {
        Self {
            device,
            layout,
            cache: BTreeMap::new(),
            changed: BTreeSet::new(),
            changes: 0,
            running: 1,
            committed: 1,
            freed: Ranges::default(),
            freed_committing: Ranges::default(),
            live: BTreeMap::new(),
            writing: BTreeMap::new(),
            busy: false,
            nodes: BTreeMap::new(),
            directories: BTreeMap::new(),
            names: 0,
            dirty: BTreeMap::new(),
            mapped: BTreeMap::new(),
            queue: VecDeque::new(),
            cached: 0,
            orphans: Vec::new(),
            last_taken: 0,
            requests: Vec::new(),
            all_requested: false,
            next_ticket: 1,
        }
    }

    /// A block of metadata. `EUCLEAN` if there is no such block.
    pub(super) fn block(&mut self, number: u32) -> Result<Page> {
        if let Some(cached) = self.cache.get_mut(&number) {
            cached.used = true;
            return Ok(cached.page.clone());
        }
        if number >= self.layout.blocks {
            return Err(Errno::EUCLEAN);
        }
        let page = Page::zeroed()?;
        self.read(number, &page)?;
        self.keep(number, page.clone());
        Ok(page)
    }

    /// Whether the newest content of a block is in memory, on its way through the journal.
    pub(super) fn is_in_journal(&self, block: u32) -> bool {
        self.writing.contains_key(&block) || self.live.contains_key(&block)
    }

    /// Fills a page with the newest content of a block.
    pub(super) fn read(&self, block: u32, page: &Page) -> Result<()> {
        match self.writing.get(&block).or_else(|| self.live.get(&block)) {
            Some(newest) => page.copy_from(newest),
            None => {
                let sector = u64::from(block) * SECTORS;
                self.device.read(sector, core::slice::from_ref(page))?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, number: u32, page: Page) {
        self.cache.insert(number, CachedBlock { page, used: true });
    }

    /// A block of metadata that the caller changes as part of the running transaction.
    pub(super) fn change(&mut self, number: u32) -> Result<Page> {
        let page = self.block(number)?;
        self.changed.insert(number);
        self.changes += 1;
        Ok(page)
    }

    /// A block that was just allocated for metadata, all zero.
    pub(super) fn fresh(&mut self, number: u32) -> Result<Page> {
        let page = Page::zeroed()?;
        self.keep(number, page.clone());
        self.changed.insert(number);
        self.changes += 1;
        Ok(page)
    }

    /// Forgets a block that was freed.
    pub(super) fn forget(&mut self, number: u32) {
        self.cache.remove(&number);
        self.changed.remove(&number);
    }

    /// Gives cached metadata back that was not used since the last call, if there is more than `limit`.
    pub(super) fn trim_metadata(&mut self, limit: usize) {
        if self.cache.len() <= limit + self.changed.len() {
            return;
        }
        let changed = &self.changed;
        self.cache
            .retain(|number, block| changed.contains(number) || core::mem::take(&mut block.used));
        if self.cache.len() > limit + changed.len() {
            self.cache.retain(|number, _| changed.contains(number));
        }
    }

    /// Whether a commit would make more blocks free.
    pub(super) fn gains_by_commit(&self) -> bool {
        !self.freed.is_empty() || !self.freed_committing.is_empty()
    }

    /// Whether a block may not be reused yet, since something committed needs its content; then the next one that may.
    pub(super) fn reusable_from(&self, block: u32) -> Option<u32> {
        self.freed
            .end_of(block)
            .or_else(|| self.freed_committing.end_of(block))
    }
}
