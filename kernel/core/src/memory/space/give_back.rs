// SPDX-License-Identifier: Apache-2.0
//! Taking pages of the page cache out of mappings when memory is short: a clock whose hand passes over the mappings of
//! files. What is taken out is read again when it is touched.

use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::convert::u64_from;
use coracle_abi::{PAGE_SIZE, USER_END, USER_START};
use coracle_arch::paging::{self, Mapping, Update};

use super::{Backing, SPACE, Space, release_mapping, to_usize};
use crate::memory::Page;
use crate::memory::frames::Frame;

/// Where the hand is. Changed under the lock of the space.
static HAND: AtomicUsize = AtomicUsize::new(USER_START);

/// Pages that are taken out between two flushes.
const BATCH: usize = 64;

/// Takes up to about `wanted` pages out of mappings, those first that were not touched since the hand last passed, and
/// returns how many. They stay in the cache.
pub(crate) fn give_back(wanted: usize) -> usize {
    let mut space = SPACE.lock();
    let (mut taken, mut rounds) = (0, 0);
    let mut hand = HAND.load(Ordering::Relaxed);
    // The first round takes the marks of use away; the one under way may have begun in the middle.
    while taken < wanted && rounds < 3 {
        let from = u64_from(hand)..u64_from(USER_END);
        let next = space
            .areas
            .overlapping(from)
            .find(|(_, area)| matches!(area.backing, Backing::File { .. }))
            .map(|(range, _)| to_usize(range));
        match next {
            Some(range) => hand = space.take_cached(hand.max(range.start)..range.end, &mut taken),
            None => {
                hand = USER_START;
                rounds += 1;
            }
        }
    }
    HAND.store(hand, Ordering::Relaxed);
    taken
}

/// Whether the page that is mapped here can be read again: nobody writes it, and it is in the page cache.
fn is_clean(mapping: &Mapping) -> bool {
    if mapping.huge || mapping.access.write {
        return false;
    }
    let page = Page::from_frame(Frame::containing(mapping.physical));
    let cached = page.is_cached();
    let _ = page.into_frame(); // the count is the mapping's
    cached
}

impl Space {
    /// Takes one batch out of a range and adds its size to `taken`. Returns where it stopped.
    fn take_cached(&mut self, range: core::ops::Range<usize>, taken: &mut usize) -> usize {
        let mut batch: [Option<Mapping>; BATCH] = [None; BATCH];
        let mut count = 0;
        let (mut first, mut last) = (range.end, range.start);
        let mut stopped = range.end;
        // Small pages need no table, so this does not fail.
        let _ = paging::update(range, &mut |at, mapping| {
            if !is_clean(&mapping) {
                return Update::Keep;
            }
            if mapping.accessed {
                return Update::Age;
            }
            if count == BATCH {
                stopped = at;
                return Update::Stop;
            }
            batch[count] = Some(mapping);
            count += 1;
            first = first.min(at);
            last = at + PAGE_SIZE;
            Update::Remove
        });
        if count > 0 {
            paging::flush(first..last);
            batch.into_iter().flatten().for_each(release_mapping);
            *taken += count;
        }
        stopped
    }
}
