// SPDX-License-Identifier: Apache-2.0
//! The messages, each as a function that sends it and reads its answer. Sleeps until the host has answered.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU16, Ordering};

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{low_u32, u64_from, usize_from_u32};
use coracle_core::device::{Message, ShareDevice};
use coracle_core::memory::Page;
use coracle_core::sync::SpinLock;

use super::wire::{HEADER, Header, NO_TAG, NONE, Qid, Reader, Writer, errno, kind};
use crate::vfs::{device_major, device_minor};
use crate::{Errno, Result};

/// Room for answers other than data and paths; the longest is that to `Tgetattr`.
const ANSWER: usize = 256;
/// Room for the answer to `Treadlink`: a path of `PATH_MAX`.
const PATH_ANSWER: usize = HEADER + 2 + 4096;
/// The least that the host must be able to send at once.
const LEAST_MESSAGE: usize = 2 * PAGE_SIZE;
/// Bytes before the data of an answer to `Tread` and `Treaddir`; no less than an `Rlerror`.
const DATA_ANSWER: usize = HEADER + 4;
/// Tags of messages whose answer nobody waits for are from here on.
const FIRST_POSTED: u16 = 0xf000;
/// Fids that wait for a message to take them along.
const MOST_LEFT: usize = 1024;

/// The connection to a share.
pub(super) struct Client {
    device: Arc<dyn ShareDevice>,
    /// Largest message, agreed with the host.
    message_bytes: usize,
    tags: SpinLock<Numbers<u16>>,
    next_posted: AtomicU16,
    fids: SpinLock<Numbers<u32>>,
    /// Fids of which the host has yet to be told that they are not used any more.
    left: SpinLock<Vec<u32>>,
}

/// Numbers in use. A number that is free again is not given soon.
struct Numbers<T> {
    used: BTreeSet<T>,
    next: T,
}

impl<T: Copy + Ord> Numbers<T> {
    fn take(&mut self, after: impl Fn(T) -> T) -> T {
        while self.used.contains(&self.next) {
            self.next = after(self.next);
        }
        let number = self.next;
        self.used.insert(number);
        self.next = after(number);
        number
    }
}

/// The host's handle of a file. The host is told when this is dropped.
pub(super) struct Fid {
    client: Arc<Client>,
    number: u32,
    /// The host knows it.
    is_known: bool,
}

impl Drop for Fid {
    fn drop(&mut self) {
        if self.is_known {
            self.client.leave(self.number);
        } else {
            self.client.fids.lock().used.remove(&self.number);
        }
    }
}

/// Data behind a message: pages, and how many bytes of them.
enum Data<'a> {
    None,
    Sent(&'a [Page], usize),
    Received(&'a [Page], usize),
}

/// Attributes of a file: the answer to `Tgetattr`.
pub(super) struct Attributes {
    pub(super) qid: Qid,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u64,
    pub(super) special_device: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) accessed_ns: u64,
    pub(super) modified_ns: u64,
    pub(super) changed_ns: u64,
}

/// What `Tsetattr` changes.
#[derive(Default)]
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) accessed_ns: Option<u64>,
    pub(super) modified_ns: Option<u64>,
}

/// Sizes of the host's file system: the answer to `Tstatfs`.
pub(super) struct Sizes {
    pub(super) magic: u32,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) free_blocks: u64,
    pub(super) inodes: u64,
    pub(super) free_inodes: u64,
}

const NS_PER_S: u64 = 1_000_000_000;

fn time(reader: &mut Reader<'_>) -> Result<u64> {
    let (seconds, ns) = (reader.u64()?, reader.u64()?);
    // Before 1970 there is nothing here; what is beyond the year 2554 is as good as the end.
    if seconds.cast_signed() < 0 {
        return Ok(0);
    }
    Ok(seconds.saturating_mul(NS_PER_S).saturating_add(ns))
}

impl Client {
    /// Connects: agrees on the version and attaches to the share's root. `EPROTO` if the host speaks another protocol.
    pub(super) fn connect(device: Arc<dyn ShareDevice>) -> Result<(Arc<Self>, Fid)> {
        let wanted = device.most_pages() * PAGE_SIZE + PAGE_SIZE;
        let mut client = Self {
            device,
            message_bytes: wanted,
            tags: SpinLock::new(Numbers {
                used: BTreeSet::new(),
                next: 0,
            }),
            next_posted: AtomicU16::new(FIRST_POSTED),
            fids: SpinLock::new(Numbers {
                used: BTreeSet::new(),
                next: 0,
            }),
            left: SpinLock::new(Vec::new()),
        };
        const VERSION: &[u8] = b"9P2000.L";
        let answer = client.exchange(kind::VERSION, NO_TAG, Data::None, |message| {
            message.u32(low_u32(u64_from(wanted))).string(VERSION)
        })?;
        let mut reader = answer.reader();
        let agreed = usize_from_u32(reader.u32()?);
        if reader.string()? != VERSION || agreed < LEAST_MESSAGE || agreed > wanted {
            return Err(Errno::EPROTO);
        }
        client.message_bytes = agreed;
        let client = Arc::new(client);
        let mut root = client.new_fid();
        client.request(kind::ATTACH, Data::None, |message| {
            message
                .u32(root.number)
                .u32(NONE)
                .string(b"")
                .string(b"/")
                .u32(NONE)
        })?;
        root.is_known = true;
        Ok((client, root))
    }

    /// Most bytes of data in one message: whole pages.
    fn data_bytes(&self) -> usize {
        // The longest header before data is that of `Twrite`.
        let bytes = (self.message_bytes - HEADER - 16).min(self.device.most_pages() * PAGE_SIZE);
        bytes - bytes % PAGE_SIZE
    }

    fn new_fid(self: &Arc<Self>) -> Fid {
        let number = self.fids.lock().take(|fid| match fid {
            0xffff_fff0.. => 0,
            fid => fid + 1,
        });
        Fid {
            client: self.clone(),
            number,
            is_known: false,
        }
    }

    /// Tells the host that a fid is not used any more, at once or together with the next message.
    fn leave(&self, fid: u32) {
        if self.post_clunk(fid) {
            return;
        }
        let mut left = self.left.lock();
        if left.len() < MOST_LEFT {
            left.push(fid);
        } else {
            log::warn!("9p: the host does not answer, and keeps a file open");
        }
    }

    fn post_clunk(&self, fid: u32) -> bool {
        let tag = self.next_posted.fetch_add(1, Ordering::Relaxed) | FIRST_POSTED;
        let tag = if tag == NO_TAG { FIRST_POSTED } else { tag };
        let sent = self.device.post(Message {
            request: Writer::new(kind::CLUNK, tag).u32(fid).finish(0),
            answer: alloc::vec![0; DATA_ANSWER],
            ..Message::default()
        });
        if sent {
            self.fids.lock().used.remove(&fid);
        }
        sent
    }

    /// Tells the host of the fids for which there was no room before.
    fn clunk_left(&self) {
        loop {
            let Some(fid) = self.left.lock().pop() else {
                return;
            };
            if !self.post_clunk(fid) {
                self.left.lock().push(fid);
                return;
            }
        }
    }

    /// Sends a message and returns its answer.
    fn request(
        &self,
        kind: u8,
        data: Data<'_>,
        fields: impl FnOnce(Writer) -> Writer,
    ) -> Result<Answer> {
        self.clunk_left();
        let tag = self.tags.lock().take(|tag| match tag + 1 {
            FIRST_POSTED.. => 0,
            next => next,
        });
        let answer = self.exchange(kind, tag, data, fields);
        self.tags.lock().used.remove(&tag);
        answer
    }

    /// Sends a message and checks that what comes back answers it.
    fn exchange(
        &self,
        kind: u8,
        tag: u16,
        data: Data<'_>,
        fields: impl FnOnce(Writer) -> Writer,
    ) -> Result<Answer> {
        let behind = |pages: &[Page], len: usize| (pages[..len.div_ceil(PAGE_SIZE)].to_vec(), len);
        let (sent, received) = match data {
            Data::None => Default::default(),
            Data::Sent(pages, len) => (behind(pages, len), Default::default()),
            Data::Received(pages, len) => (Default::default(), behind(pages, len)),
        };
        let room = match kind {
            _ if received.1 > 0 => DATA_ANSWER,
            kind::READLINK => PATH_ANSWER,
            _ => ANSWER,
        };
        let (message, written) = self.device.exchange(Message {
            request: fields(Writer::new(kind, tag)).finish(sent.1),
            sent,
            answer: alloc::vec![0; room],
            received,
        })?;
        let header = Header::read(&mut Reader::new(&message.answer))?;
        let room = message.answer.len() + message.received.1;
        if header.tag != tag || header.len < HEADER || header.len > written.min(room) {
            return Err(Errno::EIO);
        }
        let answer = Answer {
            message,
            len: header.len,
        };
        match header.kind {
            kind::RLERROR => Err(errno(answer.reader().u32()?)),
            found if found == kind + 1 => Ok(answer),
            _ => Err(Errno::EIO),
        }
    }

    /// `Tstatfs`
    pub(super) fn status(&self, fid: &Fid) -> Result<Sizes> {
        let answer = self.request(kind::STATFS, Data::None, |m| m.u32(fid.number))?;
        let mut reader = answer.reader();
        let (magic, block) = (reader.u32()?, reader.u32()?);
        let (blocks, _free, available) = (reader.u64()?, reader.u64()?, reader.u64()?);
        Ok(Sizes {
            magic,
            block_bytes: block.into(),
            blocks,
            free_blocks: available,
            inodes: reader.u64()?,
            free_inodes: reader.u64()?,
        })
    }
}

/// An answer that was checked to be one to the request.
struct Answer {
    message: Message,
    /// Length of the answer with its header and data.
    len: usize,
}

impl Answer {
    /// The fields behind the header, as far as they are not data.
    fn reader(&self) -> Reader<'_> {
        let bytes = &self.message.answer;
        Reader::new(&bytes[HEADER.min(bytes.len())..self.len.clamp(HEADER, bytes.len())])
    }
}

impl Fid {
    /// `Twalk` to one name, or with `None` to the same file: a new fid.
    pub(super) fn walk(&self, name: Option<&[u8]>) -> Result<(Fid, Option<Qid>)> {
        let mut new = self.client.new_fid();
        let answer = self.call(kind::WALK, |message| {
            let message = message.u32(new.number);
            match name {
                Some(name) => message.u16(1).string(name),
                None => message.u16(0),
            }
        })?;
        new.is_known = true;
        let mut reader = answer.reader();
        match (reader.u16()?, name) {
            (0, None) => Ok((new, None)),
            (1, Some(_)) => Ok((new, Some(reader.qid()?))),
            _ => Err(Errno::EIO),
        }
    }

    fn call(&self, kind: u8, fields: impl FnOnce(Writer) -> Writer) -> Result<Answer> {
        self.call_with(kind, Data::None, fields)
    }

    fn call_with(
        &self,
        kind: u8,
        data: Data<'_>,
        fields: impl FnOnce(Writer) -> Writer,
    ) -> Result<Answer> {
        self.client
            .request(kind, data, |message| fields(message.u32(self.number)))
    }

    /// `Tgetattr` with the attributes of stat(2).
    pub(super) fn attributes(&self) -> Result<Attributes> {
        const BASIC: u64 = 0x7ff;
        let answer = self.call(kind::GETATTR, |m| m.u64(BASIC))?;
        let mut r = answer.reader();
        let _valid = r.u64()?;
        let qid = r.qid()?;
        let (mode, uid, gid) = (r.u32()?, r.u32()?, r.u32()?);
        let (links, special_device, size) = (r.u64()?, r.u64()?, r.u64()?);
        let (_block, blocks) = (r.u64()?, r.u64()?);
        Ok(Attributes {
            qid,
            mode,
            uid,
            gid,
            links,
            special_device,
            size,
            blocks,
            accessed_ns: time(&mut r)?,
            modified_ns: time(&mut r)?,
            changed_ns: time(&mut r)?,
        })
    }

    /// `Tsetattr`
    pub(super) fn change(&self, change: &Change) -> Result<()> {
        // `P9_SETATTR_*`; the last two say that the time given is meant, not the host's.
        let bits = [
            (change.mode.is_some(), 0x1),
            (change.uid.is_some(), 0x2),
            (change.gid.is_some(), 0x4),
            (change.size.is_some(), 0x8),
            (change.accessed_ns.is_some(), 0x10 | 0x80),
            (change.modified_ns.is_some(), 0x20 | 0x100),
        ];
        let valid = bits.iter().fold(
            0,
            |all, (is_set, bit)| if *is_set { all | bit } else { all },
        );
        let split = |ns: Option<u64>| {
            let ns = ns.unwrap_or(0);
            (ns / NS_PER_S, ns % NS_PER_S)
        };
        let (accessed, modified) = (split(change.accessed_ns), split(change.modified_ns));
        self.call(kind::SETATTR, |message| {
            message
                .u32(valid)
                .u32(change.mode.unwrap_or(0))
                .u32(change.uid.unwrap_or(0))
                .u32(change.gid.unwrap_or(0))
                .u64(change.size.unwrap_or(0))
                .u64(accessed.0)
                .u64(accessed.1)
                .u64(modified.0)
                .u64(modified.1)
        })?;
        Ok(())
    }

    /// `Tlopen`: from now on the fid can be read or written, as `flags` of open(2) say. Returns what was opened.
    pub(super) fn open(&self, flags: u32) -> Result<Qid> {
        self.call(kind::LOPEN, |m| m.u32(flags))?.reader().qid()
    }

    /// `Tlcreate`: makes a file in this directory; the fid becomes that file, opened.
    pub(super) fn create(&self, name: &[u8], flags: u32, mode: u32) -> Result<()> {
        self.call(kind::LCREATE, |message| {
            message.string(name).u32(flags).u32(mode).u32(NONE)
        })?;
        Ok(())
    }

    /// `Tmkdir`
    pub(super) fn make_directory(&self, name: &[u8], mode: u32) -> Result<()> {
        self.call(kind::MKDIR, |m| m.string(name).u32(mode).u32(NONE))?;
        Ok(())
    }

    /// `Tsymlink`
    pub(super) fn make_symlink(&self, name: &[u8], text: &[u8]) -> Result<()> {
        self.call(kind::SYMLINK, |m| m.string(name).string(text).u32(NONE))?;
        Ok(())
    }

    /// `Tmknod`
    pub(super) fn make_node(&self, name: &[u8], mode: u32, device: u64) -> Result<()> {
        self.call(kind::MKNOD, |message| {
            message
                .string(name)
                .u32(mode)
                .u32(device_major(device))
                .u32(device_minor(device))
                .u32(NONE)
        })?;
        Ok(())
    }

    /// `Tlink`: another name, in this directory.
    pub(super) fn link(&self, name: &[u8], target: &Self) -> Result<()> {
        self.call(kind::LINK, |m| m.u32(target.number).string(name))?;
        Ok(())
    }

    /// `Tunlinkat`
    pub(super) fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        const AT_REMOVEDIR: u32 = 0x200;
        let flags = if directory { AT_REMOVEDIR } else { 0 };
        self.call(kind::UNLINKAT, |m| m.string(name).u32(flags))?;
        Ok(())
    }

    /// `Trenameat`
    pub(super) fn rename(&self, name: &[u8], to: &Self, new_name: &[u8]) -> Result<()> {
        self.call(kind::RENAMEAT, |message| {
            message.string(name).u32(to.number).string(new_name)
        })?;
        Ok(())
    }

    /// `Treadlink`
    pub(super) fn read_link(&self) -> Result<Vec<u8>> {
        let answer = self.call(kind::READLINK, |m| m)?;
        let text = answer.reader().string()?.to_vec();
        // An empty text leads nowhere, and a NUL ends no path.
        if text.is_empty() || text.contains(&0) {
            return Err(Errno::EIO);
        }
        Ok(text)
    }

    /// `Tfsync`: returns when the host's disk has it.
    pub(super) fn sync(&self) -> Result<()> {
        self.call(kind::FSYNC, |m| m.u32(0))?;
        Ok(())
    }

    /// How much of `len` bytes in pages fits into one message.
    fn fitting(&self, pages: &[Page], len: usize) -> usize {
        len.min(self.client.data_bytes())
            .min(pages.len() * PAGE_SIZE)
    }

    fn receive(&self, kind: u8, offset: u64, pages: &[Page], len: usize) -> Result<usize> {
        let len = self.fitting(pages, len);
        if len == 0 {
            return Ok(0);
        }
        let answer = self.call_with(kind, Data::Received(pages, len), |message| {
            message.u64(offset).u32(low_u32(u64_from(len)))
        })?;
        let count = usize_from_u32(answer.reader().u32()?);
        if count > len || DATA_ANSWER + count > answer.len {
            return Err(Errno::EIO);
        }
        Ok(count)
    }

    /// `Tread`: fills pages from a position on; returns how many bytes there were, 0 at the end.
    pub(super) fn read(&self, offset: u64, pages: &[Page], len: usize) -> Result<usize> {
        self.receive(kind::READ, offset, pages, len)
    }

    /// `Treaddir`: entries from a position on, as they come; no bytes at the end.
    pub(super) fn read_directory(&self, offset: u64, pages: &[Page]) -> Result<usize> {
        self.receive(kind::READDIR, offset, pages, pages.len() * PAGE_SIZE)
    }

    /// `Twrite`: writes bytes of pages, from their first one on; returns how many were written.
    pub(super) fn write(&self, offset: u64, pages: &[Page], len: usize) -> Result<usize> {
        let len = self.fitting(pages, len);
        if len == 0 {
            return Ok(0);
        }
        let answer = self.call_with(kind::WRITE, Data::Sent(pages, len), |message| {
            message.u64(offset).u32(low_u32(u64_from(len)))
        })?;
        let written = usize_from_u32(answer.reader().u32()?);
        if written > len {
            return Err(Errno::EIO);
        }
        Ok(written)
    }

    /// Most pages that one read or write moves.
    pub(super) fn most_pages(&self) -> usize {
        self.client.data_bytes() / PAGE_SIZE
    }

    /// The connection.
    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }
}
