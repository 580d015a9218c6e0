// SPDX-License-Identifier: Apache-2.0
//! System calls on paths.

mod attributes;
mod directory;
mod extended;
mod inotify;
mod names;
mod open;
mod stat;

pub(crate) use attributes::{
    chmod, chown, fchmod, fchmodat, fchown, fchownat, futimesat, lchown, truncate, umask, utime,
    utimensat, utimes,
};
pub(crate) use directory::{chdir, fchdir, getcwd, getdents, getdents64};
pub(crate) use extended::{
    fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, lgetxattr, listxattr, llistxattr,
    lremovexattr, lsetxattr, removexattr, setxattr,
};
pub(crate) use inotify::{inotify_add_watch, inotify_init, inotify_init1, inotify_rm_watch};
pub(crate) use names::{
    link, linkat, mkdir, mkdirat, mknod, mknodat, readlink, readlinkat, rename, renameat,
    renameat2, rmdir, symlink, symlinkat, unlink, unlinkat,
};
pub(crate) use open::{creat, open, openat, openat2};
pub(crate) use stat::{
    access, faccessat, faccessat2, fstat, fstatfs, lstat, newfstatat, stat, statfs, statx,
};

use alloc::vec::Vec;

use coracle_abi::raw::general as g;
use coracle_core::user::{User, read_c_string};
use coracle_core::{Errno, Result};
use coracle_fs::vfs::{Follow, Place};
use coracle_logic::path::PATH_MAX;

use crate::argument::Fd;
use crate::process::process;

/// The working directory, for calls without a directory argument.
const CWD: Fd = Fd(g::AT_FDCWD);

/// A path from the application: `EFAULT`, or `ENAMETOOLONG` from `PATH_MAX` bytes on.
fn text(at: User) -> Result<Vec<u8>> {
    read_c_string(at.0, PATH_MAX)
}

/// The directory that `path` starts from. The descriptor does not matter for an absolute path.
fn base(directory: Fd, path: &[u8]) -> Result<Place> {
    match (directory, path.first()) {
        (_, Some(b'/')) => Ok(process().vfs.root().clone()),
        (CWD, _) => Ok(process().working_directory()),
        // A file that is no directory gives ENOTDIR when the walk enters it.
        _ => process().place_of(directory),
    }
}

/// The object of a path.
fn resolve(directory: Fd, path: User, follow: Follow) -> Result<Place> {
    let path = text(path)?;
    process()
        .vfs
        .resolve(&base(directory, &path)?, &path, follow)
}

/// `EINVAL` for flags that the call does not know.
fn check_flags(flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Whether `AT_SYMLINK_NOFOLLOW` is absent.
fn follow(flags: u32) -> Follow {
    if flags & g::AT_SYMLINK_NOFOLLOW == 0 {
        Follow::Yes
    } else {
        Follow::No
    }
}
