// SPDX-License-Identifier: Apache-2.0
//! Clocks, sleeping and timers.

mod clock;
mod interval;
mod posix;
mod sleep;

use core::sync::atomic::{AtomicI32, Ordering};

use coracle_abi::convert::usize_from;
use coracle_abi::raw::general as g;
use coracle_core::user::User;
use coracle_core::{Errno, Result, thread, time as kernel_time};

pub(crate) use clock::timespec_of;
use clock::{Clock, time_of};
pub(crate) use interval::{alarm, getitimer, setitimer};
pub(crate) use posix::{
    forget_program, timer_create, timer_delete, timer_getoverrun, timer_gettime, timer_settime,
};
pub(crate) use sleep::{clock_nanosleep, nanosleep};

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds of one clock tick (`sysconf(_SC_CLK_TCK)` is 100).
const NS_PER_TICK: u64 = NS_PER_S / 100;

/// The time zone that settimeofday(2) keeps: minutes west of Greenwich, and kind of summer time.
static ZONE: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];

/// `clock_gettime(2)`
pub(crate) fn clock_gettime(clock: i32, out: User) -> Result<usize> {
    let now = Clock::parse(clock)?.now()?;
    out.write(timespec_of(now))?;
    Ok(0)
}

/// `clock_getres(2)`. Every clock is read from the same counter, the coarse ones too: one nanosecond.
pub(crate) fn clock_getres(clock: i32, out: User) -> Result<usize> {
    Clock::parse(clock)?.now()?; // a CPU clock of a thread that is not there has no resolution either
    if let Some(out) = out.optional() {
        out.write(timespec_of(1))?;
    }
    Ok(0)
}

/// `clock_settime(2)`. Only the wall clock can be set.
pub(crate) fn clock_settime(clock: i32, value: User) -> Result<usize> {
    let parsed = Clock::parse(clock)?;
    let time_ns = time_of(value)?;
    match parsed {
        Clock::Wall if clock.cast_unsigned() == g::CLOCK_REALTIME => set_wall(time_ns),
        Clock::Process | Clock::Thread(_) => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// Sets the wall clock and the timers that wait for a time of day. `EINVAL` for a time that lies before the boot.
fn set_wall(time_ns: u64) -> Result<usize> {
    if time_ns < kernel_time::now() {
        return Err(Errno::EINVAL);
    }
    kernel_time::set_wall(time_ns);
    posix::on_wall_changed();
    Ok(0)
}

/// `gettimeofday(2)`
pub(crate) fn gettimeofday(time: User, zone: User) -> Result<usize> {
    if let Some(time) = time.optional() {
        time.write(timeval_of(kernel_time::wall()))?;
    }
    if let Some(zone) = zone.optional() {
        zone.write(g::timezone {
            tz_minuteswest: ZONE[0].load(Ordering::Relaxed),
            tz_dsttime: ZONE[1].load(Ordering::Relaxed),
        })?;
    }
    Ok(0)
}

/// `settimeofday(2)`. The time zone is kept for gettimeofday(2); the clock itself runs in UTC.
pub(crate) fn settimeofday(time: User, zone: User) -> Result<usize> {
    let time = time.optional().map(timeval_at).transpose()?;
    let zone: Option<g::timezone> = zone.optional().map(User::read).transpose()?;
    if zone.is_some_and(|z| !(-15 * 60..=15 * 60).contains(&z.tz_minuteswest)) {
        return Err(Errno::EINVAL);
    }
    if let Some(time_ns) = time {
        set_wall(time_ns)?;
    }
    if let Some(zone) = zone {
        ZONE[0].store(zone.tz_minuteswest, Ordering::Relaxed);
        ZONE[1].store(zone.tz_dsttime, Ordering::Relaxed);
    }
    Ok(0)
}

/// `time(2)`
pub(crate) fn time(out: User) -> Result<usize> {
    let seconds = kernel_time::wall() / NS_PER_S;
    if let Some(out) = out.optional() {
        out.write(seconds)?;
    }
    Ok(usize_from(seconds))
}

/// `times(2)`. The kernel does not measure its own share: all processor time counts as the application's.
pub(crate) fn times(out: User) -> Result<usize> {
    if let Some(out) = out.optional() {
        let user = thread::process_cpu_ns() / NS_PER_TICK;
        out.write([user, 0u64, 0, 0])?;
    }
    Ok(usize_from(kernel_time::now() / NS_PER_TICK))
}

/// `struct timeval` of a time in nanoseconds.
pub(crate) fn timeval_of(ns: u64) -> g::timeval {
    g::timeval {
        tv_sec: (ns / NS_PER_S).cast_signed(),
        tv_usec: (ns % NS_PER_S / 1000).cast_signed(),
    }
}

/// Reads a `struct timeval` as nanoseconds. `EINVAL` if it is negative or not normal.
fn timeval_at(at: User) -> Result<u64> {
    timeval_ns(&at.read()?)
}

/// Nanoseconds of a `struct timeval`. `EINVAL` if it is negative or not normal.
pub(crate) fn timeval_ns(value: &g::timeval) -> Result<u64> {
    if !(0..1_000_000).contains(&value.tv_usec) {
        return Err(Errno::EINVAL);
    }
    crate::wait::timeout::nanoseconds(value.tv_sec, value.tv_usec * 1000)
}
