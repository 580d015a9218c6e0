// SPDX-License-Identifier: Apache-2.0
//! Scheduling parameters: sched(7). Threads share the CPUs by their nice values; there are no real-time classes.

use alloc::sync::Arc;

use coracle_abi::Errno;
use coracle_abi::convert::usize_from_u32;

use coracle_core::Result;
use coracle_core::thread::{self, FIRST_TID, NICE, Thread};
use coracle_core::user::{self, User, UserIn, UserOut};

use crate::info::geteuid;

/// The thread a call is about; 0 is the caller.
fn target(tid: i32) -> Result<Arc<Thread>> {
    match u32::try_from(tid) {
        Ok(0) => Ok(thread::current().arc()),
        Ok(tid) => thread::find(tid).ok_or(Errno::ESRCH),
        Err(_) => Err(Errno::EINVAL),
    }
}

/// `sched_yield(2)`
pub(crate) fn sched_yield() -> Result<usize> {
    thread::yield_now();
    Ok(0)
}

/// `sched_getaffinity(2)`: returns the number of bytes written.
pub(crate) fn sched_getaffinity(tid: i32, size: usize, mask: User) -> Result<usize> {
    if size < 8 || !size.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let thread = target(tid).map_err(|_| Errno::ESRCH)?;
    let online = (1u64 << coracle_core::thread::online_cpus()) - 1;
    UserOut::<u64>::new(mask.0).write(thread.affinity() & online)?;
    Ok(8)
}

/// `sched_setaffinity(2)`
pub(crate) fn sched_setaffinity(tid: i32, size: usize, mask: User) -> Result<usize> {
    let mut bytes = [0u8; 8];
    let len = size.min(8);
    user::read_all(&mut bytes[..len], mask.0)?;
    let thread = target(tid).map_err(|_| Errno::ESRCH)?;
    thread.set_affinity(u64::from_le_bytes(bytes))?;
    Ok(0)
}

/// `getcpu(2)`
pub(crate) fn getcpu(cpu_out: User, node: User) -> Result<usize> {
    let index = u32::try_from(coracle_core::thread::this_cpu()).map_err(|_| Errno::EINVAL)?;
    if let Some(out) = UserOut::<u32>::new(cpu_out.0).optional() {
        out.write(index)?;
    }
    if let Some(out) = UserOut::<u32>::new(node.0).optional() {
        out.write(0)?;
    }
    Ok(0)
}

const SCHED_OTHER: i32 = 0;
const SCHED_FIFO: i32 = 1;
const SCHED_RR: i32 = 2;
const SCHED_BATCH: i32 = 3;
const SCHED_IDLE: i32 = 5;
const SCHED_DEADLINE: i32 = 6;

/// `sched_getscheduler(2)`
pub(crate) fn sched_getscheduler(tid: i32) -> Result<usize> {
    target(tid).map(|_| usize_from_u32(SCHED_OTHER.cast_unsigned()))
}

/// `sched_setscheduler(2)`
pub(crate) fn sched_setscheduler(tid: i32, policy: i32, parameter: User) -> Result<usize> {
    const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;
    if parameter.0 == 0 {
        return Err(Errno::EINVAL);
    }
    target(tid)?;
    let priority = UserIn::<i32>::new(parameter.0).read()?;
    match policy & !SCHED_RESET_ON_FORK {
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE if priority == 0 => Ok(0),
        SCHED_FIFO | SCHED_RR if (1..=99).contains(&priority) => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_getparam(2)`
pub(crate) fn sched_getparam(tid: i32, parameter: User) -> Result<usize> {
    if parameter.0 == 0 {
        return Err(Errno::EINVAL);
    }
    target(tid)?;
    UserOut::<i32>::new(parameter.0).write(0).map(|()| 0)
}

/// `sched_setparam(2)`
pub(crate) fn sched_setparam(tid: i32, parameter: User) -> Result<usize> {
    if parameter.0 == 0 {
        return Err(Errno::EINVAL);
    }
    target(tid)?;
    if UserIn::<i32>::new(parameter.0).read()? == 0 {
        Ok(0)
    } else {
        Err(Errno::EINVAL)
    }
}

/// `sched_getattr(2)`: `struct sched_attr` of its first version, 48 bytes.
pub(crate) fn sched_getattr(tid: i32, out: User, size: u32, flags: u32) -> Result<usize> {
    const BYTES: u32 = 48;
    if flags != 0 || out.0 == 0 || size < BYTES || usize_from_u32(size) > coracle_abi::PAGE_SIZE {
        return Err(Errno::EINVAL);
    }
    let nice = target(tid)?.nice();
    let mut attr = [0u8; BYTES as usize];
    attr[..4].copy_from_slice(&BYTES.to_le_bytes());
    attr[16..20].copy_from_slice(&nice.to_le_bytes());
    user::write_all(out.0, &attr).map(|()| 0)
}

/// `sched_get_priority_max(2)`
pub(crate) fn sched_get_priority_max(policy: i32) -> Result<usize> {
    match policy {
        SCHED_FIFO | SCHED_RR => Ok(99),
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_get_priority_min(2)`
pub(crate) fn sched_get_priority_min(policy: i32) -> Result<usize> {
    match policy {
        SCHED_FIFO | SCHED_RR => Ok(1),
        SCHED_OTHER | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_rr_get_interval(2)`: the slice of the scheduler, 4 ms.
pub(crate) fn sched_rr_get_interval(tid: i32, out: User) -> Result<usize> {
    target(tid)?;
    UserOut::<[i64; 2]>::new(out.0)
        .write([0, 4_000_000])
        .map(|()| 0)
}

/// `getpriority(2)`; the system call returns 20 minus the nice value, of several threads the highest.
pub(crate) fn getpriority(which: i32, who: i32) -> Result<usize> {
    let mut least = *NICE.end();
    each_of(which, who, |thread| least = least.min(thread.nice()))?;
    usize::try_from(20 - least).map_err(|_| Errno::EINVAL)
}

/// `setpriority(2)`: who is not root can only give up a part of the share.
pub(crate) fn setpriority(which: i32, who: i32, priority: i32) -> Result<usize> {
    let nice = priority.clamp(*NICE.start(), *NICE.end());
    let may_raise = geteuid()? == 0;
    let mut refused = false;
    each_of(which, who, |thread| {
        if nice < thread.nice() && !may_raise {
            refused = true;
        } else {
            thread.set_nice(nice);
        }
    })?;
    if refused { Err(Errno::EACCES) } else { Ok(0) }
}

/// Calls `each` with the thread, or for a process group and a user with all threads.
fn each_of(which: i32, who: i32, mut each: impl FnMut(&Thread)) -> Result<()> {
    const PRIO_PROCESS: i32 = 0;
    check_who(which, who)?;
    if which == PRIO_PROCESS {
        each(&*target(who)?);
    } else {
        thread::for_each(each);
    }
    Ok(())
}

fn check_who(which: i32, who: i32) -> Result<()> {
    if !(0..=2).contains(&which) {
        return Err(Errno::EINVAL);
    }
    let known =
        who == 0 || u32::try_from(who).is_ok_and(|w| w == FIRST_TID || thread::find(w).is_some());
    if known { Ok(()) } else { Err(Errno::ESRCH) }
}
