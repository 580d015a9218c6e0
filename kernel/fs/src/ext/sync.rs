// SPDX-License-Identifier: Apache-2.0
//! Bringing changes to the disk: commits, checkpoints, and the end.
//!
//! A commit takes everything that has changed, in one step under the volume's lock; from then on others may go on while
//! it is written. Those who ask meanwhile wait, and share the next commit. Content that a committed size or pointer will
//! lead to is on the disk before (`data=ordered`): small amounts go through the journal with the metadata, in the same
//! request, so that a small append and fsync(2) costs one write and one flush; more is written to its place first, and
//! flushed.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use coracle_abi::convert::u64_from;
use coracle_core::device::BlockDevice;
use coracle_core::memory::Page;
use coracle_core::sync::SleepGuard;

use super::Volume;
use super::content::hash;
use super::journal::Journal;
use super::layout::{RECOVER, get32, put32, sb};
use super::node::Node;
use super::state::{SECTORS, State};
use crate::{Errno, Result};

/// Most pages of content that go through the journal rather than to their place.
const JOURNALED_PAGES: usize = 16;
/// Most pages in one request to the device.
const REQUEST_PAGES: usize = 128;

/// What a commit has to write.
struct Frozen {
    ticket: u64,
    /// Blocks for the journal, as they were at that moment.
    journal: Vec<(u32, Page)>,
    /// Pages for their place; they may change meanwhile.
    in_place: Vec<(u32, Page)>,
}

impl Volume {
    /// `EIO` once the volume has failed: what is in memory may never reach the disk.
    fn check_whole(&self) -> Result<()> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        Ok(())
    }

    /// `fsync(2)`, or `fdatasync(2)`: times alone need not be written.
    pub(super) fn sync_node(&self, node: &Node, data_only: bool) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_whole()?;
        let ticket = {
            let mut st = self.state.lock();
            let changed = if data_only {
                &node.resized_in
            } else {
                &node.changed_in
            };
            let all = (node.number, 0)..=(node.number, u64::MAX);
            let clean = changed.load(Ordering::Relaxed) < st.committed
                && st.dirty.range(all.clone()).next().is_none()
                && st.mapped.range(all).next().is_none()
                && !st.requests.iter().any(|(number, _)| *number == node.number);
            // What a commit that is under way has taken is not on the disk yet.
            if clean && !st.busy {
                return Ok(());
            }
            st.requests.push((node.number, data_only));
            st.ticket()
        };
        self.wait_for(ticket)
    }

    /// Brings everything to the disk: `sync(2)`.
    pub(super) fn sync_all(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_whole()?;
        let ticket = {
            let mut st = self.state.lock();
            st.all_requested = true;
            st.ticket()
        };
        self.wait_for(ticket)
    }

    /// Commits, unless somebody else has done so for us.
    fn wait_for(&self, ticket: u64) -> Result<()> {
        let mut journal = self.journal.lock();
        if journal.served > ticket {
            return Ok(());
        }
        self.commit(&mut journal).map_err(|error| {
            // Before anything was taken, want of memory does no harm.
            if error == Errno::ENOMEM && !self.state.lock().busy {
                return error;
            }
            self.fail(error);
            Errno::EIO
        })
    }

    fn commit(&self, journal: &mut SleepGuard<'_, Journal>) -> Result<()> {
        let frozen = {
            let mut st = self.state.lock();
            self.reap(&mut st)?;
            st.find_written_mappings()?;
            // Before the first change: its superblocks say so, and the copy of it in memory.
            let something = !st.changed.is_empty() || !st.dirty.is_empty();
            if something && !journal.active {
                self.set_recover(&mut st, true)?;
                journal.activate(&mut st)?;
            }
            st.freeze()?
        };
        if !frozen.in_place.is_empty() {
            write_sorted(&*self.device, &frozen.in_place)?;
            if !frozen.journal.is_empty() {
                self.device.flush()?;
            }
        }
        if !frozen.journal.is_empty() {
            if Journal::needed(frozen.journal.len()) > journal.room() {
                self.checkpoint(journal)?;
            }
            journal.append(&frozen.journal)?;
        }
        self.device.flush()?;
        let live = {
            let mut st = self.state.lock();
            let mut written = core::mem::take(&mut st.writing);
            st.live.append(&mut written);
            st.freed_committing.clear();
            st.committed = st.running;
            st.busy = false;
            st.live.len()
        };
        journal.served = frozen.ticket;
        if live > self.limits.live {
            self.checkpoint(journal)?;
        }
        Ok(())
    }

    /// Puts what is in the journal into its place, and empties the journal.
    fn checkpoint(&self, journal: &mut SleepGuard<'_, Journal>) -> Result<()> {
        let live: Vec<(u32, Page)> = {
            let st = self.state.lock();
            st.live
                .iter()
                .map(|(block, page)| (*block, page.clone()))
                .collect()
        };
        write_sorted(&*self.device, &live)?;
        self.device.flush()?;
        journal.empty(false)?;
        self.state.lock().live.clear();
        Ok(())
    }

    /// Brings everything to its place and leaves a volume that needs no replay. It can be used further.
    pub(super) fn settle(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.sync_all()?;
        let mut journal = self.journal.lock();
        if !journal.active {
            return Ok(());
        }
        let settled = self.checkpoint(&mut journal).and_then(|()| {
            journal.empty(true)?;
            let mut st = self.state.lock();
            self.set_recover(&mut st, false)
        });
        settled.map_err(|error| {
            self.fail(error);
            Errno::EIO
        })
    }

    /// Sets or clears the flag by which Linux knows that the journal is to be replayed. Nothing is in the journal.
    fn set_recover(&self, st: &mut State, on: bool) -> Result<()> {
        let set = |page: &Page| {
            let features = get32(page, sb::INCOMPAT) & !RECOVER;
            put32(page, sb::INCOMPAT, features | if on { RECOVER } else { 0 });
        };
        set(&st.block(0)?);
        // The superblock in memory may hold changes that are not committed: what is on the disk is changed.
        let page = Page::zeroed()?;
        self.device.read(0, core::slice::from_ref(&page))?;
        set(&page);
        self.device.write(0, core::slice::from_ref(&page))?;
        self.device.flush()
    }
}

/// Writes pages to their blocks, neighbours together. The order is by block.
pub(super) fn write_sorted(device: &dyn BlockDevice, pages: &[(u32, Page)]) -> Result<()> {
    let mut rest = pages;
    while let Some((first, _)) = rest.first() {
        let most = rest.len().min(REQUEST_PAGES);
        let count = (1..most)
            .find(|n| u64::from(rest[*n].0) != u64::from(*first) + u64_from(*n))
            .unwrap_or(most);
        let (now, later) = rest.split_at(count);
        let run: Vec<Page> = now.iter().map(|(_, page)| page.clone()).collect();
        device.write(u64::from(*first) * SECTORS, &run)?;
        rest = later;
    }
    Ok(())
}

impl State {
    fn ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    /// Whether a request needs the transaction, not only the content of its file.
    fn needs_transaction(&self) -> bool {
        if self.all_requested {
            return true;
        }
        self.requests.iter().any(|(number, data_only)| {
            self.nodes.get(number).is_some_and(|node| {
                let changed = if *data_only {
                    &node.resized_in
                } else {
                    &node.changed_in
                };
                changed.load(Ordering::Relaxed) >= self.committed
            })
        })
    }

    /// Takes everything that the requests so far want on the disk, and begins a new transaction.
    fn freeze(&mut self) -> Result<Frozen> {
        let mut transaction = self.needs_transaction();
        let wanted = |key: &(u32, u64), st: &Self| {
            st.all_requested || st.requests.iter().any(|(number, _)| *number == key.0)
        };
        if !transaction {
            // Content of the running transaction, or with an older copy in the journal, cannot go without it.
            transaction = self.dirty.iter().any(|(key, page)| {
                wanted(key, self) && (page.ordered || self.live.contains_key(&page.block))
            });
        }
        let selected: Vec<((u32, u64), u32)> = self
            .dirty
            .iter()
            .filter(|(key, page)| (transaction && page.ordered) || wanted(key, self))
            .map(|(key, page)| (*key, page.block))
            .collect();
        let few = transaction && selected.len() <= JOURNALED_PAGES;
        let mut frozen = Frozen {
            ticket: self.next_ticket,
            journal: Vec::new(),
            in_place: Vec::new(),
        };
        for ((number, index), block) in &selected {
            let page = self
                .nodes
                .get(number)
                .and_then(|node| {
                    node.pages
                        .lock()
                        .get(index)
                        .map(|cached| cached.page.clone())
                })
                .ok_or(Errno::EIO)?;
            if few || self.live.contains_key(block) {
                frozen.journal.push((*block, copy(&page)?));
            } else {
                frozen.in_place.push((*block, page));
            }
        }
        if transaction {
            let changed: Vec<u32> = self.changed.iter().copied().collect();
            for block in changed {
                let page = self.block(block)?;
                frozen.journal.push((block, copy(&page)?));
            }
            self.changed.clear();
            self.freed_committing = core::mem::take(&mut self.freed);
            self.running += 1;
        }
        for (key, _) in selected {
            self.dirty.remove(&key);
        }
        frozen.journal.sort_by_key(|(block, _)| *block);
        frozen.in_place.sort_by_key(|(block, _)| *block);
        self.requests.clear();
        self.all_requested = false;
        self.writing = frozen.journal.iter().cloned().collect();
        self.busy = true;
        Ok(frozen)
    }

    /// Finds pages that shared mappings have written: there is no note of each write, so content is compared by hash. A
    /// page that nobody maps any more is written a last time.
    fn find_written_mappings(&mut self) -> Result<()> {
        let keys: Vec<(u32, u64)> = self
            .mapped
            .keys()
            .filter(|key| {
                self.all_requested || self.requests.iter().any(|(number, _)| *number == key.0)
            })
            .copied()
            .collect();
        for key in keys {
            self.note_mapped(key)?;
        }
        Ok(())
    }

    fn note_mapped(&mut self, key: (u32, u64)) -> Result<()> {
        let Some(node) = self.nodes.get(&key.0).cloned() else {
            return Ok(());
        };
        let (page, is_mapped) = {
            let mut pages = node.pages.lock();
            let Some(cached) = pages.get_mut(&key.1) else {
                return Ok(());
            };
            // One reference is the cache's.
            let is_mapped = cached.page.is_shared();
            cached.writable = is_mapped;
            (cached.page.clone(), is_mapped)
        };
        let now = hash(&page);
        let before = self.mapped.insert(key, now);
        if before != Some(now)
            && !self.dirty.contains_key(&key)
            && let Some(block) = self.find_block(key.0, key.1)?
        {
            node.touch_modified();
            node.store(self)?;
            let dirty = super::state::DirtyPage {
                block,
                ordered: false,
            };
            self.dirty.insert(key, dirty);
        }
        if !is_mapped {
            self.mapped.remove(&key);
        }
        Ok(())
    }
}

fn copy(page: &Page) -> Result<Page> {
    let copy = Page::zeroed()?;
    copy.copy_from(page);
    Ok(copy)
}
