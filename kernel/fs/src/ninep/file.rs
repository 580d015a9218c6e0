// SPDX-License-Identifier: Apache-2.0
//! Open files and directories of a share.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::Ordering;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::file::{DirEntry, File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::{self, Page};
use coracle_core::sync::SleepLock;

use super::client::Fid;
use super::left;
use super::node::Node;
use super::pages::Known;
use super::wire::Reader;
use crate::vfs::{Inode, Kind};
use crate::{Errno, Result};

/// Pages that are read for a mapping at once.
const AROUND: u64 = 16;
/// Pages for entries of a directory.
const ENTRIES: usize = 4;

/// An open file of the host.
pub(super) struct Opened {
    me: Weak<Self>,
    node: Arc<Node>,
    /// The host's open file.
    fid: Fid,
    /// Everything written through it goes to the end of the file.
    appends: bool,
    /// Opened without `O_APPEND`, for one who takes that flag back (fcntl(2)).
    elsewhere: SleepLock<Option<Fid>>,
}

impl Opened {
    /// Opens the file as `flags` of open(2) say. `made` is the open handle of a file that was just made.
    pub(super) fn open(node: Arc<Node>, flags: u32, made: Option<Fid>) -> Result<Arc<dyn File>> {
        let is_file = node.kind() == Kind::File;
        let appends = is_file && flags & g::O_APPEND != 0;
        let kept = g::O_ACCMODE | g::O_DIRECTORY | g::O_DSYNC | g::O_SYNC | g::O_APPEND;
        let (fid, appends) = match made {
            Some(fid) if !appends => (fid, false),
            made => match Self::handle(&node, flags & kept) {
                Ok(fid) => (fid, appends),
                // The mode of a new file may forbid what its maker may do with it.
                Err(error) => (made.ok_or(error)?, false),
            },
        };
        node.users.fetch_add(1, Ordering::Relaxed);
        let opened = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            node,
            fid,
            appends,
            elsewhere: SleepLock::new(None),
        });
        opened.node.pages.forget_size();
        if !opened.node.pages.is_empty() {
            opened.revalidate()?;
        }
        Ok(opened)
    }

    fn handle(node: &Node, flags: u32) -> Result<Fid> {
        let (fid, _) = node.fid().walk(None)?;
        node.check(&fid.open(flags)?)?;
        Ok(fid)
    }

    /// Lets mappings see what the host has changed since.
    fn revalidate(&self) -> Result<()> {
        let now = self.node.metadata()?;
        for (index, page) in self.node.pages.check(now.size, now.modified_ns) {
            memory::replace_page(self.content_id(), index, &page);
        }
        Ok(())
    }

    /// Notes how long the file is after a change by this guest.
    fn note(&self) {
        if !self.node.pages.is_empty()
            && let Ok(now) = self.node.metadata()
        {
            self.node.pages.note(now.size, now.modified_ns);
        }
    }

    /// Writes back what mappings may have written.
    pub(super) fn write_back(&self) -> Result<()> {
        let (written, size) = self.node.pages.written();
        for (index, page) in written {
            let at = index * u64_from(PAGE_SIZE);
            let left = size.saturating_sub(at);
            let len = usize::try_from(left).map_or(PAGE_SIZE, |left| left.min(PAGE_SIZE));
            self.put(at, core::slice::from_ref(&page), len)?;
        }
        self.note();
        Ok(())
    }

    /// Writes to a position, whatever the file was opened for.
    fn put(&self, position: u64, pages: &[Page], len: usize) -> Result<usize> {
        if !self.appends {
            return self.fid.write(position, pages, len);
        }
        let mut elsewhere = self.elsewhere.lock();
        let fid = match &mut *elsewhere {
            Some(fid) => fid,
            none => none.insert(Self::handle(&self.node, g::O_WRONLY)?),
        };
        fid.write(position, pages, len)
    }

    fn pages(&self, count: usize) -> Result<Vec<Page>> {
        (0..count.clamp(1, self.fid.most_pages()))
            .map(|_| Page::zeroed())
            .collect()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.node.users.fetch_sub(1, Ordering::Relaxed);
    }
}

impl File for Opened {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        if self.node.kind() == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        if !self.node.pages.is_empty() {
            self.write_back()?; // what another mapping wrote is part of the file
        }
        let mut total = 0;
        while dst.remaining() > 0 && dst.faulted().is_none() {
            let pages = self.pages(dst.remaining().div_ceil(PAGE_SIZE))?;
            let at = position.saturating_add(u64_from(total));
            let count = match self.fid.read(at, &pages, dst.remaining()) {
                Ok(0) => break,
                Ok(count) => count,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            };
            for (n, page) in pages.iter().enumerate() {
                let len = count.saturating_sub(n * PAGE_SIZE).min(PAGE_SIZE);
                if len == 0 {
                    break;
                }
                match page.read_to(0, len, dst) {
                    Ok(copied) => total += copied,
                    Err(_) if total > 0 => break,
                    Err(error) => return Err(error),
                }
                if dst.faulted().is_some() {
                    break;
                }
            }
        }
        Ok(total)
    }

    fn write_at(&self, position: u64, append: bool, src: &mut IoSrc<'_>) -> Result<(usize, u64)> {
        if self.node.kind() == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        let end = append.then(|| self.node.end.lock());
        let mut at = position;
        if append && !self.appends {
            at = self.node.metadata()?.size;
        }
        let mut total = 0;
        while src.remaining() > 0 && src.faulted().is_none() {
            let before = src.done();
            let pages = self.pages(src.remaining().div_ceil(PAGE_SIZE))?;
            let mut len = 0;
            for page in &pages {
                match page.write_from(0, PAGE_SIZE.min(src.remaining()), src) {
                    Ok(copied) => len += copied,
                    Err(_) if len > 0 || total > 0 => break,
                    Err(error) => return Err(error),
                }
                if src.faulted().is_some() || src.remaining() == 0 {
                    break;
                }
            }
            if len == 0 {
                break;
            }
            let result = if append && self.appends {
                // The host finds the end, so that two guests may write to one file.
                self.fid.write(at, &pages, len)
            } else {
                self.put(at, &pages, len)
            };
            let count = match result {
                Ok(count) => count,
                Err(error) => {
                    src.rewind(before);
                    if total > 0 {
                        break;
                    }
                    return Err(error);
                }
            };
            if append && self.appends {
                at = self.node.metadata()?.size.saturating_sub(u64_from(count));
            }
            self.node.pages.overwrite(at, &pages, count);
            total += count;
            at = at.saturating_add(u64_from(count));
            self.node.note_written(at);
            if count < len {
                src.rewind(before + count);
                break;
            }
        }
        drop(end);
        if total > 0 {
            self.note();
        }
        Ok((total, at))
    }

    fn metadata(&self) -> Result<Metadata> {
        self.node.metadata()
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.node.truncate(size)
    }

    /// Only what a file has anyway: the protocol cannot set room aside.
    fn allocate(&self, _mode: u32, _offset: u64, _len: u64) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    fn sync(&self) -> Result<()> {
        self.write_back()?;
        self.fid.sync()
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        if self.node.kind() != Kind::File {
            return Err(Errno::ENODEV);
        }
        match self.node.pages.get(index, write) {
            Known::Page(page) => {
                if write {
                    left::remember(&self.me);
                }
                Ok(page)
            }
            Known::Missing => Err(Errno::EAGAIN),
            Known::BehindEnd => Err(Errno::ENXIO),
        }
    }

    fn fetch(&self, index: u64, _write: bool) -> Result<()> {
        self.revalidate()?;
        let changes = self.node.pages.changes();
        let first = index - index % AROUND;
        let mut pages = self.pages(usize::try_from(AROUND).unwrap_or(1))?;
        let mut done = 0;
        while done < pages.len() * PAGE_SIZE && done.is_multiple_of(PAGE_SIZE) {
            let at = (first * u64_from(PAGE_SIZE)).saturating_add(u64_from(done));
            let rest = &pages[done / PAGE_SIZE..];
            match self.fid.read(at, rest, rest.len() * PAGE_SIZE)? {
                0 => break,
                count => done += count,
            }
        }
        // The page that is wanted is zeroes if the host has just made the file shorter.
        let wanted = usize::try_from(index - first).map_or(1, |n| n + 1);
        pages.truncate(done.div_ceil(PAGE_SIZE).max(wanted));
        self.node.pages.put(first, pages, changes);
        Ok(())
    }

    fn content_id(&self) -> usize {
        Inode::content_id(&*self.node)
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        if self.node.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let mut cursor = cursor;
        loop {
            let pages = self.pages(ENTRIES)?;
            let count = self.fid.read_directory(cursor, &pages)?;
            let mut bytes = alloc::vec![0; count];
            for (page, part) in pages.iter().zip(bytes.chunks_mut(PAGE_SIZE)) {
                page.read(0, part);
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let mut reader = Reader::new(&bytes);
            while !reader.is_done() {
                let (qid, next, kind) = (reader.qid()?, reader.u64()?, reader.u8()?);
                let name = reader.string()?;
                // A name that a program could mistake for a path, or that has no end, is nonsense.
                if name.is_empty() || name.iter().any(|b| matches!(b, 0 | b'/')) || name.len() > 255
                {
                    return Err(Errno::EIO);
                }
                let entry = DirEntry {
                    inode: qid.path,
                    next,
                    kind,
                    name,
                };
                if !emit(entry) {
                    return Ok(());
                }
                if next == cursor {
                    return Err(Errno::EIO); // the host goes round in circles
                }
                cursor = next;
            }
        }
    }
}
