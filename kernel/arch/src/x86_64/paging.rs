// SPDX-License-Identifier: Apache-2.0
//! Page tables: the mechanism. Which range is mapped how is decided above.
//!
//! There is one set of tables. The lower half belongs to the application and is changed under the lock of the address
//! space, the upper half by the kernel. Frames for tables come from a function given at `init`.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};

use super::{cpu, layout, smp};
use crate::MAX_CPUS;

/// Bytes of a huge page.
pub const HUGE_SIZE: usize = 2 << 20;

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const CACHE_DISABLE: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const HUGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
/// Ignored by the CPU: the entry keeps a page that nobody may access (`PROT_NONE` over content).
const HELD: u64 = 1 << 9;
/// The entry means something.
const LIVE: u64 = PRESENT | HELD;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// What a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Reading. Without it the page keeps its content but every access faults.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Executing.
    pub execute: bool,
}

/// A mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Physical address of the page (of the huge page's first byte for a huge mapping).
    pub physical: u64,
    /// What it allows.
    pub access: Access,
    /// 2 MiB instead of 4 KiB.
    pub huge: bool,
    /// Written since it was mapped.
    pub dirty: bool,
    /// Used since it was mapped or [`Update::Age`].
    pub accessed: bool,
}

/// No frame for a table was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfFrames;

static ROOT: AtomicU64 = AtomicU64::new(0);
static ALLOCATE: AtomicUsize = AtomicUsize::new(0);

type Allocate = fn() -> Option<u64>;

fn allocate_table() -> Result<u64, OutOfFrames> {
    let raw = ALLOCATE.load(Ordering::Relaxed);
    assert!(raw != 0, "page tables are initialised");
    // SAFETY: only `init` stores here, a function of this type.
    let allocate: Allocate = unsafe { core::mem::transmute(raw as *const ()) };
    let physical = allocate().ok_or(OutOfFrames)?;
    // SAFETY: a fresh frame, mapped in the direct window.
    unsafe { layout::direct(physical).write_bytes(0, PAGE_SIZE) };
    Ok(physical)
}

/// Physical address of the top table.
#[must_use]
pub fn root() -> u64 {
    ROOT.load(Ordering::Relaxed)
}

const fn index(at: usize, level: usize) -> usize {
    at >> (12 + 9 * level) & 511
}

/// The entry of table `table` at `index`.
fn entry(table: u64, index: usize) -> &'static AtomicU64 {
    // SAFETY: `table` is the physical address of a live table, all of which is mapped in the direct window; entries are
    // only accessed as atomics (the CPU sets bits in them).
    unsafe { &*layout::direct(table).cast::<AtomicU64>().add(index) }
}

/// The entry for `at` at `level` (0: 4 KiB pages, 1: 2 MiB), if the tables above exist and no huge page covers it.
fn find(at: usize, level: usize) -> Option<&'static AtomicU64> {
    let mut table = root();
    for upper in (level + 1..4).rev() {
        let value = entry(table, index(at, upper)).load(Ordering::Relaxed);
        if value & LIVE == 0 || value & HUGE != 0 {
            return None;
        }
        table = value & ADDRESS;
    }
    Some(entry(table, index(at, level)))
}

/// As `find`, but makes the tables above. A huge page in the way is split.
fn find_or_make(at: usize, level: usize) -> Result<&'static AtomicU64, OutOfFrames> {
    let mut table = root();
    for upper in (level + 1..4).rev() {
        let slot = entry(table, index(at, upper));
        let mut value = slot.load(Ordering::Relaxed);
        if value & LIVE == 0 {
            value = allocate_table()? | PRESENT | WRITE;
            slot.store(value, Ordering::Release);
        } else if value & HUGE != 0 {
            split(slot)?;
            value = slot.load(Ordering::Relaxed);
        }
        table = value & ADDRESS;
    }
    Ok(entry(table, index(at, level)))
}

/// Replaces a huge entry by a table of small pages with the same meaning.
fn split(slot: &AtomicU64) -> Result<(), OutOfFrames> {
    let table = allocate_table()?;
    let value = slot.load(Ordering::Relaxed);
    let (base, flags) = (
        value & ADDRESS & !(u64_from(HUGE_SIZE) - 1),
        value & !ADDRESS & !HUGE,
    );
    for n in 0..512 {
        entry(table, n).store((base + u64_from(n * PAGE_SIZE)) | flags, Ordering::Relaxed);
    }
    slot.store(table | PRESENT | WRITE, Ordering::Release);
    Ok(())
}

fn flags(access: Access) -> u64 {
    let mut flags = ACCESSED | if access.read { PRESENT } else { HELD };
    if access.write {
        flags |= WRITE;
    }
    if !access.execute {
        flags |= NO_EXECUTE;
    }
    flags
}

fn to_mapping(value: u64, huge: bool) -> Option<Mapping> {
    (value & LIVE != 0).then_some(Mapping {
        physical: value
            & if huge {
                ADDRESS & !(u64_from(HUGE_SIZE) - 1)
            } else {
                ADDRESS
            },
        access: Access {
            read: value & PRESENT != 0,
            write: value & WRITE != 0,
            execute: value & NO_EXECUTE == 0,
        },
        huge,
        dirty: value & DIRTY != 0,
        accessed: value & ACCESSED != 0,
    })
}

/// Maps one page, replacing what was there. The caller flushes if something was.
pub fn map(at: usize, physical: u64, access: Access) -> Result<(), OutOfFrames> {
    find_or_make(at, 0)?.store(physical | flags(access), Ordering::Release);
    Ok(())
}

/// Maps 2 MiB; `at` and `physical` are aligned, and nothing is mapped there.
pub fn map_huge(at: usize, physical: u64, access: Access) -> Result<(), OutOfFrames> {
    let slot = find_or_make(at, 1)?;
    let old = slot.load(Ordering::Relaxed);
    assert!(old & LIVE == 0, "a table or page is mapped at {at:#x}");
    slot.store(physical | flags(access) | HUGE, Ordering::Release);
    Ok(())
}

/// Whether a huge page can be mapped at this aligned address: no table of small pages is in the way.
#[must_use]
pub fn is_huge_slot_free(at: usize) -> bool {
    let mut table = root();
    for level in (1..4).rev() {
        let value = entry(table, index(at, level)).load(Ordering::Relaxed);
        if value & LIVE == 0 {
            return true;
        }
        if level == 1 || value & HUGE != 0 {
            return false;
        }
        table = value & ADDRESS;
    }
    false
}

/// The mapping of `at`, if there is one.
#[must_use]
pub fn query(at: usize) -> Option<Mapping> {
    if let Some(slot) = find(at, 0) {
        return to_mapping(slot.load(Ordering::Relaxed), false);
    }
    let value = find(at, 1)?.load(Ordering::Relaxed);
    (value & HUGE != 0)
        .then(|| to_mapping(value, true))
        .flatten()
}

/// Calls `each(address, mapping) -> new state` for every mapped page of the range, in order, until it says
/// [`Update::Stop`]; pages are changed or removed by what it returns. Huge pages that stick out of the range are split
/// first. The caller flushes.
pub fn update(
    range: Range<usize>,
    each: &mut dyn FnMut(usize, Mapping) -> Update,
) -> Result<(), OutOfFrames> {
    let mut at = range.start;
    while at < range.end {
        let Some(table) = find(at, 1).or_else(|| find_none(&mut at)) else {
            continue;
        };
        let value = table.load(Ordering::Relaxed);
        let next = (at & !(HUGE_SIZE - 1)) + HUGE_SIZE;
        if value & LIVE == 0 {
            at = next;
            continue;
        }
        if value & HUGE != 0 {
            if at.is_multiple_of(HUGE_SIZE) && next <= range.end {
                if let Some(mapping) = to_mapping(value, true)
                    && !apply(table, value, each(at, mapping))
                {
                    return Ok(());
                }
                at = next;
                continue;
            }
            split(table)?;
        }
        let pages = table.load(Ordering::Relaxed) & ADDRESS;
        while at < next.min(range.end) {
            let slot = entry(pages, index(at, 0));
            let value = slot.load(Ordering::Relaxed);
            if let Some(mapping) = to_mapping(value, false)
                && !apply(slot, value, each(at, mapping))
            {
                return Ok(());
            }
            at += PAGE_SIZE;
        }
    }
    Ok(())
}

/// Moves `at` past the hole in which it lies, at the level above the 2 MiB one.
fn find_none(at: &mut usize) -> Option<&'static AtomicU64> {
    let mut table = root();
    for level in (2..4).rev() {
        let value = entry(table, index(*at, level)).load(Ordering::Relaxed);
        if value & PRESENT == 0 {
            let step = 1usize << (12 + 9 * level);
            *at = (*at & !(step - 1)).saturating_add(step);
            return None;
        }
        table = value & ADDRESS;
    }
    *at = (*at & !(HUGE_SIZE - 1)) + HUGE_SIZE;
    None
}

/// What becomes of a mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Nothing changes.
    Keep,
    /// It allows something else from now on.
    Protect(Access),
    /// It counts as not used. A CPU that has the translation may use it without telling until it forgets that.
    Age,
    /// It is not mapped any more.
    Remove,
    /// Nothing changes, neither here nor in the rest of the range.
    Stop,
}

/// Does what `update` says. Returns whether the walk goes on.
fn apply(slot: &AtomicU64, value: u64, update: Update) -> bool {
    match update {
        Update::Keep => {}
        Update::Stop => return false,
        Update::Protect(access) => {
            slot.store(
                value & (ADDRESS | HUGE | DIRTY | ACCESSED) | flags(access),
                Ordering::Release,
            );
        }
        Update::Age => {
            slot.fetch_and(!ACCESSED, Ordering::Relaxed);
        }
        Update::Remove => slot.store(0, Ordering::Release),
    }
    true
}

/// Maps device registers, uncached, for the kernel.
pub fn map_device(at: usize, physical: u64) -> Result<(), OutOfFrames> {
    let value = physical | PRESENT | WRITE | ACCESSED | DIRTY | CACHE_DISABLE | NO_EXECUTE | GLOBAL;
    find_or_make(at, 0)?.store(value, Ordering::Release);
    Ok(())
}

/// Builds the final tables: the direct window over `ranges` of physical memory, and the image with what its parts
/// allow. Until now the low gigabyte served as window.
///
/// # Safety
/// Called once, by the first CPU, with frames for tables that lie in the low gigabyte and are not used otherwise.
pub unsafe fn init(
    ranges: impl Iterator<Item = Range<u64>>,
    slide: usize,
    allocate: Allocate,
) -> Result<(), OutOfFrames> {
    ALLOCATE.store(allocate as usize, Ordering::Relaxed);
    let root = allocate_table()?;
    ROOT.store(root, Ordering::Relaxed);
    let window = layout::DIRECT_BASE + ((slide % layout::DIRECT_SLIDES) << 30);
    let image = layout::image();
    let image_physical = layout::image_physical();
    let image_frames = image_physical..image_physical + u64_from(image.len());
    let discardable = layout::discardable();
    let is_discarded = |at: usize| discardable.iter().any(|part| part.contains(&at));
    for range in ranges {
        let mut at = range.start & !(u64_from(HUGE_SIZE) - 1);
        while at < range.end {
            let next = at + u64_from(HUGE_SIZE);
            let slot = find_or_make(window + usize_from(at), 1)?;
            let whole = range.start <= at && next <= range.end;
            let has_image = at < image_frames.end && image_frames.start < next;
            if whole && !has_image {
                let value = at | PRESENT | WRITE | ACCESSED | DIRTY | HUGE | NO_EXECUTE | GLOBAL;
                slot.store(value, Ordering::Relaxed);
            } else {
                for page in (at..next).step_by(PAGE_SIZE).filter(|p| range.contains(p)) {
                    let slot = find_or_make(window + usize_from(page), 0)?;
                    let value = page | PRESENT | ACCESSED | DIRTY | NO_EXECUTE | GLOBAL;
                    // Code and constants are not writable here either.
                    let at = image.start + usize_from(page.wrapping_sub(image_physical));
                    let constant = image_frames.contains(&page)
                        && at < layout::rodata().end
                        && !is_discarded(at);
                    slot.store(
                        if constant { value } else { value | WRITE },
                        Ordering::Relaxed,
                    );
                }
            }
            at = next;
        }
    }
    let kept = image.clone().step_by(PAGE_SIZE);
    for at in kept.filter(|at| !is_discarded(*at)) {
        let physical = image_physical + u64_from(at - image.start);
        let value = physical | PRESENT | ACCESSED | GLOBAL;
        let value = if layout::text().contains(&at) {
            value
        } else if layout::rodata().contains(&at) || at < layout::text().start {
            value | NO_EXECUTE
        } else {
            value | WRITE | DIRTY | NO_EXECUTE
        };
        find_or_make(at, 0)?.store(value, Ordering::Relaxed);
    }
    // All tables of the kernel's half that later mappings need at the top level exist now or are made on demand; there
    // is one set of tables, so nothing has to be copied.
    load_root();
    layout::set_direct_offset(window);
    Ok(())
}

/// Loads the tables on this CPU.
pub(super) fn load_root() {
    // SAFETY: the tables map everything the kernel uses.
    unsafe { asm!("mov cr3, {}", in(reg) root(), options(nostack, preserves_flags)) };
}

/// Pages up to which single invalidations are used.
const SINGLE_LIMIT: usize = 32;

fn flush_local(range: &Range<usize>) {
    if range.len() <= SINGLE_LIMIT * PAGE_SIZE {
        for at in range.clone().step_by(PAGE_SIZE) {
            // SAFETY: invalidation only costs time.
            unsafe { asm!("invlpg [{}]", in(reg) at, options(nostack, preserves_flags)) };
        }
    } else if range.end <= coracle_abi::USER_END {
        load_root();
    } else {
        flush_everything();
    }
}

/// Flushes global translations as well.
fn flush_everything() {
    // SAFETY: toggling PGE flushes all translations and changes nothing else.
    unsafe {
        let cr4: usize;
        asm!("mov {}, cr4", out(reg) cr4, options(nostack, preserves_flags));
        asm!("mov cr4, {}", in(reg) cr4 & !(1 << 7), options(nostack, preserves_flags));
        asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags));
    }
}

/// CPUs that are idle and flush when they leave idle.
static IDLE: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Makes every CPU forget the translations of `range` and waits until they did. Idle CPUs do it before they run
/// application code again.
///
/// May be called with locks held: a CPU that waits for one serves the request (`cpu::relax`).
pub fn flush(range: Range<usize>) {
    flush_local(&range);
    let (me, online) = (cpu::index(), cpu::online());
    if online == 1 {
        return;
    }
    // One request at a time is enough: it means "everything", so requests can be merged.
    fence(Ordering::SeqCst);
    for other in (0..online).filter(|n| *n != me) {
        cpu::FLUSH_PENDING[other].store(true, Ordering::SeqCst);
        if !IDLE[other].load(Ordering::SeqCst) {
            smp::interrupt(other, smp::FLUSH_VECTOR);
        }
    }
    let mut patience = crate::Patience::new();
    for other in (0..online).filter(|n| *n != me) {
        while cpu::FLUSH_PENDING[other].load(Ordering::Acquire)
            && !IDLE[other].load(Ordering::SeqCst)
        {
            assert!(
                patience.wait(),
                "CPU {other} does not flush its translations"
            );
        }
    }
}

/// Serves another CPU's request to flush.
pub(super) fn serve_flush() {
    let me = cpu::index();
    if cpu::FLUSH_PENDING[me].swap(false, Ordering::SeqCst) {
        load_root();
    }
}

/// Says that this CPU runs no application code until [`leave_idle`].
pub fn enter_idle() {
    IDLE[cpu::index()].store(true, Ordering::SeqCst);
}

/// Ends what [`enter_idle`] began.
pub fn leave_idle() {
    IDLE[cpu::index()].store(false, Ordering::SeqCst);
    serve_flush();
}
