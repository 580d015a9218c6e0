// SPDX-License-Identifier: Apache-2.0
//! Positions, sizes and device requests: lseek(2), ioctl(2), ftruncate(2), fallocate(2), fsync(2).

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::{general as g, ioctl as io};
use coracle_core::file::OpenFile;
use coracle_core::user::UserIn;
use coracle_core::{Errno, Result};
use coracle_fs::pipe::PipeEnd;
use coracle_fs::vfs::{Kind, VnodeFile};

use crate::argument::Fd;
use crate::process::{fd_errno, process};

/// `lseek(2)`
pub(crate) fn lseek(fd: Fd, offset: i64, whence: u32) -> Result<usize> {
    let open = process().file(fd)?;
    let file = open.file();
    if whence > g::SEEK_HOLE {
        return Err(Errno::EINVAL);
    }
    if !file.is_seekable() {
        return Err(Errno::ESPIPE);
    }
    let kind = open.downcast::<VnodeFile>().map(|v| v.place().inode.kind());
    match kind {
        Some(Kind::Directory) if whence > g::SEEK_CUR => return Err(Errno::EINVAL),
        // The memory devices have one position only (null(4)).
        Some(Kind::CharDevice) => return Ok(0),
        _ => {}
    }
    let mut position = open.position().lock();
    let base = match whence {
        g::SEEK_SET => 0,
        g::SEEK_CUR => *position,
        g::SEEK_END => file.metadata()?.size,
        _ => {
            let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let vnode = open.downcast::<VnodeFile>().ok_or(Errno::EINVAL)?;
            let found = vnode
                .place()
                .inode
                .seek_content(from, whence == g::SEEK_HOLE)?;
            *position = found;
            return Ok(usize_from(found));
        }
    };
    // The sum is at most i64::MAX (EOVERFLOW) and not negative (EINVAL).
    let target = base.checked_add_signed(offset).ok_or(Errno::EINVAL)?;
    if i64::try_from(target).is_err() {
        return Err(if offset < 0 {
            Errno::EINVAL
        } else {
            Errno::EOVERFLOW
        });
    }
    *position = target;
    Ok(usize_from(target))
}

/// `ioctl(2)`
pub(crate) fn ioctl(fd: Fd, command: u32, argument: usize) -> Result<usize> {
    let open = process().file(fd)?;
    match command {
        io::FIONBIO => {
            let on = UserIn::<i32>::new(argument).read()? != 0;
            open.change_flags(g::O_NONBLOCK, if on { g::O_NONBLOCK } else { 0 });
            Ok(0)
        }
        io::FIOCLEX | io::FIONCLEX => {
            process()
                .fds
                .lock()
                .set_close_on_exec(fd.index()?, command == io::FIOCLEX)
                .map_err(fd_errno)?;
            Ok(0)
        }
        io::FIONREAD if is_regular(&open) => {
            let left = open
                .file()
                .metadata()?
                .size
                .saturating_sub(*open.position().lock());
            let left = i32::try_from(left).unwrap_or(i32::MAX);
            coracle_core::user::UserOut::new(argument).write(left)?;
            Ok(0)
        }
        _ => open.file().ioctl(command, argument),
    }
}

fn is_regular(open: &coracle_core::file::OpenFile) -> bool {
    open.downcast::<VnodeFile>()
        .is_some_and(|vnode| vnode.place().inode.kind() == Kind::File)
}

/// `ftruncate(2)`
pub(crate) fn ftruncate(fd: Fd, size: i64) -> Result<usize> {
    let size = u64::try_from(size).map_err(|_| Errno::EINVAL)?;
    let open = process().file(fd)?;
    open.check_writable().map_err(|_| Errno::EINVAL)?;
    if !is_regular(&open) {
        return Err(Errno::EINVAL);
    }
    open.file().truncate(size)?;
    coracle_core::memory::forget_beyond(open.file().content_id(), size);
    Ok(0)
}

/// `fallocate(2)`
pub(crate) fn fallocate(fd: Fd, mode: u32, offset: i64, len: i64) -> Result<usize> {
    let open = process().file(fd)?;
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let len = u64::try_from(len)
        .ok()
        .filter(|len| *len > 0)
        .ok_or(Errno::EINVAL)?;
    if mode & g::FALLOC_FL_PUNCH_HOLE != 0 && mode & g::FALLOC_FL_KEEP_SIZE == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    open.check_writable()?;
    match open.downcast::<VnodeFile>().map(|v| v.place().inode.kind()) {
        Some(Kind::File) => {}
        Some(Kind::Directory) => return Err(Errno::EISDIR),
        Some(Kind::Fifo) => return Err(Errno::ESPIPE),
        None if open.downcast::<PipeEnd>().is_some() => return Err(Errno::ESPIPE),
        _ => return Err(Errno::ENODEV),
    }
    open.file().allocate(mode, offset, len)?;
    Ok(0)
}

/// `fsync(2)`
pub(crate) fn fsync(fd: Fd) -> Result<usize> {
    process().file(fd)?.file().sync()?;
    Ok(0)
}

/// `syncfs(2)`
pub(crate) fn syncfs(fd: Fd) -> Result<usize> {
    let open = process().file(fd)?;
    if let Some(vnode) = open.downcast::<VnodeFile>() {
        vnode.place().mount.file_system().sync()?;
    }
    Ok(0)
}

/// `fdatasync(2)`
pub(crate) fn fdatasync(fd: Fd) -> Result<usize> {
    process().file(fd)?.file().sync_data()?;
    Ok(0)
}

/// `sync_file_range(2)`: writes the whole file out, which is more than is asked for.
pub(crate) fn sync_file_range(fd: Fd, offset: i64, len: i64, flags: u32) -> Result<usize> {
    let known =
        g::SYNC_FILE_RANGE_WAIT_BEFORE | g::SYNC_FILE_RANGE_WRITE | g::SYNC_FILE_RANGE_WAIT_AFTER;
    let open = process().file(fd)?;
    if flags & !known != 0 || offset < 0 || len < 0 || offset.checked_add(len).is_none() {
        return Err(Errno::EINVAL);
    }
    if !open.file().is_seekable() {
        return Err(Errno::ESPIPE);
    }
    if flags & g::SYNC_FILE_RANGE_WAIT_AFTER != 0 {
        open.file().sync_data()?;
    }
    Ok(0)
}

/// `sync(2)`: it has no way to tell of an error.
pub(crate) fn sync() -> Result<usize> {
    for mount in process().vfs.mounts() {
        let _ = mount.file_system().sync();
    }
    Ok(0)
}

/// `posix_fadvise(2)`: `POSIX_FADV_WILLNEED` reads; the page cache needs no other advice.
pub(crate) fn fadvise64(fd: Fd, offset: i64, len: i64, advice: u32) -> Result<usize> {
    let open = process().file(fd)?;
    if open.downcast::<PipeEnd>().is_some() {
        return Err(Errno::ESPIPE);
    }
    let (Ok(len), true) = (u64::try_from(len), advice <= g::POSIX_FADV_NOREUSE) else {
        return Err(Errno::EINVAL);
    };
    if advice == g::POSIX_FADV_WILLNEED && is_regular(&open) && open.check_readable().is_ok() {
        let len = if len == 0 { u64::MAX } else { len };
        fetch_ahead(&open, u64::try_from(offset).unwrap_or(0), len);
    }
    Ok(0)
}

/// `readahead(2)`
pub(crate) fn readahead(fd: Fd, offset: i64, count: usize) -> Result<usize> {
    let open = process().file(fd)?;
    open.check_readable()?;
    if !is_regular(&open) {
        return Err(Errno::EINVAL);
    }
    if let Ok(offset) = u64::try_from(offset) {
        fetch_ahead(&open, offset, u64_from(count));
    }
    Ok(0)
}

/// Most bytes that advice brings into memory at once, so that it cannot drive out all else.
const AHEAD_MAX: u64 = 2 << 20;

/// Brings pages into memory that are not there. Errors are seen by who reads them.
pub(crate) fn fetch_ahead(open: &OpenFile, offset: u64, len: u64) {
    let page = u64_from(PAGE_SIZE);
    let end = offset.saturating_add(len.min(AHEAD_MAX)).div_ceil(page);
    for index in offset / page..end {
        match open.file().page(index, false) {
            Err(Errno::EAGAIN) if open.file().fetch(index, false).is_ok() => {}
            Ok(_) => {}
            Err(_) => return,
        }
    }
}
