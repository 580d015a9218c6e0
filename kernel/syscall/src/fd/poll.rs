// SPDX-License-Identifier: Apache-2.0
//! poll(2), ppoll(2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::low_u16;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::user::{User, UserOut};
use coracle_core::{Errno, PollEvents, Result, time};

use crate::argument::Fd;
use crate::process::process;
use crate::wait::signals::{self, MaskArgument};
use crate::wait::{self, timeout};

/// `poll(2)`; the time-out is in milliseconds, negative for no limit.
pub(crate) fn poll(fds: User, count: usize, timeout_ms: i32) -> Result<usize> {
    poll_until(fds, count, timeout::in_milliseconds(timeout_ms))
}

/// `ppoll(2)`. The remaining time is written back, as the system call does (the library hides it).
pub(crate) fn ppoll(
    fds: User,
    count: usize,
    limit: User,
    mask: User,
    mask_size: usize,
) -> Result<usize> {
    let deadline = timeout::from_pointer(limit)?;
    let mask = MaskArgument::read(mask, mask_size)?;
    let result = signals::with_mask(mask, || poll_until(fds, count, deadline));
    write_back(limit, deadline);
    result
}

/// Writes the time that is left; a pointer that cannot be written is ignored, as on Linux.
pub(super) fn write_back(limit: User, deadline: Option<u64>) {
    let left = deadline.map(|deadline| deadline.saturating_sub(time::now()));
    if let (Some(limit), Some(left)) = (
        UserOut::<g::__kernel_timespec>::new(limit.0).optional(),
        left,
    ) {
        let _ = limit.write(g::__kernel_timespec {
            tv_sec: (left / 1_000_000_000).cast_signed(),
            tv_nsec: (left % 1_000_000_000).cast_signed(),
        });
    }
}

/// One watched descriptor: its file, the events asked for, and where the answer goes.
struct Watched {
    number: i32,
    asked: i16,
    interest: PollEvents,
    found: PollEvents,
}

fn poll_until(fds: User, count: usize, deadline: Option<u64>) -> Result<usize> {
    let fds = UserOut::<g::pollfd>::new(fds.0);
    let limit = coracle_abi::convert::usize_from_u32(process().fds.lock().limit());
    if count > limit {
        return Err(Errno::EINVAL);
    }
    let mut watched = Vec::with_capacity(count);
    let mut files: Vec<(Arc<OpenFile>, PollEvents)> = Vec::with_capacity(count);
    // Which of `watched` has the file at the same place of `files`.
    let mut owners = Vec::with_capacity(count);
    for at in 0..count {
        let entry = fds.at(at)?.as_in().read()?;
        let asked = u32::from(entry.events.cast_unsigned());
        let mut item = Watched {
            number: entry.fd,
            asked: entry.events,
            interest: PollEvents::from_bits_truncate(asked) | PollEvents::ALWAYS,
            found: PollEvents::empty(),
        };
        if entry.fd >= 0 {
            match process().file(Fd(entry.fd)) {
                Ok(open) => {
                    files.push((open, item.interest));
                    owners.push(at);
                }
                Err(_) => item.found = PollEvents::NVAL,
            }
        }
        watched.push(item);
    }
    let invalid = watched.iter().any(|w| w.found == PollEvents::NVAL);
    let mut look = || {
        let mut ready = invalid;
        for ((open, interest), at) in files.iter().zip(&owners) {
            watched[*at].found = open.file().poll() & *interest;
            ready |= !watched[*at].found.is_empty();
        }
        if ready { Ok(()) } else { Err(Errno::EAGAIN) }
    };
    let result = match deadline {
        Some(deadline) if deadline <= time::now() => look(),
        _ => wait::until_any_ready(&files, deadline, look),
    };
    match result {
        Ok(()) | Err(Errno::EAGAIN) => {}
        Err(error) => return Err(error),
    }
    let mut ready = 0;
    for (at, item) in watched.iter().enumerate() {
        fds.at(at)?.write(g::pollfd {
            fd: item.number,
            events: item.asked,
            revents: low_u16(item.found.bits().into()).cast_signed(),
        })?;
        ready += usize::from(!item.found.is_empty());
    }
    Ok(ready)
}
