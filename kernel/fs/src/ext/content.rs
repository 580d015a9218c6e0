// SPDX-License-Identifier: Apache-2.0
//! The content of files: a cache of pages, filled from the disk, changed by writes, and cut by truncation.
//!
//! Pages are entered and removed under the volume's lock; whoever finds one needs only the file's own short lock. So
//! reads of what is cached do not wait for a commit. Bytes behind the end of a file are zero in a page when it comes from
//! the disk, and are made zero again when the file grows over them.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{low_u32, u64_from, usize_from};
use coracle_core::io::IoSrc;
use coracle_core::memory::Page;

use super::layout::{BLOCK, MAX_SIZE, within};
use super::node::{CachedPage, Node};
use super::state::{DirtyPage, SECTORS, State};
use super::tree::has_blocks;
use crate::vfs::Kind;
use crate::{Errno, Result};

/// Pages read at once when a file is read from front to back.
const READ_AHEAD: u32 = 32;
/// Tries to read without the volume's lock, while others change the file.
const TRIES: u32 = 3;
/// Blocks freed in one transaction, at most.
const FREED_AT_ONCE: u32 = 32768;
/// Cached pages looked at to find one that can go.
const EVICTION_TRIES: u32 = 64;

impl Node {
    /// The cached page with that index.
    pub(super) fn cached(&self, index: u64) -> Option<Page> {
        let mut pages = self.pages.lock();
        let cached = pages.get_mut(&index)?;
        cached.used = true;
        Some(cached.page.clone())
    }

    /// Notes that the page with that index is read, and says how many to read from the disk if it is not cached: more if
    /// the one before was read last.
    pub(super) fn ahead(&self, index: u64) -> u32 {
        let last = self.last_read.swap(index, Ordering::Relaxed);
        if index == 0 || last == index || last.wrapping_add(1) == index {
            READ_AHEAD
        } else {
            1
        }
    }

    /// The page with that index, read from the disk with up to `most` in all if it is not cached; `None` for a hole. The
    /// volume's lock is not held meanwhile.
    pub(super) fn load(&self, index: u64, most: u32) -> Result<Option<Page>> {
        for _ in 0..TRIES {
            let mut st = self.fs.lock();
            if let Some(page) = self.cached(index) {
                return Ok(Some(page));
            }
            let run = st.find_blocks(self.number, index, most);
            let Some((first, count)) = self.fs.noted(run)? else {
                return Ok(None);
            };
            // Content that is newer than the disk's is in the journal.
            if st.is_in_journal(first) {
                return self.load_locked(&mut st, index).map(Some);
            }
            let count = (1..count)
                .find(|n| {
                    st.is_in_journal(first + n)
                        || self.pages.lock().contains_key(&(index + u64::from(*n)))
                })
                .unwrap_or(count);
            let cuts = self.cuts.load(Ordering::Relaxed);
            drop(st);
            let pages = (0..count)
                .map(|_| Page::zeroed())
                .collect::<Result<Vec<_>>>()?;
            self.fs.device.read(u64::from(first) * SECTORS, &pages)?;
            let mut st = self.fs.lock();
            if self.cuts.load(Ordering::Relaxed) != cuts {
                continue;
            }
            for (at, page) in (index..).zip(&pages) {
                if self.cached(at).is_none() {
                    self.zero_behind_end(at, page);
                    self.keep(&mut st, at, page.clone());
                }
            }
            return Ok(self.cached(index).or_else(|| pages.first().cloned()));
        }
        let mut st = self.fs.lock();
        self.load_locked(&mut st, index).map(Some)
    }

    fn zero_behind_end(&self, index: u64, page: &Page) {
        let size = self.size();
        let start = index * BLOCK;
        if start + BLOCK > size {
            let kept = usize_from(size.saturating_sub(start));
            page.zero(kept, PAGE_SIZE - kept);
        }
    }

    /// The page with that index; zeroes for a hole. The volume's lock is held.
    pub(super) fn load_locked(&self, st: &mut State, index: u64) -> Result<Page> {
        if let Some(page) = self.cached(index) {
            return Ok(page);
        }
        let page = Page::zeroed()?;
        if let Some(block) = st.find_block(self.number, index)? {
            st.read(block, &page)?;
            self.zero_behind_end(index, &page);
        }
        self.keep(st, index, page.clone());
        Ok(page)
    }

    fn keep(&self, st: &mut State, index: u64, page: Page) {
        let cached = CachedPage {
            page,
            used: true,
            writable: false,
        };
        if self.pages.lock().insert(index, cached).is_none() {
            st.cached += 1;
            st.queue.push_back((self.number, index));
        }
        st.evict(self.fs.limits.pages);
    }

    /// Says that a page must be written to its block.
    fn mark(&self, st: &mut State, index: u64, block: u32, ordered: bool) {
        let entry = st
            .dirty
            .entry((self.number, index))
            .or_insert(DirtyPage { block, ordered });
        entry.ordered |= ordered;
    }

    /// The block for a page that is about to be changed, and whether it is new.
    fn block_for_change(&self, st: &mut State, index: u64) -> Result<(u32, bool)> {
        if let Some(dirty) = st.dirty.get(&(self.number, index)) {
            return Ok((dirty.block, false));
        }
        // Right behind the block before it, if there is one.
        let goal = match index.checked_sub(1) {
            Some(before) => match st.dirty.get(&(self.number, before)) {
                Some(dirty) => Some(dirty.block),
                None => st.find_block(self.number, before)?,
            },
            None => None,
        };
        let goal = match goal {
            Some(block) => block + 1,
            None => st.first_goal(self.number)?,
        };
        let assigned = st.assign_block(self.number, index, goal)?;
        if assigned.fresh {
            self.add_sectors(assigned.taken);
            self.resized(st);
        }
        Ok((assigned.block, assigned.fresh))
    }

    /// Zeroes what a page holds behind the end of the file, before the file grows.
    fn zero_tail(&self, st: &mut State) -> Result<()> {
        let size = self.size();
        let (index, kept) = (size / BLOCK, within(size));
        if kept == 0 {
            return Ok(());
        }
        let Some(block) = st.find_block(self.number, index)? else {
            if let Some(page) = self.cached(index) {
                page.zero(kept, PAGE_SIZE - kept);
            }
            return Ok(());
        };
        let page = self.load_locked(st, index)?;
        page.zero(kept, PAGE_SIZE - kept);
        self.mark(st, index, block, true);
        Ok(())
    }

    /// Writes up to `limit` bytes at `position`, or at the end. Returns how many, and where that ended. The volume's lock
    /// is held.
    pub(super) fn write_locked(
        &self,
        st: &mut State,
        position: Option<u64>,
        limit: usize,
        src: &mut IoSrc<'_>,
    ) -> Result<(usize, u64)> {
        let position = position.unwrap_or_else(|| self.size());
        if position >= MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let limit = limit
            .min(src.remaining())
            .min(usize_from(MAX_SIZE - position));
        if position > self.size() {
            self.zero_tail(st)?;
        }
        let mut done = 0;
        let mut result = Ok(());
        while done < limit {
            let at = position + u64_from(done);
            let len = (PAGE_SIZE - within(at)).min(limit - done);
            match self.write_page(st, at, len, src) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            if src.faulted().is_some() {
                break;
            }
        }
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let end = position + u64_from(done);
        if done == 0 || end < position + u64_from(limit) {
            // A block may have been taken for a page that then could not be filled.
            let behind = self.size().div_ceil(BLOCK);
            if st
                .dirty
                .range((self.number, behind)..=(self.number, u64::MAX))
                .next()
                .is_some()
            {
                self.cut_pages(st, behind);
                self.release(st, behind, u64::MAX)?;
            }
        }
        if done > 0 {
            self.touch_modified();
        }
        if self.resized_in.load(Ordering::Relaxed) == st.running || done > 0 {
            self.store(st)?;
        }
        match result {
            Err(error) if done == 0 => Err(error),
            _ => Ok((done, end)),
        }
    }

    /// Writes `len` bytes at `at`, all in one page.
    fn write_page(
        &self,
        st: &mut State,
        at: u64,
        len: usize,
        src: &mut IoSrc<'_>,
    ) -> Result<usize> {
        let (index, offset) = (at / BLOCK, within(at));
        let size = self.size();
        let end = at + u64_from(len);
        // A page that is replaced as a whole need not be read.
        let is_old = index * BLOCK < size;
        let replaces = offset == 0 && (len == PAGE_SIZE || end >= size);
        let mut unread = false;
        let page = match self.cached(index) {
            Some(page) => page,
            None if replaces || !is_old => {
                unread = is_old;
                Page::zeroed()?
            }
            None => self.load_locked(st, index)?,
        };
        let (block, fresh) = self.block_for_change(st, index)?;
        let before = src.done();
        let mut page = page;
        let mut copied = page.write_from(offset, len, src);
        if unread && copied != Ok(len) {
            // It is not replaced as a whole after all: what remains of the old content is needed.
            if copied.is_ok() {
                src.rewind(before);
            }
            if fresh {
                page.zero(0, PAGE_SIZE);
            } else {
                page = self.load_locked(st, index)?;
            }
            copied = page.write_from(offset, len, src);
        }
        if self.pages.lock().get(&index).is_none() {
            self.keep(st, index, page);
        }
        let count = match copied {
            Ok(count) => count,
            Err(_) if fresh => 0,
            Err(error) => return Err(error),
        };
        let end = at + u64_from(count);
        let grows = count > 0 && end > size;
        if grows {
            self.attributes.lock().size = end;
            self.resized(st);
        }
        self.mark(st, index, block, fresh || grows);
        match copied {
            Err(error) if count == 0 => Err(error),
            _ => Ok(count),
        }
    }

    /// Forgets the pages from `index` on.
    fn cut_pages(&self, st: &mut State, index: u64) {
        let removed = self.pages.lock().split_off(&index);
        st.cached -= removed.len();
        let behind = (self.number, index)..=(self.number, u64::MAX);
        let keys: Vec<_> = st
            .dirty
            .range(behind.clone())
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            st.dirty.remove(&key);
        }
        let keys: Vec<_> = st.mapped.range(behind).map(|(key, _)| *key).collect();
        for key in keys {
            st.mapped.remove(&key);
        }
        self.cuts.fetch_add(1, Ordering::Relaxed);
    }

    /// `truncate(2)`.
    pub(super) fn set_size(&self, size: u64) -> Result<()> {
        match self.kind {
            Kind::File => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let shrinks = self.fs.change(|st| {
            let old = self.size();
            if size > old {
                self.zero_tail(st)?;
            }
            self.attributes.lock().size = size;
            self.touch_modified();
            if size < old {
                self.cut_pages(st, size.div_ceil(BLOCK));
                self.zero_tail(st)?;
                // If the machine ends before all blocks are free, the next mount goes on.
                self.fs.add_orphan(st, self)?;
            }
            self.store(st)?;
            self.resized(st);
            Ok(size < old)
        })?;
        let mut more = shrinks;
        while more {
            more = self.fs.change(|st| {
                let done = self.release_some(st)?;
                if done && self.attributes.lock().links > 0 {
                    self.fs.remove_orphan(st, self)?;
                }
                Ok(!done)
            })?;
        }
        Ok(())
    }

    /// Frees blocks behind the end of the file, or all of one without a name; `false` if there is more to do in another
    /// transaction.
    pub(super) fn release_some(&self, st: &mut State) -> Result<bool> {
        if !has_blocks(self) {
            return Ok(true);
        }
        let from = {
            let attributes = self.attributes.lock();
            if attributes.links == 0 && self.is_unused() {
                0
            } else {
                attributes.size.div_ceil(BLOCK)
            }
        };
        self.cut_pages(st, from);
        let mut budget = FREED_AT_ONCE;
        let freed = st.release_blocks(self.number, from, u64::MAX, &mut budget)?;
        self.remove_sectors(freed);
        self.store(st)?;
        self.resized(st);
        Ok(budget > 0)
    }

    /// Whether nobody but the volume and the caller has a reference.
    fn is_unused(&self) -> bool {
        self.me.strong_count() <= 2
    }

    /// `lseek(2)` with `SEEK_DATA` and `SEEK_HOLE`.
    pub(super) fn seek(&self, offset: u64, hole: bool) -> Result<u64> {
        if self.kind != Kind::File {
            return Err(Errno::EINVAL);
        }
        let mut st = self.fs.lock();
        let size = self.size();
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let found = st.seek_block(self.number, offset / BLOCK, size.div_ceil(BLOCK), hole)?;
        match found {
            Some(index) => Ok((index * BLOCK).max(offset).min(size)),
            None if hole => Ok(size),
            None => Err(Errno::ENXIO),
        }
    }

    /// Gives blocks of zeroes to the holes in `[offset, offset + len)`, as one step of fallocate(2).
    pub(super) fn fill_holes(&self, st: &mut State, offset: u64, len: u64) -> Result<()> {
        if offset + len > self.size() {
            self.zero_tail(st)?;
        }
        for index in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
            if st.dirty.contains_key(&(self.number, index))
                || st.find_block(self.number, index)?.is_some()
            {
                continue;
            }
            self.load_locked(st, index)?;
            let (block, fresh) = self.block_for_change(st, index)?;
            self.mark(st, index, block, fresh);
            // Never a block behind the end, also if the next one cannot be had.
            let end = ((index + 1) * BLOCK).min(offset + len);
            let mut attributes = self.attributes.lock();
            attributes.size = attributes.size.max(end);
        }
        self.store(st)
    }

    /// Lets the file end at `end` at least.
    pub(super) fn grow(&self, st: &mut State, end: u64) -> Result<()> {
        if end > self.size() {
            self.zero_tail(st)?;
            self.attributes.lock().size = end;
            self.resized(st);
        }
        self.touch_modified();
        self.store(st)
    }

    /// Makes `[offset, end)` read as zeroes; frees whole blocks.
    pub(super) fn punch(&self, st: &mut State, offset: u64, end: u64) -> Result<()> {
        let end = end.min(self.size());
        let mut at = offset;
        while at < end {
            let (index, kept) = (at / BLOCK, within(at));
            let len = (BLOCK - at % BLOCK).min(end - at);
            if kept == 0 && len == BLOCK {
                let whole = end / BLOCK;
                self.punch_pages(st, index, whole)?;
                at = whole * BLOCK;
                continue;
            }
            if let Some(block) = st.find_block(self.number, index)? {
                let page = self.load_locked(st, index)?;
                page.zero(kept, usize_from(len));
                self.mark(st, index, block, false);
            }
            at += len;
        }
        self.touch_modified();
        self.store(st)?;
        self.resized(st);
        Ok(())
    }

    fn punch_pages(&self, st: &mut State, from: u64, to: u64) -> Result<()> {
        let keys: Vec<_> = self
            .pages
            .lock()
            .range(from..to)
            .map(|(index, _)| *index)
            .collect();
        for index in keys {
            // A mapping may have the page: it stays the same page, without a block until it is written again.
            if let Some(cached) = self.pages.lock().get_mut(&index) {
                cached.page.zero(0, PAGE_SIZE);
                cached.writable = false;
            }
            st.dirty.remove(&(self.number, index));
            st.mapped.remove(&(self.number, index));
        }
        self.cuts.fetch_add(1, Ordering::Relaxed);
        self.release(st, from, to)
    }

    /// Frees all blocks with an index from `from` to before `to`.
    fn release(&self, st: &mut State, from: u64, to: u64) -> Result<()> {
        let mut budget = u32::MAX;
        let freed = st.release_blocks(self.number, from, to, &mut budget)?;
        self.remove_sectors(freed);
        Ok(())
    }

    /// Gives a page a block, so that a shared mapping may write it.
    pub(super) fn make_writable(&self, st: &mut State, index: u64) -> Result<()> {
        let page = self.load_locked(st, index)?;
        let (block, fresh) = self.block_for_change(st, index)?;
        if fresh {
            self.mark(st, index, block, true);
            self.store(st)?;
        }
        st.mapped.insert((self.number, index), hash(&page));
        if let Some(cached) = self.pages.lock().get_mut(&index) {
            cached.writable = true;
        }
        Ok(())
    }
}

impl State {
    /// Gives pages back until there are at most `limit`, as far as some can be spared.
    pub(super) fn evict(&mut self, limit: usize) {
        let mut tries = EVICTION_TRIES;
        while self.cached > limit && tries > 0 {
            tries -= 1;
            let Some((number, index)) = self.queue.pop_front() else {
                return;
            };
            let Some(node) = self.nodes.get(&number) else {
                continue;
            };
            let mut pages = node.pages.lock();
            let Some(cached) = pages.get_mut(&index) else {
                continue;
            };
            let stays = core::mem::take(&mut cached.used)
                || cached.writable
                || cached.page.is_shared()
                || self.dirty.contains_key(&(number, index));
            if stays {
                self.queue.push_back((number, index));
            } else {
                pages.remove(&index);
                self.cached -= 1;
            }
        }
        if self.queue.len() > 2 * self.cached + 1024 {
            let nodes = &self.nodes;
            let is_there = |number: &u32, index: &u64| {
                nodes
                    .get(number)
                    .is_some_and(|node| node.pages.lock().contains_key(index))
            };
            self.queue.retain(|(number, index)| is_there(number, index));
        }
    }

    /// Forgets inodes nobody uses, if there are more than `limit`.
    pub(super) fn trim_nodes(&mut self, limit: usize) {
        if self.nodes.len() <= limit {
            return;
        }
        let (dirty, mapped, orphans) = (&self.dirty, &self.mapped, &self.orphans);
        let mut cached = self.cached;
        self.nodes.retain(|number, node| {
            let all = (*number, 0)..=(*number, u64::MAX);
            let stays = alloc::sync::Arc::strong_count(node) > 1
                || orphans.contains(number)
                || dirty.range(all.clone()).next().is_some()
                || mapped.range(all).next().is_some();
            if !stays {
                cached -= node.pages.lock().len();
            }
            stays
        });
        self.cached = cached;
    }
}

/// A number that is very likely another one for other content.
pub(super) fn hash(page: &Page) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut part = [0; 256];
    for offset in (0..PAGE_SIZE).step_by(part.len()) {
        page.read(offset, &mut part);
        for word in part.as_chunks::<8>().0 {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
    }
    hash
}

/// Blocks of `bytes`, rounded up, as a 32-bit number.
pub(super) fn blocks_in(bytes: u64) -> u32 {
    low_u32(bytes.div_ceil(BLOCK).min(u32::MAX.into()))
}
