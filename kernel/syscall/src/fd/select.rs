// SPDX-License-Identifier: Apache-2.0
//! select(2), pselect(2).

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::user::{User, UserIn, UserOut, read_all, write_all};
use coracle_core::{Errno, PollEvents, Result, time};

use crate::argument::Fd;
use crate::process::process;
use crate::wait::signals::{self, MaskArgument};
use crate::wait::{self, timeout};

/// Bits of one word of an `fd_set`.
const WORD_BITS: u32 = u64::BITS;

/// `select(2)`. The remaining time is written back.
pub(crate) fn select(
    count: i32,
    read: User,
    write: User,
    except: User,
    limit: User,
) -> Result<usize> {
    let limit = UserOut::<g::timeval>::new(limit.0).optional();
    let deadline = match limit {
        None => None,
        Some(limit) => {
            let limit = limit.as_in().read()?;
            // Microseconds of a second and more are carried over, as on Linux.
            let extra = limit.tv_usec.div_euclid(1_000_000);
            let micros = limit.tv_usec.rem_euclid(1_000_000);
            let seconds = limit.tv_sec.checked_add(extra).ok_or(Errno::EINVAL)?;
            Some(timeout::after(timeout::nanoseconds(
                seconds,
                micros * 1000,
            )?))
        }
    };
    let result = select_until(count, [read, write, except], deadline);
    let left = deadline.map(|deadline| deadline.saturating_sub(time::now()));
    if let (Some(limit), Some(left)) = (limit, left) {
        let _ = limit.write(g::timeval {
            tv_sec: (left / 1_000_000_000).cast_signed(),
            tv_usec: (left % 1_000_000_000 / 1000).cast_signed(),
        });
    }
    result
}

/// `pselect(2)`; the last argument points to the signal mask's address and size.
pub(crate) fn pselect6(
    count: i32,
    read: User,
    write: User,
    except: User,
    limit: User,
    mask: User,
) -> Result<usize> {
    let deadline = timeout::from_pointer(limit)?;
    let mask = match UserIn::<[usize; 2]>::new(mask.0).optional() {
        None => MaskArgument::default(),
        Some(mask) => {
            let [address, size] = mask.read()?;
            MaskArgument::read(User(address), size)?
        }
    };
    let result = signals::with_mask(mask, || {
        select_until(count, [read, write, except], deadline)
    });
    super::poll::write_back(limit, deadline);
    result
}

/// What each of the three sets asks for, and which events answer it (`POLLIN_SET` and its kind in Linux).
const ASKED: [PollEvents; 3] = [
    PollEvents::IN
        .union(PollEvents::RDNORM)
        .union(PollEvents::HUP)
        .union(PollEvents::ERR),
    PollEvents::OUT
        .union(PollEvents::WRNORM)
        .union(PollEvents::ERR),
    PollEvents::PRI,
];

fn select_until(count: i32, sets: [User; 3], deadline: Option<u64>) -> Result<usize> {
    let count = u32::try_from(count).map_err(|_| Errno::EINVAL)?;
    let count = count.min(process().fds.lock().limit());
    let words = usize_from_u32(count.div_ceil(WORD_BITS));
    let mut asked: [Vec<u8>; 3] = [vec![], vec![], vec![]];
    for (bits, set) in asked.iter_mut().zip(&sets) {
        if set.0 != 0 {
            bits.resize(words * 8, 0);
            read_all(bits, set.0)?;
        }
    }
    let has = |set: &[u8], fd: u32| {
        set.get(usize_from_u32(fd / 8))
            .is_some_and(|byte| byte & (1 << (fd % 8)) != 0)
    };
    let mut files: Vec<(Arc<OpenFile>, PollEvents)> = Vec::new();
    let mut numbers = Vec::new();
    for fd in 0..count {
        let mut interest = PollEvents::empty();
        for (set, events) in asked.iter().zip(ASKED) {
            if has(set, fd) {
                interest |= events;
            }
        }
        if !interest.is_empty() {
            files.push((process().file(Fd(fd.cast_signed()))?, interest));
            numbers.push(fd);
        }
    }
    let mut answer: [Vec<u8>; 3] = asked.clone();
    let mut ready = 0;
    let mut look = || {
        ready = 0;
        answer.iter_mut().for_each(|set| set.fill(0));
        for ((open, _), fd) in files.iter().zip(&numbers) {
            let events = open.file().poll();
            for ((set, asked), answers) in answer.iter_mut().zip(&asked).zip(ASKED) {
                if has(asked, *fd) && events.intersects(answers) {
                    set[usize_from_u32(fd / 8)] |= 1 << (fd % 8);
                    ready += 1;
                }
            }
        }
        if ready > 0 {
            Ok(())
        } else {
            Err(Errno::EAGAIN)
        }
    };
    let result = match deadline {
        Some(deadline) if deadline <= time::now() => look(),
        _ => wait::until_any_ready(&files, deadline, look),
    };
    match result {
        Ok(()) | Err(Errno::EAGAIN) => {}
        Err(error) => return Err(error),
    }
    for (bits, set) in answer.iter().zip(&sets) {
        if set.0 != 0 {
            write_all(set.0, bits)?;
        }
    }
    Ok(ready)
}
