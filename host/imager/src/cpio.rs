// SPDX-License-Identifier: Apache-2.0
//! A writer for cpio archives in *newc* format whose file data lies on page boundaries.
//!
//! Source: Linux `Documentation/driver-api/early-userspace/buffer-format.rst`. The padding of names is decision 0001:
//! `c_namesize` counts the NUL bytes behind the name, readers stop at the first, so every cpio reads such archives.

use std::io::{self, Read, Write};

/// Alignment of file data in the archive, in bytes: the page size of the guest.
pub const DATA_ALIGN: u64 = 4096;

/// Bytes of the fixed header of an entry.
const HEADER_BYTES: u64 = 110;

/// File type bits of `st_mode`, `inode(7)`.
const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;

/// What an entry records besides its name and data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// Permission bits, `07777` at most.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970; the format ends in 2106.
    pub mtime_s: u32,
}

/// Writes an archive entry by entry, without seeking, so that the target can be a pipe.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    offset: u64,
    next_inode: u32,
}

impl<W: Write> Writer<W> {
    /// Starts an archive at the present position of `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            offset: 0,
            next_inode: 1,
        }
    }

    /// Goes on where another writer paused on a page boundary after `entries` entries.
    pub fn resume(out: W, entries: u32) -> Self {
        Self {
            next_inode: 1 + entries,
            ..Self::new(out)
        }
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// What the target answers.
    pub fn directory(&mut self, name: &str, meta: Meta) -> io::Result<()> {
        self.header(name, S_IFDIR, 2, meta, 0, terminated(name))
    }

    /// Adds a symbolic link to `target`.
    ///
    /// # Errors
    /// What the target answers.
    pub fn symlink(&mut self, name: &str, target: &[u8], meta: Meta) -> io::Result<()> {
        let size = u32::try_from(target.len()).map_err(|_| too_large(name))?;
        self.header(name, S_IFLNK, 1, meta, size, terminated(name))?;
        self.write(target)?;
        self.pad_to(4)
    }

    /// Adds a regular file of exactly `size` bytes read from `data`; the data starts on a page of the archive if it fills
    /// one, which the kernel then maps where it lies.
    ///
    /// # Errors
    /// What source and target answer; `UnexpectedEof` if the source ends early; `InvalidInput` if the file exceeds the
    /// 4 GiB the format can record.
    pub fn file(&mut self, name: &str, meta: Meta, size: u64, data: impl Read) -> io::Result<()> {
        let recorded = u32::try_from(size).map_err(|_| too_large(name))?;
        let unpadded_end = self.offset + HEADER_BYTES + terminated(name);
        let padding = match size {
            0..DATA_ALIGN => 0,
            _ => unpadded_end.next_multiple_of(DATA_ALIGN) - unpadded_end,
        };
        let name_size = terminated(name) + padding;
        self.header(name, S_IFREG, 1, meta, recorded, name_size)?;
        let copied = io::copy(&mut data.take(size), &mut self.out)?;
        self.offset += copied;
        if copied != size {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{name} became shorter while it was read"),
            ));
        }
        self.pad_to(4)
    }

    /// Leaves the archive without an end, so that another writer can go on, and gives the target back with the number of
    /// bytes so far.
    ///
    /// # Errors
    /// What the target answers.
    pub fn pause(mut self) -> io::Result<(W, u64)> {
        self.out.flush()?;
        Ok((self.out, self.offset))
    }

    /// Ends the archive and gives the target back, with the archive's size in bytes.
    ///
    /// # Errors
    /// What the target answers.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.next_inode = 0;
        self.header(
            "TRAILER!!!",
            0,
            1,
            Meta::default(),
            0,
            terminated("TRAILER!!!"),
        )?;
        self.pad_to(DATA_ALIGN)?;
        self.out.flush()?;
        Ok((self.out, self.offset))
    }

    fn header(
        &mut self,
        name: &str,
        kind: u32,
        links: u32,
        meta: Meta,
        size: u32,
        name_size: u64,
    ) -> io::Result<()> {
        let inode = self.next_inode;
        self.next_inode = self.next_inode.wrapping_add(1);
        let mode = kind | (meta.permissions & 0o7777);
        // Device numbers and the check sum are zero in this format's plain variant.
        let header = format!(
            "070701{inode:08x}{mode:08x}{:08x}{:08x}{links:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{name_size:08x}{:08x}",
            meta.uid, meta.gid, meta.mtime_s, 0, 0, 0, 0, 0
        );
        debug_assert_eq!(header.len() as u64, HEADER_BYTES);
        self.write(header.as_bytes())?;
        self.write(name.as_bytes())?;
        self.zeros(name_size - name.len() as u64)?;
        self.pad_to(4)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad_to(&mut self, align: u64) -> io::Result<()> {
        self.zeros(self.offset.next_multiple_of(align) - self.offset)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        self.offset += count;
        io::copy(&mut io::repeat(0).take(count), &mut self.out).map(drop)
    }
}

/// Bytes of a name with the NUL that ends it.
fn terminated(name: &str) -> u64 {
    name.len() as u64 + 1
}

fn too_large(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{name} is larger than the 4 GiB a boot bundle can hold for one file"),
    )
}
