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
/// End of the memory that firmware and VMM use before the kernel runs, and for what they tell it.
const LOW_END: u64 = 1 << 20;
/// First address below [`LOW_END`] that becomes ordinary memory; below lies the page for starting further CPUs.
const LOW_START: u64 = 0x1_0000;

/// A page below 1 MiB that is kept free for starting further CPUs.
#[must_use]
pub const fn low_memory() -> u64 {
    0x8000
}

/// Takes over the first MiB as well, once nothing that the VMM left there is needed any more. `memory` are the ranges
/// of RAM.
pub fn add_low_memory(memory: impl Iterator<Item = Range<u64>>) {
    for range in memory {
        let start = range.start.next_multiple_of(PAGE).max(LOW_START);
        let end = (range.end & !(PAGE - 1)).min(LOW_END);
        if start < end {
            frames::add(start..end);
        }
    }
}

/// Takes over the memory: builds the final page tables and the frame allocator.
///
/// `memory` are the ranges of RAM, `reserved` those among them that hold something (boot modules and what describes
/// them); the kernel image is known. `random` decides where the window of physical memory lies. Memory below 1 MiB is
/// left alone until [`add_low_memory`].
pub fn init(
    memory: impl Iterator<Item = Range<u64>>,
    reserved: impl Iterator<Item = Range<u64>>,
    random: u64,
) -> Result<(), &'static str> {
    let mut ram = [const { 0..0 }; RANGES];
    let mut ram_len = 0;
    for range in memory {
        let start = range.start.next_multiple_of(PAGE).max(LOW_END);
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
        if used_len < RANGES - 4 {
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
    // The image without what it needed for boot only.
    let mut kept_from = image.start;
    for part in layout::discardable() {
        let offset = |at: usize| image.start + u64_from(at - layout::image().start);
        used[used_len] = kept_from..offset(part.start);
        used_len += 1;
        kept_from = offset(part.end);
    }
    used[used_len] = kept_from..behind;
    // Replaced by what was really used once that is known.
    used[used_len + 1] = behind..limit;
    let used = &used[..used_len + 2];

    frames::init_early(behind..limit);
    // The whole first MiB is mapped too: PVH structures and the page for starting CPUs lie there.
    let window = core::iter::once(0..LOW_END).chain(ram.iter().cloned());
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
