// SPDX-License-Identifier: Apache-2.0
//! What is behind a file descriptor.

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use coracle_abi::raw::general as g;
use coracle_abi::{Errno, PollEvents};

use crate::Result;
use crate::io::{IoDst, IoSrc};
use crate::memory::Page;
use crate::poll::PollSource;
use crate::sync::SleepLock;

/// What `stat(2)` reports. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Type and permission bits (`S_IFMT` and `07777`).
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub special_device: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub accessed_ns: u64,
    /// Last write.
    pub modified_ns: u64,
    /// Last change of metadata.
    pub changed_ns: u64,
}

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub inode: u64,
    /// Where reading continues after this entry (`d_off`).
    pub next: u64,
    /// `DT_*` type.
    pub kind: u8,
    /// The name without NUL.
    pub name: &'a [u8],
}

/// An open object: regular file, directory, pipe end, socket, device, event source.
///
/// Nothing waits for an event of unknown duration: that returns `EAGAIN`, and the system-call layer waits on the poll
/// source. Files on disks and shares may sleep until the device has answered, without heed of signals (decision 0010), in
/// all methods but [`File::page`], [`File::poll`] and [`File::on_release`]; so callers hold no spin lock. The defaults are
/// what Linux answers for objects that do not have the operation.
pub trait File: Send + Sync + 'static {
    /// For access to the concrete type (sockets, epoll instances, inodes).
    fn as_any(&self) -> &dyn Any;

    /// Reads from an object without position. `EAGAIN` if nothing is there yet; `Ok(0)` is the end.
    fn read(&self, _dst: &mut IoDst<'_>) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Writes to an object without position. `EAGAIN` if there is no room yet; a short count when room ended.
    fn write(&self, _src: &mut IoSrc<'_>) -> Result<usize> {
        Err(Errno::EINVAL)
    }

    /// Whether the object has positions: then `read_at`/`write_at` are used instead of `read`/`write`.
    fn is_seekable(&self) -> bool {
        false
    }

    /// Reads at a position in bytes.
    fn read_at(&self, _position: u64, _dst: &mut IoDst<'_>) -> Result<usize> {
        Err(Errno::ESPIPE)
    }

    /// Writes at a position in bytes. With `append` the position is the end, found and written in one step; returns
    /// the count and the position after the last byte written.
    fn write_at(
        &self,
        _position: u64,
        _append: bool,
        _src: &mut IoSrc<'_>,
    ) -> Result<(usize, u64)> {
        Err(Errno::ESPIPE)
    }

    /// Readiness now.
    fn poll(&self) -> PollEvents {
        PollEvents::IN | PollEvents::OUT | PollEvents::RDNORM | PollEvents::WRNORM
    }

    /// What to wait on; `None` for objects that are always ready (epoll refuses them with `EPERM`).
    fn poll_source(&self) -> Option<&PollSource> {
        None
    }

    /// `fstat(2)`.
    fn metadata(&self) -> Result<Metadata>;

    /// `ioctl(2)`; `argument` is a number or an address in the application.
    fn ioctl(&self, _command: u32, _argument: usize) -> Result<usize> {
        Err(Errno::ENOTTY)
    }

    /// `ftruncate(2)`.
    fn truncate(&self, _size: u64) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// `fallocate(2)`.
    fn allocate(&self, _mode: u32, _offset: u64, _len: u64) -> Result<()> {
        Err(Errno::ENODEV)
    }

    /// `fsync(2)`.
    fn sync(&self) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// `fdatasync(2)`: attributes that are not needed to read the content again may stay behind.
    fn sync_data(&self) -> Result<()> {
        self.sync()
    }

    /// The page with bytes `index * 4096..` of the content, for `mmap(2)`. With `write` the caller will change it
    /// through a shared mapping. Called with the address space locked, so it does not sleep: `EAGAIN` if the content
    /// must come from a device first, see [`File::fetch`]. `ENODEV` if the object cannot be mapped; `ENXIO` beyond the
    /// end (SIGBUS).
    fn page(&self, _index: u64, _write: bool) -> Result<Page> {
        Err(Errno::ENODEV)
    }

    /// Brings the page that [`File::page`] did not have into memory, with what is likely to be asked for next. Sleeps
    /// meanwhile. `EIO` if the device fails; another page may be gone again when this returns.
    fn fetch(&self, _index: u64, _write: bool) -> Result<()> {
        Err(Errno::EIO)
    }

    /// A number that all open files with this content share and no other: mappings of the content are found by it. It
    /// never sleeps.
    fn content_id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// `getdents64(2)`: calls `emit` for each entry from `cursor` on until it returns `false` (that entry is not
    /// consumed) or the directory ends. Entries' `next` values serve as later cursors.
    fn read_directory(
        &self,
        _cursor: u64,
        _emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        Err(Errno::ENOTDIR)
    }

    /// The last descriptor of this open file description was closed. Must not sleep.
    fn on_release(&self) {}
}

/// An open file description (open(2)): what `dup` shares.
pub struct OpenFile {
    file: Arc<dyn File>,
    /// `O_ACCMODE` bits and status flags: `O_APPEND`, `O_NONBLOCK`, `O_DIRECT`, `O_PATH` ...
    flags: AtomicU32,
    position: SleepLock<u64>,
}

impl OpenFile {
    /// Flags that `fcntl(F_SETFL)` can change.
    pub const SETTABLE: u32 = g::O_APPEND | g::O_NONBLOCK | g::O_DIRECT | g::O_NOATIME | g::FASYNC;

    /// A new description with its position at 0. `flags` as for open(2); creation flags are dropped.
    #[must_use]
    pub fn new(file: Arc<dyn File>, flags: u32) -> Arc<Self> {
        let creation = g::O_CREAT | g::O_EXCL | g::O_NOCTTY | g::O_TRUNC | g::O_CLOEXEC;
        Arc::new(Self {
            file,
            flags: AtomicU32::new(flags & !creation),
            position: SleepLock::new(0),
        })
    }

    /// The object.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The object as its concrete type.
    #[must_use]
    pub fn downcast<T: File>(&self) -> Option<&T> {
        self.file.as_any().downcast_ref()
    }

    /// Access mode and status flags as `fcntl(F_GETFL)` reports them.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets and clears status flags in one step.
    pub fn change_flags(&self, clear: u32, set: u32) {
        let _ = self
            .flags
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |f| {
                Some((f & !clear) | set)
            });
    }

    /// Whether `O_NONBLOCK` is set.
    #[must_use]
    pub fn is_nonblocking(&self) -> bool {
        self.flags() & g::O_NONBLOCK != 0
    }

    /// Whether the description allows reading; `EBADF` otherwise.
    pub fn check_readable(&self) -> Result<()> {
        let flags = self.flags();
        // Access mode 3 allows neither: such a descriptor is for `ioctl` only (open(2), NOTES).
        if flags & g::O_PATH == 0 && matches!(flags & g::O_ACCMODE, g::O_RDONLY | g::O_RDWR) {
            Ok(())
        } else {
            Err(Errno::EBADF)
        }
    }

    /// Whether the description allows writing; `EBADF` otherwise.
    pub fn check_writable(&self) -> Result<()> {
        let flags = self.flags();
        if flags & g::O_PATH == 0 && matches!(flags & g::O_ACCMODE, g::O_WRONLY | g::O_RDWR) {
            Ok(())
        } else {
            Err(Errno::EBADF)
        }
    }

    /// The position, to be read and changed by a transfer or `lseek(2)`.
    #[must_use]
    pub fn position(&self) -> &SleepLock<u64> {
        &self.position
    }

    /// `read(2)` at the current position.
    pub fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        self.check_readable()?;
        if !self.file.is_seekable() {
            return self.file.read(dst);
        }
        let mut position = self.position.lock();
        let count = self.file.read_at(*position, dst)?;
        *position += coracle_abi::convert::u64_from(count);
        Ok(count)
    }

    /// `write(2)` at the current position, or at the end with `O_APPEND`.
    pub fn write(&self, src: &mut IoSrc<'_>) -> Result<usize> {
        self.check_writable()?;
        if !self.file.is_seekable() {
            return self.file.write(src);
        }
        let append = self.flags() & g::O_APPEND != 0;
        let mut position = self.position.lock();
        let (count, after) = self.file.write_at(*position, append, src)?;
        *position = after;
        Ok(count)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.file.on_release();
    }
}
