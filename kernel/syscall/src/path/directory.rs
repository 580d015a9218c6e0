// SPDX-License-Identifier: Apache-2.0
//! Directories: getdents(2), getcwd(2), chdir(2).

use alloc::vec::Vec;

use coracle_abi::convert::{low_u16, u64_from};
use coracle_core::file::DirEntry;
use coracle_core::user::{User, write_all};
use coracle_core::{Errno, Result};
use coracle_fs::vfs::{Follow, Kind, Place};

use super::{CWD, resolve};
use crate::argument::Fd;
use crate::process::process;

/// Bytes of entries that are gathered before they are copied to the application.
const MAX_BYTES: usize = 32 * 1024;

/// `getdents64(2)`
pub(crate) fn getdents64(fd: Fd, buf: User, len: usize) -> Result<usize> {
    read_entries(fd, buf, len, |entry, room, out| {
        // d_ino, d_off, d_reclen, d_type, d_name with its NUL, rounded up to eight bytes.
        let size = (19 + entry.name.len() + 1).next_multiple_of(8);
        if size > room {
            return false;
        }
        let start = out.len();
        out.extend_from_slice(&entry.inode.to_ne_bytes());
        out.extend_from_slice(&entry.next.to_ne_bytes());
        out.extend_from_slice(&low_u16(u64_from(size)).to_ne_bytes());
        out.push(entry.kind);
        out.extend_from_slice(entry.name);
        out.resize(start + size, 0);
        true
    })
}

/// `getdents(2)`, the older call: the type is the last byte of an entry.
pub(crate) fn getdents(fd: Fd, buf: User, len: usize) -> Result<usize> {
    read_entries(fd, buf, len, |entry, room, out| {
        let size = (18 + entry.name.len() + 2).next_multiple_of(8);
        if size > room {
            return false;
        }
        let start = out.len();
        out.extend_from_slice(&entry.inode.to_ne_bytes());
        out.extend_from_slice(&entry.next.to_ne_bytes());
        out.extend_from_slice(&low_u16(u64_from(size)).to_ne_bytes());
        out.extend_from_slice(entry.name);
        out.resize(start + size - 1, 0);
        out.push(entry.kind);
        true
    })
}

/// Gathers entries with `put(entry, room left, buffer)` and copies them. `EINVAL` if not even one fits.
fn read_entries(
    fd: Fd,
    buf: User,
    len: usize,
    put: impl Fn(&DirEntry<'_>, usize, &mut Vec<u8>) -> bool,
) -> Result<usize> {
    let open = process().file(fd)?;
    let len = len.min(MAX_BYTES);
    let mut bytes = Vec::new();
    let mut refused = false;
    let from = *open.position().lock();
    let mut next = from;
    open.file().read_directory(from, &mut |entry| {
        if put(&entry, len - bytes.len(), &mut bytes) {
            next = entry.next;
            true
        } else {
            refused = true;
            false
        }
    })?;
    if bytes.is_empty() && refused {
        return Err(Errno::EINVAL);
    }
    write_all(buf.0, &bytes)?;
    *open.position().lock() = next;
    Ok(bytes.len())
}

/// `getcwd(2)`: the path with its NUL. `ERANGE` if the buffer is too small, `ENOENT` if the directory was removed.
pub(crate) fn getcwd(buf: User, len: usize) -> Result<usize> {
    let mut path = process().working_directory().directory_path()?;
    path.push(0);
    if path.len() > len {
        return Err(Errno::ERANGE);
    }
    write_all(buf.0, &path)?;
    Ok(path.len())
}

fn change_to(place: Place) -> Result<usize> {
    if place.inode.kind() != Kind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let old = core::mem::replace(&mut *process().cwd.lock(), place);
    drop(old);
    Ok(0)
}

/// `chdir(2)`
pub(crate) fn chdir(path: User) -> Result<usize> {
    change_to(resolve(CWD, path, Follow::Yes)?)
}

/// `fchdir(2)`
pub(crate) fn fchdir(fd: Fd) -> Result<usize> {
    change_to(process().place_of(fd)?)
}
