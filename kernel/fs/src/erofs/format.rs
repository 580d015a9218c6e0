// SPDX-License-Identifier: Apache-2.0
//! The on-disk format (Linux, Documentation/filesystems/erofs.rst and "EROFS On-Disk Format" there): bytes in, facts
//! out. Nothing here reads a device, and nothing panics whatever the bytes are.

use core::fmt;

use coracle_abi::convert::{low_u32, u64_from};
use coracle_abi::raw::general as g;

use crate::vfs::{Kind, device_number};
use crate::{Errno, Result};

/// Where the superblock lies.
pub const SUPERBLOCK_AT: u64 = 1024;
/// Its length.
pub const SUPERBLOCK_LEN: usize = 128;
const MAGIC: u32 = 0xe0f5_e1e2;

/// The only block size that is read: files' blocks are then whole pages of the page cache.
pub const BLOCK: u64 = 4096;
const BLOCK_BITS: u8 = 12;

/// `feature_compat`: the superblock has a checksum.
const COMPAT_CHECKSUM: u32 = 1;

/// Bits of `feature_incompat` that change nothing for files that are not compressed.
const KNOWN: u32 = 0x1 | 0x4;
/// The other bits, by name.
const FEATURES: [(u32, &str); 6] = [
    (0x2, "compression (big clusters or its configuration)"),
    (0x8, "several devices"),
    (0x10, "compressed tails"),
    (0x20, "fragments"),
    (0x40, "long prefixes of extended attributes"),
    (0xffff_ff80, "a feature newer than this kernel"),
];

/// Slots of 32 bytes in which inodes lie.
const SLOT: u64 = 32;

/// Why an image cannot be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountError {
    /// The device failed.
    Device(Errno),
    /// The first blocks are no EROFS file system.
    NotErofs,
    /// The checksum of the superblock is wrong.
    Checksum,
    /// Blocks of another size; the power of two.
    BlockBits(u8),
    /// A feature that is not read here.
    Feature(&'static str),
    /// The device is shorter than the file system: bytes there are, bytes there should be.
    CutShort(u64, u64),
    /// The root is no directory, or cannot be read.
    Root(Errno),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "the disk cannot be read: {error}"),
            Self::NotErofs => f.write_str("no EROFS file system on the disk"),
            Self::Checksum => {
                f.write_str("the checksum of the EROFS superblock is wrong: the image is damaged")
            }
            Self::BlockBits(bits) => write!(
                f,
                "EROFS with blocks of 2^{bits} bytes; only 4096 are supported (mkfs.erofs -b 4096)"
            ),
            Self::Feature(name) => write!(
                f,
                "the EROFS image uses {name}, which is not supported; make it without (mkfs.erofs without -z and -E)"
            ),
            Self::CutShort(there, wanted) => write!(
                f,
                "the EROFS image is cut short: {there} bytes of {wanted} are there"
            ),
            Self::Root(error) => write!(
                f,
                "the root directory of the EROFS image is damaged: {error}"
            ),
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// What the superblock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superblock {
    /// Number of the root directory's inode.
    pub root: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Time of files that have none of their own, nanoseconds since 1970.
    pub time_ns: u64,
    /// First byte of the inodes.
    pub inodes_at: u64,
    /// First byte of the shared extended attributes.
    pub attributes_at: u64,
}

impl Superblock {
    /// Reads the superblock from the first block of the device. The checksum covers the rest of that block.
    ///
    /// # Errors
    /// [`MountError`] for everything but `CutShort` and `Root`.
    pub fn parse(block: &[u8]) -> Result<Self, MountError> {
        let at = usize::try_from(SUPERBLOCK_AT).unwrap_or(usize::MAX);
        let bytes = block
            .get(at..)
            .filter(|b| b.len() >= SUPERBLOCK_LEN)
            .ok_or(MountError::NotErofs)?;
        if u32_at(bytes, 0) != MAGIC {
            return Err(MountError::NotErofs);
        }
        if bytes[12] != BLOCK_BITS {
            return Err(MountError::BlockBits(bytes[12]));
        }
        if u32_at(bytes, 8) & COMPAT_CHECKSUM != 0 && checksum(bytes) != u32_at(bytes, 4) {
            return Err(MountError::Checksum);
        }
        let incompatible = u32_at(bytes, 80) & !KNOWN;
        if let Some((_, name)) = FEATURES.iter().find(|(bit, _)| incompatible & bit != 0) {
            return Err(MountError::Feature(name));
        }
        Ok(Self {
            root: u16_at(bytes, 14).into(),
            inodes: u64_at(bytes, 16),
            blocks: u32_at(bytes, 36).into(),
            time_ns: nanoseconds(u64_at(bytes, 24), u32_at(bytes, 32)),
            inodes_at: u64::from(u32_at(bytes, 40)) * BLOCK,
            attributes_at: u64::from(u32_at(bytes, 44)) * BLOCK,
        })
    }

    /// First byte of an inode; `EUCLEAN` if no device is that long.
    pub fn inode_at(&self, number: u64) -> Result<u64> {
        number
            .checked_mul(SLOT)
            .and_then(|offset| offset.checked_add(self.inodes_at))
            .ok_or(Errno::EUCLEAN)
    }
}

fn nanoseconds(seconds: u64, rest: u32) -> u64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(rest.into())
}

/// CRC-32C of the superblock and what follows it in the block, with zeroes in place of the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for (at, byte) in bytes.iter().enumerate() {
        crc ^= u32::from(if (4..8).contains(&at) { 0 } else { *byte });
        for _ in 0..8 {
            crc = if crc & 1 != 0 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
        }
    }
    crc
}

/// How the content of a file lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In blocks that follow each other, from this one on.
    Plain {
        /// First block.
        block: u64,
    },
    /// As `Plain`, but for the part behind the last whole block, which follows the inode.
    Inline {
        /// First block.
        block: u64,
        /// First byte of the rest.
        tail_at: u64,
    },
    /// In chunks, of which a table behind the inode says where they lie.
    Chunks {
        /// Blocks of a chunk, as a power of two.
        bits: u32,
        /// First byte of the table.
        table_at: u64,
        /// Entries are of 8 bytes, with a device and the block; otherwise of 4 with the block.
        indexes: bool,
    },
    /// Devices, pipes and sockets have none.
    None,
}

/// What an inode says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Type.
    pub kind: Kind,
    /// Type and permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change, nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of a device.
    pub device: u64,
    /// Content.
    pub layout: Layout,
    /// Where the extended attributes lie: first byte and length; no length if there are none.
    pub attributes: (u64, u64),
}

/// Bytes of the longer form of an inode, which is enough for both.
pub const INODE_MAX: usize = 64;
/// Bytes of the shorter form.
pub const INODE_MIN: usize = 32;

/// Whether the inode that begins with these bytes is of the longer form.
#[must_use]
pub fn is_extended(bytes: &[u8]) -> bool {
    u16_at(bytes, 0) & 1 != 0
}

impl Node {
    /// Reads an inode that begins at byte `at` of the device. `bytes` holds all of it. `EUCLEAN` if it makes no sense,
    /// `EOPNOTSUPP` if its content is compressed.
    pub fn parse(bytes: &[u8], at: u64, superblock: &Superblock) -> Result<Self> {
        let format = u16_at(bytes, 0);
        let extended = is_extended(bytes);
        if bytes.len() < if extended { INODE_MAX } else { INODE_MIN } {
            return Err(Errno::EUCLEAN);
        }
        let mode = u32::from(u16_at(bytes, 4));
        let kind = Kind::from_mode(mode).ok_or(Errno::EUCLEAN)?;
        let (size, links, uid, gid, time_ns) = if extended {
            (
                u64_at(bytes, 8),
                u32_at(bytes, 44),
                u32_at(bytes, 24),
                u32_at(bytes, 28),
                nanoseconds(u64_at(bytes, 32), u32_at(bytes, 40)),
            )
        } else {
            (
                u32_at(bytes, 8).into(),
                u16_at(bytes, 6).into(),
                u16_at(bytes, 24).into(),
                u16_at(bytes, 26).into(),
                superblock.time_ns,
            )
        };
        // Offsets are signed numbers of 64 bits.
        if size > i64::MAX.unsigned_abs() {
            return Err(Errno::EUCLEAN);
        }
        let body = at + u64_from(if extended { INODE_MAX } else { INODE_MIN });
        let attribute_bytes = match u64::from(u16_at(bytes, 2)) {
            0 => 0,
            count => 12 + 4 * (count - 1),
        };
        let union = u32_at(bytes, 16);
        let is_content = matches!(kind, Kind::File | Kind::Directory | Kind::Symlink);
        let layout = if is_content {
            let end = body + attribute_bytes;
            layout(format >> 1 & 7, union, end, size)?
        } else {
            Layout::None
        };
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        Ok(Self {
            kind,
            mode,
            size: if is_content { size } else { 0 },
            links,
            uid,
            gid,
            time_ns,
            device: if is_device { device(union) } else { 0 },
            layout,
            attributes: (body, attribute_bytes),
        })
    }

    /// Number of whole and partial blocks of the content.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.size.div_ceil(BLOCK)
    }
}

fn layout(number: u16, union: u32, end: u64, size: u64) -> Result<Layout> {
    let block = u64::from(union);
    match number {
        0 => Ok(Layout::Plain { block }),
        2 => {
            // The rest lies within the block in which the inode ends.
            if !size.is_multiple_of(BLOCK) && end % BLOCK + size % BLOCK > BLOCK {
                return Err(Errno::EUCLEAN);
            }
            Ok(Layout::Inline {
                block,
                tail_at: end,
            })
        }
        4 => {
            let (bits, indexes) = (union & 0x1f, union & 0x20 != 0);
            if union & 0xffc0 != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            let align = if indexes { 8 } else { 4 };
            Ok(Layout::Chunks {
                bits,
                table_at: end.next_multiple_of(align),
                indexes,
            })
        }
        1 | 3 => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EUCLEAN),
    }
}

/// A device number as Linux packs it into 32 bits (`new_encode_dev`).
fn device(packed: u32) -> u64 {
    let major = (packed & 0xf_ff00) >> 8;
    let minor = (packed & 0xff) | (packed >> 12 & 0xf_ff00);
    device_number(major, minor)
}

/// The block in an entry of a chunk table; `None` for a hole. `EUCLEAN` for another device than the first.
pub fn chunk_block(entry: &[u8], indexes: bool) -> Result<Option<u64>> {
    let block = if indexes {
        if u16_at(entry, 2) != 0 {
            return Err(Errno::EUCLEAN);
        }
        u32_at(entry, 4)
    } else {
        u32_at(entry, 0)
    };
    Ok((block != u32::MAX).then_some(block.into()))
}

/// Bytes of a directory entry without its name.
pub const ENTRY: usize = 12;

/// A directory entry without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the inode.
    pub inode: u64,
    /// Where the name begins within the block.
    pub name_at: usize,
    /// `DT_*` type.
    pub kind: u8,
}

impl Entry {
    /// Reads the 12 bytes of an entry.
    #[must_use]
    pub fn parse(bytes: &[u8; ENTRY]) -> Self {
        const KINDS: [u32; 8] = [
            0,
            g::S_IFREG,
            g::S_IFDIR,
            g::S_IFCHR,
            g::S_IFBLK,
            g::S_IFIFO,
            g::S_IFSOCK,
            g::S_IFLNK,
        ];
        let mode = KINDS.get(usize::from(bytes[10])).copied().unwrap_or(0);
        Self {
            inode: u64_at(bytes, 0),
            name_at: u16_at(bytes, 8).into(),
            kind: Kind::from_mode(mode).map_or(0, Kind::dirent_type),
        }
    }
}

/// Number of entries of a directory block of `len` bytes, from where its first name begins.
pub fn entry_count(first: &Entry, len: usize) -> Result<usize> {
    let at = first.name_at;
    if at < ENTRY || at > len || !at.is_multiple_of(ENTRY) {
        return Err(Errno::EUCLEAN);
    }
    Ok(at / ENTRY)
}

/// Fixed part of an inode's extended attributes; the numbers of shared ones follow, then those of its own.
pub const ATTRIBUTES_HEADER: usize = 12;

/// Number of shared attributes, from the fixed part.
#[must_use]
pub fn shared_count(header: &[u8]) -> u64 {
    header.get(4).copied().unwrap_or(0).into()
}

/// Bytes of an attribute before its name.
pub const ATTRIBUTE: usize = 4;

/// An extended attribute without its name and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Beginning of the name, which stands for itself.
    pub prefix: &'static [u8],
    /// Bytes of the rest of the name.
    pub name_len: u64,
    /// Bytes of the value.
    pub value_len: u64,
}

impl Attribute {
    /// Reads the bytes before the name. `EUCLEAN` for a prefix nobody knows.
    pub fn parse(bytes: &[u8; ATTRIBUTE]) -> Result<Self> {
        let prefix: &[u8] = match bytes[1] {
            0 => b"",
            1 => b"user.",
            2 => b"system.posix_acl_access",
            3 => b"system.posix_acl_default",
            4 => b"trusted.",
            6 => b"security.",
            _ => return Err(Errno::EUCLEAN),
        };
        Ok(Self {
            prefix,
            name_len: bytes[0].into(),
            value_len: u16_at(bytes, 2).into(),
        })
    }

    /// Bytes with name and value, up to the next attribute.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        (u64_from(ATTRIBUTE) + self.name_len + self.value_len).next_multiple_of(4)
    }
}

/// The number at the start of `bytes`, of a shared attribute.
#[must_use]
pub fn shared_id(bytes: &[u8]) -> u32 {
    low_u32(u32_at(bytes, 0).into())
}
