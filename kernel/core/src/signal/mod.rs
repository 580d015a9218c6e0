// SPDX-License-Identifier: Apache-2.0
//! Signals: sending, waiting, and delivery on the way back to the application (signal(7)).

mod deliver;
mod queue;

use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::PollEvents;
use coracle_abi::raw::general as g;
use coracle_abi::signal::{
    AltStack, COUNT, DefaultAction, SI_TIMER, SigAction, SigInfo, Signal, SignalSet,
};

pub use deliver::{deliver, force, return_from_handler};
use queue::Queue;

use crate::poll::PollSource;
use crate::sync::{Once, SpinLock};
use crate::thread::{self, PENDING_EXIT, PENDING_SIGNAL, Thread};
use crate::{Errno, Result};

/// Signals of one thread.
#[derive(Default)]
pub struct ThreadSignals {
    /// Blocked signals; changed by the thread itself only.
    mask: AtomicU64,
    /// Signals that `sigtimedwait` is waiting for.
    awaited: AtomicU64,
    queue: SpinLock<Queue>,
    own: SpinLock<Own>,
}

/// What only the thread itself uses.
#[derive(Clone, Copy, Default)]
struct Own {
    stack: AltStack,
    /// The mask to go back to when a handler ran after `sigsuspend`, `ppoll` and their kind.
    saved_mask: Option<SignalSet>,
}

impl ThreadSignals {
    /// For a new thread: the mask of its parent, nothing pending, no alternate stack.
    #[must_use]
    pub fn inherit(parent: &Self) -> Self {
        Self {
            mask: AtomicU64::new(parent.mask.load(Ordering::Relaxed)),
            ..Self::default()
        }
    }

    /// Blocked signals.
    #[must_use]
    pub fn mask(&self) -> SignalSet {
        SignalSet(self.mask.load(Ordering::Relaxed))
    }
}

static ACTIONS: SpinLock<[SigAction; COUNT as usize]> = SpinLock::new(
    [SigAction {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    }; COUNT as usize],
);

/// Signals sent to the process as a whole.
static PROCESS: SpinLock<Queue> = SpinLock::new(Queue::new());

/// Notified when a signal arrives, for signalfd.
static ARRIVAL: PollSource = PollSource::new();

/// Stack bytes that delivering a signal needs (`AT_MINSIGSTKSZ`).
#[must_use]
pub fn frame_bytes() -> usize {
    size_of::<coracle_arch::signal::SignalFrame>()
        + coracle_arch::signal::fpu_bytes()
        + 64
        + 16
        + 128
}

/// What a signal does now.
#[must_use]
pub fn action(signal: Signal) -> SigAction {
    ACTIONS.lock()[signal.index()]
}

/// `sigaction(2)`: sets what a signal does. Pending signals that are now ignored are dropped.
pub fn set_action(signal: Signal, action: SigAction) -> Result<SigAction> {
    if SignalSet::UNBLOCKABLE.contains(signal) {
        return Err(Errno::EINVAL);
    }
    let old = core::mem::replace(&mut ACTIONS.lock()[signal.index()], action);
    if is_ignored(signal) {
        PROCESS.lock().remove(SignalSet::of(signal));
        thread::for_each(|t| t.signals.queue.lock().remove(SignalSet::of(signal)));
    }
    Ok(old)
}

/// What `execve(2)` does to signals, called by the only thread: handlers are set back to the default, ignored signals
/// stay ignored; the alternate stack and signals of POSIX timers are gone; what else is pending and blocked stays so.
pub fn forget_program() {
    for action in ACTIONS.lock().iter_mut() {
        let handler = match action.handler {
            SigAction::IGNORE => SigAction::IGNORE,
            _ => SigAction::DEFAULT,
        };
        *action = SigAction {
            handler,
            ..SigAction::default()
        };
    }
    let thread = thread::current();
    *thread.signals.own.lock() = Own::default();
    thread.signals.queue.lock().remove_timers();
    PROCESS.lock().remove_timers();
    update_request(thread);
}

fn is_ignored(signal: Signal) -> bool {
    let action = action(signal);
    action.handler == SigAction::IGNORE
        || (action.handler == SigAction::DEFAULT
            && matches!(
                signal.default_action(),
                DefaultAction::Ignore | DefaultAction::Continue
            ))
}

/// Sends a signal to one thread. `EAGAIN` if too many real-time signals are queued.
pub fn send_to_thread(target: &Thread, info: SigInfo) -> Result<()> {
    let signal = info.signal().ok_or(Errno::EINVAL)?;
    let awaited = target.signals.awaited.load(Ordering::SeqCst);
    let held = target.signals.mask().union(SignalSet(awaited));
    if is_ignored(signal) && !held.contains(signal) {
        return Ok(());
    }
    target.signals.queue.lock().push(signal, info)?;
    ARRIVAL.notify(PollEvents::IN);
    if !target.signals.mask().contains(signal) {
        target.request(PENDING_SIGNAL);
    } else if SignalSet(awaited).contains(signal) {
        target.wake();
    }
    Ok(())
}

/// Sends a signal to the process: some thread that does not block it takes it. Errors as [`send_to_thread`].
pub fn send_to_process(info: SigInfo) -> Result<()> {
    let signal = info.signal().ok_or(Errno::EINVAL)?;
    let mut held = false;
    thread::for_each(|t| {
        let own = t
            .signals
            .mask()
            .union(SignalSet(t.signals.awaited.load(Ordering::SeqCst)));
        held |= own.contains(signal);
    });
    if is_ignored(signal) && !held {
        return Ok(());
    }
    PROCESS.lock().push(signal, info)?;
    ARRIVAL.notify(PollEvents::IN);
    let mut told = false;
    // A thread that waits for it comes first, then one that does not block it.
    thread::for_each(|t| {
        if !told && SignalSet(t.signals.awaited.load(Ordering::SeqCst)).contains(signal) {
            told = true;
            t.wake();
        }
    });
    if !told {
        tell_one(signal);
    }
    Ok(())
}

/// Lets one thread that does not block a signal of the process look for it.
fn tell_one(signal: Signal) {
    let mut told = false;
    thread::for_each(|t| {
        if !told && !t.signals.mask().contains(signal) {
            told = true;
            t.request(PENDING_SIGNAL);
        }
    });
}

/// The caller does not take these signals any more, and may be the thread that was told of one to the process: another
/// thread must look.
pub(crate) fn pass_on(untaken: SignalSet) {
    let mut waiting = PROCESS.lock().set().intersection(untaken);
    while let Some(signal) = waiting.first() {
        waiting = waiting.without(SignalSet::of(signal));
        tell_one(signal);
    }
}

/// Sets the caller's mask and returns the old one. SIGKILL and SIGSTOP cannot be blocked.
pub fn set_mask(mask: SignalSet) -> SignalSet {
    let thread = thread::current();
    let mask = mask.without(SignalSet::UNBLOCKABLE);
    let old = SignalSet(thread.signals.mask.swap(mask.0, Ordering::SeqCst));
    update_request(thread);
    let newly_blocked = mask.without(old);
    if !newly_blocked.is_empty() {
        pass_on(newly_blocked);
    }
    old
}

/// Sets a mask for the length of one call (`sigsuspend`, `ppoll`, `epoll_pwait`): if the call is interrupted, the old
/// mask is restored after the handler ran, else by [`restore_mask`].
pub fn set_temporary_mask(mask: SignalSet) {
    let old = set_mask(mask);
    thread::current().signals.own.lock().saved_mask = Some(old);
}

/// Ends what [`set_temporary_mask`] began, for a call that was not interrupted.
pub fn restore_mask() {
    let saved = thread::current().signals.own.lock().saved_mask.take();
    if let Some(mask) = saved {
        set_mask(mask);
    }
}

/// Signals that are pending for the caller, or for the process.
#[must_use]
pub fn pending() -> SignalSet {
    let own = thread::current().signals.queue.lock().set();
    own.union(PROCESS.lock().set())
}

/// Signals pending for one thread alone, and for the process, for `/proc`.
#[must_use]
pub fn pending_of(thread: &Thread) -> (SignalSet, SignalSet) {
    (thread.signals.queue.lock().set(), PROCESS.lock().set())
}

/// How many signals are queued for all threads and the process, for `/proc`.
#[must_use]
pub fn queued() -> usize {
    let mut count = PROCESS.lock().len();
    thread::for_each(|t| count += t.signals.queue.lock().len());
    count
}

/// Signals that are ignored and those that are caught, for `/proc`.
#[must_use]
pub fn dispositions() -> (SignalSet, SignalSet) {
    let actions = ACTIONS.lock();
    let set = |wanted: fn(usize) -> bool| {
        SignalSet(
            actions
                .iter()
                .enumerate()
                .fold(0, |bits, (n, a)| bits | u64::from(wanted(a.handler)) << n),
        )
    };
    (
        set(|h| h == SigAction::IGNORE),
        set(|h| h > SigAction::IGNORE),
    )
}

/// Takes a pending signal out of `wanted` without running its handler: sigtimedwait(2), signalfd(2).
#[must_use]
pub fn take(wanted: SignalSet) -> Option<SigInfo> {
    let thread = thread::current();
    let own = thread.signals.queue.lock().take(wanted);
    let mut taken = own.or_else(|| PROCESS.lock().take(wanted));
    if let Some(info) = &mut taken {
        update_request(thread);
        if info.code == SI_TIMER
            && let Some(hook) = TIMER_TAKEN.get()
        {
            hook(info);
        }
    }
    taken
}

/// Completes the signal of a POSIX timer when it is taken: overruns are counted until then.
static TIMER_TAKEN: Once<fn(&mut SigInfo)> = Once::new();

/// Sets who completes the signals of POSIX timers. The first call wins.
pub fn set_timer_hook(hook: fn(&mut SigInfo)) {
    let _ = TIMER_TAKEN.set(hook);
}

/// Whether the signal of a POSIX timer waits to be taken: by `target`, or by the process.
#[must_use]
pub fn is_timer_pending(target: Option<&Thread>, id: u32) -> bool {
    match target {
        Some(thread) => thread.signals.queue.lock().has_timer(id),
        None => PROCESS.lock().has_timer(id),
    }
}

/// Whether a pending signal of the caller will run a handler or end the process, so that a call must give up for it.
/// Drops those that do neither, and forgets requests for signals that another thread took.
#[must_use]
pub fn must_interrupt() -> bool {
    let thread = thread::current();
    if thread.pending() & PENDING_EXIT != 0 {
        return true;
    }
    loop {
        let deliverable = pending().without(thread.signals.mask());
        let Some(signal) = deliverable.first() else {
            update_request(thread);
            return false;
        };
        let action = action(signal);
        let idle = action.handler == SigAction::IGNORE
            || action.handler == SigAction::DEFAULT
                && signal.default_action() != DefaultAction::Terminate;
        if !idle {
            return true;
        }
        let _ = take(SignalSet::of(signal));
    }
}

/// Says which signals the caller is about to wait for, so that they wake it although it blocks them.
pub fn set_awaited(wanted: SignalSet) {
    thread::current()
        .signals
        .awaited
        .store(wanted.0, Ordering::SeqCst);
}

/// Notified whenever a signal arrives; for signalfd.
#[must_use]
pub fn arrival() -> &'static PollSource {
    &ARRIVAL
}

/// `sigaltstack(2)`: the alternate stack, with the flag that says whether it is in use.
#[must_use]
pub fn alternate_stack(stack_pointer: usize) -> AltStack {
    let stack = thread::current().signals.own.lock().stack;
    let flags = if stack.len == 0 {
        g::SS_DISABLE
    } else if is_on(&stack, stack_pointer) {
        g::SS_ONSTACK
    } else {
        stack.flags
    };
    AltStack { flags, ..stack }
}

/// Sets the alternate stack. `EPERM` while it is in use, `ENOMEM` if it is too small, `EINVAL` for unknown flags.
pub fn set_alternate_stack(stack: AltStack, stack_pointer: usize) -> Result<()> {
    let mut own = thread::current().signals.own.lock();
    if is_on(&own.stack, stack_pointer) {
        return Err(Errno::EPERM);
    }
    match stack.flags & !SS_AUTODISARM {
        g::SS_DISABLE => own.stack = AltStack::default(),
        0 | g::SS_ONSTACK => {
            if stack.len < coracle_abi::convert::usize_from_u32(g::MINSIGSTKSZ) {
                return Err(Errno::ENOMEM);
            }
            own.stack = AltStack {
                flags: stack.flags & SS_AUTODISARM,
                ..stack
            };
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// `SS_AUTODISARM`: the alternate stack is forgotten while a handler runs on it.
const SS_AUTODISARM: u32 = 1 << 31;

fn is_on(stack: &AltStack, stack_pointer: usize) -> bool {
    stack.flags & SS_AUTODISARM == 0
        && stack.len > 0
        && stack_pointer > stack.base
        && stack_pointer - stack.base <= stack.len
}

/// Sets or clears the caller's request to look for signals on the way back.
fn update_request(thread: &Thread) {
    // Cleared before the look: a sender queues its signal before it sets the request, so either the look finds the
    // signal or the request is set behind us.
    thread.take_request(PENDING_SIGNAL);
    let (own, process) = pending_of(thread);
    if !own.union(process).without(thread.signals.mask()).is_empty() {
        thread.request(PENDING_SIGNAL);
    }
}

/// Whether the signal in `info` would be dropped by [`send_to_process`], for callers that count overruns.
#[must_use]
pub fn is_pending(signal: Signal) -> bool {
    PROCESS.lock().set().contains(signal)
}
