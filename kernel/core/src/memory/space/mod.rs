// SPDX-License-Identifier: Apache-2.0
//! The application's address space: which range holds what, and pages made present when they are touched.
//!
//! One lock guards the list of areas and the page tables of the lower half. Each present page owns one count of its
//! frame. Objects that are dropped by a change (files of removed mappings) are dropped after the lock is released.

mod area;
mod change;
mod fault;
mod give_back;
mod map;
mod report;

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::{PAGE_SIZE, USER_END, USER_START};
use coracle_arch::paging::{self, Mapping, Update};
use coracle_logic::range_map::RangeMap;

pub use area::{Area, Backing, Protection};
pub use change::{
    advise, brk, forget_beyond, lock_pages, mapped_files, protect, remap, replace_page, residency,
    set_brk_start, shared_files, unmap,
};
pub use fault::{FaultError, fault_in, handle_fault};
pub(crate) use give_back::give_back;
pub use map::{MapRequest, map};
pub use report::snapshot;

use super::Page;
use super::frames::{self, Frame};
use crate::sync::SpinLock;
use crate::{Errno, Result};

/// The areas, and what the kernel remembers about the layout.
pub(crate) struct Space {
    areas: RangeMap<Area>,
    /// Mappings are placed below this address, the highest first.
    top: usize,
    /// Between here and `top` no page is free, so the search for a place begins here.
    full_from: usize,
    brk_start: usize,
    brk_end: usize,
}

static SPACE: SpinLock<Space> = SpinLock::new(Space {
    areas: RangeMap::new(),
    top: USER_END,
    full_from: USER_END,
    brk_start: 0,
    brk_end: 0,
});

/// Pages that are mapped for the application.
static RESIDENT: AtomicUsize = AtomicUsize::new(0);

/// Pages that are mapped for the application (a page mapped twice counts twice).
#[must_use]
pub fn resident_pages() -> usize {
    RESIDENT.load(Ordering::Relaxed)
}

/// Most pages that were mapped at once.
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Most pages that were mapped for the application at once, as `ru_maxrss` wants it.
#[must_use]
pub fn peak_resident_pages() -> usize {
    PEAK.load(Ordering::Relaxed)
}

fn add_resident(pages: usize) {
    let now = RESIDENT.fetch_add(pages, Ordering::Relaxed) + pages;
    if now > PEAK.load(Ordering::Relaxed) {
        PEAK.store(now, Ordering::Relaxed); // changes happen under the lock of the space
    }
}

/// Faults that made a page present.
static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// Faults that made a page present or copied it, by the application or the kernel for it (`ru_minflt`).
#[must_use]
pub fn fault_count() -> usize {
    FAULTS.load(Ordering::Relaxed)
}

/// Sets the address below which mappings are placed, when a program starts.
pub fn set_top(top: usize) {
    let mut space = SPACE.lock();
    (space.top, space.full_from) = (top, top);
}

/// Calls `each` with every area in order of its address.
pub fn for_each_area(mut each: impl FnMut(Range<usize>, &Area)) {
    for (range, area) in SPACE.lock().areas.iter() {
        each(to_usize(range), area);
    }
}

/// Bytes of all areas.
#[must_use]
pub fn mapped_bytes() -> usize {
    SPACE
        .lock()
        .areas
        .iter()
        .map(|(range, _)| usize_from(range.end - range.start))
        .sum()
}

/// Removes everything, before another program is loaded.
pub fn clear() {
    let mut space = SPACE.lock();
    let removed = space.remove(USER_START..USER_END);
    (space.brk_start, space.brk_end) = (0, 0);
    (space.top, space.full_from) = (USER_END, USER_END);
    drop(space);
    drop(removed);
}

fn to_u64(range: Range<usize>) -> Range<u64> {
    u64_from(range.start)..u64_from(range.end)
}

fn to_usize(range: Range<u64>) -> Range<usize> {
    usize_from(range.start)..usize_from(range.end)
}

/// The pages that a range of bytes touches; `EINVAL` if its start is no page boundary, `error` if it leaves the
/// application's half.
fn pages(at: usize, len: usize, error: Errno) -> Result<Range<usize>> {
    if !at.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let len = len.checked_next_multiple_of(PAGE_SIZE).ok_or(error)?;
    let end = at
        .checked_add(len)
        .filter(|end| *end <= USER_END)
        .ok_or(error)?;
    Ok(at..end)
}

impl Space {
    /// The highest free place for `len` bytes, aligned to `align`. The caller puts an area there.
    fn find_place(&mut self, len: usize, align: usize) -> Option<usize> {
        let within = u64_from(USER_START)..u64_from(self.full_from);
        let at = self
            .areas
            .find_gap(u64_from(len), u64_from(align), within, true, None)?;
        let at = usize_from(at);
        if self.areas.is_covered(to_u64(at + len..self.full_from)) {
            self.full_from = at;
        }
        Some(at)
    }

    /// Takes the areas of a range out and unmaps their pages. The caller drops the result after unlocking.
    fn remove(&mut self, range: Range<usize>) -> Vec<(Range<u64>, Area)> {
        let removed = self.areas.remove(to_u64(range));
        for (range, _) in &removed {
            self.unmap_pages(to_usize(range.clone()));
            self.full_from = self.full_from.max(usize_from(range.end).min(self.top));
        }
        removed
    }

    /// Unmaps the pages of a range and drops their counts, after every CPU forgot them.
    fn unmap_pages(&mut self, range: Range<usize>) {
        // Frames are freed in batches: unmap some, flush, free.
        const BATCH: usize = 64;
        let mut at = range.start;
        while at < range.end {
            let mut batch: [Option<Mapping>; BATCH] = [None; BATCH];
            let mut count = 0;
            let (mut first, mut last) = (usize::MAX, at);
            let mut stopped = range.end;
            let result = paging::update(at..range.end, &mut |page, mapping| {
                if count == BATCH {
                    stopped = page;
                    return Update::Stop;
                }
                batch[count] = Some(mapping);
                count += 1;
                first = first.min(page);
                last = page
                    + if mapping.huge {
                        paging::HUGE_SIZE
                    } else {
                        PAGE_SIZE
                    };
                Update::Remove
            });
            if count > 0 {
                paging::flush(first..last);
                for mapping in batch.into_iter().flatten() {
                    release_mapping(mapping);
                }
            }
            if result.is_err() {
                // Splitting a huge page needs one frame; the batch before has freed some, or nothing can be done
                // but leave the rest of that huge page mapped.
                if count == 0 {
                    return;
                }
                continue;
            }
            at = stopped;
        }
    }

    /// Maps a page that the caller owns; the mapping takes its count over.
    fn map_page(&mut self, at: usize, page: Page, access: paging::Access) -> Result<()> {
        paging::map(at, page.physical(), access).map_err(|_| Errno::ENOMEM)?;
        let _ = page.into_frame();
        add_resident(1);
        Ok(())
    }
}

/// Drops the counts that a removed mapping held.
fn release_mapping(mapping: Mapping) {
    let pages = if mapping.huge {
        paging::HUGE_SIZE / PAGE_SIZE
    } else {
        1
    };
    RESIDENT.fetch_sub(pages, Ordering::Relaxed);
    if mapping.huge {
        // All parts are counted one by one, since a huge page may have been split and shared in between.
        for n in 0..pages {
            drop(Page::from_frame(Frame::containing(
                mapping.physical + u64_from(n * PAGE_SIZE),
            )));
        }
    } else {
        drop(Page::from_frame(Frame::containing(mapping.physical)));
    }
}

/// Frames that stay free for the kernel itself when applications ask for more than they must have.
fn is_plentiful() -> bool {
    frames::free_frames() * 4 > frames::total_frames()
}

/// Where the word at `at` really lies, if it is part of a shared mapping of a file: the same for every mapping of it.
/// The page must be present.
#[must_use]
pub fn shared_location(at: usize) -> Option<u64> {
    let space = SPACE.lock();
    let (_, area) = space.areas.get(u64_from(at))?;
    if !area.shared || area.is_anonymous() {
        return None;
    }
    let offset = u64_from(at % PAGE_SIZE);
    paging::query(at & !(PAGE_SIZE - 1)).map(|mapping| mapping.physical + offset)
}

/// Makes every CPU that runs application code pass a full memory barrier (membarrier(2)).
pub fn barrier() {
    paging::flush(USER_START..USER_START + PAGE_SIZE);
}
