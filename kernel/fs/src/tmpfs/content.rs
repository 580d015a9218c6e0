// SPDX-License-Identifier: Apache-2.0
//! The bytes of a regular file: pages in a sparse map, above an optional base that is never changed (the boot module).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;

use crate::{Errno, Result};

const PAGE: u64 = u64_from(PAGE_SIZE);

/// Largest file: offsets are signed 64-bit numbers.
const MAX_SIZE: u64 = i64::MAX.cast_unsigned();

/// Bytes that live for ever, and how to get a page of them without a copy.
#[derive(Clone, Copy)]
pub struct StaticBytes {
    /// The bytes.
    pub bytes: &'static [u8],
    /// Gives the page for 4096 bytes that start at a multiple of 4096 in memory; `None` if that cannot be, and the
    /// bytes are copied then.
    pub page: fn(&'static [u8]) -> Option<Page>,
}

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
    base: Option<StaticBytes>,
    space: Arc<Space>,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.space.give_back(self.pages.len());
    }
}

impl Content {
    pub(super) fn new(space: Arc<Space>, base: Option<StaticBytes>) -> Self {
        Self {
            size: base.map_or(0, |base| u64_from(base.bytes.len())),
            pages: BTreeMap::new(),
            base,
            space,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Allocated memory in pages, the base included.
    pub(super) fn page_count(&self) -> u64 {
        let base = self
            .base
            .map_or(0, |base| base.bytes.len().div_ceil(PAGE_SIZE));
        let covered = self.pages.range(..u64_from(base)).count();
        u64_from(base - covered + self.pages.len())
    }

    /// The part of the base in page `index`; empty if there is none.
    fn base_bytes(&self, index: u64) -> &'static [u8] {
        let Some(base) = self.base else { return &[] };
        let Some(start) = index
            .checked_mul(PAGE)
            .filter(|s| *s < u64_from(base.bytes.len()))
        else {
            return &[];
        };
        let start = usize_from(start);
        let end = (start + PAGE_SIZE).min(base.bytes.len());
        &base.bytes[start..end]
    }

    /// The file's own page `index`, made from the base or of zeroes if there is none yet.
    fn own_page(&mut self, index: u64) -> Result<&Page> {
        if !self.pages.contains_key(&index) {
            let page = self.space.take()?;
            page.write(0, self.base_bytes(index));
            self.pages.insert(index, page);
        }
        self.pages.get(&index).ok_or(Errno::EIO)
    }

    fn drop_page(&mut self, index: u64) {
        if self.pages.remove(&index).is_some() {
            self.space.give_back(1);
        }
    }

    /// Copies up to `limit` bytes at `position`.
    pub(super) fn read(&self, position: u64, limit: usize, dst: &mut IoDst<'_>) -> Result<usize> {
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
                    let base = self.base_bytes(at / PAGE);
                    match base.get(offset..) {
                        Some(bytes) if !bytes.is_empty() => {
                            dst.write(&bytes[..len.min(bytes.len())])
                        }
                        _ => dst.write_zeros(len),
                    }
                }
            };
            match copied {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
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
    ) -> Result<usize> {
        if src.remaining() == 0 {
            return Ok(0);
        }
        if position >= MAX_SIZE {
            return Err(Errno::EFBIG);
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
                .and_then(|page| page.write_from(offset, len, src));
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

    pub(super) fn truncate(&mut self, size: u64) -> Result<()> {
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
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
    fn cut_base(&mut self, size: u64) -> Result<()> {
        let Some(base) = self.base.filter(|base| u64_from(base.bytes.len()) > size) else {
            return Ok(());
        };
        if !size.is_multiple_of(PAGE) {
            self.own_page(size / PAGE)?;
        }
        self.base = Some(StaticBytes {
            bytes: &base.bytes[..usize_from(size - size % PAGE)],
            ..base
        });
        Ok(())
    }

    /// Makes `[offset, offset + len)` have memory; grows the file unless `keep_size`. All or nothing for `ENOSPC`.
    pub(super) fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= MAX_SIZE)
            .ok_or(Errno::EFBIG)?;
        let (first, behind) = (offset / PAGE, end.div_ceil(PAGE));
        let present = self.pages.range(first..behind).count();
        if behind - first - u64_from(present) > self.space.free() {
            return Err(Errno::ENOSPC);
        }
        let mut added = alloc::vec::Vec::new();
        for index in first..behind {
            if self.pages.contains_key(&index) || self.base_bytes(index).len() == PAGE_SIZE {
                continue;
            }
            if let Err(error) = self.own_page(index) {
                added.into_iter().for_each(|index| self.drop_page(index));
                return Err(error);
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
    pub(super) fn punch(&mut self, offset: u64, len: u64) -> Result<()> {
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
        let base_end = self
            .base
            .map_or(0, |base| u64_from(base.bytes.len().div_ceil(PAGE_SIZE)));
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
    fn zero_part(&mut self, index: u64, from: u64, to: u64) -> Result<()> {
        if self.pages.contains_key(&index) || !self.base_bytes(index).is_empty() {
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
        let is_hole =
            |index: u64| !self.pages.contains_key(&index) && self.base_bytes(index).is_empty();
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
    pub(super) fn page(&mut self, index: u64, write: bool) -> Result<Page> {
        if index.checked_mul(PAGE).is_none_or(|at| at >= self.size) {
            return Err(Errno::ENXIO);
        }
        if let Some(page) = self.pages.get(&index) {
            return Ok(page.clone());
        }
        if !write
            && let Some(base) = self.base
            && let bytes = self.base_bytes(index)
            && bytes.len() == PAGE_SIZE
            && bytes.as_ptr().addr().is_multiple_of(PAGE_SIZE)
            && let Some(page) = (base.page)(bytes)
        {
            return Ok(page);
        }
        self.own_page(index).cloned()
    }
}
