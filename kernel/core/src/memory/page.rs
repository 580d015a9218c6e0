// SPDX-License-Identifier: Apache-2.0
//! A page of memory that is counted: by the file whose content it is, by each mapping, by a device that sends it.

use core::sync::atomic::{Ordering, fence};

use coracle_abi::{Errno, PAGE_SIZE};

#[cfg(target_os = "none")]
use super::frames::Frame;
#[cfg(not(target_os = "none"))]
use super::hosted::Frame;
use crate::Result;
use crate::io::{IoDst, IoSrc};

/// A reference to a physical page. Cloning adds a reference; the page is freed with its last one.
///
/// The application may map the same page and write it at any time, so its bytes are copied in and out and never
/// borrowed.
#[derive(Debug, PartialEq, Eq)]
pub struct Page(Frame);

/// Counts at or above this belong to memory that is never freed (the boot module).
#[cfg(target_os = "none")]
const PINNED: u32 = 1 << 31;

/// Set in the count of a page that is in a page cache: its content can be read again.
const CACHED: u32 = 1 << 30;

impl Page {
    /// A new page of zeroes. `ENOMEM` when memory is exhausted.
    pub fn zeroed() -> Result<Self> {
        Frame::allocate_zeroed().map(Self).ok_or(Errno::ENOMEM)
    }

    /// Takes over a counted frame.
    #[cfg(target_os = "none")]
    pub(crate) fn from_frame(frame: Frame) -> Self {
        Self(frame)
    }

    /// Gives the frame with its count to the caller.
    #[cfg(target_os = "none")]
    pub(crate) fn into_frame(self) -> Frame {
        let frame = self.0;
        core::mem::forget(self);
        frame
    }

    /// Marks the page as never to be freed.
    #[cfg(target_os = "none")]
    pub(crate) fn pin(&self) {
        self.0.count().fetch_or(PINNED, Ordering::Relaxed);
    }

    /// The address a device uses for this page.
    #[must_use]
    pub fn physical(&self) -> u64 {
        self.0.physical()
    }

    /// Whether somebody else also refers to the page.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.0.count().load(Ordering::Acquire) & !CACHED != 1
    }

    /// Marks the page as one of a page cache, or as that no more.
    pub(crate) fn set_cached(&self, cached: bool) {
        if cached {
            self.0.count().fetch_or(CACHED, Ordering::Relaxed);
        } else {
            self.0.count().fetch_and(!CACHED, Ordering::Relaxed);
        }
    }

    /// Whether a page cache refers to the page and nobody else does.
    pub(crate) fn is_only_cached(&self) -> bool {
        self.0.count().load(Ordering::Acquire) == CACHED | 1
    }

    /// Whether the page is one of a page cache.
    #[cfg(target_os = "none")]
    pub(crate) fn is_cached(&self) -> bool {
        self.0.count().load(Ordering::Relaxed) & CACHED != 0
    }

    /// Whether exactly `count` references exist.
    #[cfg(target_os = "none")]
    pub(crate) fn count_is(&self, count: u32) -> bool {
        self.0.count().load(Ordering::Acquire) == count
    }

    /// Copies from the page. Panics if the range leaves the page.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= PAGE_SIZE, "range within a page");
        // SAFETY: the range lies within the page; the application may write it meanwhile, which yields some mix of old
        // and new bytes, as on any system.
        unsafe {
            core::ptr::copy_nonoverlapping(self.0.bytes().add(offset), out.as_mut_ptr(), out.len())
        }
    }

    /// Copies into the page. Panics if the range leaves the page.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE_SIZE, "range within a page");
        // SAFETY: as for `read`.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.bytes().add(offset), bytes.len())
        }
    }

    /// Zeroes part of the page. Panics if the range leaves the page.
    pub fn zero(&self, offset: usize, len: usize) {
        assert!(offset + len <= PAGE_SIZE, "range within a page");
        // SAFETY: as for `read`.
        unsafe { core::ptr::write_bytes(self.0.bytes().add(offset), 0, len) }
    }

    /// Copies all bytes of another page.
    pub fn copy_from(&self, other: &Self) {
        // SAFETY: both are whole pages; copying a page onto itself is allowed by `copy`.
        unsafe { core::ptr::copy(other.0.bytes(), self.0.bytes(), PAGE_SIZE) }
    }

    /// Copies `len` bytes at `offset` to `dst`. Errors as [`IoDst::write`].
    pub fn read_to(&self, offset: usize, len: usize, dst: &mut IoDst<'_>) -> Result<usize> {
        assert!(offset + len <= PAGE_SIZE, "range within a page");
        // SAFETY: the range lies within the page, which lives while `self` does; the bytes are only copied.
        let bytes = unsafe { core::slice::from_raw_parts(self.0.bytes().add(offset), len) };
        dst.write(bytes)
    }

    /// Fills `len` bytes at `offset` from `src`. Errors as [`IoSrc::read`].
    pub fn write_from(&self, offset: usize, len: usize, src: &mut IoSrc<'_>) -> Result<usize> {
        assert!(offset + len <= PAGE_SIZE, "range within a page");
        // SAFETY: as above; the kernel holds no other slice of the page while this one is filled.
        let bytes = unsafe { core::slice::from_raw_parts_mut(self.0.bytes().add(offset), len) };
        src.read(bytes)
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        self.0.count().fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Release: our accesses happen before the page is freed by whoever drops last; Acquire on that side.
        if self.0.count().fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.0.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_and_copied() {
        let page = Page::zeroed().unwrap();
        assert!(!page.is_shared());
        page.write(10, b"abc");
        let other = page.clone();
        assert!(page.is_shared());
        let mut out = [1u8; 5];
        other.read(9, &mut out);
        assert_eq!(&out, b"\0abc\0");
        drop(page);
        assert!(!other.is_shared());
    }
}
