// SPDX-License-Identifier: Apache-2.0
//! Signals: what they do, who is blocked from them, sending and waiting (signal(7)).

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_abi::signal::{
    AltStack, SI_KERNEL, SI_TKILL, SI_USER, SigAction, SigInfo, Signal, SignalSet,
};
use coracle_core::thread::{self, FIRST_TID, Wake};
use coracle_core::user::User;
use coracle_core::{Errno, Result, signal};

use crate::info::real_uid;
use crate::wait::timeout;

/// Size of the kernel's signal set, which callers must state.
const SET_SIZE: usize = size_of::<u64>();

/// Flags of sigaction(2) that mean something here; others are forgotten, so that programs can ask what is known (see
/// `SA_UNSUPPORTED`).
const KNOWN_FLAGS: u32 = g::SA_NOCLDSTOP
    | g::SA_NOCLDWAIT
    | g::SA_SIGINFO
    | g::SA_ONSTACK
    | g::SA_RESTART
    | g::SA_NODEFER
    | g::SA_RESETHAND
    | g::SA_RESTORER;

fn check_size(size: usize) -> Result<()> {
    if size == SET_SIZE {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

fn parse(number: u32) -> Result<Signal> {
    Signal::new(number).ok_or(Errno::EINVAL)
}

/// `rt_sigaction(2)`
pub(crate) fn rt_sigaction(number: u32, new: User, old: User, size: usize) -> Result<usize> {
    check_size(size)?;
    let new: Option<SigAction> = new.optional().map(User::read).transpose()?;
    let signal = parse(number)?;
    let before = match new {
        Some(new) => {
            let known = SigAction {
                flags: new.flags & u64::from(KNOWN_FLAGS),
                mask: SignalSet(new.mask).without(SignalSet::UNBLOCKABLE).0,
                ..new
            };
            signal::set_action(signal, known)?
        }
        None => signal::action(signal),
    };
    if let Some(old) = old.optional() {
        old.write(before)?;
    }
    Ok(0)
}

/// `rt_sigprocmask(2)`
pub(crate) fn rt_sigprocmask(how: u32, new: User, old: User, size: usize) -> Result<usize> {
    check_size(size)?;
    let before = thread::current().signals.mask();
    if let Some(new) = new.optional() {
        let set = SignalSet(new.read()?);
        signal::set_mask(match how {
            g::SIG_BLOCK => before.union(set),
            g::SIG_UNBLOCK => before.without(set),
            g::SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        });
    }
    if let Some(old) = old.optional() {
        old.write(before.0)?;
    }
    Ok(0)
}

/// `rt_sigpending(2)`: blocked signals that arrived. A size smaller than the set is allowed, as on Linux.
pub(crate) fn rt_sigpending(out: User, size: usize) -> Result<usize> {
    if size > SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let set = signal::pending().intersection(thread::current().signals.mask());
    coracle_core::user::write_all(out.0, &set.0.to_ne_bytes()[..size])?;
    Ok(0)
}

/// `rt_sigsuspend(2)`: ends only with `EINTR`, and with the old mask once the handler has run.
pub(crate) fn rt_sigsuspend(mask: User, size: usize) -> Result<usize> {
    check_size(size)?;
    signal::set_temporary_mask(SignalSet(mask.read()?));
    wait_for_handler()
}

/// `pause(2)`
pub(crate) fn pause() -> Result<usize> {
    wait_for_handler()
}

/// Sleeps until a handler will run or the process ends.
fn wait_for_handler() -> Result<usize> {
    loop {
        thread::prepare_to_wait();
        if signal::must_interrupt() {
            thread::set_restart(false);
            return Err(Errno::EINTR);
        }
        thread::sleep_until(None);
    }
}

/// `rt_sigtimedwait(2)`
pub(crate) fn rt_sigtimedwait(set: User, info: User, limit: User, size: usize) -> Result<usize> {
    check_size(size)?;
    let wanted = SignalSet(set.read()?).without(SignalSet::UNBLOCKABLE);
    let deadline = timeout::from_pointer(limit)?;
    signal::set_awaited(wanted);
    let taken = wait_for_one_of(wanted, deadline);
    signal::set_awaited(SignalSet::EMPTY);
    let taken = taken?;
    if let Some(info) = info.optional() {
        info.write(taken)?;
    }
    Ok(usize_from_u32(taken.signo.cast_unsigned()))
}

fn wait_for_one_of(wanted: SignalSet, deadline: Option<u64>) -> Result<SigInfo> {
    loop {
        thread::prepare_to_wait();
        if let Some(info) = signal::take(wanted) {
            return Ok(info);
        }
        match thread::sleep_until(deadline) {
            Wake::Notified => {}
            Wake::TimedOut => return signal::take(wanted).ok_or(Errno::EAGAIN),
            Wake::Interrupted => {
                if let Some(info) = signal::take(wanted) {
                    return Ok(info);
                }
                if signal::must_interrupt() {
                    thread::set_restart(false);
                    return Err(Errno::EINTR);
                }
            }
        }
    }
}

/// `rt_sigreturn(2)`: continues where a handler interrupted. A frame that cannot be read ends the process, as on Linux.
pub(crate) fn rt_sigreturn() -> Result<usize> {
    let mut frame = thread::entry_frame();
    if signal::return_from_handler(&mut frame).is_err() {
        signal::force(&mut frame, SigInfo::new(Signal::SIGSEGV, SI_KERNEL));
    }
    thread::replace_frame(frame);
    Ok(0)
}

/// `sigaltstack(2)`
pub(crate) fn sigaltstack(new: User, old: User) -> Result<usize> {
    let stack_pointer = thread::entry_frame().rsp;
    let new: Option<AltStack> = new.optional().map(User::read).transpose()?;
    let before = signal::alternate_stack(stack_pointer);
    if let Some(new) = new {
        signal::set_alternate_stack(new, stack_pointer)?;
    }
    if let Some(old) = old.optional() {
        old.write(before)?;
    }
    Ok(0)
}

/// Sends `info`, or only checks that this would be possible if `number` is 0.
fn send(
    number: u32,
    to: Option<&thread::Thread>,
    info: impl FnOnce(Signal) -> SigInfo,
) -> Result<usize> {
    if number == 0 {
        return Ok(0);
    }
    let info = info(parse(number)?);
    match to {
        Some(thread) => signal::send_to_thread(thread, info)?,
        None => signal::send_to_process(info)?,
    }
    Ok(0)
}

fn from_caller(code: i32) -> impl FnOnce(Signal) -> SigInfo {
    move |signal| SigInfo::from_process(signal, code, FIRST_TID, real_uid())
}

/// Whether a process or thread number is one of ours.
fn is_own(pid: i32) -> bool {
    u32::try_from(pid).is_ok_and(|pid| pid == FIRST_TID || thread::find(pid).is_some())
}

/// `kill(2)`. The process is alone in its group and in the system: 0 reaches itself, -1 nobody (`ESRCH`).
pub(crate) fn kill(pid: i32, number: u32) -> Result<usize> {
    let own_group = pid == 0 || pid < -1 && pid.unsigned_abs() == FIRST_TID;
    if !own_group && !is_own(pid) {
        return Err(Errno::ESRCH);
    }
    send(number, None, from_caller(SI_USER))
}

/// `tkill(2)`
pub(crate) fn tkill(tid: i32, number: u32) -> Result<usize> {
    to_thread(tid, number, from_caller(SI_TKILL))
}

/// `tgkill(2)`
pub(crate) fn tgkill(pid: i32, tid: i32, number: u32) -> Result<usize> {
    check_group(pid, tid)?;
    to_thread(tid, number, from_caller(SI_TKILL))
}

fn check_group(pid: i32, tid: i32) -> Result<()> {
    if pid <= 0 || tid <= 0 {
        return Err(Errno::EINVAL);
    }
    if pid.cast_unsigned() == FIRST_TID {
        Ok(())
    } else {
        Err(Errno::ESRCH)
    }
}

fn to_thread(tid: i32, number: u32, info: impl FnOnce(Signal) -> SigInfo) -> Result<usize> {
    let tid = u32::try_from(tid)
        .ok()
        .filter(|tid| *tid > 0)
        .ok_or(Errno::EINVAL)?;
    let thread = thread::find(tid).ok_or(Errno::ESRCH)?;
    send(number, Some(&thread), info)
}

/// What a caller of `rt_sigqueueinfo(2)` wants to be told. `EPERM` if it claims to come from the kernel or from
/// `kill`, unless it goes to the caller itself.
fn queued_info(pid: i32, info: User) -> Result<SigInfo> {
    let info: SigInfo = info.read()?;
    let forged = info.code >= 0 || info.code == SI_TKILL;
    if forged && pid.cast_unsigned() != FIRST_TID {
        return Err(Errno::EPERM);
    }
    Ok(info)
}

fn relabelled(info: SigInfo) -> impl FnOnce(Signal) -> SigInfo {
    move |signal| SigInfo {
        signo: coracle_abi::convert::signed(signal.number()),
        ..info
    }
}

/// `rt_sigqueueinfo(2)`
pub(crate) fn rt_sigqueueinfo(pid: i32, number: u32, info: User) -> Result<usize> {
    let info = queued_info(pid, info)?;
    if !is_own(pid) {
        return Err(Errno::ESRCH);
    }
    send(number, None, relabelled(info))
}

/// `rt_tgsigqueueinfo(2)`
pub(crate) fn rt_tgsigqueueinfo(pid: i32, tid: i32, number: u32, info: User) -> Result<usize> {
    let info = queued_info(pid, info)?;
    check_group(pid, tid)?;
    to_thread(tid, number, relabelled(info))
}
