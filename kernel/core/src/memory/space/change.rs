// SPDX-License-Identifier: Apache-2.0
//! Changing mappings: munmap, mprotect, mremap, madvise, brk and their kind.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::general as g;
use coracle_abi::{Errno, PAGE_SIZE, USER_END, USER_START};
use coracle_arch::paging::{self, Update};

use super::{Area, Backing, Protection, SPACE, Space, pages, to_u64, to_usize};
use crate::Result;
use crate::file::OpenFile;
use crate::memory::Page;

/// `munmap(2)`.
pub fn unmap(at: usize, len: usize) -> Result<()> {
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let range = pages(at, len, Errno::EINVAL)?;
    let removed = SPACE.lock().remove(range);
    drop(removed);
    Ok(())
}

/// `mprotect(2)`. `ENOMEM` if part of the range is not mapped; what lies before the hole is changed, as on Linux.
pub fn protect(at: usize, len: usize, protection: Protection) -> Result<()> {
    let range = pages(at, len, Errno::ENOMEM)?;
    let mut space = SPACE.lock();
    let mut next = range.start;
    while next < range.end {
        let Some((whole, area)) = space.areas.get(u64_from(next)) else {
            return Err(Errno::ENOMEM);
        };
        if area.shared && protection.contains(Protection::WRITE) && !is_writable_file(area) {
            return Err(Errno::EACCES);
        }
        let part = next..usize_from(whole.end).min(range.end);
        space.protect_part(part.clone(), protection)?;
        next = part.end;
    }
    Ok(())
}

/// A shared mapping of a file that was opened for reading only cannot become writable.
fn is_writable_file(area: &Area) -> bool {
    match &area.backing {
        Backing::File { file, .. } => file.check_writable().is_ok(),
        Backing::Anonymous => true,
        Backing::Kernel { .. } => false,
    }
}

impl Space {
    /// Changes one area or part of it; the range lies within one area.
    fn protect_part(&mut self, part: Range<usize>, protection: Protection) -> Result<()> {
        let mut taken = self.areas.remove(to_u64(part.clone()));
        let Some((range, mut area)) = taken.pop() else {
            return Err(Errno::ENOMEM);
        };
        let old = area.protection;
        area.protection = protection;
        let shared_file = area.shared && !area.is_anonymous();
        self.areas.insert(range, area).map_err(|_| Errno::ENOMEM)?;
        if old == protection {
            return Ok(());
        }
        let access = protection.access();
        let mut changed = false;
        paging::update(part.clone(), &mut |_, mapping| {
            // A page becomes writable by a fault, which knows whether it is shared. `PROT_NONE` keeps the content.
            let write = access.write && mapping.access.write && !shared_file;
            let wanted = paging::Access { write, ..access };
            if wanted == mapping.access {
                return Update::Keep;
            }
            changed = true;
            Update::Protect(wanted)
        })
        .map_err(|_| Errno::ENOMEM)?;
        if changed {
            paging::flush(part);
        }
        Ok(())
    }
}

/// `mremap(2)`: `fixed` is the new address with `MREMAP_FIXED`; `keep_old` is `MREMAP_DONTUNMAP`.
pub fn remap(
    at: usize,
    old_len: usize,
    new_len: usize,
    may_move: bool,
    fixed: Option<usize>,
    keep_old: bool,
) -> Result<usize> {
    if new_len == 0 || (old_len == 0 && !may_move) {
        return Err(Errno::EINVAL);
    }
    let old = pages(at, old_len, Errno::EINVAL)?;
    let new_len = new_len
        .checked_next_multiple_of(PAGE_SIZE)
        .ok_or(Errno::EINVAL)?;
    let mut space = SPACE.lock();
    let (whole, area) = space.areas.get(u64_from(at)).ok_or(Errno::EFAULT)?;
    let (whole, area) = (to_usize(whole), area.clone());
    if old.end > whole.end {
        return Err(Errno::EFAULT);
    }
    if old.is_empty() && !area.shared {
        return Err(Errno::EINVAL);
    }
    if keep_old && (new_len != old.len() || !area.is_anonymous()) {
        return Err(Errno::EINVAL);
    }
    let mut removed = Vec::new();
    let result = 'result: {
        if let Some(to) = fixed {
            let target = pages(to, new_len, Errno::EINVAL)?;
            if target.start < USER_START || (target.start < old.end && old.start < target.end) {
                break 'result Err(Errno::EINVAL);
            }
            removed = space.remove(target.clone());
            break 'result space.move_area(
                old.clone(),
                target,
                area.clone(),
                keep_old,
                &mut removed,
            );
        }
        if new_len <= old.len() && !keep_old {
            removed = space.remove(old.start + new_len..old.end);
            break 'result Ok(at);
        }
        let growth = old.end
            ..old
                .start
                .checked_add(new_len)
                .filter(|e| *e <= USER_END)
                .unwrap_or(usize::MAX);
        if !keep_old
            && old.end == whole.end
            && growth.end != usize::MAX
            && space.areas.is_free(to_u64(growth.clone()))
        {
            let mut grown = area.clone();
            if let Backing::File { offset, .. } = &mut grown.backing {
                *offset += u64_from(old.end - whole.start);
            }
            break 'result space
                .areas
                .insert(to_u64(growth), grown)
                .map(|()| at)
                .map_err(|_| Errno::ENOMEM);
        }
        if !may_move {
            break 'result Err(Errno::ENOMEM);
        }
        let Some(to) = space.find_place(new_len, PAGE_SIZE) else {
            break 'result Err(Errno::ENOMEM);
        };
        let target = to..to + new_len;
        space.move_area(old.clone(), target, area.clone(), keep_old, &mut removed)
    };
    drop(space);
    drop((removed, area));
    result
}

impl Space {
    /// Moves the pages and the area of `old` to `target`, which is free and may be of another length.
    fn move_area(
        &mut self,
        old: Range<usize>,
        target: Range<usize>,
        area: Area,
        keep_old: bool,
        removed: &mut Vec<(Range<u64>, Area)>,
    ) -> Result<usize> {
        let mut moved = area;
        if let (Backing::File { offset, .. }, Some((whole, _))) =
            (&mut moved.backing, self.areas.get(u64_from(old.start)))
        {
            *offset += u64_from(old.start) - whole.start;
        }
        self.areas
            .insert(to_u64(target.clone()), moved)
            .map_err(|_| Errno::ENOMEM)?;
        let shift = target.start.wrapping_sub(old.start);
        let kept = old.start..old.start + old.len().min(target.len());
        // Small pages are moved one by one: take the entry out here, put it in there.
        let mut at = kept.start;
        while at < kept.end {
            let mut found = None;
            paging::update(at..at + PAGE_SIZE, &mut |_, mapping| {
                found = Some(mapping);
                Update::Remove
            })
            .map_err(|_| Errno::ENOMEM)?;
            if let Some(mapping) = found {
                paging::map(at.wrapping_add(shift), mapping.physical, mapping.access)
                    .map_err(|_| Errno::ENOMEM)?;
            }
            at += PAGE_SIZE;
        }
        paging::flush(kept);
        if !keep_old {
            removed.extend(self.remove(old));
        }
        Ok(target.start)
    }
}

/// `madvise(2)` for the advice that changes something or must be checked; unknown advice is `EINVAL`.
pub fn advise(at: usize, len: usize, advice: u32) -> Result<()> {
    let range = pages(at, len, Errno::EINVAL)?;
    match advice {
        g::MADV_DONTNEED | g::MADV_FREE | g::MADV_DONTNEED_LOCKED => {
            let mut space = SPACE.lock();
            let areas: Vec<_> = space
                .areas
                .overlapping(to_u64(range.clone()))
                .map(|(r, a)| (to_usize(r), a.is_anonymous()))
                .collect();
            if advice == g::MADV_FREE && areas.iter().any(|(_, anonymous)| !anonymous) {
                return Err(Errno::EINVAL);
            }
            // The content comes back from the file, or as zeroes.
            for (area, _) in areas {
                space.unmap_pages(area.start.max(range.start)..area.end.min(range.end));
            }
            covered(&space, range)
        }
        g::MADV_POPULATE_READ | g::MADV_POPULATE_WRITE => {
            covered(&SPACE.lock(), range.clone())?;
            populate(range, advice == g::MADV_POPULATE_WRITE)
        }
        // Hints about access patterns and about features that the kernel decides by itself. What MADV_WILLNEED means
        // for files is up to who knows them.
        g::MADV_NORMAL
        | g::MADV_WILLNEED
        | g::MADV_RANDOM
        | g::MADV_SEQUENTIAL
        | g::MADV_HUGEPAGE
        | g::MADV_NOHUGEPAGE
        | g::MADV_COLLAPSE
        | g::MADV_DONTDUMP
        | g::MADV_DODUMP
        | g::MADV_DONTFORK
        | g::MADV_DOFORK
        | g::MADV_COLD
        | g::MADV_PAGEOUT
        | g::MADV_MERGEABLE
        | g::MADV_UNMERGEABLE => covered(&SPACE.lock(), range),
        _ => Err(Errno::EINVAL),
    }
}

fn covered(space: &Space, range: Range<usize>) -> Result<()> {
    if space.areas.is_covered(to_u64(range)) {
        Ok(())
    } else {
        Err(Errno::ENOMEM)
    }
}

/// Makes every page of the range present, as far as it may be accessed that way.
fn populate(range: Range<usize>, write: bool) -> Result<()> {
    range
        .step_by(PAGE_SIZE)
        .try_for_each(|at| super::fault_in(at, write))
}

/// `mlock(2)`: pages are never given up under the application, so locking means making them present. `ENOMEM` if part
/// of the range is not mapped.
pub fn lock_pages(at: usize, len: usize) -> Result<()> {
    let start = at & !(PAGE_SIZE - 1);
    let range = pages(
        start,
        len.checked_add(at - start).ok_or(Errno::EINVAL)?,
        Errno::EINVAL,
    )?;
    covered(&SPACE.lock(), range.clone())?;
    let mut next = range.start;
    while next < range.end {
        let (end, protection) = {
            let space = SPACE.lock();
            let (whole, area) = space.areas.get(u64_from(next)).ok_or(Errno::ENOMEM)?;
            (usize_from(whole.end).min(range.end), area.protection)
        };
        if !protection.is_empty() {
            populate(next..end, protection.contains(Protection::WRITE))
                .map_err(|_| Errno::ENOMEM)?;
        }
        next = end;
    }
    Ok(())
}

/// Checks that a range is mapped, as msync(2) wants it, and returns the files whose content is shared in it. `ENOMEM`.
pub fn shared_files(at: usize, len: usize) -> Result<Vec<Arc<OpenFile>>> {
    let range = pages(at, len, Errno::ENOMEM)?;
    let space = SPACE.lock();
    covered(&space, range.clone())?;
    let mut files: Vec<Arc<OpenFile>> = Vec::new();
    for (_, area) in space.areas.overlapping(to_u64(range)) {
        if let Backing::File { file, .. } = &area.backing
            && area.shared
            && files.iter().all(|known| !Arc::ptr_eq(known, file))
        {
            files.push(file.clone());
        }
    }
    Ok(files)
}

/// The files that are mapped in a range, each with the bytes of it that the range shows. `ENOMEM` if part of the range is
/// not mapped.
pub fn mapped_files(at: usize, len: usize) -> Result<Vec<(Arc<OpenFile>, Range<u64>)>> {
    let range = pages(at, len, Errno::ENOMEM)?;
    let space = SPACE.lock();
    covered(&space, range.clone())?;
    let wanted = to_u64(range);
    let shown = |(whole, area): (Range<u64>, &Area)| {
        let Backing::File { file, offset } = &area.backing else {
            return None;
        };
        let start = wanted.start.max(whole.start) - whole.start;
        let end = wanted.end.min(whole.end) - whole.start;
        Some((
            file.clone(),
            offset.saturating_add(start)..offset.saturating_add(end),
        ))
    };
    Ok(space
        .areas
        .overlapping(wanted.clone())
        .filter_map(shown)
        .collect())
}

/// `mincore(2)`: one byte a page, 1 if it is present. `ENOMEM` if part of the range is not mapped.
pub fn residency(
    at: usize,
    len: usize,
    mut each: impl FnMut(usize, bool) -> Result<()>,
) -> Result<()> {
    let range = pages(at, len, Errno::ENOMEM)?;
    covered(&SPACE.lock(), range.clone())?;
    for (n, page) in range.step_by(PAGE_SIZE).enumerate() {
        let present = {
            let _space = SPACE.lock();
            paging::query(page).is_some()
        };
        each(n, present)?;
    }
    Ok(())
}

/// A file (see [`crate::file::File::content_id`]) became shorter: pages of it behind the new end are taken out of every
/// mapping, so that touching them is SIGBUS again. Private copies of such pages go too, as on Linux.
pub fn forget_beyond(content: usize, size_bytes: u64) {
    let mut space = SPACE.lock();
    let end = size_bytes.next_multiple_of(u64_from(PAGE_SIZE));
    let mut stale: Vec<Range<usize>> = Vec::new();
    for (range, area) in space.areas.iter() {
        let Backing::File { file, offset } = &area.backing else {
            continue;
        };
        let kept = end.saturating_sub(*offset);
        if file.file().content_id() == content && kept < range.end - range.start {
            stale.push(usize_from(range.start + kept)..usize_from(range.end));
        }
    }
    for range in stale {
        space.unmap_pages(range);
    }
}

/// Page `index` of a file (see [`crate::file::File::content_id`]) is not `old` any more: where mappings show that page,
/// it is taken out, so that the next touch finds the new one. Private copies stay.
pub fn replace_page(content: usize, index: u64, old: &Page) {
    SPACE.lock().forget_page(content, index, old);
}

impl Space {
    pub(super) fn forget_page(&mut self, content: usize, index: u64, old: &Page) {
        let mut stale: Vec<usize> = Vec::new();
        for (range, area) in self.areas.iter() {
            let Backing::File { file, offset } = &area.backing else {
                continue;
            };
            let at = (index * u64_from(PAGE_SIZE))
                .checked_sub(*offset)
                .map(|ahead| range.start.saturating_add(ahead))
                .filter(|at| *at < range.end);
            let Some(at) = at.map(usize_from) else {
                continue;
            };
            if file.file().content_id() == content
                && paging::query(at).is_some_and(|m| m.physical == old.physical())
            {
                stale.push(at);
            }
        }
        for at in stale {
            self.unmap_pages(at..at + PAGE_SIZE);
        }
    }
}

/// Sets where the data segment begins, when a program is loaded.
pub fn set_brk_start(at: usize) {
    let mut space = SPACE.lock();
    (space.brk_start, space.brk_end) = (at, at);
}

/// The system call `brk(2)`: moves the end of the data segment to `to` and returns where it is then. A request that
/// cannot be met changes nothing.
pub fn brk(to: usize) -> usize {
    let mut space = SPACE.lock();
    let (start, end) = (space.brk_start, space.brk_end);
    if to < start || to >= space.top {
        return end;
    }
    let (Some(old), Some(new)) = (
        end.checked_next_multiple_of(PAGE_SIZE),
        to.checked_next_multiple_of(PAGE_SIZE),
    ) else {
        return end;
    };
    let mut removed = Vec::new();
    if new > old {
        let growth = to_u64(old..new);
        let area = Area::anonymous(Protection::READ | Protection::WRITE, "[heap]");
        if !space.areas.is_free(growth.clone()) || space.areas.insert(growth, area).is_err() {
            return end;
        }
    } else if new < old {
        removed = space.remove(new..old);
    }
    space.brk_end = to;
    drop(space);
    drop(removed);
    to
}
