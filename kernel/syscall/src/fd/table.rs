// SPDX-License-Identifier: Apache-2.0
//! The descriptor table: close(2), dup(2), close_range(2).

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_core::{Errno, Result};

use crate::argument::Fd;
use crate::process::{fd_errno, process};

/// Marks instead of closing (close_range(2)).
const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

/// `close(2)`
pub(crate) fn close(fd: Fd) -> Result<usize> {
    let closed = process().fds.lock().remove(fd.index()?).map_err(fd_errno)?;
    drop(closed);
    coracle_fs::ninep::write_back(false);
    Ok(0)
}

/// `close_range(2)`
pub(crate) fn close_range(first: u32, last: u32, flags: u32) -> Result<usize> {
    // CLOSE_RANGE_UNSHARE gives the caller a table of its own first; there is one table, used by all threads.
    if flags & !CLOSE_RANGE_CLOEXEC != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    let fds = &process().fds;
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        fds.lock().set_close_on_exec_range(first, last);
        return Ok(0);
    }
    let mut next = first;
    while next <= last {
        // The file is dropped without the lock.
        let closed = fds.lock().remove_first(next..=last);
        let Some((fd, _file)) = closed else { break };
        next = fd + 1;
    }
    Ok(0)
}

/// `dup(2)`
pub(crate) fn dup(fd: Fd) -> Result<usize> {
    let open = process().any_file(fd)?;
    process().add_file(open, false)
}

/// `dup2(2)`
pub(crate) fn dup2(old: Fd, new: Fd) -> Result<usize> {
    if old == new {
        process().any_file(old)?;
        return Ok(usize_from_u32(new.index()?));
    }
    duplicate_to(old, new, false)
}

/// `dup3(2)`
pub(crate) fn dup3(old: Fd, new: Fd, flags: u32) -> Result<usize> {
    if flags & !g::O_CLOEXEC != 0 || old == new {
        return Err(Errno::EINVAL);
    }
    duplicate_to(old, new, flags & g::O_CLOEXEC != 0)
}

fn duplicate_to(old: Fd, new: Fd, close_on_exec: bool) -> Result<usize> {
    let open = process().any_file(old)?;
    let number = new.index()?;
    let replaced = process()
        .fds
        .lock()
        .insert_at(number, open, close_on_exec)
        .map_err(fd_errno)?;
    drop(replaced);
    Ok(usize_from_u32(number))
}
