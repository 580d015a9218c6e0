// SPDX-License-Identifier: Apache-2.0
//! The log on the disk: a ring of blocks in a file, with one transaction behind the other.
//!
//! A transaction is a descriptor that says where its blocks belong, the blocks, and a commit block with a checksum over
//! them all. So it is written in one go and needs one flush: after a crash a transaction whose checksum is wrong was
//! never acknowledged, and is left out (`JBD2_FEATURE_COMPAT_CHECKSUM` with `ASYNC_COMMIT`).
//!
//! Source: the Linux kernel's `Documentation/filesystems/ext4/journal.rst`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{low_u32, u64_from, usize_from_u32};
use coracle_core::device::BlockDevice;
use coracle_core::memory::Page;
use coracle_core::time;

use super::crc;
use super::layout::MountError;
use super::state::{SECTORS, State};
use crate::{Errno, Result};

const MAGIC: u32 = 0xc03b_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPER_V1: u32 = 3;
const SUPER_V2: u32 = 4;
const REVOKE: u32 = 5;

/// Flags of a tag: the block began with the magic number, which was zeroed; no UUID follows; it is the last one.
const ESCAPED: u16 = 1;
const SAME_UUID: u16 = 2;
const LAST: u16 = 8;
/// Bytes of the header of each block of the log, of a tag, and of the UUID behind the first tag.
const HEADER: usize = 12;
const TAG: usize = 8;
const UUID: usize = 16;
/// Most blocks that one descriptor describes.
const TAGS: usize = (PAGE_SIZE - HEADER - UUID) / TAG;

/// Features of a journal: checksums of transactions; revoke blocks, and commit blocks not waited for.
const COMPAT_CHECKSUM: u32 = 1;
const INCOMPAT_REVOKE: u32 = 1;
const INCOMPAT_ASYNC: u32 = 4;
/// Longest journal that is used.
const LENGTH_MAX: u32 = 1 << 18;
/// Blocks read from the log at once.
const WINDOW: u32 = 32;
/// Blocks held in memory while a replay writes them.
const REPLAYED_AT_ONCE: usize = 256;

/// Fields of the journal's superblock.
mod jsb {
    pub(super) const BLOCK_BYTES: usize = 12;
    pub(super) const LENGTH: usize = 16;
    pub(super) const FIRST: usize = 20;
    pub(super) const SEQUENCE: usize = 24;
    pub(super) const START: usize = 28;
    pub(super) const ERROR: usize = 32;
    pub(super) const COMPAT: usize = 36;
    pub(super) const INCOMPAT: usize = 40;
    pub(super) const ID: usize = 48;
}

fn get(page: &Page, at: usize) -> u32 {
    let mut bytes = [0; 4];
    page.read(at, &mut bytes);
    u32::from_be_bytes(bytes)
}

fn put(page: &Page, at: usize, value: u32) {
    page.write(at, &value.to_be_bytes());
}

fn header(page: &Page, kind: u32, sequence: u32) {
    put(page, 0, MAGIC);
    put(page, 4, kind);
    put(page, 8, sequence);
}

/// Part of the log that is contiguous on the disk.
struct Run {
    at: u32,
    block: u32,
    len: u32,
}

/// The log and where its ends are.
pub(super) struct Journal {
    device: Arc<dyn BlockDevice>,
    superblock: Page,
    superblock_at: u32,
    runs: Vec<Run>,
    first: u32,
    length: u32,
    /// Where the next transaction goes, and where the oldest one that is needed begins.
    head: u32,
    tail: u32,
    /// Number of the next transaction.
    sequence: u32,
    /// The superblocks say that there may be something to replay.
    pub(super) active: bool,
    /// All requests below this number have been answered.
    pub(super) served: u64,
}

impl Journal {
    /// Reads the journal's superblock. The inode's map of blocks is read when it is needed first.
    pub(super) fn open(device: &Arc<dyn BlockDevice>, st: &mut State) -> Result<Self, MountError> {
        const DAMAGED: MountError = MountError::Damaged("the journal's superblock");
        let inode = st.layout.journal_inode;
        let at = st
            .find_block(inode, 0)?
            .ok_or(MountError::Damaged("the journal's inode"))?;
        let superblock = Page::zeroed()?;
        device.read(u64::from(at) * SECTORS, core::slice::from_ref(&superblock))?;
        let field = |at| get(&superblock, at);
        if field(0) != MAGIC || !matches!(field(4), SUPER_V1 | SUPER_V2) {
            return Err(DAMAGED);
        }
        let (length, first) = (field(jsb::LENGTH), field(jsb::FIRST));
        if field(jsb::BLOCK_BYTES) != 4096
            || !(64..=LENGTH_MAX).contains(&length)
            || first == 0
            || first >= length - 32
            || field(jsb::START) >= length
            || (field(jsb::START) != 0 && field(jsb::START) < first)
        {
            return Err(DAMAGED);
        }
        if field(4) == SUPER_V2 && field(jsb::INCOMPAT) & !(INCOMPAT_REVOKE | INCOMPAT_ASYNC) != 0 {
            return Err(MountError::Unsupported(
                "features of the journal it does not know".into(),
            ));
        }
        Ok(Self {
            device: device.clone(),
            superblock_at: at,
            runs: Vec::new(),
            first,
            length,
            head: first,
            tail: first,
            sequence: field(jsb::SEQUENCE).max(1),
            active: false,
            served: 0,
            superblock,
        })
    }

    /// Whether the last user ended without putting everything into its place.
    pub(super) fn needs_replay(&self) -> bool {
        get(&self.superblock, jsb::START) != 0
    }

    /// Reads where the log's blocks lie.
    fn map(&mut self, st: &mut State) -> Result<()> {
        if !self.runs.is_empty() {
            return Ok(());
        }
        let inode = st.layout.journal_inode;
        let mut at = 0;
        while at < self.length {
            let found = st.find_blocks(inode, at.into(), self.length - at)?;
            let (block, len) = found.ok_or(Errno::EUCLEAN)?;
            match self.runs.last_mut() {
                Some(run) if run.block + run.len == block => run.len += len,
                _ => self.runs.push(Run { at, block, len }),
            }
            at += len;
        }
        Ok(())
    }

    /// Where a block of the log lies, and how many follow it there before the log's end.
    fn place(&self, at: u32) -> Result<(u32, u32)> {
        let n = self.runs.partition_point(|run| run.at <= at);
        let run = n
            .checked_sub(1)
            .and_then(|n| self.runs.get(n))
            .ok_or(Errno::EUCLEAN)?;
        let offset = at - run.at;
        Ok((run.block + offset, run.len - offset))
    }

    fn after(&self, at: u32, by: u32) -> u32 {
        let ring = self.length - self.first;
        self.first + (at - self.first + by) % ring
    }

    /// Blocks that can be written before the log must be emptied.
    pub(super) fn room(&self) -> u32 {
        let ring = self.length - self.first;
        ring - 1 - (self.head + ring - self.tail) % ring
    }

    /// Blocks of the log that `count` blocks of content need.
    pub(super) fn needed(count: usize) -> u32 {
        low_u32(u64_from(count + count.div_ceil(TAGS) + 1))
    }

    fn write_superblock(&self) -> Result<()> {
        let sector = u64::from(self.superblock_at) * SECTORS;
        self.device
            .write(sector, core::slice::from_ref(&self.superblock))?;
        self.device.flush()
    }

    /// Says on the disk that there may be something to replay from now on.
    pub(super) fn activate(&mut self, st: &mut State) -> Result<()> {
        self.map(st)?;
        let page = &self.superblock;
        put(page, 4, SUPER_V2);
        put(page, jsb::START, self.head);
        put(page, jsb::SEQUENCE, self.sequence);
        put(page, jsb::ERROR, 0);
        put(page, jsb::COMPAT, get(page, jsb::COMPAT) | COMPAT_CHECKSUM);
        put(
            page,
            jsb::INCOMPAT,
            get(page, jsb::INCOMPAT) | INCOMPAT_ASYNC,
        );
        self.tail = self.head;
        self.write_superblock()?;
        self.active = true;
        Ok(())
    }

    /// Says on the disk that nothing written so far needs to be replayed; with `rest` nothing will be either.
    pub(super) fn empty(&mut self, rest: bool) -> Result<()> {
        put(
            &self.superblock,
            jsb::START,
            if rest { 0 } else { self.head },
        );
        put(&self.superblock, jsb::SEQUENCE, self.sequence);
        self.write_superblock()?;
        self.tail = self.head;
        self.active = !rest;
        Ok(())
    }

    /// Writes a transaction behind the last one; it counts once the device is flushed. The pages are not to be changed
    /// meanwhile. There must be [`Journal::room`].
    pub(super) fn append(&mut self, blocks: &[(u32, Page)]) -> Result<()> {
        let mut pages: Vec<Page> = Vec::with_capacity(blocks.len() + 2);
        let mut sum = !0;
        let mut bytes = alloc::vec![0; PAGE_SIZE];
        let mut add = |pages: &mut Vec<Page>, page: &Page, sum: u32| {
            page.read(0, &mut bytes);
            pages.push(page.clone());
            crc::update(sum, &bytes)
        };
        for part in blocks.chunks(TAGS) {
            let mut contents = Vec::with_capacity(part.len());
            let descriptor = Page::zeroed()?;
            header(&descriptor, DESCRIPTOR, self.sequence);
            let mut at = HEADER;
            for (n, (block, page)) in part.iter().enumerate() {
                let mut flags = if n == 0 { 0 } else { SAME_UUID };
                if n + 1 == part.len() {
                    flags |= LAST;
                }
                if get(page, 0) == MAGIC {
                    let escaped = Page::zeroed()?;
                    escaped.copy_from(page);
                    put(&escaped, 0, 0);
                    contents.push(escaped);
                    flags |= ESCAPED;
                } else {
                    contents.push(page.clone());
                }
                put(&descriptor, at, *block);
                descriptor.write(at + 6, &flags.to_be_bytes());
                at += TAG;
                if n == 0 {
                    let mut id = [0; UUID];
                    self.superblock.read(jsb::ID, &mut id);
                    descriptor.write(at, &id);
                    at += UUID;
                }
            }
            sum = add(&mut pages, &descriptor, sum);
            for page in &contents {
                sum = add(&mut pages, page, sum);
            }
        }
        let commit = Page::zeroed()?;
        header(&commit, COMMIT, self.sequence);
        commit.write(12, &[1, 4]); // CRC-32, four bytes
        put(&commit, 16, sum);
        let now = time::wall();
        commit.write(48, &(now / 1_000_000_000).to_be_bytes());
        put(&commit, 56, low_u32(now % 1_000_000_000));
        pages.push(commit);
        self.write_ring(&pages)?;
        self.sequence = self.sequence.wrapping_add(1).max(1);
        Ok(())
    }

    fn write_ring(&mut self, mut pages: &[Page]) -> Result<()> {
        if low_u32(u64_from(pages.len())) > self.room() {
            return Err(Errno::EIO);
        }
        while !pages.is_empty() {
            let (block, len) = self.place(self.head)?;
            let count = usize_from_u32(len).min(pages.len());
            let (now, rest) = pages.split_at(count);
            self.device.write(u64::from(block) * SECTORS, now)?;
            self.head = self.after(self.head, low_u32(u64_from(count)));
            pages = rest;
        }
        Ok(())
    }

    /// Hands the blocks of all whole transactions to `apply`, the oldest first, so that the last one counts. Afterwards the
    /// log goes on behind them. Returns how many transactions there were.
    pub(super) fn replay(
        &mut self,
        st: &mut State,
        apply: &mut dyn FnMut(&mut BTreeMap<u32, Page>) -> Result<()>,
    ) -> Result<u32> {
        self.map(st)?;
        let start = get(&self.superblock, jsb::START);
        let first = self.sequence;
        let mut revoked = BTreeMap::new();
        let mut scan = Scan::new(self, start, first);
        let mut count = 0;
        while scan.transaction(&mut |found| {
            if let Found::Revoked(block, sequence) = found {
                revoked.insert(block, sequence);
            }
            Ok(())
        })? {
            count += 1;
        }
        let behind = scan.at;
        let mut scan = Scan::new(self, start, first);
        let mut batch = BTreeMap::new();
        for _ in 0..count {
            scan.transaction(&mut |found| {
                let Found::Block(block, sequence, page) = found else {
                    return Ok(());
                };
                let is_revoked = revoked
                    .get(&block)
                    .is_some_and(|by: &u32| by.wrapping_sub(sequence).cast_signed() >= 0);
                if !is_revoked {
                    if block >= st.layout.blocks {
                        return Err(Errno::EUCLEAN);
                    }
                    batch.insert(block, page);
                    if batch.len() >= REPLAYED_AT_ONCE {
                        apply(&mut batch)?;
                        batch.clear();
                    }
                }
                Ok(())
            })?;
        }
        apply(&mut batch)?;
        self.sequence = first.wrapping_add(count).max(1);
        self.head = behind;
        Ok(count)
    }
}

/// What a transaction holds.
enum Found {
    /// A block's new content, and the transaction it is from.
    Block(u32, u32, Page),
    /// Content of the block in transactions up to this one does not count.
    Revoked(u32, u32),
}

/// Reads transactions one after the other.
struct Scan<'a> {
    journal: &'a Journal,
    at: u32,
    sequence: u32,
    /// Blocks that may still be looked at: the ring is gone through once.
    left: u32,
    window: Vec<Page>,
    window_at: u32,
}

impl<'a> Scan<'a> {
    fn new(journal: &'a Journal, at: u32, sequence: u32) -> Self {
        Self {
            journal,
            at,
            sequence,
            left: journal.length - journal.first,
            window: Vec::new(),
            window_at: 0,
        }
    }

    fn read(&mut self, at: u32) -> Result<Page> {
        let inside = |at: u32, scan: &Self| {
            let offset = usize_from_u32(at.checked_sub(scan.window_at)?);
            scan.window.get(offset).cloned()
        };
        if let Some(page) = inside(at, self) {
            return Ok(page);
        }
        let (block, len) = self.journal.place(at)?;
        let count = len.min(WINDOW).min(self.journal.length - at);
        self.window = (0..count).map(|_| Page::zeroed()).collect::<Result<_>>()?;
        self.window_at = at;
        self.journal
            .device
            .read(u64::from(block) * SECTORS, &self.window)?;
        inside(at, self).ok_or(Errno::EUCLEAN)
    }

    /// Reads the next transaction; `false`, and nothing was consumed, if there is no whole one. What it holds may have been
    /// handed on nonetheless: a caller that acts on it reads only as many as it has counted before.
    fn transaction(&mut self, emit: &mut dyn FnMut(Found) -> Result<()>) -> Result<bool> {
        let mut at = self.at;
        let mut left = self.left;
        let mut sum = !0;
        let mut bytes = alloc::vec![0; PAGE_SIZE];
        let mut revoked = Vec::new();
        loop {
            let Some(fewer) = left.checked_sub(1) else {
                return Ok(false);
            };
            left = fewer;
            let page = self.read(at)?;
            at = self.journal.after(at, 1);
            if get(&page, 0) != MAGIC || get(&page, 8) != self.sequence {
                return Ok(false);
            }
            match get(&page, 4) {
                DESCRIPTOR => {
                    page.read(0, &mut bytes);
                    sum = crc::update(sum, &bytes);
                    for (block, flags) in tags(&page) {
                        let Some(fewer) = left.checked_sub(1) else {
                            return Ok(false);
                        };
                        left = fewer;
                        let content = self.read(at)?;
                        at = self.journal.after(at, 1);
                        content.read(0, &mut bytes);
                        sum = crc::update(sum, &bytes);
                        // A copy, since the window is read again.
                        let page = Page::zeroed()?;
                        page.copy_from(&content);
                        if flags & ESCAPED != 0 {
                            put(&page, 0, MAGIC);
                        }
                        emit(Found::Block(block, self.sequence, page))?;
                    }
                }
                REVOKE => {
                    let end = usize_from_u32(get(&page, HEADER)).min(PAGE_SIZE);
                    for entry in (HEADER + 4..end.saturating_sub(3)).step_by(4) {
                        revoked.push(get(&page, entry));
                    }
                }
                COMMIT => {
                    let mut kind = [0; 2];
                    page.read(12, &mut kind);
                    // Commits without a checksum are Linux's without that feature.
                    if kind != [0, 0] && (kind != [1, 4] || get(&page, 16) != sum) {
                        return Ok(false);
                    }
                    for block in revoked {
                        emit(Found::Revoked(block, self.sequence))?;
                    }
                    self.at = at;
                    self.left = left;
                    self.sequence = self.sequence.wrapping_add(1).max(1);
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
    }
}

/// The tags of a descriptor: block and flags.
fn tags(page: &Page) -> Vec<(u32, u16)> {
    let mut found = Vec::new();
    let mut at = HEADER;
    while at + TAG <= PAGE_SIZE {
        let mut flags = [0; 2];
        page.read(at + 6, &mut flags);
        let flags = u16::from_be_bytes(flags);
        found.push((get(page, at), flags));
        at += TAG;
        if flags & SAME_UUID == 0 {
            at += UUID;
        }
        if flags & LAST != 0 {
            break;
        }
    }
    found
}
