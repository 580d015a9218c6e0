// SPDX-License-Identifier: Apache-2.0
//! Files that mappings may have written, so that no write is lost: closing a file does not sleep, so it cannot write back.
//! Whoever unmaps or closes looks here afterwards, and so does the end of the program.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_core::sync::SpinLock;

use super::file::Opened;

static LEFT: SpinLock<Vec<Arc<Opened>>> = SpinLock::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The file has a page that a mapping may write. Called with the address space locked.
pub(super) fn remember(file: &Weak<Opened>) {
    let mut left = LEFT.lock();
    if left
        .iter()
        .all(|known| !core::ptr::eq(Arc::as_ptr(known), file.as_ptr()))
        && let Some(file) = file.upgrade()
    {
        left.push(file);
        COUNT.store(left.len(), Ordering::Release);
    }
}

/// Whether a file has such a page.
pub(super) fn is_any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Writes back what mappings wrote: of files that nobody uses any more, or of `all`. Sleeps.
pub fn write_back(all: bool) {
    if !is_any() {
        return;
    }
    let is_unused = |file: &Arc<Opened>| Arc::strong_count(file) == 1;
    let mut taken = Vec::new();
    let mut left = LEFT.lock();
    let mut at = 0;
    while at < left.len() {
        if is_unused(&left[at]) {
            taken.push(left.swap_remove(at));
        } else {
            at += 1;
        }
    }
    if all {
        taken.extend(left.iter().cloned());
    }
    COUNT.store(left.len(), Ordering::Release);
    drop(left);
    for file in taken {
        if let Err(error) = file.write_back() {
            log::warn!("9p: what was written to a mapping is lost: {error}");
        }
    }
}
