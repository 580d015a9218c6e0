// SPDX-License-Identifier: Apache-2.0
//! Names: mkdir(2), mknod(2), link(2), symlink(2), unlink(2), rmdir(2), rename(2), readlink(2).

use coracle_abi::raw::general as g;
use coracle_core::user::{User, write_all};
use coracle_core::{Errno, Result};
use coracle_fs::vfs::{Kind, NewKind, Place, Rename, VnodeFile};

use super::{CWD, Follow, base, check_flags, text};
use crate::argument::Fd;
use crate::process::process;

fn create(directory: Fd, path: User, kind: NewKind<'_>, mode: u32) -> Result<usize> {
    let path = text(path)?;
    let node = process().new_node(kind, mode);
    process()
        .vfs
        .create(&base(directory, &path)?, &path, &node)?;
    Ok(0)
}

/// `mkdir(2)`
pub(crate) fn mkdir(path: User, mode: u32) -> Result<usize> {
    mkdirat(CWD, path, mode)
}

/// `mkdirat(2)`
pub(crate) fn mkdirat(directory: Fd, path: User, mode: u32) -> Result<usize> {
    create(directory, path, NewKind::Directory, mode & 0o1777)
}

/// `mknod(2)`
pub(crate) fn mknod(path: User, mode: u32, device: u32) -> Result<usize> {
    mknodat(CWD, path, mode, device)
}

/// `mknodat(2)`: files, named pipes, names of sockets. Device files are the image's business: `EPERM`.
pub(crate) fn mknodat(directory: Fd, path: User, mode: u32, _device: u32) -> Result<usize> {
    let kind = match mode & g::S_IFMT {
        0 | g::S_IFREG => NewKind::File,
        g::S_IFIFO => NewKind::Fifo,
        g::S_IFSOCK => NewKind::Socket,
        g::S_IFCHR | g::S_IFBLK | g::S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    create(directory, path, kind, mode)
}

/// `symlink(2)`
pub(crate) fn symlink(target: User, path: User) -> Result<usize> {
    symlinkat(target, CWD, path)
}

/// `symlinkat(2)`
pub(crate) fn symlinkat(target: User, directory: Fd, path: User) -> Result<usize> {
    let target = text(target)?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    create(directory, path, NewKind::Symlink(&target), 0o777)
}

/// `link(2)`
pub(crate) fn link(old: User, new: User) -> Result<usize> {
    linkat(CWD, old, CWD, new, 0)
}

/// `linkat(2)`
pub(crate) fn linkat(old_dir: Fd, old: User, new_dir: Fd, new: User, flags: u32) -> Result<usize> {
    check_flags(flags, g::AT_SYMLINK_FOLLOW | g::AT_EMPTY_PATH)?;
    let old = text(old)?;
    let new = text(new)?;
    let target = if old.is_empty() && flags & g::AT_EMPTY_PATH != 0 {
        opened(old_dir)?
    } else {
        let follow = if flags & g::AT_SYMLINK_FOLLOW == 0 {
            Follow::No
        } else {
            Follow::Yes
        };
        process().vfs.resolve(&base(old_dir, &old)?, &old, follow)?
    };
    process().vfs.link(&target, &base(new_dir, &new)?, &new)?;
    Ok(0)
}

/// The object that a descriptor was opened for.
fn opened(fd: Fd) -> Result<Place> {
    if fd == CWD {
        return Ok(process().working_directory());
    }
    let open = process().any_file(fd)?;
    let file = open.downcast::<VnodeFile>().ok_or(Errno::EXDEV)?;
    Ok(file.place().clone())
}

/// `unlink(2)`
pub(crate) fn unlink(path: User) -> Result<usize> {
    unlinkat(CWD, path, 0)
}

/// `rmdir(2)`
pub(crate) fn rmdir(path: User) -> Result<usize> {
    unlinkat(CWD, path, g::AT_REMOVEDIR)
}

/// `unlinkat(2)`
pub(crate) fn unlinkat(directory: Fd, path: User, flags: u32) -> Result<usize> {
    check_flags(flags, g::AT_REMOVEDIR)?;
    let path = text(path)?;
    let base = base(directory, &path)?;
    if flags & g::AT_REMOVEDIR != 0 {
        process().vfs.remove_directory(&base, &path)?;
    } else {
        process().vfs.unlink(&base, &path)?;
    }
    Ok(0)
}

/// `rename(2)`
pub(crate) fn rename(old: User, new: User) -> Result<usize> {
    renameat2(CWD, old, CWD, new, 0)
}

/// `renameat(2)`
pub(crate) fn renameat(old_dir: Fd, old: User, new_dir: Fd, new: User) -> Result<usize> {
    renameat2(old_dir, old, new_dir, new, 0)
}

/// `renameat2(2)`. `RENAME_WHITEOUT` belongs to layered file systems: `EINVAL`.
pub(crate) fn renameat2(
    old_dir: Fd,
    old: User,
    new_dir: Fd,
    new: User,
    flags: u32,
) -> Result<usize> {
    let how = match flags {
        0 => Rename::Replace,
        g::RENAME_NOREPLACE => Rename::NoReplace,
        g::RENAME_EXCHANGE => Rename::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    let old = text(old)?;
    let new = text(new)?;
    let from = base(old_dir, &old)?;
    let to = base(new_dir, &new)?;
    process().vfs.rename((&from, &old), (&to, &new), how)?;
    Ok(0)
}

/// `readlink(2)`
pub(crate) fn readlink(path: User, buf: User, len: usize) -> Result<usize> {
    readlinkat(CWD, path, buf, len)
}

/// `readlinkat(2)`; an empty path means the link that the descriptor was opened for.
pub(crate) fn readlinkat(directory: Fd, path: User, buf: User, len: usize) -> Result<usize> {
    if len == 0 || i32::try_from(len).is_err() {
        return Err(Errno::EINVAL);
    }
    let path = text(path)?;
    let place = if path.is_empty() {
        let place = opened(directory).map_err(|_| Errno::ENOENT)?;
        if place.inode.kind() != Kind::Symlink {
            return Err(Errno::ENOENT);
        }
        place
    } else {
        process()
            .vfs
            .resolve(&base(directory, &path)?, &path, Follow::No)?
    };
    let target = place.inode.read_link()?;
    let shown = &target[..target.len().min(len)];
    write_all(buf.0, shown)?;
    Ok(shown.len())
}
