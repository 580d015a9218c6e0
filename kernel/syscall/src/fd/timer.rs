// SPDX-License-Identifier: Apache-2.0
//! timerfd_settime(2), timerfd_gettime(2).

use coracle_abi::raw::general as g;
use coracle_core::user::{User, UserIn, UserOut};
use coracle_core::{Errno, Result};
use coracle_fs::timerfd::{Setting, TimerFd};

use crate::argument::Fd;
use crate::process::process;
use crate::wait::timeout::nanoseconds;

fn timespec(ns: u64) -> g::__kernel_timespec {
    g::__kernel_timespec {
        tv_sec: (ns / 1_000_000_000).cast_signed(),
        tv_nsec: (ns % 1_000_000_000).cast_signed(),
    }
}

fn itimerspec(setting: Setting) -> g::__kernel_itimerspec {
    g::__kernel_itimerspec {
        it_interval: timespec(setting.interval_ns),
        it_value: timespec(setting.value_ns),
    }
}

/// `timerfd_settime(2)`
pub(crate) fn timerfd_settime(fd: Fd, flags: u32, new: User, old: User) -> Result<usize> {
    if flags & !(g::TFD_TIMER_ABSTIME | g::TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let new = UserIn::<g::__kernel_itimerspec>::new(new.0).read()?;
    let setting = Setting {
        value_ns: nanoseconds(new.it_value.tv_sec, new.it_value.tv_nsec)?,
        interval_ns: nanoseconds(new.it_interval.tv_sec, new.it_interval.tv_nsec)?,
    };
    let open = process().file(fd)?;
    let timer = open.downcast::<TimerFd>().ok_or(Errno::EINVAL)?;
    let previous = timer.set(
        setting,
        flags & g::TFD_TIMER_ABSTIME != 0,
        flags & g::TFD_TIMER_CANCEL_ON_SET != 0,
    );
    if let Some(old) = UserOut::<g::__kernel_itimerspec>::new(old.0).optional() {
        old.write(itimerspec(previous))?;
    }
    Ok(0)
}

/// `timerfd_gettime(2)`
pub(crate) fn timerfd_gettime(fd: Fd, out: User) -> Result<usize> {
    let open = process().file(fd)?;
    let timer = open.downcast::<TimerFd>().ok_or(Errno::EINVAL)?;
    UserOut::new(out.0).write(itimerspec(timer.get()))?;
    Ok(0)
}
