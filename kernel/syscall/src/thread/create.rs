// SPDX-License-Identifier: Apache-2.0
//! New threads: clone(2).

use core::sync::atomic::Ordering;

use coracle_abi::convert::{u64_from, usize_from, usize_from_u32};
use coracle_abi::raw::general as g;
use coracle_abi::{Errno, USER_END};
use coracle_core::Result;
use coracle_core::thread::{self, NewThread};
use coracle_core::user::{self, User, UserOut};

/// What a thread must share with its process. Without all of these it would be a process of its own.
const THREAD_FLAGS: u64 =
    (g::CLONE_VM | g::CLONE_FS | g::CLONE_FILES | g::CLONE_SIGHAND | g::CLONE_THREAD) as u64;

/// Flags that are known beyond those.
const KNOWN_FLAGS: u64 = THREAD_FLAGS
    | (g::CLONE_SYSVSEM
        | g::CLONE_SETTLS
        | g::CLONE_PARENT_SETTID
        | g::CLONE_CHILD_CLEARTID
        | g::CLONE_CHILD_SETTID
        | g::CLONE_DETACHED
        | g::CLONE_PTRACE
        | g::CLONE_UNTRACED
        | g::CLONE_IO) as u64;

struct Clone {
    /// Which call it came by.
    call: &'static str,
    flags: u64,
    stack_end: usize,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
}

/// `clone(2)`
pub(crate) fn clone(
    flags: usize,
    stack: usize,
    parent_tid: User,
    child_tid: User,
    tls: usize,
) -> Result<usize> {
    // The low byte is the signal at the end, which threads do not send.
    let flags = u64_from(flags) & !u64::from(g::CSIGNAL);
    start(&Clone {
        call: "clone",
        flags,
        stack_end: stack,
        parent_tid: parent_tid.0,
        child_tid: child_tid.0,
        tls,
    })
}

/// `clone3(2)`
pub(crate) fn clone3(arguments: User, size: usize) -> Result<usize> {
    const FIRST_SIZE: usize = 64;
    if size < FIRST_SIZE {
        return Err(Errno::EINVAL);
    }
    if size > coracle_abi::PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    let mut bytes = alloc::vec![0u8; size.max(size_of::<g::clone_args>())];
    user::read_all(&mut bytes[..size], arguments.0)?;
    if bytes[size_of::<g::clone_args>()..].iter().any(|b| *b != 0) {
        return Err(Errno::E2BIG);
    }
    let a: g::clone_args = user::from_slice(&bytes)?;
    if a.flags & u64::from(g::CSIGNAL | g::CLONE_DETACHED) != 0
        || a.exit_signal > 64
        || a.set_tid_size != 0
    {
        return Err(Errno::EINVAL);
    }
    if (a.stack == 0) != (a.stack_size == 0) {
        return Err(Errno::EINVAL);
    }
    if a.flags & u64::from(g::CLONE_THREAD) != 0 && a.exit_signal != 0 {
        return Err(Errno::EINVAL);
    }
    let stack_end = a
        .stack
        .checked_add(a.stack_size)
        .filter(|end| *end <= u64_from(USER_END))
        .ok_or(Errno::EINVAL)?;
    start(&Clone {
        call: "clone3",
        flags: a.flags,
        stack_end: usize_from(stack_end),
        parent_tid: usize_from(a.parent_tid),
        child_tid: usize_from(a.child_tid),
        tls: usize_from(a.tls),
    })
}

fn start(what: &Clone) -> Result<usize> {
    let has = |flag: u32| what.flags & u64::from(flag) != 0;
    // Combinations that Linux refuses whatever the kernel can do (clone(2), ERRORS).
    if has(g::CLONE_SIGHAND) && !has(g::CLONE_VM) || has(g::CLONE_THREAD) && !has(g::CLONE_SIGHAND)
    {
        return Err(Errno::EINVAL);
    }
    if what.flags & THREAD_FLAGS != THREAD_FLAGS {
        return super::fork::refuse(what.call);
    }
    if what.flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if has(g::CLONE_SETTLS) && what.tls >= USER_END {
        return Err(Errno::EPERM);
    }
    let me = thread::current();
    let mut frame = thread::entry_frame();
    frame.set_result(0);
    frame.restore_fully();
    if what.stack_end != 0 {
        frame.set_stack(what.stack_end);
    }
    let fs_base = if has(g::CLONE_SETTLS) {
        what.tls
    } else {
        thread::fs_base()
    };
    let child = thread::new(&NewThread {
        frame: &frame,
        fs_base,
        parent: Some(me),
    })?;
    let tid = child.tid();
    // As on Linux, words that cannot be written do not stop the creation of the thread.
    if has(g::CLONE_PARENT_SETTID) {
        let _ = UserOut::<u32>::new(what.parent_tid).write(tid);
    }
    if has(g::CLONE_CHILD_SETTID) {
        let _ = UserOut::<u32>::new(what.child_tid).write(tid);
    }
    if has(g::CLONE_CHILD_CLEARTID) {
        child
            .clear_child_tid
            .store(what.child_tid, Ordering::Relaxed);
    }
    thread::spawn(child);
    Ok(usize_from_u32(tid))
}
