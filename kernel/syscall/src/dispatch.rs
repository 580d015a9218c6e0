// SPDX-License-Identifier: Apache-2.0
//! From the registers to a handler and back.

use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::convert::{low_u32, u64_from};
use coracle_abi::{Errno, for_each_syscall, numbers, syscalls};
use coracle_arch::TrapFrame;
use coracle_core::Result;
use coracle_core::user::{User, UserOut};

use crate::argument::{Argument, Fd};
use crate::{fd, info, mem, path, signal, socket, thread, time, trace};

/// Numbers that were asked for without a handler, one bit each, so that each is logged once.
static UNKNOWN: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Whether the call in `frame` asks what is ready or gives the CPU away: a good moment to look after devices.
#[inline]
#[must_use]
pub fn may_wait(frame: &TrapFrame) -> bool {
    matches!(
        low_u32(u64_from(frame.syscall_number())),
        numbers::epoll_wait
            | numbers::epoll_pwait
            | numbers::epoll_pwait2
            | numbers::poll
            | numbers::ppoll
            | numbers::select
            | numbers::pselect6
            | numbers::sched_yield
    )
}

/// Runs the system call in `frame` and stores its result there. Returns whether a signal interrupted it (`EINTR`).
#[must_use]
pub fn dispatch(frame: &mut TrapFrame) -> bool {
    let thread = coracle_core::thread::current();
    let number = low_u32(u64_from(frame.syscall_number()));
    let arguments = frame.syscall_arguments();
    thread
        .in_syscall
        .store(number.wrapping_add(1), Ordering::Relaxed);
    let traced = trace::is_on().then(|| trace::before(number, arguments));
    let result = call(number, arguments);
    thread.in_syscall.store(0, Ordering::Relaxed);
    if let Some(started) = traced {
        trace::after(number, arguments, result, started);
    }
    let value = result.unwrap_or_else(Errno::to_return_value);
    thread.recent_calls.record(number, u64_from(value));
    if coracle_core::thread::take_new_frame(frame) {
        return false;
    }
    frame.set_result(value);
    result == Err(Errno::EINTR)
}

macro_rules! calls {
    ($($name:ident => $family:ident::$handler:ident($($argument:ident: $type:ty),*) $level:ident $note:literal;)*) => {
        fn call(number: u32, arguments: [usize; 6]) -> Result<usize> {
            match number {
                $(numbers::$name => {
                    #[allow(unused_mut, reason = "some calls have no arguments")]
                    let mut registers = arguments.into_iter();
                    $(let $argument = <$type as Argument>::parse(registers.next().unwrap_or_default())?;)*
                    let _ = registers;
                    $family::$handler($($argument),*)
                })*
                _ => unknown(number),
            }
        }
    };
}

for_each_syscall!(calls);

#[cold]
fn unknown(number: u32) -> Result<usize> {
    let word = UNKNOWN.get(number as usize / 64);
    let bit = 1 << (number % 64);
    if word.is_none_or(|w| w.fetch_or(bit, Ordering::Relaxed) & bit == 0) {
        log::warn!(
            "system call {} ({number}) is not there: ENOSYS",
            syscalls::name(number)
        );
    }
    Err(Errno::ENOSYS)
}
