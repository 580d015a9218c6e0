// SPDX-License-Identifier: Apache-2.0
//! stat(2), statx(2), access(2), statfs(2).

use coracle_abi::convert::{low_u16, low_u32, u64_from};
use coracle_abi::raw::general as g;
use coracle_core::file::{Metadata, OpenFile};
use coracle_core::user::{User, UserOut, zeroed};
use coracle_core::{Errno, Result};
use coracle_fs::vfs::{FsStatus, Kind, Mount, Place, VnodeFile, device_major, device_minor};

use super::{CWD, Follow, base, check_flags, follow, resolve, text};
use crate::argument::Fd;
use crate::process::process;

const NS_PER_S: u64 = 1_000_000_000;

/// What a call with `AT_EMPTY_PATH` may mean.
enum Object {
    Place(Place),
    Open(alloc::sync::Arc<OpenFile>),
}

impl Object {
    fn find(directory: Fd, path: User, flags: u32) -> Result<Self> {
        // Since Linux 6.11 NULL is as good as an empty path.
        let empty_allowed = flags & g::AT_EMPTY_PATH != 0;
        let path = match path.0 {
            0 if empty_allowed => alloc::vec::Vec::new(),
            _ => text(path)?,
        };
        if path.is_empty() && empty_allowed {
            return Ok(match directory {
                CWD => Self::Place(process().working_directory()),
                fd => Self::Open(process().any_file(fd)?),
            });
        }
        let base = base(directory, &path)?;
        let place = process().vfs.resolve(&base, &path, follow(flags))?;
        Ok(Self::Place(place))
    }

    fn metadata(&self) -> Result<Metadata> {
        match self {
            Self::Place(place) => place.inode.metadata(),
            Self::Open(open) => open.file().metadata(),
        }
    }

    /// The mount, for objects that are in one.
    fn mount(&self) -> Option<&Mount> {
        match self {
            Self::Place(place) => Some(&place.mount),
            Self::Open(open) => Some(&open.downcast::<VnodeFile>()?.place().mount),
        }
    }

    fn is_mount_root(&self) -> bool {
        match self {
            Self::Place(place) => place.is_mount_root(),
            Self::Open(open) => open
                .downcast::<VnodeFile>()
                .is_some_and(|file| file.place().is_mount_root()),
        }
    }
}

fn store(metadata: &Metadata, out: User) -> Result<usize> {
    let mut stat = zeroed::<g::stat>();
    stat.st_dev = metadata.device;
    stat.st_ino = metadata.inode;
    stat.st_nlink = metadata.links.into();
    stat.st_mode = metadata.mode;
    stat.st_uid = metadata.uid;
    stat.st_gid = metadata.gid;
    stat.st_rdev = metadata.special_device;
    stat.st_size = metadata.size.cast_signed();
    stat.st_blksize = 4096;
    stat.st_blocks = metadata.blocks.cast_signed();
    stat.st_atime = metadata.accessed_ns / NS_PER_S;
    stat.st_atime_nsec = metadata.accessed_ns % NS_PER_S;
    stat.st_mtime = metadata.modified_ns / NS_PER_S;
    stat.st_mtime_nsec = metadata.modified_ns % NS_PER_S;
    stat.st_ctime = metadata.changed_ns / NS_PER_S;
    stat.st_ctime_nsec = metadata.changed_ns % NS_PER_S;
    UserOut::new(out.0).write(stat)?;
    Ok(0)
}

/// `stat(2)`
pub(crate) fn stat(path: User, out: User) -> Result<usize> {
    let place = resolve(CWD, path, Follow::Yes)?;
    store(&place.inode.metadata()?, out)
}

/// `lstat(2)`
pub(crate) fn lstat(path: User, out: User) -> Result<usize> {
    let place = resolve(CWD, path, Follow::No)?;
    store(&place.inode.metadata()?, out)
}

/// `fstat(2)`
pub(crate) fn fstat(fd: Fd, out: User) -> Result<usize> {
    store(&process().any_file(fd)?.file().metadata()?, out)
}

/// `fstatat(2)`
pub(crate) fn newfstatat(directory: Fd, path: User, out: User, flags: u32) -> Result<usize> {
    check_flags(
        flags,
        g::AT_SYMLINK_NOFOLLOW | g::AT_NO_AUTOMOUNT | g::AT_EMPTY_PATH,
    )?;
    store(&Object::find(directory, path, flags)?.metadata()?, out)
}

fn statx_time(ns: u64) -> g::statx_timestamp {
    g::statx_timestamp {
        tv_sec: (ns / NS_PER_S).cast_signed(),
        tv_nsec: low_u32(ns % NS_PER_S),
        __reserved: 0,
    }
}

/// `statx(2)`. There is no time of birth.
pub(crate) fn statx(directory: Fd, path: User, flags: u32, mask: u32, out: User) -> Result<usize> {
    let sync = g::AT_STATX_FORCE_SYNC | g::AT_STATX_DONT_SYNC;
    check_flags(
        flags,
        g::AT_SYMLINK_NOFOLLOW | g::AT_NO_AUTOMOUNT | g::AT_EMPTY_PATH | sync,
    )?;
    if flags & sync == sync || mask & g::STATX__RESERVED != 0 {
        return Err(Errno::EINVAL);
    }
    let object = Object::find(directory, path, flags)?;
    let metadata = object.metadata()?;
    let mut statx = zeroed::<g::statx>();
    statx.stx_mask = g::STATX_BASIC_STATS;
    statx.stx_blksize = 4096;
    statx.stx_attributes_mask = g::STATX_ATTR_MOUNT_ROOT.into();
    if object.is_mount_root() {
        statx.stx_attributes = g::STATX_ATTR_MOUNT_ROOT.into();
    }
    statx.stx_nlink = metadata.links;
    statx.stx_uid = metadata.uid;
    statx.stx_gid = metadata.gid;
    statx.stx_mode = low_u16(metadata.mode.into());
    statx.stx_ino = metadata.inode;
    statx.stx_size = metadata.size;
    statx.stx_blocks = metadata.blocks;
    statx.stx_atime = statx_time(metadata.accessed_ns);
    statx.stx_mtime = statx_time(metadata.modified_ns);
    statx.stx_ctime = statx_time(metadata.changed_ns);
    statx.stx_rdev_major = device_major(metadata.special_device);
    statx.stx_rdev_minor = device_minor(metadata.special_device);
    statx.stx_dev_major = device_major(metadata.device);
    statx.stx_dev_minor = device_minor(metadata.device);
    if let Some(mount) = object.mount().filter(|_| mask & g::STATX_MNT_ID != 0) {
        statx.stx_mask |= g::STATX_MNT_ID;
        statx.stx_mnt_id = mount.id().into();
    }
    UserOut::new(out.0).write(statx)?;
    Ok(0)
}

/// `access(2)`
pub(crate) fn access(path: User, mode: u32) -> Result<usize> {
    faccessat2(CWD, path, mode, 0)
}

/// `faccessat(2)`, the system call without flags.
pub(crate) fn faccessat(directory: Fd, path: User, mode: u32) -> Result<usize> {
    faccessat2(directory, path, mode, 0)
}

/// `faccessat(2)`. The process may read and write everything, as root does; executing a file needs an `x` bit.
pub(crate) fn faccessat2(directory: Fd, path: User, mode: u32, flags: u32) -> Result<usize> {
    check_flags(mode, g::R_OK | g::W_OK | g::X_OK)?;
    check_flags(
        flags,
        g::AT_EACCESS | g::AT_SYMLINK_NOFOLLOW | g::AT_EMPTY_PATH,
    )?;
    let object = Object::find(directory, path, flags)?;
    let metadata = object.metadata()?;
    let kind = Kind::from_mode(metadata.mode);
    let read_only = object
        .mount()
        .is_some_and(|mount| mount.options().read_only);
    // Devices, pipes and sockets can be written to on a read-only file system.
    let stored_here = matches!(kind, Some(Kind::File | Kind::Directory | Kind::Symlink));
    if mode & g::W_OK != 0 && read_only && stored_here {
        return Err(Errno::EROFS);
    }
    if mode & g::X_OK != 0 && kind != Some(Kind::Directory) && metadata.mode & 0o111 == 0 {
        return Err(Errno::EACCES);
    }
    Ok(0)
}

fn store_status(status: &FsStatus, read_only: bool, out: User) -> Result<usize> {
    let mut statfs = zeroed::<g::statfs>();
    let block = status.block_bytes.cast_signed();
    statfs.f_type = status.magic.into();
    statfs.f_bsize = block;
    statfs.f_blocks = status.blocks.cast_signed();
    statfs.f_bfree = status.free_blocks.cast_signed();
    statfs.f_bavail = status.free_blocks.cast_signed();
    statfs.f_files = status.inodes.cast_signed();
    statfs.f_ffree = status.free_inodes.cast_signed();
    statfs.f_namelen = u64_from(coracle_logic::path::NAME_MAX).cast_signed();
    statfs.f_frsize = block;
    // ST_VALID says that the flags are filled in; ST_RDONLY is MS_RDONLY.
    statfs.f_flags = 0x20 | i64::from(read_only);
    UserOut::new(out.0).write(statfs)?;
    Ok(0)
}

/// `statfs(2)`
pub(crate) fn statfs(path: User, out: User) -> Result<usize> {
    let mount = resolve(CWD, path, Follow::Yes)?.mount;
    store_status(
        &mount.file_system().status(),
        mount.options().read_only,
        out,
    )
}

/// `fstatfs(2)`
pub(crate) fn fstatfs(fd: Fd, out: User) -> Result<usize> {
    let open = process().any_file(fd)?;
    if let Some(file) = open.downcast::<VnodeFile>() {
        let mount = &file.place().mount;
        let status = mount.file_system().status();
        return store_status(&status, mount.options().read_only, out);
    }
    // Objects without a name are in a file system of their own kind on Linux.
    let kind = Kind::from_mode(open.file().metadata()?.mode);
    let status = FsStatus {
        magic: match kind {
            Some(Kind::Fifo) => g::PIPEFS_MAGIC,
            Some(Kind::Socket) => g::SOCKFS_MAGIC,
            _ => g::ANON_INODE_FS_MAGIC,
        },
        block_bytes: 4096,
        ..FsStatus::default()
    };
    store_status(&status, false, out)
}
