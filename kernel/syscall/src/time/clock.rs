// SPDX-License-Identifier: Apache-2.0
//! Which clock a number means, and what it shows.

use coracle_abi::raw::general as g;
use coracle_core::thread::{self, Tid};
use coracle_core::user::User;
use coracle_core::{Errno, Result, time as kernel_time};

use super::NS_PER_S;

/// A clock by what it measures. `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC_RAW` are the monotonic clock: a unikernel is not
/// suspended and nobody slews it. `CLOCK_TAI` is the wall clock: nobody told the kernel of leap seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// Time since 1970.
    Wall,
    /// Time since boot.
    Monotonic,
    /// Clocks that can be read but not waited for: raw and coarse.
    ReadOnly(Source),
    /// Processor time of all threads.
    Process,
    /// Processor time of one thread.
    Thread(Tid),
}

/// What a read-only clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Time since 1970.
    Wall,
    /// Time since boot.
    Monotonic,
}

impl Clock {
    /// The clock with a number; `EINVAL` if there is none. Negative numbers name clocks of processes and threads as
    /// clock_getcpuclockid(3) makes them: `~id << 3 | kind`, kind 4 added for a thread.
    pub(super) fn parse(number: i32) -> Result<Self> {
        let Ok(number) = u32::try_from(number) else {
            return Self::parse_cpu(number);
        };
        Ok(match number {
            g::CLOCK_REALTIME | g::CLOCK_TAI => Self::Wall,
            g::CLOCK_MONOTONIC | g::CLOCK_BOOTTIME => Self::Monotonic,
            g::CLOCK_MONOTONIC_RAW | g::CLOCK_MONOTONIC_COARSE => Self::ReadOnly(Source::Monotonic),
            g::CLOCK_REALTIME_COARSE => Self::ReadOnly(Source::Wall),
            g::CLOCK_PROCESS_CPUTIME_ID => Self::Process,
            g::CLOCK_THREAD_CPUTIME_ID => Self::Thread(thread::current().tid()),
            _ => return Err(Errno::EINVAL),
        })
    }

    fn parse_cpu(number: i32) -> Result<Self> {
        const PER_THREAD: i32 = 4;
        const KINDS: i32 = 3;
        let id = u32::try_from(!(number >> 3)).map_err(|_| Errno::EINVAL)?;
        if number & KINDS == KINDS {
            return Err(Errno::EINVAL); // a clock behind a descriptor (PTP); there are none
        }
        match (number & PER_THREAD != 0, id) {
            (true, 0) => Ok(Self::Thread(thread::current().tid())),
            (true, tid) => thread::find(tid)
                .map(|_| Self::Thread(tid))
                .ok_or(Errno::EINVAL),
            (false, 0 | thread::FIRST_TID) => Ok(Self::Process),
            (false, _) => Err(Errno::EINVAL),
        }
    }

    /// What it shows now, in nanoseconds. `EINVAL` for the clock of a thread that is gone.
    pub(super) fn now(self) -> Result<u64> {
        Ok(match self {
            Self::Wall | Self::ReadOnly(Source::Wall) => kernel_time::wall(),
            Self::Monotonic | Self::ReadOnly(Source::Monotonic) => kernel_time::now(),
            Self::Process => thread::process_cpu_ns(),
            Self::Thread(tid) if tid == thread::current().tid() => thread::current().cpu_ns(),
            Self::Thread(tid) => thread::find(tid).ok_or(Errno::EINVAL)?.cpu_ns(),
        })
    }
}

/// How long to wait at least before a clock of processor time can have advanced by `left_ns`, and at least a
/// millisecond, so that looking costs little.
pub(super) fn cpu_time_patience(left_ns: u64) -> u64 {
    let cpus = coracle_abi::convert::u64_from(thread::online_cpus().max(1));
    (left_ns / cpus).max(1_000_000)
}

/// `struct timespec` of a time in nanoseconds.
pub(crate) fn timespec_of(ns: u64) -> g::__kernel_timespec {
    g::__kernel_timespec {
        tv_sec: (ns / NS_PER_S).cast_signed(),
        tv_nsec: (ns % NS_PER_S).cast_signed(),
    }
}

/// Reads a `struct timespec` as nanoseconds. `EFAULT`; `EINVAL` if it is negative or not normal.
pub(super) fn time_of(at: User) -> Result<u64> {
    let time: g::__kernel_timespec = at.read()?;
    crate::wait::timeout::nanoseconds(time.tv_sec, time.tv_nsec)
}
