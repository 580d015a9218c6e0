// SPDX-License-Identifier: Apache-2.0
//! The one place where system calls wait for files (decision 0003).

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_core::file::OpenFile;
use coracle_core::poll::{PollSource, WaitToken, Waiter};
use coracle_core::{Errno, PollEvents, Result, signal};

use coracle_core::thread::{self, Wake};

pub(crate) mod signals;
pub(crate) mod timeout;

/// Whether a call that a signal interrupts may begin again (`SA_RESTART` of sigaction(2); signal(7) lists both kinds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// Begins again if the handler was installed with `SA_RESTART`.
    Restartable,
    /// Gives `EINTR` in any case.
    Never,
}

/// How to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// What is waited for.
    pub(crate) interest: PollEvents,
    /// End of the patience, nanoseconds of the monotonic clock.
    pub(crate) deadline: Option<u64>,
    /// What a signal does.
    pub(crate) interrupt: Interrupt,
    /// Whether one notification should wake only one of several waiters.
    pub(crate) exclusive: bool,
}

impl Wait {
    /// Waits without limit; may be restarted.
    #[must_use]
    pub(crate) fn new(interest: PollEvents) -> Self {
        Self {
            interest,
            deadline: None,
            interrupt: Interrupt::Restartable,
            exclusive: false,
        }
    }
}

/// Runs `attempt` until it returns something other than `EAGAIN`, sleeping in between as long as the file's readiness
/// does not change. `EAGAIN` when the deadline passed, or if the file cannot be waited for; `EINTR` for a signal.
pub(crate) fn until_ready<T>(
    open: &OpenFile,
    how: Wait,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match attempt() {
        Err(Errno::EAGAIN) => {}
        result => return result,
    }
    let Some(source) = open.file().poll_source() else {
        return Err(Errno::EAGAIN);
    };
    let token = source.attach(thread::current_waiter(), how.interest, how.exclusive);
    let result = sleep_loop(how.deadline, how.interrupt, attempt);
    source.detach(token);
    if how.exclusive && !source.is_empty() && open.file().poll().intersects(how.interest) {
        // This thread may have swallowed the notification of something that is still there: pass it on.
        source.notify(how.interest);
    }
    result
}

/// As [`until_ready`] for a call that honours `O_NONBLOCK`.
pub(crate) fn unless_nonblocking<T>(
    open: &OpenFile,
    how: Wait,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    if open.is_nonblocking() {
        attempt()
    } else {
        until_ready(open, how, attempt)
    }
}

/// Waits for any of several files. `EAGAIN` when the deadline passed.
pub(crate) fn until_any_ready<T>(
    files: &[(Arc<OpenFile>, PollEvents)],
    deadline: Option<u64>,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match attempt() {
        Err(Errno::EAGAIN) => {}
        result => return result,
    }
    let mut attached: Vec<(&PollSource, WaitToken)> = Vec::with_capacity(files.len());
    if !files.is_empty() {
        let waiter: Arc<dyn Waiter> = thread::current_waiter();
        for (open, interest) in files {
            if let Some(source) = open.file().poll_source() {
                attached.push((source, source.attach(waiter.clone(), *interest, false)));
            }
        }
    }
    let result = sleep_loop(deadline, Interrupt::Never, attempt);
    for (source, token) in attached {
        source.detach(token);
    }
    result
}

/// Waits without limit for something that is no file.
pub(crate) fn on_source<T>(
    source: &PollSource,
    interrupt: Interrupt,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match attempt() {
        Err(Errno::EAGAIN) => {}
        result => return result,
    }
    let token = source.attach(thread::current_waiter(), PollEvents::IN, false);
    let result = sleep_loop(None, interrupt, attempt);
    source.detach(token);
    result
}

fn sleep_loop<T>(
    deadline: Option<u64>,
    interrupt: Interrupt,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        thread::prepare_to_wait();
        match attempt() {
            Err(Errno::EAGAIN) => {}
            result => return result,
        }
        match thread::sleep_until(deadline) {
            Wake::Notified => {}
            // What came just in time counts.
            Wake::TimedOut => return attempt(),
            Wake::Interrupted if signal::must_interrupt() => {
                thread::set_restart(interrupt == Interrupt::Restartable);
                return Err(Errno::EINTR);
            }
            // Another thread took the signal, or it does nothing.
            Wake::Interrupted => {}
        }
    }
}
