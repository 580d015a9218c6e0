// SPDX-License-Identifier: Apache-2.0
//! One mapping: what it allows and where its content comes from.

use alloc::sync::Arc;

use coracle_abi::raw::general as g;
use coracle_arch::paging::Access;
use coracle_logic::range_map::Split;

use crate::file::OpenFile;
use crate::memory::Page;

bitflags::bitflags! {
    /// What a mapping allows; the bits of `PROT_*`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Protection: u32 {
        /// Reading.
        const READ = g::PROT_READ;
        /// Writing.
        const WRITE = g::PROT_WRITE;
        /// Executing.
        const EXECUTE = g::PROT_EXEC;
    }
}

impl Protection {
    /// What the page tables allow for this: a page that can be written or executed can be read.
    pub(super) fn access(self) -> Access {
        Access {
            read: !self.is_empty(),
            write: self.contains(Self::WRITE),
            execute: self.contains(Self::EXECUTE),
        }
    }
}

/// Where the content of a mapping comes from.
#[derive(Clone)]
pub enum Backing {
    /// Zeroes.
    Anonymous,
    /// A file, from `offset` bytes on.
    File {
        /// The file, kept open by the mapping.
        file: Arc<OpenFile>,
        /// Position of the area's first byte.
        offset: u64,
    },
    /// One page made by the kernel (the vDSO).
    Kernel {
        /// The page.
        page: Page,
    },
}

/// One mapping.
#[derive(Clone)]
pub struct Area {
    /// What it allows.
    pub protection: Protection,
    /// Changes reach the file.
    pub shared: bool,
    /// Content.
    pub backing: Backing,
    /// It grows downwards when the page below it is touched (stacks).
    pub grows_down: bool,
    /// Name in `/proc/self/maps`, for example `[stack]`.
    pub name: &'static str,
}

impl Area {
    /// An anonymous private mapping.
    #[must_use]
    pub fn anonymous(protection: Protection, name: &'static str) -> Self {
        Self {
            protection,
            shared: false,
            backing: Backing::Anonymous,
            grows_down: false,
            name,
        }
    }

    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.backing, Backing::Anonymous)
    }
}

impl Split for Area {
    fn split_off(&mut self, offset: u64) -> Self {
        let mut rest = self.clone();
        if let Backing::File { offset: start, .. } = &mut rest.backing {
            *start += offset;
        }
        rest
    }

    fn try_merge(&self, next: &Self, gap_len: u64) -> bool {
        let same_backing = match (&self.backing, &next.backing) {
            (Backing::Anonymous, Backing::Anonymous) => true,
            (Backing::File { file: a, offset: x }, Backing::File { file: b, offset: y }) => {
                Arc::ptr_eq(a, b) && x + gap_len == *y
            }
            _ => false,
        };
        same_backing
            && self.protection == next.protection
            && self.shared == next.shared
            && self.grows_down == next.grows_down
            && self.name == next.name
    }
}
