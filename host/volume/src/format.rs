// SPDX-License-Identifier: Apache-2.0
//! Makes an empty file system: the subset of ext4 that ext3 is, with a journal, inodes of 256 bytes and times in
//! nanoseconds. Only what differs from zero is written, so the file stays sparse.
//!
//! Source: the Linux kernel's `Documentation/filesystems/ext4`. `e2fsck` is asked whether the result is right.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Smallest file system: the journal alone has 4 MiB.
pub const SMALLEST: u64 = 16 << 20;
/// Largest file system: what 32-bit block numbers of the block map reach.
pub const LARGEST: u64 = 8 << 40;

const BLOCKS_PER_GROUP: u32 = 32768;
const INODE_BYTES: u32 = 256;
const INODES_PER_BLOCK: u32 = 4096 / INODE_BYTES;
/// Bytes for each inode, in small file systems and in others, as mke2fs has it.
const BYTES_PER_INODE: [u64; 2] = [4096, 16384];
const SMALL: u64 = 512 << 20;
/// Inodes below this number have a meaning of their own.
const FIRST_INODE: u32 = 11;
const ROOT_INODE: u32 = 2;
const JOURNAL_INODE: u32 = 8;
/// Least blocks of a journal (`JBD2_MIN_JOURNAL_BLOCKS`) and most that are useful here.
const JOURNAL_BLOCKS: std::ops::RangeInclusive<u32> = 1024..=8192;
/// Pointers in a block, and pointers in an inode that lead to data.
const POINTERS: u32 = 1024;
const DIRECT: u32 = 12;

/// Why a file system cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Too small or too large.
    #[error("a volume has at least {} MiB and at most {} TiB", SMALLEST >> 20, LARGEST >> 40)]
    Size,
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Where everything lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of 4096 bytes.
    pub blocks: u32,
    /// Groups of blocks.
    pub groups: u32,
    /// Inodes of each group.
    pub inodes_per_group: u32,
    /// Blocks of the journal.
    pub journal_blocks: u32,
}

impl Geometry {
    /// What `size_bytes` give room for.
    ///
    /// # Errors
    /// [`FormatError::Size`].
    pub fn new(size_bytes: u64) -> Result<Self, FormatError> {
        if !(SMALLEST..=LARGEST).contains(&size_bytes) {
            return Err(FormatError::Size);
        }
        let mut blocks = u32::try_from(size_bytes / BLOCK).unwrap_or(u32::MAX - 1);
        let groups = blocks.div_ceil(BLOCKS_PER_GROUP);
        let inodes = u32::try_from(size_bytes / BYTES_PER_INODE[usize::from(size_bytes >= SMALL)])
            .unwrap_or(u32::MAX);
        let inodes_per_group = inodes.div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
        let mut geometry = Self {
            blocks,
            groups,
            inodes_per_group,
            journal_blocks: (blocks / 64).clamp(*JOURNAL_BLOCKS.start(), *JOURNAL_BLOCKS.end()),
        };
        // A last group that could hold little but its own tables is left out.
        let last = blocks - (groups - 1) * BLOCKS_PER_GROUP;
        if groups > 1 && last < geometry.overhead(groups - 1) + 64 {
            blocks -= last;
            geometry.blocks = blocks;
            geometry.groups -= 1;
        }
        Ok(geometry)
    }

    fn table_blocks(&self) -> u32 {
        self.inodes_per_group / INODES_PER_BLOCK
    }

    fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(4096 / 32)
    }

    /// Whether a group has a copy of superblock and descriptors (`sparse_super`): 0, 1, and powers of 3, 5 and 7.
    fn has_super(group: u32) -> bool {
        let power_of = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        group <= 1 || power_of(3) || power_of(5) || power_of(7)
    }

    fn first_block(group: u32) -> u32 {
        group * BLOCKS_PER_GROUP
    }

    /// Block of the group's bitmap of blocks; the bitmap of inodes and their table follow.
    fn bitmaps(&self, group: u32) -> u32 {
        let copies = if Self::has_super(group) {
            1 + self.descriptor_blocks()
        } else {
            0
        };
        Self::first_block(group) + copies
    }

    /// Blocks at the start of a group that hold tables.
    fn overhead(&self, group: u32) -> u32 {
        self.bitmaps(group) - Self::first_block(group) + 2 + self.table_blocks()
    }

    fn blocks_of(&self, group: u32) -> u32 {
        (self.blocks - Self::first_block(group)).min(BLOCKS_PER_GROUP)
    }

    /// First block behind the tables of the first group: the root directory; the journal follows.
    fn first_free(&self) -> u32 {
        self.overhead(0)
    }

    /// Blocks that the journal needs to be mapped: one single and, in larger ones, double indirect blocks.
    fn journal_map_blocks(&self) -> u32 {
        let behind = self.journal_blocks.saturating_sub(DIRECT + POINTERS);
        1 + if behind == 0 {
            0
        } else {
            1 + behind.div_ceil(POINTERS)
        }
    }

    /// Blocks used in a group of a new file system.
    fn used(&self, group: u32) -> u32 {
        let content = if group == 0 {
            1 + self.journal_blocks + self.journal_map_blocks()
        } else {
            0
        };
        self.overhead(group) + content
    }
}

/// Bytes at fixed places, little-endian.
struct Block(Vec<u8>);

impl Block {
    fn new() -> Self {
        Self(vec![0; 4096])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn be32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    /// Sets the first `used` bits, and those behind `len` up to the end of the block.
    fn bitmap(used: u32, len: u32) -> Self {
        let mut block = Self::new();
        for bit in (0..used).chain(len..4096 * 8) {
            let at = usize::try_from(bit).unwrap_or(0);
            block.0[at / 8] |= 1 << (at % 8);
        }
        block
    }
}

/// A number that the format has 16 bits for.
fn low(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Makes an empty file system of `size_bytes` in `file`, which must be empty; the caller syncs it. The number `id`
/// becomes its UUID; `now_s` are seconds since 1970. The root directory has mode 0755 and belongs to root.
///
/// # Errors
/// [`FormatError`].
pub fn format(file: &File, size_bytes: u64, id: [u8; 16], now_s: u32) -> Result<(), FormatError> {
    let geometry = Geometry::new(size_bytes)?;
    file.set_len(u64::from(geometry.blocks) * BLOCK)?;
    let write =
        |block: u32, content: &Block| file.write_all_at(&content.0, u64::from(block) * BLOCK);
    for group in 0..geometry.groups {
        let at = geometry.bitmaps(group);
        let used = geometry.used(group);
        write(at, &Block::bitmap(used, geometry.blocks_of(group)))?;
        let inodes = if group == 0 { FIRST_INODE - 1 } else { 0 };
        write(at + 1, &Block::bitmap(inodes, geometry.inodes_per_group))?;
    }
    let descriptors = descriptors(&geometry);
    for group in (0..geometry.groups).filter(|group| Geometry::has_super(*group)) {
        let at = Geometry::first_block(group);
        let content = superblock(&geometry, group, id, now_s);
        let offset = if group == 0 { 1024 } else { 0 };
        file.write_all_at(&content.0[..1024], u64::from(at) * BLOCK + offset)?;
        for (n, block) in (1..).zip(&descriptors) {
            write(at + n, block)?;
        }
    }
    write_root(&geometry, now_s, &write)?;
    write_journal(&geometry, id, &write)?;
    Ok(())
}

fn superblock(geometry: &Geometry, group: u32, id: [u8; 16], now_s: u32) -> Block {
    let free: u32 = (0..geometry.groups)
        .map(|group| geometry.blocks_of(group) - geometry.used(group))
        .sum();
    let inodes = geometry.inodes_per_group * geometry.groups;
    let mut b = Block::new();
    b.u32(0, inodes);
    b.u32(4, geometry.blocks);
    b.u32(12, free);
    b.u32(16, inodes - (FIRST_INODE - 1));
    b.u32(24, 2); // blocks of 1024 << 2 bytes
    b.u32(28, 2);
    b.u32(32, BLOCKS_PER_GROUP);
    b.u32(36, BLOCKS_PER_GROUP);
    b.u32(40, geometry.inodes_per_group);
    b.u32(48, now_s);
    b.u16(54, u16::MAX); // no check after a number of mounts
    b.u16(56, 0xef53);
    b.u16(58, 1); // clean
    b.u16(60, 2); // after an error: read-only
    b.u32(64, now_s);
    b.u32(76, 1); // dynamic revision
    b.u32(84, FIRST_INODE);
    b.u16(88, low(INODE_BYTES));
    b.u16(90, low(group));
    b.u32(92, 0x4); // has_journal
    b.u32(96, 0x2); // filetype
    b.u32(100, 0x1 | 0x2 | 0x40); // sparse_super, large_file, extra_isize
    b.put(104, &id);
    b.u32(224, JOURNAL_INODE);
    b.put(236, &id); // seed of directory hashes
    b.put(252, &[1]); // half MD4, were there hashes
    b.u32(264, now_s);
    // A copy of where the journal lies (`s_jnl_blocks`).
    b.put(253, &[1]);
    for (n, pointer) in (0..).zip(journal_pointers(geometry)) {
        b.u32(268 + 4 * n, pointer);
    }
    b.u32(268 + 4 * 16, geometry.journal_blocks * 4096);
    b.u16(348, 32);
    b.u16(350, 32);
    b.u32(352, 1); // signed directory hash
    b
}

fn descriptors(geometry: &Geometry) -> Vec<Block> {
    let mut blocks: Vec<Block> = (0..geometry.descriptor_blocks())
        .map(|_| Block::new())
        .collect();
    for group in 0..geometry.groups {
        let index = usize::try_from(group).unwrap_or(0);
        let (block, at) = (&mut blocks[index / 128], index % 128 * 32);
        let bitmap = geometry.bitmaps(group);
        block.u32(at, bitmap);
        block.u32(at + 4, bitmap + 1);
        block.u32(at + 8, bitmap + 2);
        block.u16(
            at + 12,
            low(geometry.blocks_of(group) - geometry.used(group)),
        );
        let reserved = if group == 0 { FIRST_INODE - 1 } else { 0 };
        block.u16(at + 14, low(geometry.inodes_per_group - reserved));
        block.u16(at + 16, u16::from(group == 0));
    }
    blocks
}

/// Fills in an inode in its block of the first group's table.
fn inode(
    block: &mut Block,
    number: u32,
    mode: u16,
    links: u16,
    size: u32,
    blocks: u32,
    now_s: u32,
) {
    let at = inode_offset(number);
    block.u16(at, mode);
    block.u32(at + 4, size);
    for time in [8, 12, 16, 144] {
        block.u32(at + time, now_s);
    }
    block.u16(at + 26, links);
    block.u32(at + 28, blocks * 8);
    block.u16(at + 128, 32);
}

fn inode_offset(number: u32) -> usize {
    usize::try_from((number - 1) % INODES_PER_BLOCK * INODE_BYTES).unwrap_or(0)
}

type Write<'a> = &'a dyn Fn(u32, &Block) -> io::Result<()>;

/// The root directory and, with the inodes of root and journal in it, the first block of the inode table.
fn write_root(geometry: &Geometry, now_s: u32, write: Write<'_>) -> io::Result<()> {
    let data = geometry.first_free();
    let mut directory = Block::new();
    for (at, length, name) in [(0, 12, &b"."[..]), (12, 4096 - 12, b"..")] {
        directory.u32(at, ROOT_INODE);
        directory.u16(at + 4, length);
        directory.put(at + 6, &[u8::try_from(name.len()).unwrap_or(0), 2]);
        directory.put(at + 8, name);
    }
    write(data, &directory)?;

    let mut table = Block::new();
    inode(&mut table, ROOT_INODE, 0o040_755, 2, 4096, 1, now_s);
    table.u32(inode_offset(ROOT_INODE) + 40, data);
    let blocks = geometry.journal_blocks + geometry.journal_map_blocks();
    let bytes = geometry.journal_blocks * 4096;
    inode(
        &mut table,
        JOURNAL_INODE,
        0o100_600,
        1,
        bytes,
        blocks,
        now_s,
    );
    let at = inode_offset(JOURNAL_INODE) + 40;
    for (n, pointer) in (0..).zip(journal_pointers(geometry)) {
        table.u32(at + 4 * n, pointer);
    }
    write(geometry.bitmaps(0) + 2, &table)
}

/// First block of the journal's data; the blocks of its map lie before.
fn journal_data(geometry: &Geometry) -> u32 {
    geometry.first_free() + 1 + geometry.journal_map_blocks()
}

/// The pointers in the journal's inode.
fn journal_pointers(geometry: &Geometry) -> [u32; 15] {
    let (map, data) = (geometry.first_free() + 1, journal_data(geometry));
    let mut pointers = [0; 15];
    for (pointer, block) in pointers.iter_mut().zip(data..data + DIRECT) {
        *pointer = block;
    }
    pointers[12] = map;
    if geometry.journal_map_blocks() > 1 {
        pointers[13] = map + 1;
    }
    pointers
}

fn write_journal(geometry: &Geometry, id: [u8; 16], write: Write<'_>) -> io::Result<()> {
    let (map, data) = (geometry.first_free() + 1, journal_data(geometry));
    let end = data + geometry.journal_blocks;
    let mut next = data + DIRECT;
    let mut fill = |block: u32| {
        let mut pointers = Block::new();
        for (n, target) in (0..1024).zip(next..end) {
            pointers.u32(4 * n, target);
        }
        next = (next + POINTERS).min(end);
        write(block, &pointers)
    };
    fill(map)?;
    if geometry.journal_map_blocks() > 1 {
        let singles = map + 2..map + geometry.journal_map_blocks();
        let mut double = Block::new();
        for (n, single) in (0..).zip(singles.clone()) {
            double.u32(4 * n, single);
        }
        write(map + 1, &double)?;
        for single in singles {
            fill(single)?;
        }
    }
    let mut header = Block::new();
    header.be32(0, 0xc03b_3998);
    header.be32(4, 4); // superblock, version 2
    header.be32(12, 4096);
    header.be32(16, geometry.journal_blocks);
    header.be32(20, 1); // first block of the log
    header.be32(24, 1); // first transaction
    header.put(48, &id);
    header.be32(64, 1);
    write(data, &header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn made(size: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        format(file.as_file(), size, [7; 16], 1_700_000_000).unwrap();
        file
    }

    /// What e2fsck says, where it is installed.
    fn check(file: &tempfile::NamedTempFile) {
        let Ok(output) = Command::new("/usr/sbin/e2fsck")
            .args(["-fn"])
            .arg(file.path())
            .output()
        else {
            eprintln!("no e2fsck here: not checked");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
    }

    #[test]
    fn linux_finds_no_fault() {
        for mib in [16, 17, 64, 128, 129, 131, 300, 1024, 5000, 20_000] {
            check(&made(mib << 20));
        }
    }

    #[test]
    fn the_file_is_sparse() {
        use std::os::unix::fs::MetadataExt;
        let file = made(1 << 30);
        let meta = file.as_file().metadata().unwrap();
        assert_eq!(meta.len(), 1 << 30);
        assert!(meta.blocks() * 512 < 512 << 10, "{}", meta.blocks());
    }

    #[test]
    fn sizes_are_limited() {
        assert!(Geometry::new(SMALLEST - 1).is_err());
        assert!(Geometry::new(LARGEST + 1).is_err());
        assert!(Geometry::new(SMALLEST).is_ok() && Geometry::new(LARGEST).is_ok());
    }

    #[test]
    fn copies_are_where_linux_looks() {
        let with: Vec<u32> = (0..50).filter(|g| Geometry::has_super(*g)).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49]);
    }
}
