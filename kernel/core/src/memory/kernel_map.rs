// SPDX-License-Identifier: Apache-2.0
//! Mappings the kernel makes for itself: device registers, and stacks with guard pages.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_arch::{layout, paging};

use super::{Mmio, Page};
use crate::sync::SpinLock;
use crate::{Errno, Result};

static NEXT: AtomicUsize = AtomicUsize::new(layout::KERNEL_MAP_BASE);
/// Page tables of the kernel's half are changed under this lock.
static TABLES: SpinLock<()> = SpinLock::new(());

fn reserve(len: usize) -> usize {
    let at = NEXT.fetch_add(len, Ordering::Relaxed);
    assert!(
        at + len <= layout::KERNEL_MAP_END,
        "the kernel's own mappings fill 16 TiB"
    );
    at
}

/// Maps device registers for ever. `ENOMEM` if no page table can be had.
pub fn map_device(physical: u64, len: usize) -> Result<Mmio> {
    let offset = usize_from(physical) % PAGE_SIZE;
    let pages = (offset + len).div_ceil(PAGE_SIZE);
    let at = reserve((pages + 1) * PAGE_SIZE);
    let _tables = TABLES.lock();
    for n in 0..pages {
        let frame = physical - u64_from(offset) + u64_from(n * PAGE_SIZE);
        paging::map_device(at + n * PAGE_SIZE, frame).map_err(|_| Errno::ENOMEM)?;
    }
    // SAFETY: just mapped, never unmapped, and the range belongs to the caller's device.
    Ok(unsafe { Mmio::new((at + offset) as *mut u8, len) })
}

/// Bytes of a kernel stack.
pub const STACK_SIZE: usize = 32 << 10;

/// A kernel stack below which a page is not mapped: an overflow faults instead of spoiling what lies there.
pub struct Stack {
    top: usize,
}

static FREE_STACKS: SpinLock<Vec<usize>> = SpinLock::new(Vec::new());

impl Stack {
    /// A stack; from a finished thread if there is one. `ENOMEM` if memory is exhausted.
    pub fn new() -> Result<Self> {
        if let Some(top) = FREE_STACKS.lock().pop() {
            return Ok(Self { top });
        }
        // All pages first: a stack that is not completed would never be given back.
        let mut pages = [const { None }; STACK_SIZE / PAGE_SIZE];
        for page in &mut pages {
            *page = Some(Page::zeroed()?);
        }
        let access = paging::Access {
            read: true,
            write: true,
            execute: false,
        };
        let bottom = reserve(STACK_SIZE + PAGE_SIZE) + PAGE_SIZE;
        let _tables = TABLES.lock();
        for (at, page) in (bottom..)
            .step_by(PAGE_SIZE)
            .zip(pages.into_iter().flatten())
        {
            paging::map(at, page.physical(), access).map_err(|_| Errno::ENOMEM)?;
            // The mapping owns the page from now on; stacks are reused, never unmapped.
            let _ = page.into_frame();
        }
        Ok(Self {
            top: bottom + STACK_SIZE,
        })
    }

    /// End of the stack, 16-byte aligned.
    #[must_use]
    pub fn top(&self) -> usize {
        self.top
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        FREE_STACKS.lock().push(self.top);
    }
}
