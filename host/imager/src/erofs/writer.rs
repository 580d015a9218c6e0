// SPDX-License-Identifier: Apache-2.0
//! The writer: contents first, as they come; then, with [`Writer::finish`], the tree that names them.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::layout::{self, Layout, Place};
use super::{
    BLOCK, COMPAT_CHECKSUM, COMPAT_MTIME, DIRENT, EXTENDED, FLAT_INLINE, MAGIC, S_IFBLK, S_IFCHR,
    S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK, SUPERBLOCK_AT, SUPERBLOCK_BYTES, crc32c, xattr,
};
use crate::tree::{DeviceNumber, Inode, Kind, Tree};

/// The content of a file, given to a [`Writer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data(pub(super) Stored);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// Less than a block: kept until its inode is written.
    Small(Vec<u8>),
    /// In the image already.
    Blocks { first: u32, size: u64 },
}

impl Data {
    /// Bytes of the content.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.0 {
            Stored::Small(bytes) => bytes.len() as u64,
            Stored::Blocks { size, .. } => *size,
        }
    }
}

/// Writes an image.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// The next free block.
    next: u64,
}

impl<W: Write + Seek> Writer<W> {
    /// Begins an image at the start of `out`.
    ///
    /// # Errors
    /// What the target answers.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.rewind()?;
        out.write_all(&[0; BLOCK])?;
        Ok(Self { out, next: 1 })
    }

    /// Takes in the content of a file: exactly `size` bytes of `from`.
    ///
    /// # Errors
    /// What source and target answer; `UnexpectedEof` if the source ends early.
    pub fn data(&mut self, size: u64, from: impl Read) -> io::Result<Data> {
        let mut from = from.take(size);
        let early = |found: u64| {
            let text = format!("ends after {found} of {size} bytes");
            io::Error::new(io::ErrorKind::UnexpectedEof, text)
        };
        if size < BLOCK as u64 {
            let mut bytes = Vec::new();
            let found = from.read_to_end(&mut bytes)? as u64;
            return match found == size {
                true => Ok(Data(Stored::Small(bytes))),
                false => Err(early(found)),
            };
        }
        let first = block_number(self.next)?;
        let copied = io::copy(&mut from, &mut self.out)?;
        if copied != size {
            return Err(early(copied));
        }
        self.pad(size)?;
        self.next += size.div_ceil(BLOCK as u64);
        Ok(Data(Stored::Blocks { first, size }))
    }

    /// Writes the tree and the superblock; gives the target back, and the size of the image in bytes.
    ///
    /// # Errors
    /// What the target answers; `FileTooLarge` for an image of more than 16 TiB.
    pub fn finish(mut self, tree: &Tree<Data>) -> io::Result<(W, u64)> {
        let layout = Layout::new(tree);
        let meta_block = block_number(self.next)?;
        let more_block = self.next + (layout.meta_bytes / BLOCK) as u64;
        let blocks = block_number(more_block + layout.more_blocks)?;

        let mut meta = vec![0; layout.meta_bytes];
        // What does not fit there, in the order in which the layout counts it.
        let mut more = Vec::new();
        for (number, place) in (1..).zip(&layout.places) {
            let inode = tree.get(place.id);
            let mut content = match &inode.kind {
                Kind::Directory(_) => directory_bytes(tree, &layout, place),
                _ => layout::small_content(inode).to_vec(),
            };
            let record = &mut meta[place.position..];
            let end = place.head + place.xattrs.len();
            record[place.head..end].copy_from_slice(&place.xattrs);
            if place.format == FLAT_INLINE {
                let inline = content.split_off(content.len() / BLOCK * BLOCK);
                record[end..end + inline.len()].copy_from_slice(&inline);
            }
            let union = match (&inode.kind, place.more) {
                (Kind::File(Data(Stored::Blocks { first, .. })), _) => *first,
                (Kind::Character(device) | Kind::Block(device), _) => device_bits(*device),
                (_, Some(block)) => block_number(more_block + block)?,
                _ => 0,
            };
            inode_bytes(record, inode, place, union, number);
            if !content.is_empty() {
                more.push(content);
            }
        }
        self.out.write_all(&meta)?;
        for content in more {
            self.out.write_all(&content)?;
            self.pad(content.len() as u64)?;
        }
        self.superblock(&layout, meta_block, blocks)?;
        self.out.flush()?;
        Ok((self.out, u64::from(blocks) * BLOCK as u64))
    }

    /// Fills up the block in which `bytes` end.
    fn pad(&mut self, bytes: u64) -> io::Result<()> {
        let missing = bytes.next_multiple_of(BLOCK as u64) - bytes;
        io::copy(&mut io::repeat(0).take(missing), &mut self.out).map(drop)
    }

    fn superblock(&mut self, layout: &Layout, meta_block: u32, blocks: u32) -> io::Result<()> {
        let mut block = [0; BLOCK];
        let root = layout.nid(Tree::<Data>::ROOT);
        let root = u16::try_from(root).expect("the root is placed first");
        let inodes = layout.places.len() as u64;
        let mut put = |at: usize, bytes: &[u8]| {
            block[SUPERBLOCK_AT + at..][..bytes.len()].copy_from_slice(bytes);
        };
        put(0, &MAGIC.to_le_bytes());
        put(8, &(COMPAT_CHECKSUM | COMPAT_MTIME).to_le_bytes());
        put(12, &[BLOCK.trailing_zeros().to_le_bytes()[0]]);
        put(14, &root.to_le_bytes());
        put(16, &inodes.to_le_bytes());
        put(24, &layout.time.0.to_le_bytes());
        put(32, &layout.time.1.to_le_bytes());
        put(36, &blocks.to_le_bytes());
        put(40, &meta_block.to_le_bytes());
        let checksum = crc32c(&block[SUPERBLOCK_AT..]);
        block[SUPERBLOCK_AT + 4..][..4].copy_from_slice(&checksum.to_le_bytes());
        self.out.seek(SeekFrom::Start(SUPERBLOCK_AT as u64))?;
        let superblock = &block[SUPERBLOCK_AT..][..SUPERBLOCK_BYTES];
        self.out.write_all(superblock)
    }
}

/// A block number as the format records it.
fn block_number(block: u64) -> io::Result<u32> {
    u32::try_from(block).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// Type bits of `st_mode`, and the type that a folder's entry records.
fn file_type<F>(kind: &Kind<F>) -> (u16, u8) {
    match kind {
        Kind::Directory(_) => S_IFDIR,
        Kind::File(_) => S_IFREG,
        Kind::Symlink(_) => S_IFLNK,
        Kind::Character(_) => S_IFCHR,
        Kind::Block(_) => S_IFBLK,
        Kind::Fifo => S_IFIFO,
        Kind::Socket => S_IFSOCK,
    }
}

/// A device number as Linux records it on disk (`new_encode_dev`).
fn device_bits(device: DeviceNumber) -> u32 {
    (device.minor & 0xff) | ((device.major & 0xfff) << 8) | ((device.minor & 0xf_ff00) << 12)
}

/// Fills in the inode at the start of `record`.
fn inode_bytes(record: &mut [u8], inode: &Inode<Data>, place: &Place, union: u32, number: u32) {
    let meta = inode.meta;
    let mode = file_type(&inode.kind).0 | (meta.permissions & 0o7777);
    let is_extended = place.head == EXTENDED;
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(
        0,
        &(u16::from(is_extended) | place.format << 1).to_le_bytes(),
    );
    put(2, &xattr::count(place.xattrs.len()).to_le_bytes());
    put(4, &mode.to_le_bytes());
    if is_extended {
        put(8, &place.size.to_le_bytes());
        put(16, &union.to_le_bytes());
        put(20, &number.to_le_bytes());
        put(24, &meta.uid.to_le_bytes());
        put(28, &meta.gid.to_le_bytes());
        put(32, &meta.mtime_s.to_le_bytes());
        put(40, &meta.mtime_ns.to_le_bytes());
        put(44, &place.links.to_le_bytes());
    } else {
        // The layout chose this form because the upper halves are zero.
        put(6, &place.links.to_le_bytes()[..2]);
        put(8, &place.size.to_le_bytes()[..4]);
        put(16, &union.to_le_bytes());
        put(20, &number.to_le_bytes());
        put(24, &meta.uid.to_le_bytes()[..2]);
        put(26, &meta.gid.to_le_bytes()[..2]);
    }
}

/// The content of a folder: in each block the entries, then their names.
fn directory_bytes(tree: &Tree<Data>, layout: &Layout, place: &Place) -> Vec<u8> {
    let mut bytes = Vec::new();
    for block in layout::directory_blocks(&layout::directory(tree, place.id, place.parent)) {
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        let mut name_at = block.len() * DIRENT;
        for (name, id) in block {
            let offset = u16::try_from(name_at).expect("names lie within a block");
            bytes.extend(layout.nid(*id).to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            bytes.extend([file_type(&tree.get(*id).kind).1, 0]);
            name_at += name.len();
        }
        block.iter().for_each(|(name, _)| bytes.extend(*name));
    }
    bytes
}
