// SPDX-License-Identifier: Apache-2.0
//! Sleeping: nanosleep(2), clock_nanosleep(2).

use coracle_abi::raw::general as g;
use coracle_core::thread::{self, Wake};
use coracle_core::user::User;
use coracle_core::{Errno, PollEvents, Result, signal, time as kernel_time};

use super::clock::{Clock, cpu_time_patience, time_of, timespec_of};

/// `nanosleep(2)`
pub(crate) fn nanosleep(request: User, remain: User) -> Result<usize> {
    sleep_for(Clock::Monotonic, time_of(request)?, remain)
}

/// `clock_nanosleep(2)`
pub(crate) fn clock_nanosleep(
    clock: i32,
    flags: u32,
    request: User,
    remain: User,
) -> Result<usize> {
    let parsed = Clock::parse(clock)?;
    match parsed {
        Clock::ReadOnly(_) => return Err(Errno::EOPNOTSUPP),
        // A thread cannot wait for its own processor time.
        Clock::Thread(_) if clock >= 0 => return Err(Errno::EOPNOTSUPP),
        Clock::Thread(tid) if tid == thread::current().tid() => return Err(Errno::EINVAL),
        _ => {}
    }
    if flags & !g::TIMER_ABSTIME != 0 {
        return Err(Errno::EINVAL);
    }
    let time_ns = time_of(request)?;
    if flags & g::TIMER_ABSTIME != 0 {
        sleep_until(parsed, time_ns)?;
        return Ok(0);
    }
    // Setting the wall clock does not change how long a relative sleep takes (POSIX, clock_settime).
    let measured_by = if parsed == Clock::Wall {
        Clock::Monotonic
    } else {
        parsed
    };
    sleep_for(measured_by, time_ns, remain)
}

fn sleep_for(clock: Clock, time_ns: u64, remain: User) -> Result<usize> {
    let end = clock.now()?.saturating_add(time_ns);
    let result = sleep_until(clock, end);
    if result == Err(Errno::EINTR)
        && let Some(remain) = remain.optional()
    {
        remain.write(timespec_of(end.saturating_sub(clock.now()?)))?;
    }
    result.map(|()| 0)
}

/// Sleeps until `clock` shows `end_ns`. `EINTR` if a handler runs; the sleep is not begun again after it.
fn sleep_until(clock: Clock, end_ns: u64) -> Result<()> {
    if clock != Clock::Wall {
        return sleep_loop(clock, end_ns);
    }
    let changed = kernel_time::wall_changed();
    let token = changed.attach(thread::current_waiter(), PollEvents::IN, false);
    let result = sleep_loop(clock, end_ns);
    changed.detach(token);
    result
}

fn sleep_loop(clock: Clock, end_ns: u64) -> Result<()> {
    loop {
        thread::prepare_to_wait();
        let now = clock.now()?;
        if now >= end_ns {
            return Ok(());
        }
        let deadline = match clock {
            Clock::Wall => kernel_time::monotonic_of_wall(end_ns),
            Clock::Monotonic | Clock::ReadOnly(_) => end_ns,
            Clock::Process | Clock::Thread(_) => {
                kernel_time::now() + cpu_time_patience(end_ns - now)
            }
        };
        if thread::sleep_until(Some(deadline)) == Wake::Interrupted && signal::must_interrupt() {
            thread::set_restart(false);
            return Err(Errno::EINTR);
        }
    }
}
