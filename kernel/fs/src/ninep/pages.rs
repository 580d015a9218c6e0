// SPDX-License-Identifier: Apache-2.0
//! The pages of a file that are mapped. Reads and writes do not come here: they go to the host, and what is mapped is
//! kept the same.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::memory::Page;
use coracle_core::sync::SpinLock;

const PAGE: u64 = u64_from(PAGE_SIZE);

struct Mapped {
    page: Page,
    /// A mapping may have written it since it was read.
    is_written: bool,
}

/// Pages by number.
pub(super) struct Pages(SpinLock<State>);

struct State {
    pages: BTreeMap<u64, Mapped>,
    /// Length of the file; `None` while nobody asked the host.
    size: Option<u64>,
    /// When the file changed last, as far as the pages show.
    modified_ns: u64,
    /// Counts changes: what was read before one is not put in after it.
    changes: u64,
}

/// What is known about a page.
pub(super) enum Known {
    Page(Page),
    Missing,
    /// It lies behind the end of the file.
    BehindEnd,
}

impl Pages {
    pub(super) const fn new() -> Self {
        Self(SpinLock::new(State {
            pages: BTreeMap::new(),
            size: None,
            modified_ns: 0,
            changes: 0,
        }))
    }

    pub(super) fn get(&self, index: u64, write: bool) -> Known {
        let mut state = self.0.lock();
        let Some(size) = state.size else {
            return Known::Missing;
        };
        if index.checked_mul(PAGE).is_none_or(|at| at >= size) {
            return Known::BehindEnd;
        }
        match state.pages.get_mut(&index) {
            Some(mapped) => {
                mapped.is_written |= write;
                Known::Page(mapped.page.clone())
            }
            None => Known::Missing,
        }
    }

    /// The number of changes so far.
    pub(super) fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// Puts pages in that were read, where none are and if nothing has changed since.
    pub(super) fn put(&self, first: u64, pages: Vec<Page>, changes: u64) {
        let mut state = self.0.lock();
        if state.changes != changes {
            return;
        }
        for (index, page) in (first..).zip(pages) {
            state.pages.entry(index).or_insert(Mapped {
                page,
                is_written: false,
            });
        }
    }

    /// The file is so long and was changed then, says the host. Returns pages that show what it was before: mappings must
    /// let go of them.
    pub(super) fn check(&self, size: u64, modified_ns: u64) -> Vec<(u64, Page)> {
        let mut state = self.0.lock();
        let is_same = state.modified_ns == modified_ns && state.size == Some(size);
        state.size = Some(size);
        state.modified_ns = modified_ns;
        if is_same {
            return Vec::new();
        }
        state.changes += 1;
        let stale: Vec<u64> = state
            .pages
            .iter()
            .filter(|(_, mapped)| !mapped.is_written)
            .map(|(index, _)| *index)
            .collect();
        stale
            .into_iter()
            .filter_map(|index| Some((index, state.pages.remove(&index)?.page)))
            .collect()
    }

    /// Nothing is mapped: the length is asked for again when something is.
    pub(super) fn forget_size(&self) {
        let mut state = self.0.lock();
        if state.pages.is_empty() {
            state.size = None;
        }
    }

    /// As [`Pages::check`] after a change by this guest, which the pages already show.
    pub(super) fn note(&self, size: u64, modified_ns: u64) {
        let mut state = self.0.lock();
        state.size = Some(size);
        state.modified_ns = modified_ns;
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().pages.is_empty()
    }

    /// The file ends there.
    pub(super) fn cut(&self, size: u64) {
        let mut state = self.0.lock();
        state.size = Some(size);
        state.changes += 1;
        let gone = state.pages.split_off(&size.div_ceil(PAGE));
        let within = usize_from(size % PAGE);
        if within > 0
            && let Some(last) = state.pages.get(&(size / PAGE))
        {
            last.page.zero(within, PAGE_SIZE - within);
        }
        drop(state);
        drop(gone);
    }

    /// Bytes were written to the file: the pages show them as well.
    pub(super) fn overwrite(&self, position: u64, bytes: &[Page], len: usize) {
        let mut state = self.0.lock();
        let end = position.saturating_add(u64_from(len));
        state.size = state.size.map(|size| size.max(end));
        state.changes += 1;
        if state.pages.is_empty() {
            return;
        }
        let mut piece = [0; 256];
        let mut done = 0;
        while done < len {
            let at = position + u64_from(done);
            let (offset, from) = (usize_from(at % PAGE), done % PAGE_SIZE);
            let step = piece
                .len()
                .min(len - done)
                .min(PAGE_SIZE - offset)
                .min(PAGE_SIZE - from);
            if let (Some(mapped), Some(source)) =
                (state.pages.get(&(at / PAGE)), bytes.get(done / PAGE_SIZE))
            {
                source.read(from, &mut piece[..step]);
                mapped.page.write(offset, &piece[..step]);
            }
            done += step;
        }
    }

    /// Pages that mappings may have written, with their numbers, and how long the file is.
    pub(super) fn written(&self) -> (Vec<(u64, Page)>, u64) {
        let state = self.0.lock();
        let written = state
            .pages
            .iter()
            .filter(|(_, mapped)| mapped.is_written)
            .map(|(index, mapped)| (*index, mapped.page.clone()))
            .collect();
        (written, state.size.unwrap_or(0))
    }
}
