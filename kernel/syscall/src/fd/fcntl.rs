// SPDX-License-Identifier: Apache-2.0
//! fcntl(2) and flock(2).

use core::ops::Range;

use coracle_abi::convert::{low_u16, low_u32, u64_from, usize_from_u32};
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::user::{UserIn, UserOut};
use coracle_core::{Errno, Result};
use coracle_fs::locks::{self, Family, FileId, Lock, Mode, Owner};
use coracle_fs::pipe::PipeEnd;
use coracle_fs::vfs::VnodeFile;

use crate::argument::Fd;
use crate::process::{fd_errno, process};
use crate::wait::{self, Interrupt};

/// `F_DUPFD_QUERY`: whether two descriptors are the same open file description.
const F_DUPFD_QUERY: u32 = g::F_DUPFD_QUERY;

/// `fcntl(2)`
pub(crate) fn fcntl(fd: Fd, command: u32, argument: usize) -> Result<usize> {
    let number = low_u32(u64_from(argument));
    let open = process().any_file(fd)?;
    match command {
        g::F_DUPFD | g::F_DUPFD_CLOEXEC => {
            let keep = open.clone();
            let mut fds = process().fds.lock();
            if number >= fds.limit() {
                return Err(Errno::EINVAL);
            }
            let new = fds.insert(open, number, command == g::F_DUPFD_CLOEXEC);
            drop(fds);
            drop(keep);
            return new.map(usize_from_u32).map_err(fd_errno);
        }
        g::F_GETFD => {
            let close = process().fds.lock().close_on_exec(fd.index()?);
            return close.map(usize::from).map_err(fd_errno);
        }
        g::F_SETFD => {
            let close = number & g::FD_CLOEXEC != 0;
            let done = process().fds.lock().set_close_on_exec(fd.index()?, close);
            return done.map(|()| 0).map_err(fd_errno);
        }
        g::F_GETFL => return Ok(usize_from_u32(open.flags())),
        F_DUPFD_QUERY => {
            let other = process().any_file(Fd(number.cast_signed()))?;
            return Ok(usize::from(alloc::sync::Arc::ptr_eq(&open, &other)));
        }
        _ if open.flags() & g::O_PATH != 0 => return Err(Errno::EBADF),
        _ => {}
    }
    match command {
        g::F_SETFL => {
            // FASYNC asks for SIGIO, which is not sent: it is refused rather than remembered in vain.
            if number & g::FASYNC != 0 && open.flags() & g::FASYNC == 0 {
                return Err(Errno::EINVAL);
            }
            open.change_flags(OpenFile::SETTABLE, number & OpenFile::SETTABLE);
            Ok(0)
        }
        g::F_GETLK | g::F_OFD_GETLK => get_lock(&open, argument, command == g::F_OFD_GETLK),
        g::F_SETLK | g::F_SETLKW => set_lock(&open, argument, false, command == g::F_SETLKW),
        g::F_OFD_SETLK | g::F_OFD_SETLKW => {
            set_lock(&open, argument, true, command == g::F_OFD_SETLKW)
        }
        g::F_GETPIPE_SZ => with_pipe(&open, |end| Ok(end.capacity())),
        g::F_SETPIPE_SZ => with_pipe(&open, |end| {
            if number.cast_signed() < 0 {
                return Err(Errno::EINVAL);
            }
            end.set_capacity(usize_from_u32(number))
        }),
        g::F_GET_SEALS => with_file(&open, |file| {
            file.place().inode.seals(0).map(usize_from_u32)
        }),
        g::F_ADD_SEALS => {
            let known = g::F_SEAL_SEAL
                | g::F_SEAL_SHRINK
                | g::F_SEAL_GROW
                | g::F_SEAL_WRITE
                | g::F_SEAL_FUTURE_WRITE
                | g::F_SEAL_EXEC;
            if number & !known != 0 {
                return Err(Errno::EINVAL);
            }
            open.check_writable().map_err(|_| Errno::EPERM)?;
            with_file(&open, |file| file.place().inode.seals(number).map(|_| 0))
        }
        // Nobody is told by SIGIO, so nobody is the owner.
        g::F_GETOWN | g::F_GETSIG => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

fn with_file<T>(open: &OpenFile, act: impl FnOnce(&VnodeFile) -> Result<T>) -> Result<T> {
    act(open.downcast::<VnodeFile>().ok_or(Errno::EINVAL)?)
}

/// The pipe behind a descriptor, also of a named one; `EBADF` for others.
fn with_pipe<T>(open: &OpenFile, act: impl FnOnce(&PipeEnd) -> Result<T>) -> Result<T> {
    if let Some(end) = open.downcast::<PipeEnd>() {
        return act(end);
    }
    let file = open.downcast::<VnodeFile>().ok_or(Errno::EBADF)?;
    let end = file.inner()?.as_any().downcast_ref::<PipeEnd>();
    act(end.ok_or(Errno::EBADF)?)
}

/// The bytes that a `struct flock` means. `EINVAL` before the start of the file, `EOVERFLOW` behind all files.
fn range_of(open: &OpenFile, lock: &g::flock) -> Result<Range<u64>> {
    let base = match u32::from(lock.l_whence.cast_unsigned()) {
        g::SEEK_SET => 0,
        g::SEEK_CUR => *open.position().lock(),
        g::SEEK_END => open.file().metadata()?.size,
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add_signed(lock.l_start).ok_or(Errno::EINVAL)?;
    let limit = i64::MAX.cast_unsigned();
    if start > limit {
        return Err(Errno::EOVERFLOW);
    }
    match lock.l_len {
        0 => Ok(start..u64::MAX),
        len if len > 0 => {
            let end = start + len.cast_unsigned();
            if end - 1 > limit {
                return Err(Errno::EOVERFLOW);
            }
            Ok(start..end)
        }
        len => {
            let first = start.checked_add_signed(len).ok_or(Errno::EINVAL)?;
            Ok(first..start)
        }
    }
}

fn owner_of(open: &OpenFile, lock: &g::flock, by_description: bool) -> Result<Owner> {
    if !by_description {
        return Ok(Owner::Process);
    }
    if lock.l_pid != 0 {
        return Err(Errno::EINVAL);
    }
    with_file(open, |file| Ok(Owner::Description(file.description())))
}

fn get_lock(open: &OpenFile, argument: usize, by_description: bool) -> Result<usize> {
    let mut wanted = UserIn::<g::flock>::new(argument).read()?;
    let mode = match u32::from(wanted.l_type.cast_unsigned()) {
        g::F_RDLCK => Mode::Shared,
        g::F_WRLCK => Mode::Exclusive,
        _ => return Err(Errno::EINVAL),
    };
    let lock = Lock {
        owner: owner_of(open, &wanted, by_description)?,
        mode,
        range: range_of(open, &wanted)?,
    };
    let short = |value: u32| low_u16(value.into()).cast_signed();
    match locks::conflict(Family::Records, open.file().content_id(), &lock) {
        None => wanted.l_type = short(g::F_UNLCK),
        Some(held) => {
            wanted.l_type = short(match held.mode {
                Mode::Shared => g::F_RDLCK,
                Mode::Exclusive => g::F_WRLCK,
            });
            wanted.l_whence = short(g::SEEK_SET);
            wanted.l_start = held.range.start.cast_signed();
            wanted.l_len = match held.range.end {
                u64::MAX => 0,
                end => (end - held.range.start).cast_signed(),
            };
            wanted.l_pid = match held.owner {
                Owner::Process => coracle_core::thread::FIRST_TID.cast_signed(),
                Owner::Description(_) => -1,
            };
        }
    }
    UserOut::new(argument).write(wanted)?;
    Ok(0)
}

fn set_lock(open: &OpenFile, argument: usize, by_description: bool, waits: bool) -> Result<usize> {
    let wanted = UserIn::<g::flock>::new(argument).read()?;
    let owner = owner_of(open, &wanted, by_description)?;
    let range = range_of(open, &wanted)?;
    let file = open.file().content_id();
    let mode = match u32::from(wanted.l_type.cast_unsigned()) {
        g::F_RDLCK => {
            open.check_readable()?;
            Mode::Shared
        }
        g::F_WRLCK => {
            open.check_writable()?;
            Mode::Exclusive
        }
        g::F_UNLCK => {
            locks::release(Family::Records, file, owner, &range);
            return Ok(0);
        }
        _ => return Err(Errno::EINVAL),
    };
    let lock = Lock { owner, mode, range };
    take_lock(Family::Records, file, &lock, waits)
}

fn take_lock(family: Family, file: FileId, lock: &Lock, waits: bool) -> Result<usize> {
    let attempt = || locks::acquire(family, file, lock.clone()).map(|()| 0);
    if waits {
        wait::on_source(locks::released(), Interrupt::Restartable, attempt)
    } else {
        attempt()
    }
}

/// `flock(2)`
pub(crate) fn flock(fd: Fd, operation: u32) -> Result<usize> {
    let mode = match operation & !g::LOCK_NB {
        g::LOCK_SH => Some(Mode::Shared),
        g::LOCK_EX => Some(Mode::Exclusive),
        g::LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    let open = process().file(fd)?;
    if mode.is_some() {
        open.check_readable().or(open.check_writable())?;
    }
    let file = open.file().content_id();
    let owner = with_file(&open, |file| Ok(Owner::Description(file.description())))?;
    let range = 0..u64::MAX;
    let Some(mode) = mode else {
        locks::release(Family::Whole, file, owner, &range);
        return Ok(0);
    };
    let lock = Lock { owner, mode, range };
    take_lock(Family::Whole, file, &lock, operation & g::LOCK_NB == 0)
}
