// SPDX-License-Identifier: Apache-2.0
//! Making a mapping: `mmap(2)`.

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::{Errno, PAGE_SIZE, USER_END, USER_START};

use super::{Area, SPACE, pages, to_u64};
use crate::Result;

/// What a mapping is asked for.
pub struct MapRequest {
    /// Where; 0 lets the kernel choose.
    pub hint: usize,
    /// How long, in bytes.
    pub len: usize,
    /// Exactly there: `MAP_FIXED` replaces what is there, `MAP_FIXED_NOREPLACE` fails.
    pub fixed: Option<bool>,
    /// Below 2 GiB (`MAP_32BIT`).
    pub low: bool,
    /// Alignment of an address chosen by the kernel, a power of two of at least a page.
    pub align: usize,
    /// What is mapped.
    pub area: Area,
}

/// Where mappings with `MAP_32BIT` go, as on Linux.
const LOW: core::ops::Range<u64> = 0x4000_0000..0x8000_0000;

/// Most mappings; Linux's default of `vm.max_map_count`.
const MOST: usize = 65_530;

/// Maps, and returns the address. `EINVAL` for a bad address or length 0, `ENOMEM` if no room is there or there are too
/// many mappings, `EEXIST` for `MAP_FIXED_NOREPLACE` over something.
pub fn map(request: MapRequest) -> Result<usize> {
    if request.len == 0 {
        return Err(Errno::EINVAL);
    }
    let len = request
        .len
        .checked_next_multiple_of(PAGE_SIZE)
        .ok_or(Errno::ENOMEM)?;
    let mut space = SPACE.lock();
    if space.areas.len() >= MOST {
        return Err(Errno::ENOMEM);
    }
    let mut removed = alloc::vec::Vec::new();
    let at = if let Some(replace) = request.fixed {
        let range = pages(request.hint, len, Errno::ENOMEM)?;
        if range.start < USER_START {
            return Err(Errno::EPERM);
        }
        if replace {
            removed = space.remove(range.clone());
        } else if !space.areas.is_free(to_u64(range.clone())) {
            return Err(Errno::EEXIST);
        }
        range.start
    } else {
        let hint = request.hint & !(PAGE_SIZE - 1);
        let hint = (hint >= USER_START && hint.checked_add(len).is_some_and(|end| end <= USER_END))
            .then_some(hint);
        // A hint may lie above the top (Go asks for fixed places), so it is tried over the whole range first.
        let free = hint.filter(|at| space.areas.is_free(to_u64(*at..*at + len)));
        let found = free.or_else(|| {
            if !request.low {
                return space.find_place(len, request.align);
            }
            let (len, align) = (u64_from(len), u64_from(request.align));
            let at = space.areas.find_gap(len, align, LOW, true, None)?;
            Some(usize_from(at))
        });
        found.ok_or(Errno::ENOMEM)?
    };
    let inserted = space.areas.insert(to_u64(at..at + len), request.area);
    drop(space);
    drop(removed);
    inserted.map_err(|_| Errno::ENOMEM)?;
    Ok(at)
}
