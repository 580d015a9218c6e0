// SPDX-License-Identifier: Apache-2.0
//! Threads and the one process: creation, end, identity, processor-control calls.

mod create;
mod fork;
mod futex;
mod sched;

use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::{general as g, prctl as p};
use coracle_abi::{Errno, USER_END};
use coracle_core::exit::{ExitReason, end_process};
use coracle_core::thread::{self, FIRST_TID};
use coracle_core::user::{self, User, UserOut};
use coracle_core::{Result, futex as core_futex};

pub(crate) use crate::exec::{execve, execveat};
pub(crate) use create::{clone, clone3};
pub(crate) use fork::{fork, vfork};
pub(crate) use futex::{futex, get_robust_list, set_robust_list};
pub(crate) use sched::{
    getcpu, getpriority, sched_get_priority_max, sched_get_priority_min, sched_getaffinity,
    sched_getattr, sched_getparam, sched_getscheduler, sched_rr_get_interval, sched_setaffinity,
    sched_setparam, sched_setscheduler, sched_yield, setpriority,
};

/// `exit(2)`: ends the calling thread, and the program with its last one.
pub(crate) fn exit(status: u32) -> Result<usize> {
    end_thread(status)
}

fn end_thread(status: u32) -> ! {
    let me = thread::current();
    core_futex::on_thread_exit(me);
    if thread::thread_count() == 1 {
        end_process(ExitReason::Exit(coracle_abi::convert::low_u8(
            status.into(),
        )));
    }
    thread::exit_current()
}

/// `exit_group(2)`
pub(crate) fn exit_group(status: u32) -> Result<usize> {
    end_process(ExitReason::Exit(coracle_abi::convert::low_u8(
        status.into(),
    )))
}

/// `wait4(2)`: there are never children.
pub(crate) fn wait4(_pid: i32, _status: User, options: u32, _usage: User) -> Result<usize> {
    let known =
        g::WNOHANG | g::WUNTRACED | g::WCONTINUED | g::__WNOTHREAD | g::__WCLONE | g::__WALL;
    Err(if options & !known != 0 {
        Errno::EINVAL
    } else {
        Errno::ECHILD
    })
}

/// `waitid(2)`: there are never children.
pub(crate) fn waitid(
    kind: u32,
    _id: u32,
    _info: User,
    options: u32,
    _usage: User,
) -> Result<usize> {
    let wanted = g::WEXITED | g::WSTOPPED | g::WCONTINUED;
    let known = wanted | g::WNOHANG | g::WNOWAIT | g::__WNOTHREAD | g::__WCLONE | g::__WALL;
    if options & !known != 0 || options & wanted == 0 || kind > 3 {
        return Err(Errno::EINVAL);
    }
    Err(Errno::ECHILD)
}

/// `set_tid_address(2)`
pub(crate) fn set_tid_address(at: usize) -> Result<usize> {
    let me = thread::current();
    me.clear_child_tid.store(at, Ordering::Relaxed);
    Ok(usize_from_u32(me.tid()))
}

/// `gettid(2)`
pub(crate) fn gettid() -> Result<usize> {
    Ok(usize_from_u32(thread::current().tid()))
}

/// `getpid(2)`
pub(crate) fn getpid() -> Result<usize> {
    Ok(usize_from_u32(FIRST_TID))
}

/// `getppid(2)`: the process has no parent in this PID namespace.
pub(crate) fn getppid() -> Result<usize> {
    Ok(0)
}

fn is_self(pid: i32) -> Result<()> {
    if pid < 0 {
        return Err(Errno::EINVAL);
    }
    if pid == 0 || pid.cast_unsigned() == FIRST_TID {
        Ok(())
    } else {
        Err(Errno::ESRCH)
    }
}

/// `getpgid(2)`
pub(crate) fn getpgid(pid: i32) -> Result<usize> {
    is_self(pid).map_err(|_| Errno::ESRCH)?;
    getpid()
}

/// `getpgrp(2)`
pub(crate) fn getpgrp() -> Result<usize> {
    getpid()
}

/// `getsid(2)`
pub(crate) fn getsid(pid: i32) -> Result<usize> {
    is_self(pid).map_err(|_| Errno::ESRCH)?;
    getpid()
}

/// `setpgid(2)`: the process leads its session, which may not change its group.
pub(crate) fn setpgid(pid: i32, group: i32) -> Result<usize> {
    if group < 0 {
        return Err(Errno::EINVAL);
    }
    is_self(pid)?;
    Err(Errno::EPERM)
}

/// `setsid(2)`: the process leads its group already.
pub(crate) fn setsid() -> Result<usize> {
    Err(Errno::EPERM)
}

const ARCH_SET_GS: u32 = 0x1001;
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;
const ARCH_GET_GS: u32 = 0x1004;

/// `arch_prctl(2)`
pub(crate) fn arch_prctl(code: u32, value: usize) -> Result<usize> {
    match code {
        ARCH_SET_FS => {
            if value >= USER_END {
                return Err(Errno::EPERM);
            }
            thread::current().set_fs_base(value);
            Ok(0)
        }
        ARCH_GET_FS => UserOut::<usize>::new(value)
            .write(thread::fs_base())
            .map(|()| 0),
        ARCH_SET_GS => {
            if value >= USER_END {
                return Err(Errno::EPERM);
            }
            thread::set_gs_base(value);
            Ok(0)
        }
        ARCH_GET_GS => UserOut::<usize>::new(value)
            .write(thread::gs_base())
            .map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

static DUMPABLE: AtomicUsize = AtomicUsize::new(1);
static NO_NEW_PRIVS: AtomicUsize = AtomicUsize::new(0);
static KEEP_CAPS: AtomicUsize = AtomicUsize::new(0);

/// Whether `execve(2)` grants nothing (`PR_SET_NO_NEW_PRIVS`).
pub(crate) fn has_no_new_privs() -> bool {
    NO_NEW_PRIVS.load(Ordering::Relaxed) != 0
}

/// Sets back what `execve(2)` sets back of prctl(2).
pub(crate) fn forget_program() {
    DUMPABLE.store(1, Ordering::Relaxed);
    KEEP_CAPS.store(0, Ordering::Relaxed);
}

/// `prctl(2)`
pub(crate) fn prctl(option: u32, a: usize, b: usize, c: usize, d: usize) -> Result<usize> {
    static DEATH_SIGNAL: AtomicUsize = AtomicUsize::new(0);
    static SLACK_NS: AtomicUsize = AtomicUsize::new(50_000);
    let me = thread::current();
    let flag = |cell: &AtomicUsize, allowed: usize| {
        if a > allowed {
            return Err(Errno::EINVAL);
        }
        cell.store(a, Ordering::Relaxed);
        Ok(0)
    };
    match option {
        p::PR_SET_NAME => {
            let mut name = [0u8; 16];
            for (n, byte) in name[..15].iter_mut().enumerate() {
                user::read_all(core::slice::from_mut(byte), a.wrapping_add(n))?;
                if *byte == 0 {
                    break;
                }
            }
            let len = name.iter().position(|b| *b == 0).unwrap_or(15);
            me.set_name(&name[..len]);
            Ok(0)
        }
        p::PR_GET_NAME => user::write_all(a, &me.name()).map(|()| 0),
        p::PR_SET_DUMPABLE => flag(&DUMPABLE, 1),
        p::PR_GET_DUMPABLE => Ok(DUMPABLE.load(Ordering::Relaxed)),
        p::PR_SET_NO_NEW_PRIVS if a == 1 && b == 0 && c == 0 && d == 0 => flag(&NO_NEW_PRIVS, 1),
        p::PR_GET_NO_NEW_PRIVS if a == 0 && b == 0 && c == 0 && d == 0 => {
            Ok(NO_NEW_PRIVS.load(Ordering::Relaxed))
        }
        p::PR_SET_PDEATHSIG => flag(&DEATH_SIGNAL, 64),
        p::PR_GET_PDEATHSIG => {
            let signal = coracle_abi::convert::low_u32(coracle_abi::convert::u64_from(
                DEATH_SIGNAL.load(Ordering::Relaxed),
            ));
            UserOut::<u32>::new(a).write(signal).map(|()| 0)
        }
        p::PR_SET_TIMERSLACK => {
            // Every timer has the same slack of 50 us; the value is kept for those who ask.
            SLACK_NS.store(if a == 0 { 50_000 } else { a }, Ordering::Relaxed);
            Ok(0)
        }
        p::PR_GET_TIMERSLACK => Ok(SLACK_NS.load(Ordering::Relaxed)),
        p::PR_SET_KEEPCAPS => flag(&KEEP_CAPS, 1),
        p::PR_GET_KEEPCAPS => Ok(KEEP_CAPS.load(Ordering::Relaxed)),
        p::PR_GET_SECCOMP => Ok(0),
        // Every capability up to CAP_CHECKPOINT_RESTORE (40) is in the bounding set.
        p::PR_CAPBSET_READ => {
            if a <= 40 {
                Ok(1)
            } else {
                Err(Errno::EINVAL)
            }
        }
        p::PR_GET_TID_ADDRESS => {
            let at = me.clear_child_tid.load(Ordering::Relaxed);
            UserOut::<usize>::new(a).write(at).map(|()| 0)
        }
        p::PR_SET_VMA => name_area(a, b, c),
        _ => Err(Errno::EINVAL),
    }
}

/// `PR_SET_VMA_ANON_NAME`: names are for `/proc/self/maps` only; Linux without `CONFIG_ANON_VMA_NAME` refuses too.
fn name_area(_kind: usize, _at: usize, _len: usize) -> Result<usize> {
    Err(Errno::EINVAL)
}
