// SPDX-License-Identifier: Apache-2.0
//! Looking at threads from outside: for `/proc`, counters and reports.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};

use super::{BLOCKED, DEAD, IDLE, READY, RUNNING, THREADS, Thread};

/// What a thread is doing, with the letters of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// On a CPU.
    Running,
    /// Waiting for a CPU.
    Ready,
    /// Sleeping.
    Sleeping,
    /// Ending.
    Dead,
}

impl Thread {
    /// What it is doing.
    #[must_use]
    pub fn run_state(&self) -> RunState {
        match self.state.load(Ordering::Relaxed) {
            RUNNING => RunState::Running,
            READY => RunState::Ready,
            BLOCKED | IDLE => RunState::Sleeping,
            DEAD => RunState::Dead,
            other => unreachable!("state {other}"),
        }
    }

    /// When it was made, in nanoseconds since boot.
    #[must_use]
    pub fn created_ns(&self) -> u64 {
        self.created_ns
    }

    /// The CPU it runs on or ran on last.
    #[must_use]
    pub fn last_cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    /// Where the application continues when this sleeping thread goes on; a snapshot for reports.
    #[must_use]
    pub fn application_address(&self) -> usize {
        // SAFETY: the frame at the top of the stack is plain words; a torn read gives a wrong number at worst.
        unsafe { (*coracle_arch::context::application_frame(self.stack.top())).instruction() }
    }
}

/// Calls `each` with every thread; no lock is held meanwhile.
pub fn for_each(mut each: impl FnMut(&Thread)) {
    let threads: Vec<Arc<Thread>> = THREADS.lock().clone();
    for thread in &threads {
        each(thread);
    }
}

/// Processor time of threads that ended.
static ENDED_NS: AtomicU64 = AtomicU64::new(0);

/// Keeps the time of a thread that is about to end.
pub(super) fn account_ended(thread: &Thread) {
    ENDED_NS.fetch_add(thread.cpu_ns(), Ordering::Relaxed);
}

/// Processor time of all threads, living and ended, in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    let living: u64 = THREADS.lock().iter().map(|t| t.cpu_ns()).sum();
    ENDED_NS.load(Ordering::Relaxed) + living
}

/// Number of threads.
#[must_use]
pub fn thread_count() -> usize {
    THREADS.lock().len()
}

/// Writes a line for each thread: number, name, state, CPU, time, the system call it is in and where it was called.
pub fn report(out: &mut dyn Write, name_of_call: fn(u32) -> &'static str) -> fmt::Result {
    // After a panic the list may be locked by the CPU that panicked.
    let Some(threads) = THREADS.try_lock() else {
        return writeln!(out, "the list of threads is locked");
    };
    for thread in threads.iter() {
        let name = thread.name.try_lock().map_or([b'?'; 16], |name| *name);
        let name = core::str::from_utf8(&name)
            .unwrap_or("?")
            .trim_end_matches('\0');
        let call = match thread.in_syscall.load(Ordering::Relaxed) {
            0 => "-",
            number => name_of_call(number - 1),
        };
        writeln!(
            out,
            "thread {:>4} {:<15} {:?} cpu {} {:>8} us in {} at {:#x}{}{}",
            thread.tid(),
            name,
            thread.run_state(),
            thread.last_cpu(),
            thread.run_ns.load(Ordering::Relaxed) / 1000,
            call,
            thread.application_address(),
            if thread.notified.load(Ordering::Relaxed) {
                " notified"
            } else {
                ""
            },
            if thread.pending() != 0 {
                " pending"
            } else {
                ""
            },
        )?;
    }
    Ok(())
}
