// SPDX-License-Identifier: Apache-2.0
//! The bytes of a regular file: pages in a sparse map, above an optional base that is never changed (the boot module, or
//! a file of the lower layer).
//!
//! Nothing here sleeps. A step that needs a page of a lower file which is not in memory stops with [`Stop::Fetch`]; the
//! caller fetches the page with no lock held and takes the step again.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::file::File;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;

use super::base::{Base, Replaced, Step, Stop};
use crate::{Errno, Result};

const PAGE: u64 = u64_from(PAGE_SIZE);

/// Largest file: offsets are signed 64-bit numbers.
const MAX_SIZE: u64 = i64::MAX.cast_unsigned();

/// Pages that a file system may use.
pub(super) struct Space {
    limit: u64,
    used: AtomicU64,
}

impl Space {
    pub(super) fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            limit: limit_bytes / PAGE,
            used: AtomicU64::new(0),
        })
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    fn take(&self) -> Result<Page> {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < self.limit).then_some(used + 1)
            })
            .map_err(|_| Errno::ENOSPC)?;
        Page::zeroed().inspect_err(|_| self.give_back(1))
    }

    fn give_back(&self, pages: usize) {
        self.used.fetch_sub(u64_from(pages), Ordering::Relaxed);
    }
}

/// The content of a file. Bytes behind the end within the last page are zero, except where a shared mapping wrote
/// them; growing the file zeroes them again.
pub(super) struct Content {
    size: u64,
    pages: BTreeMap<u64, Page>,
    base: Option<Base>,
    /// The base is as long as it was at first: a lower file's last page can be shown as it is.
    is_whole: bool,
    /// Pages of the base were given to mappings.
    is_lent: bool,
    /// Those of them that were replaced since [`Content::take_replaced`].
    replaced: Vec<Replaced>,
    space: Arc<Space>,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.space.give_back(self.pages.len());
    }
}

impl Content {
    pub(super) fn new(space: Arc<Space>, base: Option<Base>) -> Self {
        Self {
            size: base.as_ref().map_or(0, Base::len),
            pages: BTreeMap::new(),
            base,
            is_whole: true,
            is_lent: false,
            replaced: Vec::new(),
            space,
        }
    }

    /// The lower file that still is all of the content.
    pub(super) fn untouched(&self) -> Option<Arc<dyn File>> {
        match &self.base {
            Some(Base::Lower { file, len })
                if self.is_whole && self.pages.is_empty() && *len == self.size =>
            {
                Some(file.clone())
            }
            _ => None,
        }
    }

    /// The lower file, if page `index` comes from it.
    pub(super) fn lower_of(&self, index: u64) -> Option<Arc<dyn File>> {
        match &self.base {
            Some(Base::Lower { file, .. })
                if self.base_len_in(index) > 0 && !self.pages.contains_key(&index) =>
            {
                Some(file.clone())
            }
            _ => None,
        }
    }

    /// Pages of the base that were replaced: mappings must let go of them.
    pub(super) fn take_replaced(&mut self) -> Vec<Replaced> {
        core::mem::take(&mut self.replaced)
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    fn base_len(&self) -> u64 {
        self.base.as_ref().map_or(0, Base::len)
    }

    /// How many bytes of page `index` the base has.
    fn base_len_in(&self, index: u64) -> usize {
        let left = index
            .checked_mul(PAGE)
            .map_or(0, |start| self.base_len().saturating_sub(start));
        usize_from(left.min(PAGE))
    }

    /// Allocated memory in pages, the base included.
    pub(super) fn page_count(&self) -> u64 {
        let base = self.base_len().div_ceil(PAGE);
        let covered = u64_from(self.pages.range(..base).count());
        base - covered + u64_from(self.pages.len())
    }

    /// The part of a base in memory in page `index`; empty if there is none.
    fn static_bytes(&self, index: u64) -> &'static [u8] {
        let Some(Base::Static(base)) = &self.base else {
            return &[];
        };
        match self.base_len_in(index) {
            0 => &[],
            len => &base.bytes[usize_from(index * PAGE)..][..len],
        }
    }

    /// Page `index` of the lower file, if the base has bytes in it. It may hold more than those.
    fn lower_page(&self, index: u64) -> Step<Option<Page>> {
        let Some(Base::Lower { file, .. }) = &self.base else {
            return Ok(None);
        };
        if self.base_len_in(index) == 0 {
            return Ok(None);
        }
        match file.page(index, false) {
            Ok(page) => Ok(Some(page)),
            Err(Errno::EAGAIN) => Err(Stop::Fetch(file.clone(), index)),
            // The lower file is shorter than it said, or cannot be read.
            Err(Errno::ENOMEM) => Err(Errno::ENOMEM.into()),
            Err(_) => Err(Errno::EIO.into()),
        }
    }

    /// The file's own page `index`, made from the base or of zeroes if there is none yet.
    fn own_page(&mut self, index: u64) -> Step<&Page> {
        if !self.pages.contains_key(&index) {
            let lower = self.lower_page(index)?;
            let page = self.space.take()?;
            let len = self.base_len_in(index);
            match &lower {
                Some(lower) => {
                    page.copy_from(lower);
                    page.zero(len, PAGE_SIZE - len);
                }
                None => page.write(0, self.static_bytes(index)),
            }
            if self.is_lent
                && let Some(page) = lower.or_else(|| self.static_page(index))
            {
                self.replaced.push(Replaced { index, page });
            }
            self.pages.insert(index, page);
        }
        Ok(self.pages.get(&index).ok_or(Errno::EIO)?)
    }

    /// A whole page of a base in memory, without a copy.
    fn static_page(&self, index: u64) -> Option<Page> {
        let Some(Base::Static(base)) = &self.base else {
            return None;
        };
        let bytes = self.static_bytes(index);
        if bytes.len() == PAGE_SIZE && bytes.as_ptr().addr().is_multiple_of(PAGE_SIZE) {
            (base.page)(bytes)
        } else {
            None
        }
    }

    fn drop_page(&mut self, index: u64) {
        if self.pages.remove(&index).is_some() {
            self.space.give_back(1);
        }
    }

    /// Copies up to `limit` bytes at `position`.
    pub(super) fn read(&self, position: u64, limit: usize, dst: &mut IoDst<'_>) -> Step<usize> {
        let mut done = 0;
        let limit = limit.min(dst.remaining());
        while done < limit {
            let at = position + u64_from(done);
            let left = self.size.saturating_sub(at);
            if left == 0 {
                break;
            }
            let offset = usize_from(at % PAGE);
            let len = (PAGE_SIZE - offset).min(limit - done).min(usize_from(left));
            let copied = match self.pages.get(&(at / PAGE)) {
                Some(page) => page.read_to(offset, len, dst),
                None => {
                    let base_len = self.base_len_in(at / PAGE);
                    if offset >= base_len {
                        dst.write_zeros(len)
                    } else {
                        let len = len.min(base_len - offset);
                        match self.lower_page(at / PAGE) {
                            Ok(Some(page)) => page.read_to(offset, len, dst),
                            Ok(None) => dst.write(&self.static_bytes(at / PAGE)[offset..][..len]),
                            Err(_) if done > 0 => break,
                            Err(stop) => return Err(stop),
                        }
                    }
                }
            };
            match copied {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error.into()),
            }
            if dst.faulted().is_some() {
                break;
            }
        }
        Ok(done)
    }

    /// Writes up to `limit` bytes at `position`.
    pub(super) fn write(
        &mut self,
        position: u64,
        limit: usize,
        src: &mut IoSrc<'_>,
    ) -> Step<usize> {
        if src.remaining() == 0 {
            return Ok(0);
        }
        if position >= MAX_SIZE {
            return Err(Errno::EFBIG.into());
        }
        let room = usize_from(MAX_SIZE - position);
        let limit = limit.min(src.remaining()).min(room);
        if position > self.size {
            self.zero_tail();
        }
        let mut done = 0;
        while done < limit {
            let at = position + u64_from(done);
            let (index, offset) = (at / PAGE, usize_from(at % PAGE));
            let len = (PAGE_SIZE - offset).min(limit - done);
            let fresh = !self.pages.contains_key(&index);
            let copied = self
                .own_page(index)
                .and_then(|page| Ok(page.write_from(offset, len, src)?));
            if fresh && !matches!(copied, Ok(1..)) {
                self.drop_page(index);
            }
            match copied {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            self.size = self.size.max(position + u64_from(done));
            if src.faulted().is_some() {
                break;
            }
        }
        Ok(done)
    }

    /// Zeroes what a shared mapping may have written behind the end of the last page.
    fn zero_tail(&mut self) {
        let offset = usize_from(self.size % PAGE);
        if offset != 0
            && let Some(page) = self.pages.get(&(self.size / PAGE))
        {
            page.zero(offset, PAGE_SIZE - offset);
        }
    }

    pub(super) fn truncate(&mut self, size: u64) -> Step<()> {
        if size > MAX_SIZE {
            return Err(Errno::EFBIG.into());
        }
        if size < self.size {
            self.cut_base(size)?;
            let removed = self.pages.split_off(&size.div_ceil(PAGE));
            self.space.give_back(removed.len());
            self.size = size;
        }
        self.zero_tail();
        self.size = size;
        Ok(())
    }

    /// Lets the base end at `size`; the page that is cut becomes the file's own.
    fn cut_base(&mut self, size: u64) -> Step<()> {
        if self.base_len() <= size {
            return Ok(());
        }
        if !size.is_multiple_of(PAGE) {
            self.own_page(size / PAGE)?;
        }
        if let Some(base) = &mut self.base {
            base.cut(size - size % PAGE);
        }
        self.is_whole = false;
        Ok(())
    }

    /// Makes `[offset, offset + len)` have memory; grows the file unless `keep_size`. All or nothing for `ENOSPC`.
    pub(super) fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> Step<()> {
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= MAX_SIZE)
            .ok_or(Errno::EFBIG)?;
        let (first, behind) = (offset / PAGE, end.div_ceil(PAGE));
        let present = self.pages.range(first..behind).count();
        if behind - first - u64_from(present) > self.space.free() {
            return Err(Errno::ENOSPC.into());
        }
        let mut added = Vec::new();
        for index in first..behind {
            if self.pages.contains_key(&index) || self.base_len_in(index) == PAGE_SIZE {
                continue;
            }
            if let Err(stop) = self.own_page(index) {
                added.into_iter().for_each(|index| self.drop_page(index));
                return Err(stop);
            }
            added.push(index);
        }
        if end > self.size && !keep_size {
            self.zero_tail();
            self.size = end;
        }
        Ok(())
    }

    /// Makes `[offset, offset + len)` read as zeroes and gives whole pages back.
    pub(super) fn punch(&mut self, offset: u64, len: u64) -> Step<()> {
        let end = offset
            .saturating_add(len)
            .min(self.size.next_multiple_of(PAGE));
        if offset >= end {
            return Ok(());
        }
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        if whole.start > whole.end {
            return self.zero_part(whole.end, offset % PAGE, end % PAGE);
        }
        if !offset.is_multiple_of(PAGE) {
            self.zero_part(offset / PAGE, offset % PAGE, PAGE)?;
        }
        if !end.is_multiple_of(PAGE) {
            self.zero_part(whole.end, 0, end % PAGE)?;
        }
        // Above the base a hole needs a page of zeroes, elsewhere none.
        let base_end = self.base_len().div_ceil(PAGE);
        for index in whole.start..whole.end.min(base_end) {
            self.zero_part(index, 0, PAGE)?;
        }
        let from = whole.start.max(base_end);
        while let Some((index, _)) = self.pages.range(from..whole.end.max(from)).next() {
            let index = *index;
            self.drop_page(index);
        }
        Ok(())
    }

    /// Zeroes part of a page that has memory.
    fn zero_part(&mut self, index: u64, from: u64, to: u64) -> Step<()> {
        if self.pages.contains_key(&index) || self.base_len_in(index) > 0 {
            self.own_page(index)?
                .zero(usize_from(from), usize_from(to - from));
        }
        Ok(())
    }

    /// `SEEK_DATA` and `SEEK_HOLE` of lseek(2).
    pub(super) fn seek(&self, offset: u64, hole: bool) -> Result<u64> {
        if offset >= self.size {
            return Err(Errno::ENXIO);
        }
        let mut index = offset / PAGE;
        let is_hole = |index: u64| !self.pages.contains_key(&index) && self.base_len_in(index) == 0;
        if !hole && is_hole(index) {
            // Behind the base (or where it was cut) only own pages are data: jump to the next one.
            index = self
                .pages
                .range(index..)
                .next()
                .map(|(index, _)| *index)
                .ok_or(Errno::ENXIO)?;
        } else if hole {
            while index * PAGE < self.size && !is_hole(index) {
                index += 1;
            }
        }
        let found = offset.max(index * PAGE);
        if found >= self.size && !hole {
            return Err(Errno::ENXIO);
        }
        Ok(found.min(self.size))
    }

    /// The page for a mapping. `ENXIO` beyond the end.
    pub(super) fn page(&mut self, index: u64, write: bool) -> Step<Page> {
        if index.checked_mul(PAGE).is_none_or(|at| at >= self.size) {
            return Err(Errno::ENXIO.into());
        }
        if let Some(page) = self.pages.get(&index) {
            return Ok(page.clone());
        }
        if !write && let Some(page) = self.base_page(index)? {
            self.is_lent = true;
            return Ok(page);
        }
        self.own_page(index).cloned()
    }

    /// A page of the base that reads as the file does: whole, or the last one of a lower file that was never cut.
    fn base_page(&self, index: u64) -> Step<Option<Page>> {
        let len = self.base_len_in(index);
        if len == PAGE_SIZE || len > 0 && self.is_whole {
            Ok(self.lower_page(index)?.or_else(|| self.static_page(index)))
        } else {
            Ok(None)
        }
    }
}
