// SPDX-License-Identifier: Apache-2.0
//! What the entry code calls: system calls and faults; and what is done before the application continues.

use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::signal::{SI_KERNEL, SigInfo, Signal};
use coracle_arch::TrapFrame;
use coracle_arch::trap::Fault;
use coracle_core::exit::{ExitReason, end_process};
use coracle_core::memory::space::{self, FaultError};
use coracle_core::thread::{self, PENDING_EXIT, PENDING_RESCHEDULE, PENDING_SIGNAL};
use coracle_core::{futex, signal};

use crate::network;

/// Page faults of the application, for the counters.
pub(crate) static PAGE_FAULTS: AtomicUsize = AtomicUsize::new(0);
/// System calls.
pub(crate) static SYSTEM_CALLS: AtomicUsize = AtomicUsize::new(0);

#[unsafe(no_mangle)]
fn on_syscall(frame: &mut TrapFrame) {
    SYSTEM_CALLS.fetch_add(1, Ordering::Relaxed);
    if coracle_syscall::may_wait(frame) {
        network::before_wait();
    }
    let interrupted = coracle_syscall::dispatch(frame);
    network::after_system_call();
    if interrupted || thread::current().pending() != 0 {
        before_return(frame, interrupted);
    }
}

/// Does what was asked of the running thread: end, run handlers, give the CPU away.
pub(crate) fn before_return(frame: &mut TrapFrame, mut interrupted: bool) {
    loop {
        let thread = thread::current();
        let pending = thread.pending();
        if pending & PENDING_EXIT != 0 {
            futex::on_thread_exit(thread);
            thread::exit_current();
        }
        if pending & PENDING_SIGNAL != 0 || interrupted {
            signal::deliver(frame, interrupted);
            interrupted = false;
        } else if pending & PENDING_RESCHEDULE != 0 {
            thread::preempt_if_needed();
        } else {
            return;
        }
    }
}

const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const BUS_ADRALN: i32 = 1;
const BUS_ADRERR: i32 = 2;
const FPE_INTDIV: i32 = 1;
const ILL_ILLOPN: i32 = 2;
const TRAP_TRACE: i32 = 2;

#[unsafe(no_mangle)]
fn on_fault(frame: &mut TrapFrame, fault: Fault) {
    let at = frame.instruction();
    let info = match fault {
        Fault::Page {
            address,
            write,
            execute,
            ..
        } => {
            PAGE_FAULTS.fetch_add(1, Ordering::Relaxed);
            let (signal, code) = match space::handle_fault(address, write, execute) {
                Ok(()) => {
                    if thread::current().pending() != 0 {
                        before_return(frame, false);
                    }
                    return;
                }
                Err(FaultError::NotMapped) => (Signal::SIGSEGV, SEGV_MAPERR),
                Err(FaultError::Forbidden) => (Signal::SIGSEGV, SEGV_ACCERR),
                Err(FaultError::BeyondEnd) => (Signal::SIGBUS, BUS_ADRERR),
                Err(FaultError::OutOfMemory) => end_process(ExitReason::OutOfMemory),
            };
            SigInfo::fault(signal, code, address)
        }
        Fault::Divide => SigInfo::fault(Signal::SIGFPE, FPE_INTDIV, at),
        Fault::FloatingPoint(code) => SigInfo::fault(Signal::SIGFPE, code, at),
        Fault::InvalidInstruction => SigInfo::fault(Signal::SIGILL, ILL_ILLOPN, at),
        Fault::Breakpoint => SigInfo::new(Signal::SIGTRAP, SI_KERNEL),
        Fault::Debug => SigInfo::fault(Signal::SIGTRAP, TRAP_TRACE, at),
        Fault::Alignment => SigInfo::fault(Signal::SIGBUS, BUS_ADRALN, 0),
        Fault::Protection | Fault::Other(_) => SigInfo::fault(Signal::SIGSEGV, SI_KERNEL, 0),
    };
    signal::force(frame, info);
    if thread::current().pending() != 0 {
        before_return(frame, false);
    }
}
