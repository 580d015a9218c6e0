// SPDX-License-Identifier: Apache-2.0
//! Making pages present.

use alloc::sync::Arc;
use core::ops::Range;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::{Errno, PAGE_SIZE, USER_START};
use coracle_arch::{mem_ops, paging};

use super::{Area, Backing, Protection, SPACE, Space, is_plentiful, release_mapping, to_usize};
use crate::Result;
use crate::exit::{self, ExitReason};
use crate::file::OpenFile;
use crate::memory::Page;
use crate::memory::frames::{self, Frame};
use crate::sync::Once;

/// Why an access cannot be allowed; says which signal follows (sigaction(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// Nothing is mapped there: SIGSEGV, `SEGV_MAPERR`.
    NotMapped,
    /// The mapping forbids it: SIGSEGV, `SEGV_ACCERR`.
    Forbidden,
    /// The file ends before, or its file system is full: SIGBUS, `BUS_ADRERR`.
    BeyondEnd,
    /// Memory is exhausted.
    OutOfMemory,
}

/// Why a page could not be made present under the lock.
pub(super) enum Obstacle {
    /// The access fails.
    Fault(FaultError),
    /// That page of the file must be fetched first.
    Fetch {
        file: Arc<OpenFile>,
        index: u64,
        write: bool,
    },
}

impl From<FaultError> for Obstacle {
    fn from(error: FaultError) -> Self {
        Self::Fault(error)
    }
}

impl Obstacle {
    fn from_file(error: Errno, file: &Arc<OpenFile>, index: u64, write: bool) -> Self {
        match error {
            Errno::EAGAIN => Self::Fetch {
                file: file.clone(),
                index,
                write,
            },
            _ => FaultError::from_file(error).into(),
        }
    }
}

/// Most pages that one fault brings in around the touched one.
const AROUND: usize = 16;

/// Longest stack that grows by itself: the usual `RLIMIT_STACK`.
const STACK_LIMIT: usize = 8 << 20;

/// Handles a fault of the application at `address`. Sleeps if the page must come from a device.
pub fn handle_fault(address: usize, write: bool, execute: bool) -> Result<(), FaultError> {
    loop {
        frames::keep_low_water();
        match try_fault(address, write, execute) {
            Ok(()) => return Ok(()),
            // What the page cache holds in mappings can be given back now that the space is not locked.
            Err(Obstacle::Fault(FaultError::OutOfMemory)) if frames::make_room(1) => {}
            Err(Obstacle::Fault(error)) => return Err(error),
            // No lock is held: meanwhile the mapping may change, which the next attempt sees.
            Err(Obstacle::Fetch { file, index, write }) => file
                .file()
                .fetch(index, write)
                .map_err(FaultError::from_file)?,
        }
    }
}

impl FaultError {
    fn from_file(error: Errno) -> Self {
        match error {
            Errno::ENOMEM => Self::OutOfMemory,
            _ => Self::BeyondEnd,
        }
    }
}

/// One attempt, which does not sleep.
fn try_fault(address: usize, write: bool, execute: bool) -> Result<(), Obstacle> {
    if address < USER_START {
        return Err(FaultError::NotMapped.into());
    }
    let page = address & !(PAGE_SIZE - 1);
    let mut space = SPACE.lock();
    let (range, area) = match space.areas.get(u64_from(page)) {
        Some((range, area)) => (to_usize(range), area.clone()),
        None => space.grow_stack(page).ok_or(FaultError::NotMapped)?,
    };
    let needed = if execute {
        Protection::EXECUTE
    } else if write {
        Protection::WRITE
    } else {
        Protection::READ
    };
    // On x86 what can be written or executed can be read.
    let readable = area
        .protection
        .intersects(Protection::READ | Protection::WRITE | Protection::EXECUTE);
    let allowed = if needed == Protection::READ {
        readable
    } else {
        area.protection.contains(needed)
    };
    if !allowed {
        return Err(FaultError::Forbidden.into());
    }
    let result = space.make_present(page, &range, &area, write);
    drop(space);
    super::FAULTS.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    drop(area); // may be the last reference to a file, if another CPU unmapped it meanwhile
    result
}

/// Makes the page at `address` present for the kernel's own access. `EFAULT` if the application may not do that
/// access itself. If memory is exhausted the application ends, as if it had touched the page.
pub fn fault_in(address: usize, write: bool) -> Result<()> {
    handle_fault(address, write, false).map_err(|error| match error {
        FaultError::OutOfMemory => exit::end_process(ExitReason::OutOfMemory),
        _ => Errno::EFAULT,
    })
}

impl Space {
    /// Extends a growing area down to `page`, if one begins above that may grow so far.
    fn grow_stack(&mut self, page: usize) -> Option<(Range<usize>, Area)> {
        let near = u64_from(page)..u64_from(page.checked_add(STACK_LIMIT)?);
        let (range, area) = self.areas.overlapping(near).next()?;
        if !area.grows_down
            || range.start <= u64_from(page)
            || range.end - u64_from(page) > u64_from(STACK_LIMIT)
        {
            return None;
        }
        let (start, area) = (range.start, area.clone());
        let gap = super::to_u64(page..usize_from(start));
        // A page stays free below, so that a neighbour is not overrun silently.
        let guard = gap.start.checked_sub(u64_from(PAGE_SIZE))?..gap.end;
        if !self.areas.is_free(guard) {
            return None;
        }
        self.areas.insert(gap, area.clone()).ok()?;
        let (range, _) = self.areas.get(u64_from(page))?;
        Some((to_usize(range), area))
    }

    pub(super) fn make_present(
        &mut self,
        page: usize,
        range: &Range<usize>,
        area: &Area,
        write: bool,
    ) -> Result<(), Obstacle> {
        if let Some(mapping) = paging::query(page) {
            if !write || mapping.access.write {
                return Ok(()); // another CPU was faster
            }
            return self.copy_on_write(page, range, area, mapping);
        }
        match &area.backing {
            Backing::Anonymous => Ok(self.present_anonymous(page, range, area, write)?),
            Backing::File { file, offset } => {
                self.present_file(page, range, area, write, file, *offset)
            }
            Backing::Kernel { page: content } => Ok(self
                .map_page(
                    page,
                    content.clone(),
                    paging::Access {
                        write: false,
                        ..area.protection.access()
                    },
                )
                .map_err(|_| FaultError::OutOfMemory)?),
        }
    }

    fn present_anonymous(
        &mut self,
        page: usize,
        range: &Range<usize>,
        area: &Area,
        write: bool,
    ) -> Result<(), FaultError> {
        let access = area.protection.access();
        if !write {
            let read_only = paging::Access {
                write: false,
                ..access
            };
            return self
                .map_page(page, zero_page()?, read_only)
                .map_err(|_| FaultError::OutOfMemory);
        }
        if self.try_huge(page, range, access) {
            return Ok(());
        }
        let fresh = Page::zeroed().map_err(|_| FaultError::OutOfMemory)?;
        self.map_page(page, fresh, access)
            .map_err(|_| FaultError::OutOfMemory)?;
        // The pages that follow in the same block of 16 KiB are likely next; each fault costs more than a page.
        if is_plentiful() {
            let block_end = (page & !(4 * PAGE_SIZE - 1)) + 4 * PAGE_SIZE;
            for next in (page + PAGE_SIZE..block_end.min(range.end)).step_by(PAGE_SIZE) {
                if paging::query(next).is_some() {
                    break;
                }
                let Ok(fresh) = Page::zeroed() else { break };
                if self.map_page(next, fresh, access).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Maps 2 MiB at once where an area is being filled from below: the block lies in the area, and the one before it
    /// is already huge or was filled to its last page. Sparse use of a large area keeps small pages.
    fn try_huge(&mut self, page: usize, range: &Range<usize>, access: paging::Access) -> bool {
        let start = page & !(paging::HUGE_SIZE - 1);
        if page != start
            || start + paging::HUGE_SIZE > range.end
            || start < range.start + paging::HUGE_SIZE
        {
            return false;
        }
        let frames_needed = u64_from(paging::HUGE_SIZE / PAGE_SIZE);
        let before = [
            start - PAGE_SIZE,
            start - paging::HUGE_SIZE / 2,
            start - paging::HUGE_SIZE,
        ];
        if frames::free_frames() < frames::total_frames() / 2 + frames_needed
            || !before
                .iter()
                .all(|at| paging::query(*at).is_some_and(|m| m.access.write))
            || !paging::is_huge_slot_free(start)
        {
            return false;
        }
        let Some(frame) = frames::allocate(9) else {
            return false;
        };
        let physical = frame.physical();
        for n in 0..paging::HUGE_SIZE / PAGE_SIZE {
            let at = coracle_arch::layout::direct(physical + u64_from(n * PAGE_SIZE));
            // SAFETY: the frames are fresh and mapped in the window.
            unsafe { mem_ops::clear_page(at) };
        }
        if paging::map_huge(start, physical, access).is_err() {
            frames::release(frame, 9);
            return false;
        }
        super::add_resident(paging::HUGE_SIZE / PAGE_SIZE);
        true
    }

    fn present_file(
        &mut self,
        page: usize,
        range: &Range<usize>,
        area: &Area,
        write: bool,
        file: &Arc<OpenFile>,
        offset: u64,
    ) -> Result<(), Obstacle> {
        let index = |at: usize| (offset + u64_from(at - range.start)) / u64_from(PAGE_SIZE);
        let get = |at: usize, write: bool| {
            let index = index(at);
            file.file()
                .page(index, write)
                .map_err(|error| Obstacle::from_file(error, file, index, write))
        };
        let access = area.protection.access();
        if write && area.shared {
            let content = self.page_to_write(file, index(page))?;
            return Ok(self
                .map_page(page, content, access)
                .map_err(|_| FaultError::OutOfMemory)?);
        }
        let content = get(page, false)?;
        if area.shared {
            // A page that was not asked for to be written stays write-protected until it is.
            let access = paging::Access {
                write: false,
                ..access
            };
            return Ok(self
                .map_page(page, content, access)
                .map_err(|_| FaultError::OutOfMemory)?);
        }
        if write {
            let copy = Page::zeroed().map_err(|_| FaultError::OutOfMemory)?;
            copy.copy_from(&content);
            return Ok(self
                .map_page(page, copy, access)
                .map_err(|_| FaultError::OutOfMemory)?);
        }
        let read_only = paging::Access {
            write: false,
            ..access
        };
        self.map_page(page, content, read_only)
            .map_err(|_| FaultError::OutOfMemory)?;
        // Neighbours that are there anyway cost little now and a fault each later.
        let block = AROUND * PAGE_SIZE;
        let around =
            (page & !(block - 1)).max(range.start)..((page & !(block - 1)) + block).min(range.end);
        for at in around.step_by(PAGE_SIZE).filter(|at| *at != page) {
            if paging::query(at).is_none()
                && let Ok(content) = get(at, false)
                && self.map_page(at, content, read_only).is_err()
            {
                break;
            }
        }
        Ok(())
    }

    /// The page of a file that a shared mapping writes. The file learns of the write, and may put another page in the
    /// place of the one that mappings show.
    fn page_to_write(&mut self, file: &Arc<OpenFile>, index: u64) -> Result<Page, Obstacle> {
        let shown = file.file().page(index, false);
        let page = file
            .file()
            .page(index, true)
            .map_err(|error| Obstacle::from_file(error, file, index, true))?;
        if let Ok(shown) = shown
            && shown != page
        {
            self.forget_page(file.file().content_id(), index, &shown);
        }
        Ok(page)
    }

    /// A write to a page that is mapped read-only in an area that allows writing.
    fn copy_on_write(
        &mut self,
        page: usize,
        range: &Range<usize>,
        area: &Area,
        mut old: paging::Mapping,
    ) -> Result<(), Obstacle> {
        let access = area.protection.access();
        if old.huge {
            // It was write-protected. Its frames belong to this mapping alone, so all of it can be written again, unless
            // the area ends within it: then the touched page becomes a small one.
            let start = page & !(paging::HUGE_SIZE - 1);
            let whole = start..start + paging::HUGE_SIZE;
            if range.start <= whole.start && whole.end <= range.end {
                paging::update(whole.clone(), &mut |_, _| paging::Update::Protect(access))
                    .map_err(|_| FaultError::OutOfMemory)?;
                paging::flush(whole);
                return Ok(());
            }
            old.physical += u64_from(page - start);
            old.huge = false;
        }
        // A reference of our own keeps the old page while it is copied; the mapping's count is still there as well.
        let mapped = Page::from_frame(Frame::containing(old.physical));
        let content = mapped.clone();
        let _ = mapped.into_frame();
        if area.shared && !area.is_anonymous() {
            let start = self.areas.get(u64_from(page)).map(|(range, _)| range.start);
            if let (Backing::File { file, offset }, Some(start)) = (&area.backing, start) {
                let index = (offset + u64_from(page) - start) / u64_from(PAGE_SIZE);
                let current = self.page_to_write(file, index)?;
                if current != content {
                    // The old page was taken out above if the file replaced it just now, else it is now.
                    self.unmap_pages(page..page + PAGE_SIZE);
                    return Ok(self
                        .map_page(page, current, access)
                        .map_err(|_| FaultError::OutOfMemory)?);
                }
            }
            paging::map(page, old.physical, access).map_err(|_| FaultError::OutOfMemory)?;
            paging::flush(page..page + PAGE_SIZE);
            return Ok(());
        }
        // Two counts, the mapping's and ours: nobody else sees this page, so it need not be copied. Pages of files
        // are counted by the file and never get here with two.
        if content.count_is(2) {
            paging::map(page, old.physical, access).map_err(|_| FaultError::OutOfMemory)?;
            paging::flush(page..page + PAGE_SIZE);
            return Ok(());
        }
        let copy = Page::zeroed().map_err(|_| FaultError::OutOfMemory)?;
        copy.copy_from(&content);
        paging::map(page, copy.physical(), access).map_err(|_| FaultError::OutOfMemory)?;
        let _ = copy.into_frame();
        paging::flush(page..page + PAGE_SIZE);
        // Gives the old mapping's count back; the number of mapped pages stays.
        super::RESIDENT.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        release_mapping(old);
        Ok(())
    }
}

static ZERO: Once<Page> = Once::new();

/// The page of zeroes that all untouched memory shares.
fn zero_page() -> Result<Page, FaultError> {
    if let Some(page) = ZERO.get() {
        return Ok(page.clone());
    }
    let page = Page::zeroed().map_err(|_| FaultError::OutOfMemory)?;
    page.pin();
    let result = page.clone();
    let _ = ZERO.set(page);
    Ok(result)
}
