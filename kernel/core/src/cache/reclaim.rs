// SPDX-License-Identifier: Apache-2.0
//! Giving memory back: a clock whose hand passes over the pages of all caches.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use super::{CHUNK, PageCache};
use crate::sync::SpinLock;

struct Caches {
    list: BTreeMap<u64, Weak<PageCache>>,
    next_id: u64,
    /// Cache and chunk where the hand is.
    hand: (u64, u64),
}

static CACHES: SpinLock<Caches> = SpinLock::new(Caches {
    list: BTreeMap::new(),
    next_id: 0,
    hand: (0, 0),
});

static PAGES: AtomicU64 = AtomicU64::new(0);
static EVICTED: AtomicU64 = AtomicU64::new(0);

/// Pages in all caches.
#[must_use]
pub fn cached_pages() -> u64 {
    PAGES.load(Ordering::Relaxed)
}

/// Pages that were given back since boot.
#[must_use]
pub fn evicted_pages() -> u64 {
    EVICTED.load(Ordering::Relaxed)
}

pub(super) fn count(pages: u64) {
    PAGES.fetch_add(pages, Ordering::Relaxed);
}

pub(super) fn uncount(pages: u64) {
    PAGES.fetch_sub(pages, Ordering::Relaxed);
}

/// Makes a cache that the clock knows.
pub(super) fn register(make: impl FnOnce(u64) -> PageCache) -> Arc<PageCache> {
    let id = {
        let mut caches = CACHES.lock();
        caches.next_id += 1;
        caches.next_id
    };
    let cache = Arc::new(make(id));
    CACHES.lock().list.insert(id, Arc::downgrade(&cache));
    cache
}

pub(super) fn forget(id: u64) {
    CACHES.lock().list.remove(&id);
}

/// Gives back up to `wanted` pages that nobody but their cache refers to, those first that were not used for long.
/// Returns how many. May be called with any lock held that comes before the caches' in the order.
pub fn reclaim(wanted: u64) -> u64 {
    let mut freed = 0;
    let mut passed = 0;
    // Two rounds: the first takes the marks of recent use away.
    while freed < wanted && passed < 3 {
        let (cache, from) = {
            let mut caches = CACHES.lock();
            let (id, chunk) = caches.hand;
            let next = caches.list.range(id..).next();
            match next.map(|(id, cache)| (*id, cache.upgrade())) {
                Some((found, cache)) => {
                    let from = if found == id { chunk } else { 0 };
                    caches.hand = (found + 1, 0);
                    (cache, from)
                }
                None => {
                    caches.hand = (0, 0);
                    passed += 1;
                    continue;
                }
            }
        };
        // Not under the lock of the list: the last reference may be dropped here.
        if let Some(cache) = cache
            && let Some(stopped) = cache.sweep(from, wanted, &mut freed)
        {
            CACHES.lock().hand = (cache.id, stopped);
        }
    }
    EVICTED.fetch_add(freed, Ordering::Relaxed);
    freed
}

impl PageCache {
    /// Passes over the chunks from number `from` on, until `freed` is `wanted`; returns at which chunk that was.
    fn sweep(&self, from: u64, wanted: u64, freed: &mut u64) -> Option<u64> {
        let mut chunks = self.chunks.lock();
        let mut stopped = None;
        let mut empty = None;
        for (number, chunk) in chunks.0.range_mut(from..) {
            if *freed >= wanted {
                stopped = Some(*number);
                break;
            }
            let recent = core::mem::take(&mut chunk.recent);
            let mut left = 0;
            for (at, slot) in chunk.pages.iter_mut().enumerate() {
                let Some(page) = slot else { continue };
                if recent & (1 << at) == 0 && *freed < wanted && page.is_only_cached() {
                    page.set_cached(false);
                    *slot = None;
                    uncount(1);
                    *freed += 1;
                } else {
                    left += 1;
                }
            }
            if left == 0 && chunk.loading == 0 {
                empty = Some(*number);
            }
        }
        // One is enough: the next pass finds the next.
        if let Some(number) = empty {
            chunks.0.remove(&number);
        }
        stopped
    }
}

const _: () = assert!(
    CHUNK == 64,
    "the bits of a word stand for the pages of a chunk"
);
