// SPDX-License-Identifier: Apache-2.0
//! Physical frames: who has them, and how often they are counted.
//!
//! Before the allocator's own table exists, frames come from a range behind the kernel image that only grows.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{low_u32, u64_from, usize_from};
use coracle_arch::{layout, mem_ops};
use coracle_logic::buddy::{Buddy, FrameMeta};

use crate::sync::{Once, SpinLock};

static BUDDY: SpinLock<Option<Buddy<'static>>> = SpinLock::new(None);
static TABLE: Once<&'static [FrameMeta]> = Once::new();
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// Next and last byte of the early range.
static EARLY: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

const PAGE: u64 = PAGE_SIZE as u64;

/// A frame number. Owning one means owning one count of its frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame(u32);

impl Frame {
    /// A frame of zeroes with one count, for content of the application. The last frames are not given for that.
    pub(super) fn allocate_zeroed() -> Option<Self> {
        let reserve = RESERVE.load(Ordering::Relaxed);
        let frame = allocate_beyond(0, reserve).or_else(|| {
            (crate::cache::reclaim(BATCH) > 0)
                .then(|| allocate_beyond(0, reserve))
                .flatten()
        })?;
        // SAFETY: the frame is fresh and mapped in the window.
        unsafe { mem_ops::clear_page(frame.bytes()) };
        Some(frame)
    }

    pub(super) fn count(&self) -> &'static AtomicU32 {
        let table = TABLE
            .get()
            .expect("frames are counted only after the table exists");
        &table[self.0 as usize].refcount
    }

    pub(super) fn free(self) {
        if let Some(buddy) = BUDDY.lock().as_mut() {
            buddy.free(self.0, 0);
        }
    }

    pub(super) fn bytes(self) -> *mut u8 {
        layout::direct(self.physical())
    }

    pub(crate) fn physical(self) -> u64 {
        u64::from(self.0) * PAGE
    }

    /// The frame at a physical address that lies in memory.
    pub(crate) fn containing(physical: u64) -> Self {
        Self(low_u32(physical / PAGE))
    }
}

/// Pages that the page cache gives back at once.
const BATCH: u64 = 64;

/// Whether the page cache gives back about as much as it takes.
#[must_use]
pub fn is_tight() -> bool {
    free_frames() < 2 * low_water()
}

/// Frees frames so that `pages` more can be taken without touching those kept low, as far as the page cache can give
/// some back: first pages that nobody uses, then pages that are mapped. No spin lock is held. Returns whether anything
/// was freed.
pub fn make_room(pages: u64) -> bool {
    let missing = || (low_water() + pages).saturating_sub(free_frames());
    let mut freed = 0;
    while missing() > 0 && crate::cache::cached_pages() > 0 {
        let step = crate::cache::reclaim(missing().max(BATCH));
        freed += step;
        if step == 0 && super::space::give_back(usize_from(missing().max(BATCH))) == 0 {
            break;
        }
    }
    freed > 0
}

/// Keeps a few frames free for the kernel while the page cache has some to give. No spin lock is held.
pub(crate) fn keep_low_water() {
    if crate::cache::cached_pages() > 0 && free_frames() < low_water() {
        make_room(BATCH);
    }
}

/// Frames that only the kernel's own objects and page tables may take, so that the kernel still works when the
/// application has used up the memory: it can say so, and serve the calls that give memory back.
static RESERVE: AtomicU64 = AtomicU64::new(0);

fn reserve_of(total: u64) -> u64 {
    (total / 128).clamp(16, 256)
}

/// Whether so little memory is left that calls which make objects of the kernel should fail: then the application is
/// still there to see the error. No spin lock is held: the page cache gives back what it can first.
#[must_use]
pub fn is_scarce() -> bool {
    keep_low_water();
    let is_scarce = free_frames() <= 2 * RESERVE.load(Ordering::Relaxed);
    if is_scarce {
        WAS_SCARCE.store(true, Ordering::Relaxed);
    }
    is_scarce
}

static WAS_SCARCE: AtomicBool = AtomicBool::new(false);

/// Whether [`is_scarce`] ever said so.
#[must_use]
pub fn was_scarce() -> bool {
    WAS_SCARCE.load(Ordering::Relaxed)
}

/// Takes `1 << order` contiguous frames, each counted once; they are not cleared.
pub(crate) fn allocate(order: u32) -> Option<Frame> {
    allocate_beyond(order, 0)
}

/// As [`allocate`], as long as `kept` frames stay free.
fn allocate_beyond(order: u32, kept: u64) -> Option<Frame> {
    let first = {
        let mut buddy = BUDDY.lock();
        let buddy = buddy.as_mut()?;
        if buddy.free_frames() < kept + (1 << order) {
            return None;
        }
        buddy.alloc(order)?
    };
    let table = TABLE.get()?;
    for meta in &table[first as usize..][..1 << order] {
        meta.refcount.store(1, Ordering::Relaxed);
    }
    Some(Frame(first))
}

/// Frames below which the page cache gives back what nobody uses. Above the reserve, so that the kernel's own objects
/// find room meanwhile.
pub(super) fn low_water() -> u64 {
    2 * RESERVE.load(Ordering::Relaxed) + total_frames() / 64
}

/// Gives `1 << order` frames back that were taken together and are counted by nobody else.
pub(crate) fn release(frame: Frame, order: u32) {
    if let Some(buddy) = BUDDY.lock().as_mut() {
        buddy.free(frame.0, order);
    }
}

/// Frames that are free.
#[must_use]
pub fn free_frames() -> u64 {
    BUDDY.lock().as_ref().map_or(0, Buddy::free_frames)
}

/// Frames the machine has for us, free or not.
#[must_use]
pub fn total_frames() -> u64 {
    TOTAL.load(Ordering::Relaxed)
}

/// A frame for a page table: from the allocator, or from the early range before it exists.
pub(super) fn allocate_for_table() -> Option<u64> {
    if TABLE.get().is_some() {
        return allocate(0).map(Frame::physical);
    }
    let at = EARLY[0].fetch_add(PAGE, Ordering::Relaxed);
    (at + PAGE <= EARLY[1].load(Ordering::Relaxed)).then_some(at)
}

/// Lets early frames come from `range`.
pub(super) fn init_early(range: Range<u64>) {
    EARLY[0].store(range.start, Ordering::Relaxed);
    EARLY[1].store(range.end, Ordering::Relaxed);
}

/// Builds the table and hands every page of `memory` that no `reserved` range touches to the allocator. Both lists are
/// in pages. Returns `None` if no range has room for the table.
pub(super) fn init(memory: &[Range<u64>], reserved: &[Range<u64>]) -> Option<()> {
    let end = memory.iter().map(|r| r.end).max()?;
    let frames = usize_from(end / PAGE);
    let table_bytes = u64_from((frames * size_of::<FrameMeta>()).next_multiple_of(PAGE_SIZE));
    // What the early allocator used, and the rest of its range, is one more reservation; the table comes behind it.
    let early_used = EARLY[0].load(Ordering::Relaxed);
    let early_end = EARLY[1].load(Ordering::Relaxed);
    let table_at = if early_end - early_used >= table_bytes {
        EARLY[0].store(early_used + table_bytes, Ordering::Relaxed);
        early_used
    } else {
        return None;
    };
    // SAFETY: the range is ours, mapped in the window and large enough; zero bytes are valid counters.
    let table = unsafe {
        let at = layout::direct(table_at);
        at.write_bytes(0, usize_from(table_bytes));
        core::slice::from_raw_parts(at.cast::<FrameMeta>(), frames)
    };
    let mut buddy = Buddy::new(table);
    let early = EARLY[0].load(Ordering::Relaxed);
    for range in memory {
        TOTAL.fetch_add((range.end - range.start) / PAGE, Ordering::Relaxed);
        let mut at = range.start;
        while at < range.end {
            // The next reservation that is not wholly before `at`.
            let next = reserved
                .iter()
                .cloned()
                .map(|r| {
                    if r.contains(&(early - 1)) {
                        r.start..early
                    } else {
                        r
                    }
                })
                .filter(|r| r.end > at)
                .min_by_key(|r| r.start)
                .unwrap_or(range.end..range.end);
            let free_end = next.start.clamp(at, range.end);
            if at < free_end {
                buddy.add_range(low_u32(at / PAGE), low_u32(free_end / PAGE));
            }
            at = next.end.max(at);
        }
    }
    *BUDDY.lock() = Some(buddy);
    RESERVE.store(reserve_of(total_frames()), Ordering::Relaxed);
    TABLE.set(table).ok()
}

/// Hands one more range of whole pages to the allocator.
pub(super) fn add(range: Range<u64>) {
    if let Some(buddy) = BUDDY.lock().as_mut() {
        buddy.add_range(low_u32(range.start / PAGE), low_u32(range.end / PAGE));
        TOTAL.fetch_add((range.end - range.start) / PAGE, Ordering::Relaxed);
    }
}
