// SPDX-License-Identifier: Apache-2.0
//! EROFS, the read-only file system in which a guest gets its root: what of the format is used, and its numbers.
//!
//! Images are uncompressed, in blocks of 4 KiB. From the start: one block with the superblock, the contents of files of a
//! block or more (each begins a block, so that a page of a file is a block of the image and can be mapped as it is), the
//! metadata area, and the parts of folders and links that did not fit into it. In the metadata area each inode is
//! followed by its extended attributes, and by the content of a file of less than a block, a link or the end of a folder.
//! The same tree gives the same bytes.
//!
//! Source: Linux `Documentation/filesystems/erofs.rst` and `fs/erofs/erofs_fs.h`.

mod extract;
mod layout;
mod reader;
mod writer;
mod xattr;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub use extract::{ExtractError, extract};
pub use reader::{Found, ReadError, Reader};
pub use writer::{Data, Writer};

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Position of the superblock, bytes.
const SUPERBLOCK_AT: usize = 1024;
/// Bytes of the superblock.
const SUPERBLOCK_BYTES: usize = 128;
/// `EROFS_SUPER_MAGIC_V1`
const MAGIC: u32 = 0xe0f5_e1e2;
/// The superblock has a checksum.
const COMPAT_CHECKSUM: u32 = 1;
/// The time of the superblock, which compact inodes share, is one of modification.
const COMPAT_MTIME: u32 = 2;
/// Inode numbers count units of so many bytes from the start of the metadata area.
const SLOT: usize = 32;
/// Bytes of a compact inode and of an extended one, which has a time, wide identities and sizes.
const COMPACT: usize = 32;
const EXTENDED: usize = 64;
/// The two ways content is stored: in blocks of its own, or with its last block behind the inode.
const FLAT_PLAIN: u16 = 0;
const FLAT_INLINE: u16 = 2;
/// Bytes of an entry of a folder without the name.
const DIRENT: usize = 12;

/// File types of `st_mode`, `inode(7)`, with the types that entries of folders record.
const S_IFMT: u16 = 0o170_000;
const S_IFREG: (u16, u8) = (0o100_000, 1);
const S_IFDIR: (u16, u8) = (0o040_000, 2);
const S_IFCHR: (u16, u8) = (0o020_000, 3);
const S_IFBLK: (u16, u8) = (0o060_000, 4);
const S_IFIFO: (u16, u8) = (0o010_000, 5);
const S_IFSOCK: (u16, u8) = (0o140_000, 6);
const S_IFLNK: (u16, u8) = (0o120_000, 7);

/// CRC-32C (Castagnoli) as EROFS uses it: without the inversion at the end.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

/// Whether the file is as long as its superblock says: one that lost its end is no image any more.
pub(crate) fn is_whole(path: &Path) -> bool {
    let mut blocks = [0; 4];
    File::open(path)
        .and_then(|file| {
            file.read_exact_at(&mut blocks, SUPERBLOCK_AT as u64 + 36)?;
            let wanted = u64::from(u32::from_le_bytes(blocks)) * BLOCK as u64;
            Ok(file.metadata()?.len() >= wanted)
        })
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of the catalogue of CRCs, before its last inversion.
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }
}
