// SPDX-License-Identifier: Apache-2.0
//! The kernel's half of the address space.
//!
//! | from                  | what                                                                    |
//! |-----------------------|-------------------------------------------------------------------------|
//! | `0x0000_0000_0001_0000` | the application, up to `abi::USER_END`                                |
//! | `0xffff_8000_0000_0000` | all physical memory, writable, never executable; slides by 1 GiB steps |
//! | `0xffff_e000_0000_0000` | mappings made by the kernel: stacks with guard pages, device registers |
//! | `0xffff_ffff_8000_0000` | the kernel image, within 1 GiB; slides by 2 MiB steps                  |

use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::PAGE_SIZE;

/// Where the image was linked.
pub const IMAGE_BASE: usize = 0xffff_ffff_8000_0000;

/// Start of the window of all physical memory, before its slide.
pub const DIRECT_BASE: usize = 0xffff_8000_0000_0000;

/// Largest physical address the window can show (exclusive): 1 TiB of addresses holds 64 GiB of memory and devices.
pub const DIRECT_LEN: usize = 1 << 40;

/// Steps of 1 GiB by which the window may slide.
pub const DIRECT_SLIDES: usize = 1 << 13;

/// Start of the range for kernel mappings.
pub const KERNEL_MAP_BASE: usize = 0xffff_e000_0000_0000;

/// End of the range for kernel mappings.
pub const KERNEL_MAP_END: usize = 0xffff_f000_0000_0000;

static DIRECT_OFFSET: AtomicUsize = AtomicUsize::new(0);
static IMAGE_PHYSICAL: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static __image_start: u8;
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __image_end: u8;
    static __rela_start: u8;
    static __rela_end: u8;
    static boot_pml4: u8;
    static boot_tables_end: u8;
}

pub(super) fn set_direct_offset(offset: usize) {
    DIRECT_OFFSET.store(offset, Ordering::Relaxed);
}

pub(super) fn set_image_physical(physical: usize) {
    IMAGE_PHYSICAL.store(physical, Ordering::Relaxed);
}

/// The kernel's address for a physical one. It is mapped if the address is memory.
#[inline]
#[must_use]
pub fn direct(physical: u64) -> *mut u8 {
    (DIRECT_OFFSET.load(Ordering::Relaxed) + coracle_abi::convert::usize_from(physical)) as *mut u8
}

/// The physical address of kernel memory: the window or the image. Panics for other addresses (stacks are mapped page
/// by page and have no single answer).
#[inline]
#[must_use]
pub fn physical(at: *const u8) -> u64 {
    let (at, offset) = (at as usize, DIRECT_OFFSET.load(Ordering::Relaxed));
    let image = image();
    let physical = if image.contains(&at) {
        at - image.start + IMAGE_PHYSICAL.load(Ordering::Relaxed)
    } else {
        assert!(
            at >= offset && at - offset < DIRECT_LEN,
            "address {at:#x} has no fixed physical address"
        );
        at - offset
    };
    coracle_abi::convert::u64_from(physical)
}

/// Addresses of the kernel image.
#[must_use]
pub fn image() -> core::ops::Range<usize> {
    (&raw const __image_start) as usize..(&raw const __image_end) as usize
}

/// Addresses of the kernel's code.
#[inline]
#[must_use]
pub fn text() -> core::ops::Range<usize> {
    (&raw const __text_start) as usize..(&raw const __text_end) as usize
}

/// Addresses of the kernel's constants.
#[must_use]
pub fn rodata() -> core::ops::Range<usize> {
    (&raw const __text_end) as usize..(&raw const __rodata_end) as usize
}

/// Parts of the image, in whole pages and in order, that nobody needs once the final page tables are in use: the first
/// ones, and the relocations.
#[must_use]
pub fn discardable() -> [core::ops::Range<usize>; 2] {
    let pages = |start: *const u8, end: *const u8| {
        let start = (start as usize).next_multiple_of(PAGE_SIZE);
        start..(end as usize & !(PAGE_SIZE - 1)).max(start)
    };
    [
        pages(&raw const boot_pml4, &raw const boot_tables_end),
        pages(&raw const __rela_start, &raw const __rela_end),
    ]
}

/// Where the first byte of the image lies in physical memory.
#[must_use]
pub fn image_physical() -> u64 {
    coracle_abi::convert::u64_from(IMAGE_PHYSICAL.load(Ordering::Relaxed))
}

/// How far the image slid from where it was linked, to look addresses up in the symbol file.
#[must_use]
pub fn slide() -> usize {
    image().start - IMAGE_BASE
}
