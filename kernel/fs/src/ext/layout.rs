// SPDX-License-Identifier: Apache-2.0
//! The format on disk: where fields lie, and whether a superblock describes something this kernel can use.
//!
//! Source: the Linux kernel's `Documentation/filesystems/ext4`.

use alloc::string::String;
use core::fmt;

use coracle_abi::convert::{u64_from, usize_from, usize_from_u32};
use coracle_abi::{Errno, PAGE_SIZE};
use coracle_core::memory::Page;

/// Bytes of a block; other sizes are refused.
pub(super) const BLOCK: u64 = 4096;
const _: () = assert!(u64_from(PAGE_SIZE) == BLOCK);
/// Pointers to blocks in a block.
pub(super) const POINTERS: u64 = BLOCK / 4;
/// Pointers in an inode that lead to data, and the places of those that lead to pointers.
pub(super) const DIRECT: u64 = 12;
/// Bytes of an inode of this kernel's volumes.
pub(super) const INODE_BYTES: usize = 256;
/// Longest text of a link that is kept in the inode.
pub(super) const FAST_LINK: usize = 59;
/// Most names of a file.
pub(super) const LINKS_MAX: u32 = 65_000;
/// Largest file: its blocks are counted in 32 bits of 512 bytes.
pub(super) const MAX_SIZE: u64 = (1 << 41) - (1 << 32);

/// Number of the root directory's inode.
pub(super) const ROOT: u32 = 2;

/// `s_feature_incompat`: directory entries have types; the journal must be replayed.
pub(super) const FILETYPE: u32 = 0x2;
pub(super) const RECOVER: u32 = 0x4;
/// `s_feature_ro_compat`: sparse_super, large_file, dir_nlink, extra_isize.
const WRITABLE: u32 = 0x1 | 0x2 | 0x20 | 0x40;
/// `s_feature_compat`: has_journal.
const HAS_JOURNAL: u32 = 0x4;

/// Fields of the superblock, from the start of block 0.
pub(super) mod sb {
    const AT: usize = 1024;
    pub(in super::super) const FREE_BLOCKS: usize = AT + 12;
    pub(in super::super) const FREE_INODES: usize = AT + 16;
    pub(in super::super) const WRITTEN: usize = AT + 48;
    pub(in super::super) const INCOMPAT: usize = AT + 96;
    pub(in super::super) const LAST_ORPHAN: usize = AT + 232;
}

/// Fields of a group's descriptor.
pub(super) mod gd {
    pub(in super::super) const BLOCK_BITMAP: usize = 0;
    pub(in super::super) const INODE_BITMAP: usize = 4;
    pub(in super::super) const INODE_TABLE: usize = 8;
    pub(in super::super) const FREE_BLOCKS: usize = 12;
    pub(in super::super) const FREE_INODES: usize = 14;
    pub(in super::super) const DIRECTORIES: usize = 16;
    pub(in super::super) const BYTES: u32 = 32;
}

/// Fields of an inode.
pub(super) mod ino {
    pub(in super::super) const MODE: usize = 0;
    pub(in super::super) const UID: usize = 2;
    pub(in super::super) const SIZE: usize = 4;
    pub(in super::super) const ACCESSED: usize = 8;
    pub(in super::super) const CHANGED: usize = 12;
    pub(in super::super) const MODIFIED: usize = 16;
    pub(in super::super) const DELETED: usize = 20;
    pub(in super::super) const GID: usize = 24;
    pub(in super::super) const LINKS: usize = 26;
    pub(in super::super) const SECTORS: usize = 28;
    pub(in super::super) const FLAGS: usize = 32;
    pub(in super::super) const POINTERS: usize = 40;
    pub(in super::super) const GENERATION: usize = 100;
    pub(in super::super) const SIZE_HIGH: usize = 108;
    pub(in super::super) const UID_HIGH: usize = 120;
    pub(in super::super) const GID_HIGH: usize = 122;
    pub(in super::super) const EXTRA: usize = 128;
    pub(in super::super) const CHANGED_EXTRA: usize = 132;
    pub(in super::super) const MODIFIED_EXTRA: usize = 136;
    pub(in super::super) const ACCESSED_EXTRA: usize = 140;
    pub(in super::super) const CREATED: usize = 144;
    pub(in super::super) const CREATED_EXTRA: usize = 148;
}

/// Bytes of the fields behind the first 128 that this kernel knows (`i_extra_isize`).
pub(super) const EXTRA_BYTES: u16 = 32;

/// Inode flag of a directory with an index; its blocks can be read without.
pub(super) const FLAG_INDEX: u32 = 0x1000;
/// Inode flags that change how content is found or what may be done with it, none of which is understood: compressed,
/// immutable, append-only, encrypted, extents, content in the inode.
pub(super) const FLAGS_FOREIGN: u32 = 0x4 | 0x10 | 0x20 | 0x800 | 0x8_0000 | 0x1000_0000;

/// Little-endian number at `at`; the caller keeps within the block.
pub(super) fn get16(page: &Page, at: usize) -> u16 {
    let mut bytes = [0; 2];
    page.read(at, &mut bytes);
    u16::from_le_bytes(bytes)
}

/// As [`get16`].
pub(super) fn get32(page: &Page, at: usize) -> u32 {
    let mut bytes = [0; 4];
    page.read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// As [`get16`].
pub(super) fn put16(page: &Page, at: usize, value: u16) {
    page.write(at, &value.to_le_bytes());
}

/// As [`get16`].
pub(super) fn put32(page: &Page, at: usize, value: u32) {
    page.write(at, &value.to_le_bytes());
}

/// Why a device cannot be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountError {
    /// There is no such file system on it.
    NotExt,
    /// It uses something this kernel does not know.
    Unsupported(String),
    /// What is wrong with it.
    Damaged(&'static str),
    /// The device failed.
    Device(Errno),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotExt => f.write_str("no ext3 or ext4 file system is on it"),
            Self::Unsupported(what) => write!(
                f,
                "its file system uses {what}; volumes are made by `coracle volume create` or `mke2fs -t ext3 -I 256`"
            ),
            Self::Damaged(what) => write!(
                f,
                "the file system is damaged ({what}); repair it: e2fsck -f with the volume's file, see coracle volume inspect"
            ),
            Self::Device(error) => write!(f, "the device cannot be read: {error}"),
        }
    }
}

impl core::error::Error for MountError {}

impl From<Errno> for MountError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::EUCLEAN => Self::Damaged("a block that must be there is out of place"),
            error => Self::Device(error),
        }
    }
}

/// What of the superblock never changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) blocks: u32,
    pub(super) inodes: u32,
    pub(super) blocks_per_group: u32,
    pub(super) inodes_per_group: u32,
    pub(super) groups: u32,
    pub(super) first_inode: u32,
    pub(super) journal_inode: u32,
}

impl Layout {
    /// Reads the superblock in block 0 of a device with `device_blocks` blocks.
    pub(super) fn parse(page: &Page, device_blocks: u64) -> Result<Self, MountError> {
        let field = |at: usize| get32(page, 1024 + at);
        let short = |at: usize| get16(page, 1024 + at);
        if short(56) != 0xef53 {
            return Err(MountError::NotExt);
        }
        let (compat, incompat, ro_compat) = (field(92), field(96), field(100));
        let foreign = incompat & !(FILETYPE | RECOVER);
        if foreign != 0 {
            return Err(unsupported(feature_name(foreign), foreign));
        }
        if ro_compat & !WRITABLE != 0 {
            return Err(unsupported(None, ro_compat & !WRITABLE));
        }
        if incompat & FILETYPE == 0 || compat & HAS_JOURNAL == 0 || field(76) == 0 {
            return Err(MountError::Unsupported("the format of ext2".into()));
        }
        if field(24) != 2 || short(88) != 256 || field(20) != 0 {
            return Err(MountError::Unsupported(
                "blocks other than 4096 or inodes other than 256 bytes".into(),
            ));
        }
        let layout = Self {
            blocks: field(4),
            inodes: field(0),
            blocks_per_group: field(32),
            inodes_per_group: field(40),
            groups: 0,
            first_inode: field(84),
            journal_inode: field(224),
        };
        layout.checked(device_blocks)
    }

    fn checked(mut self, device_blocks: u64) -> Result<Self, MountError> {
        let damaged = |what| Err(MountError::Damaged(what));
        if u64::from(self.blocks) > device_blocks {
            return damaged("it is longer than the disk");
        }
        if self.blocks < 64 || self.blocks_per_group != 32768 {
            return damaged("the number of blocks");
        }
        if self.inodes_per_group == 0
            || self.inodes_per_group > 32768
            || !self.inodes_per_group.is_multiple_of(16)
        {
            return damaged("the number of inodes of a group");
        }
        self.groups = self.blocks.div_ceil(self.blocks_per_group);
        if self.groups.checked_mul(self.inodes_per_group) != Some(self.inodes) {
            return damaged("the number of inodes");
        }
        if self.first_inode < 11 || self.first_inode > self.inodes_per_group {
            return damaged("the first inode");
        }
        if self.journal_inode != 8 {
            return Err(MountError::Unsupported(
                "a journal that is elsewhere".into(),
            ));
        }
        Ok(self)
    }

    /// Block and offset of a group's descriptor.
    pub(super) fn descriptor(group: u32) -> (u32, usize) {
        let per_block = 4096 / gd::BYTES;
        let at = group % per_block * gd::BYTES;
        (1 + group / per_block, usize_from_u32(at))
    }

    /// Blocks of a group, fewer for the last one.
    pub(super) fn blocks_of(&self, group: u32) -> u32 {
        (self.blocks - group * self.blocks_per_group).min(self.blocks_per_group)
    }

    /// Blocks of a group's table of inodes.
    pub(super) fn table_blocks(&self) -> u32 {
        self.inodes_per_group / 16
    }

    /// Group and place within it of an inode; `EUCLEAN` if there is none of that number.
    pub(super) fn inode_place(&self, number: u32) -> Result<(u32, u32), Errno> {
        if number == 0 || number > self.inodes {
            return Err(Errno::EUCLEAN);
        }
        Ok((
            (number - 1) / self.inodes_per_group,
            (number - 1) % self.inodes_per_group,
        ))
    }
}

fn unsupported(name: Option<&'static str>, bits: u32) -> MountError {
    MountError::Unsupported(match name {
        Some(name) => name.into(),
        None => alloc::format!("features it does not know ({bits:#x})"),
    })
}

fn feature_name(bits: u32) -> Option<&'static str> {
    [
        (0x40, "extents"),
        (0x80, "64-bit block numbers"),
        (0x200, "flex_bg"),
        (0x8, "a journal on another device"),
        (0x1_0000, "encryption"),
    ]
    .into_iter()
    .find(|(bit, _)| bits & bit != 0)
    .map(|(_, name)| name)
}

/// A time in nanoseconds since 1970 as its two fields: seconds, and nanoseconds with two more bits of seconds.
pub(super) fn encode_time(ns: u64) -> (u32, u32) {
    use coracle_abi::convert::low_u32;
    let seconds = ns / 1_000_000_000;
    let low = low_u32(seconds);
    // The low field is signed: what it lacks to the true number is counted in units of 2^32 s.
    let sign = u64::from(low >> 31);
    let epoch = ((seconds >> 32) + sign) & 3;
    (low, low_u32(ns % 1_000_000_000) << 2 | low_u32(epoch))
}

/// The reverse of [`encode_time`]; times before 1970 become 1970.
pub(super) fn decode_time(seconds: u32, extra: u32) -> u64 {
    let epoch = i64::from(extra & 3) << 32;
    let seconds = i64::from(seconds.cast_signed()) + epoch;
    let ns = u64::from(extra >> 2).min(999_999_999);
    u64::try_from(seconds).map_or(0, |s| s.saturating_mul(1_000_000_000).saturating_add(ns))
}

/// Index into a block of a number below 4096.
pub(super) fn within(offset: u64) -> usize {
    usize_from(offset % BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive() {
        let s = 1_000_000_000;
        for ns in [
            0,
            1,
            s,
            1_763_000_000 * s + 7,
            (1 << 31) * s,
            (1 << 32) * s + 5,
            (1 << 33) * s,
        ] {
            let (seconds, extra) = encode_time(ns);
            assert_eq!(decode_time(seconds, extra), ns, "{ns}");
        }
        assert_eq!(decode_time(u32::MAX, 0), 0);
    }
}
