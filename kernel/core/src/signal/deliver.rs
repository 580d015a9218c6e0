// SPDX-License-Identifier: Apache-2.0
//! Delivery: the frame on the application's stack, and the way back from a handler.

use alloc::vec;

use coracle_abi::raw::general as g;
use coracle_abi::signal::{AltStack, DefaultAction, SigAction, SigInfo, Signal, SignalSet};
use coracle_abi::{Errno, convert};
use coracle_arch::TrapFrame;
use coracle_arch::signal::{SignalFrame, fpu_bytes, mark_fpu_state, place};

use super::{SS_AUTODISARM, action, is_on, set_mask, take};
use crate::exit::{self, ExitReason};
use crate::thread::{self, PENDING_SIGNAL, Thread};
use crate::{Result, user};

// SAFETY: words and arrays of words without padding.
unsafe impl user::Plain for SignalFrame {}
// SAFETY: as above.
unsafe impl user::Plain for SigInfo {}
// SAFETY: as above.
unsafe impl user::Plain for SigAction {}
// SAFETY: as above.
unsafe impl user::Plain for AltStack {}

/// Delivers the pending signals of the calling thread: changes `frame` so that handlers run when the application
/// continues, or ends the process.
///
/// `interrupted` is the errno of a system call that gave up because of a signal; it is restarted if every handler that
/// runs allows it, or if none runs.
pub fn deliver(frame: &mut TrapFrame, interrupted: bool) {
    let thread = thread::current();
    let mut undecided = interrupted;
    let may_restart = thread::take_restart();
    if thread.take_request(PENDING_SIGNAL) {
        while let Some(info) = take(SignalSet(!thread.signals.mask().0)) {
            let Some(signal) = info.signal() else {
                continue;
            };
            let action = action(signal);
            if action.handler == SigAction::IGNORE {
                continue;
            }
            if action.handler == SigAction::DEFAULT {
                match signal.default_action() {
                    DefaultAction::Terminate => exit::end_process(ExitReason::Signal {
                        signal,
                        info,
                        frame: *frame,
                    }),
                    // Nobody could let a stopped unikernel go on; it is not stopped.
                    DefaultAction::Ignore | DefaultAction::Continue | DefaultAction::Stop => {
                        continue;
                    }
                }
            }
            if undecided {
                undecided = false;
                if may_restart && action.has(g::SA_RESTART) {
                    frame.restart_syscall();
                }
            }
            run_handler(thread, frame, signal, &action, &info);
        }
    }
    let saved = thread.signals.own.lock().saved_mask.take();
    if let Some(mask) = saved {
        // No handler ran: one would have taken the saved mask along.
        set_mask(mask);
    }
    if undecided && may_restart {
        frame.restart_syscall();
    }
}

/// Forces a signal that a fault of the thread caused: it cannot be blocked or ignored.
pub fn force(frame: &mut TrapFrame, info: SigInfo) {
    let thread = thread::current();
    let Some(signal) = info.signal() else { return };
    let action = action(signal);
    if thread.signals.mask().contains(signal) || action.handler <= SigAction::IGNORE {
        exit::end_process(ExitReason::Signal {
            signal,
            info,
            frame: *frame,
        });
    }
    run_handler(thread, frame, signal, &action, &info);
}

fn run_handler(
    thread: &Thread,
    frame: &mut TrapFrame,
    signal: Signal,
    action: &SigAction,
    info: &SigInfo,
) {
    let (stack, saved_mask) = {
        let mut own = thread.signals.own.lock();
        (own.stack, own.saved_mask.take())
    };
    let old_mask = saved_mask.unwrap_or(thread.signals.mask());
    let on_stack = is_on(&stack, frame.rsp);
    let alternate = (action.has(g::SA_ONSTACK) && stack.len > 0 && !on_stack)
        .then(|| stack.base.wrapping_add(stack.len));
    let at = place(frame.rsp, alternate);
    let shown = AltStack {
        flags: if on_stack { g::SS_ONSTACK } else { stack.flags },
        ..stack
    };
    let fault_address = if frame.vector < 32 {
        convert::usize_from(info.fields[0])
    } else {
        0
    };
    let words = to_words(info);
    let mut on_user_stack = SignalFrame::new(frame, at, shown, old_mask.0, words, fault_address);
    on_user_stack.restorer = action.restorer;
    let mut state = vec![0u8; fpu_bytes()];
    thread.with_fpu_state(|area| {
        let len = area.len().min(state.len());
        state[..len].copy_from_slice(&area[..len]);
    });
    mark_fpu_state(&mut state);
    // A frame that would leave the alternate stack is an overflow of it.
    let fits = alternate.is_none() && !on_stack || at.frame >= stack.base;
    let written = fits
        && user::write_all(at.fpu, &state).is_ok()
        && user::write_all(at.frame, user::bytes_of(&on_user_stack)).is_ok();
    if !written {
        let info = SigInfo::fault(Signal::SIGSEGV, 1, at.frame);
        exit::end_process(ExitReason::Signal {
            signal: Signal::SIGSEGV,
            info,
            frame: *frame,
        });
    }
    if action.has(g::SA_RESETHAND) {
        super::ACTIONS.lock()[signal.index()] = SigAction::default();
    }
    if stack.flags & SS_AUTODISARM != 0 {
        thread.signals.own.lock().stack = AltStack::default();
    }
    let mut mask = thread.signals.mask().union(SignalSet(action.mask));
    if !action.has(g::SA_NODEFER) {
        mask = mask.union(SignalSet::of(signal));
    }
    set_mask(mask);
    SignalFrame::enter(frame, action.handler, at, signal.number());
}

fn to_words(info: &SigInfo) -> [u64; 16] {
    let bytes = user::bytes_of(info);
    let mut words = [0; 16];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        *word = u64::from_ne_bytes(eight);
    }
    words
}

/// `rt_sigreturn(2)`: continues where the handler interrupted. `EFAULT` if the frame cannot be read.
pub fn return_from_handler(frame: &mut TrapFrame) -> Result<()> {
    let thread = thread::current();
    let at = SignalFrame::address_at_return(frame);
    let saved: SignalFrame = user::UserIn::new(at).read()?;
    let fpu = saved.fpu_address();
    if fpu != 0 {
        let mut state = vec![0u8; fpu_bytes()];
        user::read_all(&mut state, fpu).map_err(|_| Errno::EFAULT)?;
        thread.with_fpu_state(|area| {
            let len = area.len().min(state.len());
            area[..len].copy_from_slice(&state[..len]);
        });
    }
    saved.restore(frame);
    set_mask(SignalSet(saved.mask));
    // As on Linux, an alternate stack that cannot be set is left as it is.
    let stack = saved.stack();
    if stack.flags & g::SS_ONSTACK == 0 {
        let _ = super::set_alternate_stack(stack, frame.rsp);
    }
    Ok(())
}
