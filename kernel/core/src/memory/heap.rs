// SPDX-License-Identifier: Apache-2.0
//! The kernel heap: size classes up to half a page, whole frames above.
//!
//! All of it lies in the window of physical memory, so every object is physically contiguous and a device can reach
//! it. Pages that became part of a class stay there; the kernel's objects are few and of few kinds.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::PAGE_SIZE;

use super::frames::{self, Frame};
use crate::sync::SpinLock;

const CLASSES: [usize; 13] = [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048];

struct FreeList(*mut FreeObject);

struct FreeObject {
    next: *mut FreeObject,
}

// SAFETY: the list owns the free objects it links.
unsafe impl Send for FreeList {}

static LISTS: [SpinLock<FreeList>; CLASSES.len()] =
    [const { SpinLock::new(FreeList(null_mut())) }; CLASSES.len()];
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes of the frames that the heap holds.
#[must_use]
pub fn heap_bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Index of the class for a layout, or `None` for whole frames.
fn class(layout: Layout) -> Option<usize> {
    // A class of a size that is a power of two is aligned to it; others to 16.
    let size = if layout.align() > 16 {
        layout.size().max(layout.align()).next_power_of_two()
    } else {
        layout.size()
    };
    CLASSES.iter().position(|class| size <= *class)
}

fn order(layout: Layout) -> u32 {
    let pages = layout.size().max(layout.align()).div_ceil(PAGE_SIZE);
    pages.next_power_of_two().trailing_zeros()
}

/// Cuts a frame into objects and returns the first; the others go to the list.
fn refill(list: &mut FreeList, size: usize) -> *mut u8 {
    let Some(frame) = frames::allocate(0) else {
        return null_mut();
    };
    BYTES.fetch_add(PAGE_SIZE, Ordering::Relaxed);
    let page = frame.bytes();
    for n in (1..PAGE_SIZE / size).rev() {
        // SAFETY: the object lies in the fresh frame.
        unsafe {
            let object = page.add(n * size).cast::<FreeObject>();
            (*object).next = list.0;
            list.0 = object;
        }
    }
    page
}

/// The kernel's global allocator.
pub struct KernelHeap;

// SAFETY: objects of a class are disjoint pieces of frames owned by the heap, large and aligned enough by `class`;
// larger ones are frames of their own, aligned to their size. `dealloc` computes the same class from the same layout.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(layout) else {
            let order = order(layout);
            return frames::allocate(order).map_or(null_mut(), |frame| {
                BYTES.fetch_add(PAGE_SIZE << order, Ordering::Relaxed);
                frame.bytes()
            });
        };
        let mut list = LISTS[class].lock();
        if list.0.is_null() {
            return refill(&mut list, CLASSES[class]);
        }
        let object = list.0;
        // SAFETY: the list holds free objects only.
        list.0 = unsafe { (*object).next };
        object.cast()
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let Some(class) = class(layout) else {
            let order = order(layout);
            BYTES.fetch_sub(PAGE_SIZE << order, Ordering::Relaxed);
            frames::release(Frame::containing(coracle_arch::layout::physical(at)), order);
            return;
        };
        let object = at.cast::<FreeObject>();
        let mut list = LISTS[class].lock();
        // SAFETY: the caller gives the object up, and every class is large enough for the link.
        unsafe { (*object).next = list.0 };
        list.0 = object;
    }
}
