// SPDX-License-Identifier: Apache-2.0
//! The page cache: what was read from disks and shares, for as long as nobody needs the memory more (decision 0011).
//!
//! A [`PageCache`] is an array of pages, most of them missing: of one disk, or of one file of a share. Pages in it are
//! clean: the same content can be read again, so a page that nobody else refers to may go at any time ([`reclaim`]).
//! Mappings refer to pages; `memory::space` takes them back from mappings when that is not enough.
//!
//! Locks: the list of caches, then one cache; after the address space and before the frame allocator. No page is
//! allocated while one of them is held, because allocating may come here.

mod ahead;
mod reclaim;
#[cfg(test)]
mod tests;

pub use ahead::ReadAhead;
pub use reclaim::{cached_pages, evicted_pages, reclaim};

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::{Errno, PollEvents};

use crate::Result;
use crate::memory::{self, Page};
use crate::poll::PollSource;
use crate::sync::SpinLock;

/// Pages of a chunk: as many as a word has bits.
const CHUNK: u64 = u64_from(CHUNK_PAGES);
const CHUNK_PAGES: usize = 64;

/// Most pages that one call of [`PageCache::fetch`] reads.
pub const MOST_AT_ONCE: u64 = 64;

/// A run of pages of a cache. One bit for each page says more.
struct Chunk {
    pages: [Option<Page>; CHUNK_PAGES],
    /// Somebody reads it from the device.
    loading: u64,
    /// It was used since the clock's hand passed.
    recent: u64,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            pages: [const { None }; CHUNK_PAGES],
            loading: 0,
            recent: 0,
        }
    }
}

#[derive(Default)]
struct Chunks(BTreeMap<u64, Box<Chunk>>);

/// Pages by number. See the module.
pub struct PageCache {
    id: u64,
    chunks: SpinLock<Chunks>,
    /// Notified when pages that were being read are there, or are not.
    loaded: PollSource,
}

/// What reads pages from the device: fills all of them, the first of which has the given number, or fails.
pub type Read<'a> = dyn FnMut(u64, &[Page]) -> Result<()> + 'a;

/// Requests and pages that caches read since boot.
static READS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Requests to devices since boot, and the pages that were read by them.
#[must_use]
pub fn reads() -> (u64, u64) {
    let [requests, pages] = &READS;
    (
        requests.load(Ordering::Relaxed),
        pages.load(Ordering::Relaxed),
    )
}

impl Chunks {
    fn slot(&mut self, index: u64) -> Option<(&mut Chunk, usize, u64)> {
        let chunk = self.0.get_mut(&(index / CHUNK))?;
        let at = index % CHUNK;
        Some((&mut **chunk, usize_from(at), 1 << at))
    }

    fn get(&mut self, index: u64) -> Option<Page> {
        let (chunk, at, bit) = self.slot(index)?;
        let page = chunk.pages[at].clone()?;
        chunk.recent |= bit;
        Some(page)
    }

    /// Whether the page is neither there nor on its way.
    fn is_missing(&mut self, index: u64) -> bool {
        self.slot(index)
            .is_none_or(|(chunk, at, bit)| chunk.pages[at].is_none() && chunk.loading & bit == 0)
    }

    fn set_loading(&mut self, run: Range<u64>, loading: bool) {
        for index in run {
            let chunk = self.0.entry(index / CHUNK).or_default();
            let bit = 1 << (index % CHUNK);
            if loading {
                chunk.loading |= bit;
            } else {
                chunk.loading &= !bit;
            }
        }
    }

    /// Puts a page in and returns what was there.
    fn put(&mut self, index: u64, page: Option<Page>) -> Option<Page> {
        let chunk = self.0.entry(index / CHUNK).or_default();
        let old = core::mem::replace(&mut chunk.pages[usize_from(index % CHUNK)], page);
        if let Some(page) = &chunk.pages[usize_from(index % CHUNK)] {
            page.set_cached(true);
            reclaim::count(1);
        }
        if let Some(old) = &old {
            old.set_cached(false);
            reclaim::uncount(1);
        }
        old
    }
}

impl PageCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Arc<Self> {
        reclaim::register(|id| Self {
            id,
            chunks: SpinLock::default(),
            loaded: PollSource::new(),
        })
    }

    /// The page, if it is in memory.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<Page> {
        self.chunks.lock().get(index)
    }

    /// The page, read from the device if it is missing, together with what is missing around it within `window`, at most
    /// [`MOST_AT_ONCE`] pages. Sleeps meanwhile; others who want a page that is on its way wait for the same request.
    /// `ENOMEM`, and the errors of `read`.
    pub fn fetch(&self, index: u64, window: Range<u64>, read: &mut Read<'_>) -> Result<Page> {
        loop {
            let claimed = {
                let mut chunks = self.chunks.lock();
                if let Some(page) = chunks.get(index) {
                    return Ok(page);
                }
                Self::claim(&mut chunks, index, &window)
            };
            match claimed {
                Some(run) => return self.load(index, run, read),
                None => self.loaded.wait(|| {
                    let mut chunks = self.chunks.lock();
                    chunks
                        .slot(index)
                        .is_none_or(|(chunk, _, bit)| chunk.loading & bit == 0)
                }),
            }
        }
    }

    /// Marks the missing pages around `index` as being read; `None` if `index` is already.
    fn claim(chunks: &mut Chunks, index: u64, window: &Range<u64>) -> Option<Range<u64>> {
        if !chunks.is_missing(index) {
            return None;
        }
        let mut run = index..index + 1;
        let has_room = |run: &Range<u64>| run.end - run.start < MOST_AT_ONCE;
        while run.end < window.end && has_room(&run) && chunks.is_missing(run.end) {
            run.end += 1;
        }
        while run.start > window.start && has_room(&run) && chunks.is_missing(run.start - 1) {
            run.start -= 1;
        }
        chunks.set_loading(run.clone(), true);
        Some(run)
    }

    /// Reads pages that were marked, of which `index` is one.
    fn load(&self, index: u64, run: Range<u64>, read: &mut Read<'_>) -> Result<Page> {
        let mut result = self.load_run(index, run.clone(), read);
        if result.is_err() && run.end - run.start > 1 {
            // The defect, or the want of memory, may be the neighbours'.
            result = self.load_run(index, index..index + 1, read);
        }
        self.chunks.lock().set_loading(run, false);
        self.loaded.notify(PollEvents::IN);
        result
    }

    fn load_run(&self, index: u64, run: Range<u64>, read: &mut Read<'_>) -> Result<Page> {
        memory::make_room(run.end - run.start);
        let pages: Vec<Page> = run.clone().map(|_| Page::zeroed()).collect::<Result<_>>()?;
        read(run.start, &pages)?;
        READS[0].fetch_add(1, Ordering::Relaxed);
        READS[1].fetch_add(u64_from(pages.len()), Ordering::Relaxed);
        let wanted = pages
            .get(usize_from(index - run.start))
            .cloned()
            .ok_or(Errno::EIO)?;
        let mut chunks = self.chunks.lock();
        for (at, page) in run.zip(pages) {
            let old = chunks.put(at, Some(page));
            debug_assert!(old.is_none(), "a page that is loaded was missing");
        }
        if let Some((chunk, _, bit)) = chunks.slot(index) {
            chunk.recent |= bit;
        }
        Ok(wanted)
    }

    /// Puts a page in, in place of what may be there. The caller sees to it that nobody fetches it meanwhile.
    pub fn insert(&self, index: u64, page: Page) {
        let old = self.chunks.lock().put(index, Some(page));
        drop(old);
    }

    /// Takes pages out; mappings that have them keep them. The caller sees to it that nobody fetches them meanwhile.
    pub fn remove(&self, range: Range<u64>) {
        let mut chunks = self.chunks.lock();
        let numbers: Vec<u64> = chunks
            .0
            .range(range.start / CHUNK..range.end.div_ceil(CHUNK))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            let first = number * CHUNK;
            for index in first.max(range.start)..(first + CHUNK).min(range.end) {
                drop(chunks.put(index, None));
            }
        }
    }

    /// Whether the page is in memory; says nothing about its use.
    #[must_use]
    pub fn contains(&self, index: u64) -> bool {
        let mut chunks = self.chunks.lock();
        chunks
            .slot(index)
            .is_some_and(|(chunk, at, _)| chunk.pages[at].is_some())
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        reclaim::forget(self.id);
        for chunk in self.chunks.get_mut().0.values() {
            for page in chunk.pages.iter().flatten() {
                page.set_cached(false);
                reclaim::uncount(1);
            }
        }
    }
}
