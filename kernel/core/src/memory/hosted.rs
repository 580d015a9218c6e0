// SPDX-License-Identifier: Apache-2.0
//! Memory as an ordinary process has it: frames come from the host's allocator, nothing faults.

use core::sync::atomic::{AtomicU32, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

use coracle_abi::{Errno, PAGE_SIZE};

use crate::Result;

/// A page that is missing cannot be made present under host tests.
pub fn fault_in(_address: usize, _write: bool) -> Result<()> {
    Err(Errno::EFAULT)
}

/// There are no mappings under host tests.
pub fn forget_beyond(_content: usize, _size_bytes: u64) {}

/// There are no mappings under host tests.
pub fn replace_page(_content: usize, _index: u64, _old: &super::Page) {}

/// Memory is never tight under host tests.
pub fn is_tight() -> bool {
    false
}

/// Memory does not end under host tests.
pub fn make_room(_pages: u64) -> bool {
    false
}

/// The address a device would use for kernel memory; the same number under host tests.
#[must_use]
pub fn physical_address(at: *const u8) -> u64 {
    coracle_abi::convert::u64_from(at as usize)
}

/// The page and, behind it, its reference count.
const LAYOUT: Layout = match Layout::from_size_align(2 * PAGE_SIZE, PAGE_SIZE) {
    Ok(layout) => layout,
    Err(_) => panic!("a constant layout"),
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame(usize);

impl Frame {
    pub(super) fn allocate_zeroed() -> Option<Self> {
        // SAFETY: the layout has a size above zero.
        let at = unsafe { alloc_zeroed(LAYOUT) };
        (!at.is_null()).then(|| {
            let frame = Self(at as usize);
            frame.count().store(1, Ordering::Relaxed);
            frame
        })
    }

    pub(super) fn count(&self) -> &AtomicU32 {
        // SAFETY: the second page of the allocation holds the count, and the frame lives while it is counted.
        unsafe { &*((self.0 + PAGE_SIZE) as *const AtomicU32) }
    }

    pub(super) fn free(self) {
        // SAFETY: the count fell to zero, so this was the last owner.
        unsafe { dealloc(self.0 as *mut u8, LAYOUT) }
    }

    pub(super) fn bytes(self) -> *mut u8 {
        self.0 as *mut u8
    }

    pub(super) fn physical(self) -> u64 {
        coracle_abi::convert::u64_from(self.0)
    }
}
