// SPDX-License-Identifier: Apache-2.0
//! Extended attributes: setxattr(2), getxattr(2), listxattr(2), removexattr(2), each by path, by path without following a
//! link at its end, and by descriptor.

use alloc::vec;
use alloc::vec::Vec;

use coracle_core::user::{User, read_all, read_c_string, write_all};
use coracle_core::{Errno, Result};
use coracle_fs::vfs::{Follow, Place, SetExtended, VnodeFile};

use super::{CWD, resolve};
use crate::argument::Fd;
use crate::process::process;

/// The longest name, and the longest value and list, bytes (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const NAME_MAX: usize = 255;
const SIZE_MAX: usize = 65536;

/// Flags of setxattr(2), as in `linux/xattr.h`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// A name: `ERANGE` if it is empty or too long.
fn name(at: User) -> Result<Vec<u8>> {
    match read_c_string(at.0, NAME_MAX + 1) {
        Ok(name) if name.is_empty() => Err(Errno::ERANGE),
        Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        other => other,
    }
}

/// The object of a descriptor; `None` for sockets, pipes and the like, which have no attributes of this kind.
fn opened(fd: Fd) -> Result<Option<Place>> {
    let open = process().file(fd)?;
    Ok(open
        .downcast::<VnodeFile>()
        .map(|file| file.place().clone()))
}

/// Gives `bytes` to the application; a `len` of 0 asks for the length. `ERANGE` if there is too little room.
fn give(bytes: &[u8], at: User, len: usize) -> Result<usize> {
    if len > 0 {
        if bytes.len() > len {
            return Err(Errno::ERANGE);
        }
        write_all(at.0, bytes)?;
    }
    Ok(bytes.len())
}

/// What is to be set: checked before the object is looked for.
struct New {
    name: Vec<u8>,
    value: Vec<u8>,
    how: SetExtended,
}

impl New {
    fn read(name_at: User, value: User, size: usize, flags: u32) -> Result<Self> {
        let how = match flags {
            0 => SetExtended::Any,
            XATTR_CREATE => SetExtended::Create,
            XATTR_REPLACE => SetExtended::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let name = name(name_at)?;
        if size > SIZE_MAX {
            return Err(Errno::E2BIG);
        }
        let mut bytes = vec![0; size];
        read_all(&mut bytes, value.0)?;
        Ok(Self {
            name,
            value: bytes,
            how,
        })
    }

    fn set(&self, place: &Place) -> Result<usize> {
        process()
            .vfs
            .change_extended(place, &self.name, Some(&self.value), self.how)?;
        Ok(0)
    }
}

/// `setxattr(2)`
pub(crate) fn setxattr(
    path: User,
    name: User,
    value: User,
    size: usize,
    flags: u32,
) -> Result<usize> {
    let new = New::read(name, value, size, flags)?;
    new.set(&resolve(CWD, path, Follow::Yes)?)
}

/// `lsetxattr(2)`
pub(crate) fn lsetxattr(
    path: User,
    name: User,
    value: User,
    size: usize,
    flags: u32,
) -> Result<usize> {
    let new = New::read(name, value, size, flags)?;
    new.set(&resolve(CWD, path, Follow::No)?)
}

/// `fsetxattr(2)`
pub(crate) fn fsetxattr(fd: Fd, name: User, value: User, size: usize, flags: u32) -> Result<usize> {
    let new = New::read(name, value, size, flags)?;
    new.set(&opened(fd)?.ok_or(Errno::EPERM)?)
}

fn get(place: &Place, name: &[u8], value: User, size: usize) -> Result<usize> {
    give(&place.inode.extended(name)?, value, size)
}

/// `getxattr(2)`
pub(crate) fn getxattr(path: User, name_at: User, value: User, size: usize) -> Result<usize> {
    let name = name(name_at)?;
    get(&resolve(CWD, path, Follow::Yes)?, &name, value, size)
}

/// `lgetxattr(2)`
pub(crate) fn lgetxattr(path: User, name_at: User, value: User, size: usize) -> Result<usize> {
    let name = name(name_at)?;
    get(&resolve(CWD, path, Follow::No)?, &name, value, size)
}

/// `fgetxattr(2)`
pub(crate) fn fgetxattr(fd: Fd, name_at: User, value: User, size: usize) -> Result<usize> {
    let name = name(name_at)?;
    get(&opened(fd)?.ok_or(Errno::ENODATA)?, &name, value, size)
}

fn list(place: &Place, names: User, size: usize) -> Result<usize> {
    let mut all = Vec::new();
    for name in place.inode.extended_names()? {
        all.extend_from_slice(&name);
        all.push(0);
    }
    if all.len() > SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    give(&all, names, size)
}

/// `listxattr(2)`
pub(crate) fn listxattr(path: User, names: User, size: usize) -> Result<usize> {
    list(&resolve(CWD, path, Follow::Yes)?, names, size)
}

/// `llistxattr(2)`
pub(crate) fn llistxattr(path: User, names: User, size: usize) -> Result<usize> {
    list(&resolve(CWD, path, Follow::No)?, names, size)
}

/// `flistxattr(2)`
pub(crate) fn flistxattr(fd: Fd, names: User, size: usize) -> Result<usize> {
    opened(fd)?.map_or(Ok(0), |place| list(&place, names, size))
}

fn remove(place: &Place, name: &[u8]) -> Result<usize> {
    process()
        .vfs
        .change_extended(place, name, None, SetExtended::Any)?;
    Ok(0)
}

/// `removexattr(2)`
pub(crate) fn removexattr(path: User, name_at: User) -> Result<usize> {
    let name = name(name_at)?;
    remove(&resolve(CWD, path, Follow::Yes)?, &name)
}

/// `lremovexattr(2)`
pub(crate) fn lremovexattr(path: User, name_at: User) -> Result<usize> {
    let name = name(name_at)?;
    remove(&resolve(CWD, path, Follow::No)?, &name)
}

/// `fremovexattr(2)`
pub(crate) fn fremovexattr(fd: Fd, name_at: User) -> Result<usize> {
    let name = name(name_at)?;
    remove(&opened(fd)?.ok_or(Errno::EPERM)?, &name)
}
