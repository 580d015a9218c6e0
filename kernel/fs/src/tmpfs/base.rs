// SPDX-License-Identifier: Apache-2.0
//! What a file's content is made of before anybody changes it, and how a step over it may end.

use alloc::sync::Arc;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::file::File;
use coracle_core::memory::Page;

use crate::Errno;

/// Bytes that live for ever, and how to get a page of them without a copy.
#[derive(Clone, Copy)]
pub struct StaticBytes {
    /// The bytes.
    pub bytes: &'static [u8],
    /// Gives the page for 4096 bytes that start at a multiple of 4096 in memory; `None` if that cannot be, and the
    /// bytes are copied then.
    pub page: fn(&'static [u8]) -> Option<Page>,
}

/// What a file's content is as long as nobody changed it.
pub(super) enum Base {
    /// Bytes in memory.
    Static(StaticBytes),
    /// The first `len` bytes of a file of the lower layer.
    Lower { file: Arc<dyn File>, len: u64 },
}

impl Base {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Static(base) => u64_from(base.bytes.len()),
            Self::Lower { len, .. } => *len,
        }
    }

    /// Lets the base end at `size`, which is not behind its end.
    pub(super) fn cut(&mut self, size: u64) {
        match self {
            Self::Static(base) => base.bytes = &base.bytes[..usize_from(size)],
            Self::Lower { len, .. } => *len = size,
        }
    }
}

/// Why a step of a transfer ended.
pub(super) enum Stop {
    /// It failed.
    Error(Errno),
    /// This page of that lower file must be in memory first.
    Fetch(Arc<dyn File>, u64),
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Error(error)
    }
}

/// What a step came to.
pub(super) type Step<T> = core::result::Result<T, Stop>;

/// A page of the base that mappings may show, and that the file has replaced by a page of its own.
pub(super) struct Replaced {
    pub(super) index: u64,
    pub(super) page: Page,
}
