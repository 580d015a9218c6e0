// SPDX-License-Identifier: Apache-2.0
//! open(2), openat2(2).

use coracle_abi::convert::low_u32;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::user::{User, UserIn};
use coracle_core::{Errno, PollEvents, Result};
use coracle_fs::pipe::PipeEnd;
use coracle_fs::vfs::{NewKind, OpenRequest, Resolve, VnodeFile};

use super::{CWD, base, text};
use crate::argument::Fd;
use crate::process::process;
use crate::wait::{self, Wait};

/// `open(2)`
pub(crate) fn open(path: User, flags: u32, mode: u32) -> Result<usize> {
    openat(CWD, path, flags, mode)
}

/// `creat(2)`
pub(crate) fn creat(path: User, mode: u32) -> Result<usize> {
    openat(CWD, path, g::O_CREAT | g::O_WRONLY | g::O_TRUNC, mode)
}

/// `openat(2)`; flags that are not known are ignored.
pub(crate) fn openat(directory: Fd, path: User, flags: u32, mode: u32) -> Result<usize> {
    open_with(directory, path, flags, mode, Resolve::default())
}

/// All flags that `openat2` accepts.
const KNOWN: u32 = g::O_ACCMODE
    | g::O_CREAT
    | g::O_EXCL
    | g::O_NOCTTY
    | g::O_TRUNC
    | g::O_APPEND
    | g::O_NONBLOCK
    | g::O_SYNC
    | g::FASYNC
    | g::O_DIRECT
    | g::O_LARGEFILE
    | g::O_DIRECTORY
    | g::O_NOFOLLOW
    | g::O_NOATIME
    | g::O_CLOEXEC
    | g::O_PATH
    | g::O_TMPFILE;

/// `openat2(2)`. Of the limits on resolution `RESOLVE_NO_SYMLINKS` is there; others give `EINVAL`.
pub(crate) fn openat2(directory: Fd, path: User, how: User, size: usize) -> Result<usize> {
    if size < size_of::<g::open_how>() {
        return Err(Errno::EINVAL);
    }
    let known = size_of::<g::open_how>();
    for at in known..size.min(4096) {
        let byte = UserIn::<u8>::new(how.0.wrapping_add(at)).read()?;
        if byte != 0 {
            return Err(Errno::E2BIG);
        }
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let how = UserIn::<g::open_how>::new(how.0).read()?;
    let flags = low_u32(how.flags);
    let creates = flags & g::O_CREAT != 0 || flags & g::O_TMPFILE == g::O_TMPFILE;
    let resolves = u64::from(g::RESOLVE_NO_SYMLINKS);
    if how.flags & !u64::from(KNOWN) != 0
        || how.mode & !0o7777 != 0
        || (!creates && how.mode != 0)
        || how.resolve & !resolves != 0
    {
        return Err(Errno::EINVAL);
    }
    let resolve = Resolve {
        no_symlinks: how.resolve & resolves != 0,
    };
    open_with(directory, path, flags, low_u32(how.mode), resolve)
}

fn open_with(directory: Fd, path: User, flags: u32, mode: u32, resolve: Resolve) -> Result<usize> {
    let process = process();
    let path = text(path)?;
    let node = process.new_node(NewKind::File, mode);
    let request = OpenRequest {
        // Every file is large on a 64-bit machine, and F_GETFL says so.
        flags: flags | g::O_LARGEFILE,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        resolve,
    };
    let open = process
        .vfs
        .open(&base(directory, &path)?, &path, &request)?;
    wait_for_peer(&open)?;
    process.add_file(open, flags & g::O_CLOEXEC != 0)
}

/// Opening a named pipe waits until the other side is opened as well (fifo(7)).
fn wait_for_peer(open: &OpenFile) -> Result<()> {
    let end = open
        .downcast::<VnodeFile>()
        .and_then(|file| file.inner().ok())
        .and_then(|inner| inner.as_any().downcast_ref::<PipeEnd>());
    let Some(end) = end.filter(|end| !end.peer_came()) else {
        return Ok(());
    };
    wait::unless_nonblocking(open, Wait::new(PollEvents::IN | PollEvents::OUT), || {
        // Who does not want to wait reads from nobody; writing to nobody was refused before.
        if end.peer_came() || open.is_nonblocking() {
            Ok(())
        } else {
            Err(Errno::EAGAIN)
        }
    })
}
