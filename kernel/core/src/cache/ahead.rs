// SPDX-License-Identifier: Apache-2.0
//! How much to read when a page is missing: more where pages are asked for in order, and around a touched page of a
//! mapping, where the next touches are near but in no order.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use super::MOST_AT_ONCE;
use crate::memory;

/// Pages read for a single read that follows nothing.
const FIRST: u64 = 4;

/// Pages read around a touched page of a mapping: 128 KiB, as Linux's default.
const AROUND: u64 = 32;

/// What one open file remembers. A wrong guess costs time only, so nothing is locked.
#[derive(Default)]
pub struct ReadAhead {
    /// Where the last window ended; reading goes on there if it is sequential.
    next: AtomicU64,
    /// Pages of the last window.
    pages: AtomicU64,
}

impl ReadAhead {
    /// The window for a read that misses page `index` and wants pages up to `wanted` (not included); the file ends at
    /// `end`.
    pub fn for_read(&self, index: u64, wanted: u64, end: u64) -> Range<u64> {
        let sequential = index == self.next.load(Ordering::Relaxed);
        let last = self.pages.load(Ordering::Relaxed);
        let pages = if sequential { last * 2 } else { FIRST };
        self.note(index, pages.max(wanted.saturating_sub(index)), end)
    }

    /// The window for a touch of page `index` of a mapping; the file ends at `end`.
    pub fn for_touch(&self, index: u64, end: u64) -> Range<u64> {
        if index == self.next.load(Ordering::Relaxed) && index != 0 {
            return self.note(index, 2 * AROUND, end);
        }
        // What is read for nothing drives out what is used.
        let around = if memory::is_tight() { FIRST } else { AROUND };
        let start = index - index % around;
        self.note(start, around, end)
    }

    fn note(&self, start: u64, pages: u64, end: u64) -> Range<u64> {
        let pages = pages.clamp(FIRST, MOST_AT_ONCE);
        let window = start..start.saturating_add(pages).min(end);
        self.next.store(window.end, Ordering::Relaxed);
        self.pages.store(pages, Ordering::Relaxed);
        window
    }
}
