// SPDX-License-Identifier: Apache-2.0
//! The object behind a descriptor that was opened by path: it knows its place, so `fchdir`, `openat` and `/proc` can
//! use it, and passes transfers on to the object that does them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use coracle_abi::raw::general as g;
use coracle_core::file::{DirEntry, File, Metadata, OpenFile};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;
use coracle_core::poll::PollSource;

use super::inode::same_inode;
use super::{Kind, Named, OpenRequest, Place, Vfs};
use crate::inotify::events;
use crate::{Errno, PollEvents, Result};

/// A file opened by path.
pub struct VnodeFile {
    place: Place,
    named: Option<Named>,
    /// `None` for `O_PATH`.
    inner: Option<Arc<dyn File>>,
    /// Whether it was opened for writing.
    writes: bool,
}

impl VnodeFile {
    /// A file at `place`, opened under the name in the directory of `named`, whose transfers go to `inner`. `writes` if
    /// it was opened for writing.
    pub fn new(place: Place, named: Option<Named>, inner: Arc<dyn File>, writes: bool) -> Self {
        Self {
            place,
            named,
            inner: Some(inner),
            writes,
        }
    }

    pub(super) fn path_only(place: Place, named: Option<Named>) -> Self {
        Self {
            place,
            named,
            inner: None,
            writes: false,
        }
    }

    /// The object in the tree.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What transfers go to: the inode, a device, a pipe's end. `EBADF` for `O_PATH`.
    pub fn inner(&self) -> Result<&Arc<dyn File>> {
        self.inner.as_ref().ok_or(Errno::EBADF)
    }

    /// The directory and the name it was opened under, if it was opened by one.
    #[must_use]
    pub fn named(&self) -> Option<&Named> {
        self.named.as_ref()
    }

    /// Opens the same object once more, with the flags of `request`; errors as open(2).
    pub fn reopen(&self, vfs: &Vfs, request: &OpenRequest) -> Result<Arc<OpenFile>> {
        vfs.open_place(self.place.clone(), self.named.clone(), request)
    }

    /// Reports to those who watch the file.
    pub(super) fn tell(&self, event: u32) {
        let named = self.named.as_ref();
        let named = named.map(|(directory, name)| (&directory.inode, &name[..]));
        events::object(&self.place.inode, named, event);
    }

    /// The same for a transfer of `count` bytes; nothing moved, nothing happened.
    fn tell_transfer(&self, count: usize, event: u32) {
        if count > 0 {
            self.tell(event);
        }
    }

    /// A number that no other open file description has while this one is open.
    #[must_use]
    pub fn description(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// The absolute path as `/proc/self/fd` shows it, with ` (deleted)` behind it if the name is gone.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        if self.place.inode.kind() == Kind::Directory
            && let Ok(path) = self.place.directory_path()
        {
            return path;
        }
        let Some((directory, name)) = &self.named else {
            return b"/ (deleted)".to_vec();
        };
        let mut path = match directory.directory_path() {
            Ok(path) if path != b"/" => path,
            // The root; or a directory that was removed, whose path nobody knows any more.
            _ => Vec::new(),
        };
        path.push(b'/');
        path.extend_from_slice(name);
        let renamed_or_gone = !directory
            .inode
            .lookup(name)
            .is_ok_and(|inode| same_inode(&inode, &self.place.inode));
        // Pseudo file systems make an inode anew for each lookup; their inodes keep a link.
        if renamed_or_gone && self.place.inode.metadata().is_ok_and(|m| m.links == 0) {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }
}

impl File for VnodeFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        let count = self.inner()?.read(dst)?;
        self.tell_transfer(count, g::IN_ACCESS);
        Ok(count)
    }

    fn write(&self, src: &mut IoSrc<'_>) -> Result<usize> {
        let count = self.inner()?.write(src)?;
        self.tell_transfer(count, g::IN_MODIFY);
        Ok(count)
    }

    fn is_seekable(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_seekable())
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        let count = self.inner()?.read_at(position, dst)?;
        self.tell_transfer(count, g::IN_ACCESS);
        Ok(count)
    }

    fn write_at(&self, position: u64, append: bool, src: &mut IoSrc<'_>) -> Result<(usize, u64)> {
        let (count, after) = self.inner()?.write_at(position, append, src)?;
        self.tell_transfer(count, g::IN_MODIFY);
        Ok((count, after))
    }

    fn poll(&self) -> PollEvents {
        self.inner
            .as_ref()
            .map_or(PollEvents::NVAL, |inner| inner.poll())
    }

    fn poll_source(&self) -> Option<&PollSource> {
        self.inner.as_ref()?.poll_source()
    }

    fn metadata(&self) -> Result<Metadata> {
        self.place.inode.metadata()
    }

    fn ioctl(&self, command: u32, argument: usize) -> Result<usize> {
        self.inner()?.ioctl(command, argument)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.inner()?.truncate(size)?;
        self.tell(g::IN_MODIFY);
        Ok(())
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        self.inner()?.allocate(mode, offset, len)?;
        self.tell(g::IN_MODIFY);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.inner()?.sync()
    }

    fn sync_data(&self) -> Result<()> {
        self.inner()?.sync_data()
    }

    fn page(&self, index: u64, write: bool) -> Result<Page> {
        self.inner()?.page(index, write)
    }

    fn fetch(&self, index: u64, write: bool) -> Result<()> {
        self.inner()?.fetch(index, write)
    }

    fn content_id(&self) -> usize {
        match &self.inner {
            Some(inner) => inner.content_id(),
            None => self.description(),
        }
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.inner()?.read_directory(cursor, emit)?;
        self.tell(g::IN_ACCESS);
        Ok(())
    }

    fn on_release(&self) {
        crate::locks::on_close(self.content_id(), self.description());
        if let Some(inner) = &self.inner {
            self.tell(if self.writes {
                g::IN_CLOSE_WRITE
            } else {
                g::IN_CLOSE_NOWRITE
            });
            inner.on_release();
        }
    }
}
