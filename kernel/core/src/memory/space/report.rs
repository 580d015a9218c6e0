// SPDX-License-Identifier: Apache-2.0
//! Looking at the address space from outside, for `/proc`.

use alloc::vec::Vec;
use core::ops::Range;

use coracle_abi::PAGE_SIZE;
use coracle_arch::paging::{self, Update};

use super::{Area, SPACE, to_usize};

/// Copies of all areas in order of their addresses, each with the bytes of it that are present.
#[must_use]
pub fn snapshot() -> Vec<(Range<usize>, Area, usize)> {
    let space = SPACE.lock();
    space
        .areas
        .iter()
        .map(|(range, area)| {
            let range = to_usize(range);
            let mut present = 0;
            // Nothing changes but huge pages over the border of two areas, which become small ones; if there is no
            // memory for that, they are not counted.
            let _ = paging::update(range.clone(), &mut |_, mapping| {
                present += if mapping.huge {
                    paging::HUGE_SIZE
                } else {
                    PAGE_SIZE
                };
                Update::Keep
            });
            (range, area.clone(), present)
        })
        .collect()
}
