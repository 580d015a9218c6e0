// SPDX-License-Identifier: Apache-2.0
//! epoll_ctl(2), epoll_wait(2).

use alloc::sync::Arc;

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::user::{User, UserIn, UserOut};
use coracle_core::{Errno, PollEvents, Result, time};
use coracle_fs::epoll::{Epoll, Event, Interest};

use crate::argument::Fd;
use crate::process::process;
use crate::wait::signals::{self, MaskArgument};
use crate::wait::{self, Interrupt, Wait, timeout};

fn instance(fd: Fd) -> Result<Arc<OpenFile>> {
    process().file(fd)
}

fn epoll_of(open: &OpenFile) -> Result<&Epoll> {
    open.downcast::<Epoll>().ok_or(Errno::EINVAL)
}

/// `epoll_ctl(2)`
pub(crate) fn epoll_ctl(fd: Fd, operation: u32, target: Fd, event: User) -> Result<usize> {
    let interest = if operation == g::EPOLL_CTL_DEL {
        Interest::default()
    } else {
        let event = UserIn::<g::epoll_event>::new(event.0).read()?;
        Interest {
            flags: event.events,
            data: event.data,
        }
    };
    let open = instance(fd)?;
    let watched = process().file(target)?;
    if watched.file().poll_source().is_none() {
        return Err(Errno::EPERM);
    }
    let epoll = epoll_of(&open)?;
    let number = target.index()?;
    match operation {
        g::EPOLL_CTL_ADD => epoll.add(number, &watched, interest)?,
        g::EPOLL_CTL_MOD => epoll.modify(number, &watched, interest)?,
        g::EPOLL_CTL_DEL => epoll.remove(number, &watched)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `epoll_wait(2)`; the time-out is in milliseconds, negative for no limit.
pub(crate) fn epoll_wait(fd: Fd, events: User, max: i32, timeout_ms: i32) -> Result<usize> {
    wait_for_events(fd, events, max, timeout::in_milliseconds(timeout_ms))
}

/// `epoll_pwait(2)`
pub(crate) fn epoll_pwait(
    fd: Fd,
    events: User,
    max: i32,
    timeout_ms: i32,
    mask: User,
    mask_size: usize,
) -> Result<usize> {
    let mask = MaskArgument::read(mask, mask_size)?;
    signals::with_mask(mask, || {
        wait_for_events(fd, events, max, timeout::in_milliseconds(timeout_ms))
    })
}

/// `epoll_pwait2(2)`
pub(crate) fn epoll_pwait2(
    fd: Fd,
    events: User,
    max: i32,
    limit: User,
    mask: User,
    mask_size: usize,
) -> Result<usize> {
    let deadline = timeout::from_pointer(limit)?;
    let mask = MaskArgument::read(mask, mask_size)?;
    signals::with_mask(mask, || wait_for_events(fd, events, max, deadline))
}

fn wait_for_events(fd: Fd, events: User, max: i32, deadline: Option<u64>) -> Result<usize> {
    let limit = i32::MAX.cast_unsigned() / 12;
    let max = u32::try_from(max)
        .ok()
        .filter(|max| (1..=limit).contains(max))
        .ok_or(Errno::EINVAL)?;
    let open = instance(fd)?;
    let epoll = epoll_of(&open)?;
    let out = UserOut::<g::epoll_event>::new(events.0);
    let mut fault = None;
    let mut attempt = || {
        let mut index = 0;
        let count = epoll.wait(usize_from_u32(max), |event: Event| {
            let entry = g::epoll_event {
                events: event.events.bits(),
                data: event.data,
            };
            let stored = out.at(index).and_then(|at| at.write(entry));
            fault = stored.err();
            index += 1;
            fault.is_none()
        });
        match (count, fault) {
            (0, Some(error)) => Err(error),
            (0, None) => Err(Errno::EAGAIN),
            _ => Ok(count),
        }
    };
    let result = match deadline {
        Some(deadline) if deadline <= time::now() => attempt(),
        _ => {
            let how = Wait {
                interest: PollEvents::IN,
                deadline,
                interrupt: Interrupt::Never,
                exclusive: true,
            };
            wait::until_ready(&open, how, attempt)
        }
    };
    match result {
        Err(Errno::EAGAIN) => Ok(0),
        other => other,
    }
}
