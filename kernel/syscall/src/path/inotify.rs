// SPDX-License-Identifier: Apache-2.0
//! inotify_init(2), inotify_add_watch(2), inotify_rm_watch(2).

use alloc::sync::Arc;

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::user::User;
use coracle_core::{Errno, Result};
use coracle_fs::inotify::{Existing, Inotify};
use coracle_fs::vfs::{Follow, Kind};

use super::{CWD, resolve};
use crate::argument::Fd;
use crate::process::process;

/// What a mask may hold; the events that are told unasked are allowed, too.
const KNOWN: u32 = g::IN_ALL_EVENTS
    | g::IN_UNMOUNT
    | g::IN_Q_OVERFLOW
    | g::IN_IGNORED
    | g::IN_ONLYDIR
    | g::IN_DONT_FOLLOW
    | g::IN_EXCL_UNLINK
    | g::IN_MASK_CREATE
    | g::IN_MASK_ADD
    | g::IN_ISDIR
    | g::IN_ONESHOT;

/// `inotify_init(2)`, the older call.
pub(crate) fn inotify_init() -> Result<usize> {
    inotify_init1(0)
}

/// `inotify_init1(2)`
pub(crate) fn inotify_init1(flags: u32) -> Result<usize> {
    if flags & !(g::IN_CLOEXEC | g::IN_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    // The flag has the value of O_NONBLOCK.
    let open = OpenFile::new(Inotify::new()?, g::O_RDONLY | (flags & g::IN_NONBLOCK));
    process().add_file(open, flags & g::IN_CLOEXEC != 0)
}

/// `inotify_add_watch(2)`
pub(crate) fn inotify_add_watch(fd: Fd, path: User, mask: u32) -> Result<usize> {
    let both = g::IN_MASK_ADD | g::IN_MASK_CREATE;
    if mask & !KNOWN != 0 || mask & KNOWN == 0 {
        return Err(Errno::EINVAL);
    }
    let open = process().file(fd)?;
    if mask & both == both {
        return Err(Errno::EINVAL);
    }
    let instance = instance(&open)?;
    let follow = if mask & g::IN_DONT_FOLLOW == 0 {
        Follow::Yes
    } else {
        Follow::No
    };
    let place = resolve(CWD, path, follow)?;
    if mask & g::IN_ONLYDIR != 0 && place.inode.kind() != Kind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let existing = if mask & g::IN_MASK_ADD != 0 {
        Existing::Add
    } else if mask & g::IN_MASK_CREATE != 0 {
        Existing::Refuse
    } else {
        Existing::Replace
    };
    let number = instance.watch(place.inode, mask, existing)?;
    Ok(usize_from_u32(number.cast_unsigned()))
}

/// `inotify_rm_watch(2)`
pub(crate) fn inotify_rm_watch(fd: Fd, number: i32) -> Result<usize> {
    let open = process().file(fd)?;
    instance(&open)?.remove(number)?;
    Ok(0)
}

fn instance(open: &Arc<OpenFile>) -> Result<&Inotify> {
    open.downcast::<Inotify>().ok_or(Errno::EINVAL)
}
