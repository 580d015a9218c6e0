// SPDX-License-Identifier: Apache-2.0
//! The bytes of 9P2000.L messages: little-endian numbers, strings with their length in front. The protocol is described
//! by `diod`'s `protocol.md` and `Documentation/filesystems/9p.rst` of Linux; types are those of the 9P manual, `intro(5)`.
//!
//! What the host answers may be anything. A [`Reader`] gives `EIO` where an answer ends too soon and never panics.

use alloc::vec::Vec;

use coracle_abi::convert::{low_u16, u64_from, usize_from_u32};

use crate::{Errno, Result};

/// Numbers of the requests; the answer to each is the next number.
pub(super) mod kind {
    /// The answer to any request that failed.
    pub(in super::super) const RLERROR: u8 = 7;
    pub(in super::super) const STATFS: u8 = 8;
    pub(in super::super) const LOPEN: u8 = 12;
    pub(in super::super) const LCREATE: u8 = 14;
    pub(in super::super) const SYMLINK: u8 = 16;
    pub(in super::super) const MKNOD: u8 = 18;
    pub(in super::super) const READLINK: u8 = 22;
    pub(in super::super) const GETATTR: u8 = 24;
    pub(in super::super) const SETATTR: u8 = 26;
    pub(in super::super) const READDIR: u8 = 40;
    pub(in super::super) const FSYNC: u8 = 50;
    pub(in super::super) const LINK: u8 = 70;
    pub(in super::super) const MKDIR: u8 = 72;
    pub(in super::super) const RENAMEAT: u8 = 74;
    pub(in super::super) const UNLINKAT: u8 = 76;
    pub(in super::super) const VERSION: u8 = 100;
    pub(in super::super) const ATTACH: u8 = 104;
    pub(in super::super) const WALK: u8 = 110;
    pub(in super::super) const READ: u8 = 116;
    pub(in super::super) const WRITE: u8 = 118;
    pub(in super::super) const CLUNK: u8 = 120;
}

/// Bytes of what every message begins with: length, type, tag.
pub(super) const HEADER: usize = 7;

/// The tag of the first message, which agrees on the version.
pub(super) const NO_TAG: u16 = u16::MAX;

/// No fid, no user, no group.
pub(super) const NONE: u32 = u32::MAX;

/// A message being written. The fields follow the order of the message.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(kind: u8, tag: u16) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&[0; 4]);
        bytes.push(kind);
        bytes.extend_from_slice(&tag.to_le_bytes());
        Self(bytes)
    }

    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string or name; all that come here are below 64 KiB (`PATH_MAX`).
    pub(super) fn string(mut self, bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() <= usize::from(u16::MAX));
        self.0
            .extend_from_slice(&low_u16(u64_from(bytes.len())).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    /// The message, behind which `data` more bytes are sent.
    pub(super) fn finish(mut self, data: usize) -> Vec<u8> {
        let len = u32::try_from(self.0.len() + data).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&len.to_le_bytes());
        self.0
    }
}

/// An answer being read.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Errno::EIO)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn string(&mut self) -> Result<&'a [u8]> {
        let len = usize::from(self.u16()?);
        let (string, rest) = self.0.split_at_checked(len).ok_or(Errno::EIO)?;
        self.0 = rest;
        Ok(string)
    }

    pub(super) fn qid(&mut self) -> Result<Qid> {
        Ok(Qid {
            kind: self.u8()?,
            version: self.u32()?,
            path: self.u64()?,
        })
    }

    /// Whether all was read.
    pub(super) fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

/// The host's name for a file: `qid` of `intro(5)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qid {
    /// Bits of the type.
    pub(super) kind: u8,
    /// Changes with the content.
    pub(super) version: u32,
    /// Inode number, unique within the share.
    pub(super) path: u64,
}

impl Qid {
    const DIRECTORY: u8 = 0x80;
    const SYMLINK: u8 = 0x02;

    pub(super) fn is_directory(&self) -> bool {
        self.kind & Self::DIRECTORY != 0
    }

    pub(super) fn is_symlink(&self) -> bool {
        self.kind & Self::SYMLINK != 0
    }
}

/// What an answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) tag: u16,
}

impl Header {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            len: usize_from_u32(reader.u32()?),
            kind: reader.u8()?,
            tag: reader.u16()?,
        })
    }
}

/// The error number of an `Rlerror`. What asks to try again, and what is no error number, is `EIO`.
pub(super) fn errno(number: u32) -> Errno {
    match Errno::from_number(number) {
        Some(Errno::EAGAIN) | None => Errno::EIO,
        Some(error) => error,
    }
}
