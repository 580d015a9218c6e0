// SPDX-License-Identifier: Apache-2.0
//! Taking over the machine's memory.

use core::ops::Range;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_arch::{layout, paging};

use super::Page;
use super::frames::{self, Frame};
use crate::{Errno, Result};

const PAGE: u64 = PAGE_SIZE as u64;
/// Most ranges of memory that are used.
const RANGES: usize = 32;

/// A page below 1 MiB that is kept free for starting further CPUs.
#[must_use]
pub const fn low_memory() -> u64 {
    0x8000
}

/// Takes over the memory: builds the final page tables and the frame allocator.
///
/// `memory` are the ranges of RAM, `reserved` those among them that hold something (boot modules and what describes
/// them); the kernel image is known. `random` decides where the window of physical memory lies. Memory below 1 MiB is
/// left alone.
pub fn init(
    memory: impl Iterator<Item = Range<u64>>,
    reserved: impl Iterator<Item = Range<u64>>,
    random: u64,
) -> Result<(), &'static str> {
    let mut ram = [const { 0..0 }; RANGES];
    let mut ram_len = 0;
    for range in memory {
        let start = range.start.next_multiple_of(PAGE).max(1 << 20);
        let end = (range.end & !(PAGE - 1)).min(u64_from(layout::DIRECT_LEN));
        if start < end && ram_len < RANGES {
            ram[ram_len] = start..end;
            ram_len += 1;
        }
    }
    let ram = &ram[..ram_len];

    let image =
        layout::image_physical()..layout::image_physical() + u64_from(layout::image().len());
    let mut used = [const { 0..0 }; RANGES];
    let mut used_len = 0;
    for range in reserved {
        if used_len < RANGES - 2 {
            used[used_len] = range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE);
            used_len += 1;
        }
    }
    // Early frames come from behind the image, up to what is reserved next or the end of that memory.
    let behind = image.end.next_multiple_of(PAGE);
    let limit = ram
        .iter()
        .find(|r| r.contains(&behind))
        .map(|r| r.end)
        .ok_or("no memory behind the kernel image")?
        .min(1 << 30);
    let limit = used[..used_len]
        .iter()
        .map(|r| r.start)
        .filter(|s| *s >= behind)
        .min()
        .unwrap_or(limit)
        .min(limit);
    used[used_len] = image.start..behind;
    // Replaced by what was really used once that is known.
    used[used_len + 1] = behind..limit;
    let used = &used[..used_len + 2];

    frames::init_early(behind..limit);
    // The whole first MiB is mapped too: PVH structures and the page for starting CPUs lie there.
    let window = core::iter::once(0..1 << 20).chain(ram.iter().cloned());
    // SAFETY: called once during boot; the early frames lie below 1 GiB and belong to nobody.
    unsafe {
        paging::init(
            window,
            usize_from(random % u64_from(layout::DIRECT_SLIDES)),
            frames::allocate_for_table,
        )
    }
    .map_err(|_| "no memory for page tables")?;
    frames::init(ram, used).ok_or("no memory for the frame table")
}

/// The page that begins at this address of boot memory (the boot module), never to be freed. `EINVAL` if the address is
/// not page-aligned boot memory.
pub fn static_page(bytes: &'static [u8]) -> Result<Page> {
    let at = bytes.as_ptr();
    if bytes.len() < PAGE_SIZE || !(at as usize).is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let frame = Frame::containing(layout::physical(at));
    // An uncounted frame of a reserved range: count it once and for ever.
    let page = Page::from_frame(frame);
    page.pin();
    let clone = page.clone();
    let _ = page.into_frame();
    Ok(clone)
}
