// SPDX-License-Identifier: Apache-2.0
//! chmod(2), chown(2), utimensat(2), umask(2), truncate(2).

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_core::user::{User, UserIn};
use coracle_core::{Errno, Result, time};
use coracle_fs::vfs::{AttributeChange, Kind, Place, VnodeFile};

use super::{CWD, Follow, base, check_flags, follow, resolve, text};
use crate::argument::Fd;
use crate::process::process;

const NS_PER_S: u64 = 1_000_000_000;

fn change(place: &Place, change: &AttributeChange) -> Result<usize> {
    process().vfs.change(place, change)?;
    Ok(0)
}

/// The object of an open descriptor; `EBADF` for `O_PATH`, and for objects that have no attributes to keep.
fn opened(fd: Fd) -> Result<Place> {
    let open = process().file(fd)?;
    let file = open.downcast::<VnodeFile>().ok_or(Errno::EPERM)?;
    Ok(file.place().clone())
}

/// The object of a path, or with `AT_EMPTY_PATH` of the descriptor.
fn target(directory: Fd, path: User, flags: u32) -> Result<Place> {
    let path = text(path)?;
    if path.is_empty() && flags & g::AT_EMPTY_PATH != 0 {
        return match directory {
            CWD => Ok(process().working_directory()),
            fd => process().place_of(fd).map_err(|error| match error {
                Errno::ENOTDIR => Errno::EPERM,
                other => other,
            }),
        };
    }
    process()
        .vfs
        .resolve(&base(directory, &path)?, &path, follow(flags))
}

fn mode_change(mode: u32) -> AttributeChange {
    AttributeChange {
        mode: Some(mode & 0o7777),
        ..AttributeChange::default()
    }
}

/// `chmod(2)`
pub(crate) fn chmod(path: User, mode: u32) -> Result<usize> {
    fchmodat(CWD, path, mode)
}

/// `fchmod(2)`
pub(crate) fn fchmod(fd: Fd, mode: u32) -> Result<usize> {
    change(&opened(fd)?, &mode_change(mode))
}

/// `fchmodat(2)`, the system call without flags.
pub(crate) fn fchmodat(directory: Fd, path: User, mode: u32) -> Result<usize> {
    change(&resolve(directory, path, Follow::Yes)?, &mode_change(mode))
}

fn owner_change(uid: u32, gid: u32) -> AttributeChange {
    AttributeChange {
        uid: (uid != u32::MAX).then_some(uid),
        gid: (gid != u32::MAX).then_some(gid),
        ..AttributeChange::default()
    }
}

/// Changes the owner; a regular file that could be executed loses its set-user-ID and set-group-ID bits (chown(2)).
fn change_owner(place: &Place, uid: u32, gid: u32) -> Result<usize> {
    let mut wanted = owner_change(uid, gid);
    if place.inode.kind() == Kind::File {
        let mode = place.inode.metadata()?.mode;
        let mut dropped = g::S_ISUID;
        if mode & g::S_IXGRP != 0 {
            dropped |= g::S_ISGID;
        }
        if mode & dropped != 0 {
            wanted.mode = Some(mode & 0o7777 & !dropped);
        }
    }
    change(place, &wanted)
}

/// `chown(2)`
pub(crate) fn chown(path: User, uid: u32, gid: u32) -> Result<usize> {
    change_owner(&resolve(CWD, path, Follow::Yes)?, uid, gid)
}

/// `lchown(2)`
pub(crate) fn lchown(path: User, uid: u32, gid: u32) -> Result<usize> {
    change_owner(&resolve(CWD, path, Follow::No)?, uid, gid)
}

/// `fchown(2)`
pub(crate) fn fchown(fd: Fd, uid: u32, gid: u32) -> Result<usize> {
    change_owner(&opened(fd)?, uid, gid)
}

/// `fchownat(2)`
pub(crate) fn fchownat(directory: Fd, path: User, uid: u32, gid: u32, flags: u32) -> Result<usize> {
    check_flags(flags, g::AT_SYMLINK_NOFOLLOW | g::AT_EMPTY_PATH)?;
    change_owner(&target(directory, path, flags)?, uid, gid)
}

/// `umask(2)`
pub(crate) fn umask(mask: u32) -> Result<usize> {
    Ok(usize_from_u32(process().set_umask(mask)))
}

/// `truncate(2)`
pub(crate) fn truncate(path: User, len: i64) -> Result<usize> {
    let size = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
    let path = text(path)?;
    let from = base(CWD, &path)?;
    process().vfs.truncate(&from, &path, size)?;
    Ok(0)
}

/// Sets both times; `None` leaves one.
fn set_times(place: &Place, times: [Option<u64>; 2]) -> Result<usize> {
    if times == [None, None] {
        return Ok(0);
    }
    let [accessed_ns, modified_ns] = times;
    change(
        place,
        &AttributeChange {
            accessed_ns,
            modified_ns,
            ..AttributeChange::default()
        },
    )
}

/// Nanoseconds since 1970; times before are stored as 1970.
fn wall(seconds: i64, nanoseconds: u64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    seconds.saturating_mul(NS_PER_S).saturating_add(nanoseconds)
}

/// One `struct timespec` of utimensat(2), with its special values.
fn moment(at: g::__kernel_timespec, now: u64) -> Result<Option<u64>> {
    let ns = u64::try_from(at.tv_nsec).map_err(|_| Errno::EINVAL)?;
    if ns == u64::from(g::UTIME_NOW) {
        Ok(Some(now))
    } else if ns == u64::from(g::UTIME_OMIT) {
        Ok(None)
    } else if ns < NS_PER_S {
        Ok(Some(wall(at.tv_sec, ns)))
    } else {
        Err(Errno::EINVAL)
    }
}

/// `utimensat(2)`; a NULL path means the descriptor itself (futimens(3)).
pub(crate) fn utimensat(directory: Fd, path: User, times: User, flags: u32) -> Result<usize> {
    check_flags(flags, g::AT_SYMLINK_NOFOLLOW | g::AT_EMPTY_PATH)?;
    let now = time::wall();
    let times = UserIn::<g::__kernel_timespec>::new(times.0);
    let times = if times.is_null() {
        [Some(now); 2]
    } else {
        [
            moment(times.read()?, now)?,
            moment(times.at(1)?.read()?, now)?,
        ]
    };
    let place = if path.0 == 0 {
        if directory == CWD {
            return Err(Errno::EFAULT);
        }
        opened(directory)?
    } else {
        target(directory, path, flags)?
    };
    set_times(&place, times)
}

/// Two `struct timeval`; NULL for now.
fn timevals(times: User) -> Result<[Option<u64>; 2]> {
    let times = UserIn::<g::timeval>::new(times.0);
    if times.is_null() {
        return Ok([Some(time::wall()); 2]);
    }
    let one = |time: g::timeval| -> Result<Option<u64>> {
        let micros = u64::try_from(time.tv_usec)
            .ok()
            .filter(|us| *us < 1_000_000)
            .ok_or(Errno::EINVAL)?;
        Ok(Some(wall(time.tv_sec, micros * 1000)))
    };
    Ok([one(times.read()?)?, one(times.at(1)?.read()?)?])
}

/// `utimes(2)`
pub(crate) fn utimes(path: User, times: User) -> Result<usize> {
    futimesat(CWD, path, times)
}

/// `futimesat(2)`
pub(crate) fn futimesat(directory: Fd, path: User, times: User) -> Result<usize> {
    let times = timevals(times)?;
    let place = if path.0 == 0 && directory != CWD {
        opened(directory)?
    } else {
        resolve(directory, path, Follow::Yes)?
    };
    set_times(&place, times)
}

/// `utime(2)`: two numbers of seconds; NULL for now.
pub(crate) fn utime(path: User, times: User) -> Result<usize> {
    let times = match UserIn::<[i64; 2]>::new(times.0).optional() {
        None => [Some(time::wall()); 2],
        Some(times) => times.read()?.map(|seconds| Some(wall(seconds, 0))),
    };
    set_times(&resolve(CWD, path, Follow::Yes)?, times)
}
