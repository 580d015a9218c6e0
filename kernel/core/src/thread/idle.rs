// SPDX-License-Identifier: Apache-2.0
//! What a CPU does that has nothing to run: looks for work for a while, then sleeps.
//!
//! Waking a sleeping virtual CPU costs the host far more than a short look around, so the first CPU polls its devices
//! for a time that adapts: longer when polling found work, shorter when it was in vain (as Linux guests do with
//! `haltpoll`).

use core::sync::atomic::{AtomicU64, Ordering, fence};

use coracle_arch::{cpu, paging};

use super::scheduler;
use crate::sync::Once;
use crate::time;

/// Runs threads.
pub(super) const BUSY: u8 = 0;
/// Looks for work; needs no interrupt to find it.
pub(super) const POLLING: u8 = 1;
/// Sleeps until an interrupt.
pub(super) const HALTED: u8 = 2;

/// What is to be done when a CPU is idle.
#[derive(Clone, Copy)]
pub struct IdleHooks {
    /// Sends what was queued; called whenever a thread is about to sleep, on any CPU.
    pub flush: fn(),
    /// Looks after devices that are polled. Returns whether something happened.
    pub poll: fn() -> bool,
    /// Switches the devices' interrupts on before the CPU sleeps. Returns whether something came meanwhile.
    pub arm: fn() -> bool,
    /// Switches the devices' interrupts off: a CPU polls them from now on.
    pub begin: fn(),
    /// A CPU stops polling, or woke up, and runs something.
    pub end: fn(),
}

static HOOKS: Once<IdleHooks> = Once::new();

/// Sets the hooks, once.
pub fn set_idle_hooks(hooks: IdleHooks) {
    let _ = HOOKS.set(hooks);
}

/// Sends what was queued, before the running thread sleeps and others run for who knows how long.
pub(super) fn flush() {
    if let Some(hooks) = HOOKS.get() {
        (hooks.flush)();
    }
}

/// Longest and shortest time to poll before sleeping.
const POLL_MAX_NS: u64 = 200_000;
const POLL_MIN_NS: u64 = 10_000;

static POLL_NS: AtomicU64 = AtomicU64::new(POLL_MAX_NS);

/// Waits until there may be something to run on this CPU.
pub(super) fn wait(me: usize) {
    let state = scheduler::idle_state(me);
    paging::enter_idle();
    state.store(POLLING, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let hooks = HOOKS.get();
    if let Some(hooks) = hooks {
        (hooks.begin)();
    }
    let began = time::now();
    if !look_around(me, began) {
        sleep(me);
    }
    if me == 0 && may_run(me) {
        adapt(time::now() - began);
    }
    if let Some(hooks) = hooks {
        (hooks.end)();
    }
    state.store(BUSY, Ordering::SeqCst);
    paging::leave_idle();
}

/// Chooses how long to poll, by how long it took until there was work, asleep or not: longer if polling could have found
/// it. To go by what polling found would be a trap: once too short, it finds nothing and stays short.
fn adapt(idle_ns: u64) {
    let limit = POLL_NS.load(Ordering::Relaxed);
    let next = if idle_ns <= POLL_MAX_NS {
        limit * 2
    } else {
        limit / 2
    };
    POLL_NS.store(next.clamp(POLL_MIN_NS, POLL_MAX_NS), Ordering::Relaxed);
}

fn may_run(me: usize) -> bool {
    scheduler::has_work(me) || scheduler::can_steal(me)
}

/// Polls for a while. Returns whether there is something to run.
fn look_around(me: usize, began: u64) -> bool {
    let hooks = HOOKS.get();
    let limit = if me == 0 {
        POLL_NS.load(Ordering::Relaxed)
    } else {
        POLL_MIN_NS
    };
    loop {
        if let Some(hooks) = hooks {
            (hooks.poll)();
        }
        // Timers and interrupts from other CPUs are served here too.
        cpu::serve_interrupts();
        if may_run(me) {
            return true;
        }
        if time::now() - began > limit {
            return false;
        }
        cpu::breathe();
    }
}

fn sleep(me: usize) {
    let hooks = HOOKS.get();
    // First halted, then the devices' interrupts: whoever switches them off looks for halted CPUs first.
    scheduler::idle_state(me).store(HALTED, Ordering::SeqCst);
    let arrived = hooks.is_some_and(|hooks| (hooks.arm)());
    // Interrupts are off: a wake-up from here on is an interrupt that ends the halt.
    if !arrived && !may_run(me) {
        cpu::halt();
    }
    scheduler::idle_state(me).store(POLLING, Ordering::SeqCst);
    if let Some(hooks) = hooks {
        (hooks.poll)();
    }
}
