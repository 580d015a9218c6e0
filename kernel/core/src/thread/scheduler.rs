// SPDX-License-Identifier: Apache-2.0
//! Who runs: one queue for each CPU, ordered by the share of time each thread has had.
//!
//! A thread that wakes gets at most half a slice of credit, so it runs soon but cannot starve others. An idle CPU
//! takes work from the longest queue. While a CPU has nothing to run it stays on the stack of the thread that ran
//! last; if that is the next to run, nothing is switched at all.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use coracle_abi::signal::SignalSet;
use coracle_arch::{MAX_CPUS, context, cpu, fpu, lapic, smp};
use coracle_logic::nice::charged;

use super::{
    BLOCKED, DEAD, FIRST_TID, IDLE, PENDING_RESCHEDULE, READY, RUNNING, THREADS, TIDS, Thread,
    current, idle,
};
use crate::sync::SpinLock;
use crate::{time, timer};

/// Longest run while others wait.
const SLICE_NS: u64 = 4_000_000;
/// A waking thread runs before one that had this much more than it.
const WAKE_GRANULARITY_NS: u64 = 500_000;

struct Entry {
    virtual_ns: u64,
    thread: Arc<Thread>,
}

#[derive(Default)]
struct Queue {
    /// Largest share first, so the next to run is popped from the end.
    entries: Vec<Entry>,
    /// The least share of this queue so far; new arrivals start no lower.
    floor_ns: u64,
}

impl Queue {
    fn insert(&mut self, thread: Arc<Thread>) {
        let virtual_ns = thread.virtual_ns.load(Ordering::Relaxed);
        // Among equals the one that came first runs first.
        let at = self.entries.partition_point(|e| e.virtual_ns > virtual_ns);
        self.entries.insert(at, Entry { virtual_ns, thread });
    }
}

/// One CPU.
struct Cpu {
    queue: SpinLock<Queue>,
    /// Length of the queue, readable without its lock.
    len: AtomicUsize,
    /// `idle::*` states.
    idle: AtomicU8,
    /// The running thread, and the one that ran before it until the switch is finished.
    running: UnsafeCell<Option<Arc<Thread>>>,
    previous: UnsafeCell<Option<Arc<Thread>>>,
    /// A context to leave a thread's stack for, when the thread must run elsewhere and nobody else can run here.
    idle_thread: UnsafeCell<Option<Arc<Thread>>>,
    /// Share of the running thread when it began its run, when that was, and its nice value: for those who look from other CPUs.
    run_share_ns: AtomicU64,
    run_started_ns: AtomicU64,
    run_nice: AtomicI32,
    /// Deadline the timer is set to.
    timer_ns: AtomicU64,
    /// End of the running thread's slice; `u64::MAX` while nobody else waits.
    slice_end_ns: AtomicU64,
    /// Time that threads ran here.
    busy_ns: AtomicU64,
    ready: AtomicBool,
}

// SAFETY: `running`, `previous` and `idle_thread` are touched only by their own CPU with interrupts off.
unsafe impl Sync for Cpu {}

static CPUS: [Cpu; MAX_CPUS] = [const {
    Cpu {
        queue: SpinLock::new(Queue {
            entries: Vec::new(),
            floor_ns: 0,
        }),
        len: AtomicUsize::new(0),
        idle: AtomicU8::new(idle::BUSY),
        running: UnsafeCell::new(None),
        previous: UnsafeCell::new(None),
        idle_thread: UnsafeCell::new(None),
        run_share_ns: AtomicU64::new(0),
        run_started_ns: AtomicU64::new(0),
        run_nice: AtomicI32::new(0),
        timer_ns: AtomicU64::new(u64::MAX),
        slice_end_ns: AtomicU64::new(u64::MAX),
        busy_ns: AtomicU64::new(0),
        ready: AtomicBool::new(false),
    }
}; MAX_CPUS];

static SWITCHES: AtomicU64 = AtomicU64::new(0);

/// Context switches since boot.
#[must_use]
pub fn context_switches() -> u64 {
    SWITCHES.load(Ordering::Relaxed)
}

/// Time that threads ran on a CPU, in nanoseconds, up to its last switch.
#[must_use]
pub fn busy_ns(cpu: usize) -> u64 {
    CPUS[cpu].busy_ns.load(Ordering::Relaxed)
}

pub(super) fn idle_state(cpu: usize) -> &'static AtomicU8 {
    &CPUS[cpu].idle
}

pub(super) fn has_work(cpu: usize) -> bool {
    CPUS[cpu].len.load(Ordering::SeqCst) > 0
}

/// Makes this CPU one that threads can be put on. `ENOMEM` if its idle context cannot be made.
pub fn init_cpu() -> crate::Result<()> {
    let home = &CPUS[cpu::index()];
    let idle_thread = super::new_idle(idle_run)?;
    // SAFETY: called on its own CPU with interrupts off.
    unsafe { *home.idle_thread.get() = Some(idle_thread) };
    home.ready.store(true, Ordering::Release);
    Ok(())
}

impl Cpu {
    /// Raises the floor of the queue to what every thread here has had at least.
    fn raise_floor(&self, queue: &mut Queue) {
        let head = queue.entries.last().map_or(u64::MAX, |e| e.virtual_ns);
        let running = if self.idle.load(Ordering::Relaxed) == idle::BUSY {
            let ran = time::now().saturating_sub(self.run_started_ns.load(Ordering::Relaxed));
            self.run_share_ns.load(Ordering::Relaxed)
                + charged(ran, self.run_nice.load(Ordering::Relaxed))
        } else {
            u64::MAX
        };
        let least = head.min(running);
        if least != u64::MAX {
            queue.floor_ns = queue.floor_ns.max(least);
        }
    }
}

/// Queues a thread that slept. Returns whether it did sleep.
pub(super) fn make_ready(thread: &Thread) -> bool {
    if thread
        .state
        .compare_exchange(BLOCKED, READY, Ordering::SeqCst, Ordering::SeqCst)
        .is_err()
    {
        return false;
    }
    enqueue(thread.arc(), true);
    true
}

/// Starts a new thread.
pub fn spawn(thread: Arc<Thread>) {
    if thread
        .state
        .compare_exchange(BLOCKED, READY, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
    {
        enqueue(thread, true);
    }
}

/// The CPU a ready thread should wait on: where its context is live, else an idle one, else where it ran last.
fn choose_cpu(thread: &Thread) -> usize {
    let last = thread.cpu.load(Ordering::Relaxed);
    if thread.on_cpu.load(Ordering::SeqCst) {
        return last;
    }
    let allowed = thread.affinity();
    let usable = |n: usize| allowed & 1 << n != 0 && CPUS[n].ready.load(Ordering::Acquire);
    let is_idle = |n: usize| {
        CPUS[n].idle.load(Ordering::Relaxed) != idle::BUSY
            && CPUS[n].len.load(Ordering::Relaxed) == 0
    };
    let online = cpu::online();
    if usable(last) && is_idle(last) {
        return last;
    }
    (0..online)
        .find(|n| usable(*n) && is_idle(*n))
        .or_else(|| usable(last).then_some(last))
        .or_else(|| (0..online).find(|n| usable(*n)))
        .unwrap_or(last)
}

fn enqueue(thread: Arc<Thread>, woken: bool) {
    let target = choose_cpu(&thread);
    let (me, home) = (cpu::index(), &CPUS[target]);
    let share = {
        let mut queue = home.queue.lock();
        home.raise_floor(&mut queue);
        let own = thread.virtual_ns.load(Ordering::Relaxed);
        // A sleeper keeps at most half a slice of credit; a share from another queue means nothing here.
        let floor = queue
            .floor_ns
            .saturating_sub(if woken { SLICE_NS / 2 } else { 0 });
        let share = if thread.cpu.swap(target, Ordering::Relaxed) == target {
            own.max(floor)
        } else {
            floor
        };
        let share = share.min(queue.floor_ns + SLICE_NS);
        thread.virtual_ns.store(share, Ordering::Relaxed);
        queue.insert(thread);
        home.len.store(queue.entries.len(), Ordering::SeqCst);
        share
    };
    core::sync::atomic::fence(Ordering::SeqCst);
    let state = home.idle.load(Ordering::SeqCst);
    if target == me {
        if state == idle::BUSY && wants_cpu_now(home, share) {
            request_switch(home);
        } else if state == idle::BUSY {
            start_slice(home);
        }
    } else if state == idle::HALTED {
        smp::interrupt(target, smp::WAKE_VECTOR);
    } else if state == idle::BUSY {
        // Its CPU runs somebody else: let it decide at once who should.
        smp::interrupt(target, smp::WAKE_VECTOR);
    }
}

/// Whether a thread with this share should run instead of the one that does.
fn wants_cpu_now(home: &Cpu, share: u64) -> bool {
    // SAFETY: called on its own CPU with interrupts off.
    let Some(running) = (unsafe { (*home.running.get()).as_ref() }) else {
        return false;
    };
    share + WAKE_GRANULARITY_NS < share_now(running)
}

fn share_now(running: &Thread) -> u64 {
    let ran = time::now().saturating_sub(running.started_ns.load(Ordering::Relaxed));
    running.virtual_ns.load(Ordering::Relaxed) + charged(ran, running.nice())
}

fn request_switch(home: &Cpu) {
    // SAFETY: called on its own CPU with interrupts off.
    if let Some(running) = unsafe { (*home.running.get()).as_ref() } {
        running
            .pending
            .fetch_or(PENDING_RESCHEDULE, Ordering::Relaxed);
    }
}

/// Lets the running thread be preempted after a slice, now that somebody waits.
fn start_slice(home: &Cpu) {
    if home.slice_end_ns.load(Ordering::Relaxed) == u64::MAX {
        home.slice_end_ns
            .store(time::now() + SLICE_NS, Ordering::Relaxed);
        set_timer(home);
    }
}

/// How much later than asked a timer comes, so that several share one interrupt: the usual slack of a thread on Linux
/// (`PR_SET_TIMERSLACK`). A timer whose time has come is also served by any earlier interrupt.
const SLACK_NS: u64 = 50_000;

static TIMER_SETTINGS: AtomicU64 = AtomicU64::new(0);

/// How often the hardware timer was set since boot. Under emulation each costs far more than an instruction.
#[must_use]
pub fn timer_settings() -> u64 {
    TIMER_SETTINGS.load(Ordering::Relaxed)
}

/// Sets the timer to the earliest deadline, unless it is set to an earlier time already.
fn set_timer(home: &Cpu) {
    let wanted = timer::next_deadline()
        .min(home.slice_end_ns.load(Ordering::Relaxed))
        .saturating_add(SLACK_NS);
    if wanted < home.timer_ns.load(Ordering::Relaxed) {
        home.timer_ns.store(wanted, Ordering::Relaxed);
        TIMER_SETTINGS.fetch_add(1, Ordering::Relaxed);
        lapic::set_timer(wanted);
    }
}

/// Called by `timer` when the earliest deadline came nearer.
pub(crate) fn on_deadline_changed() {
    set_timer(&CPUS[cpu::index()]);
}

/// The timer interrupt: expires timers and ends slices.
pub fn on_timer_interrupt() {
    let home = &CPUS[cpu::index()];
    home.timer_ns.store(u64::MAX, Ordering::Relaxed);
    let now = time::now();
    timer::expire(now);
    if home.slice_end_ns.load(Ordering::Relaxed) <= now {
        home.slice_end_ns.store(u64::MAX, Ordering::Relaxed);
        if has_work(cpu::index()) {
            request_switch(home);
        }
    }
    set_timer(home);
}

/// Called on an interrupt from another CPU: somebody may have become ready here.
pub fn on_wake_interrupt() {
    let home = &CPUS[cpu::index()];
    let first = home.queue.lock().entries.last().map(|e| e.virtual_ns);
    if let Some(share) = first {
        if wants_cpu_now(home, share) {
            request_switch(home);
        } else {
            start_slice(home);
        }
    }
}

/// Takes the next thread from this CPU's queue, or from another's.
fn pick(me: usize) -> Option<Arc<Thread>> {
    let home = &CPUS[me];
    if home.len.load(Ordering::SeqCst) > 0 {
        let mut queue = home.queue.lock();
        if let Some(entry) = queue.entries.pop() {
            home.len.store(queue.entries.len(), Ordering::SeqCst);
            return Some(entry.thread);
        }
    }
    steal(me)
}

/// Whether a waiting thread can be taken to CPU `to`: its context is not live where it waits, and it may run there.
fn can_move(thread: &Thread, to: usize) -> bool {
    !thread.on_cpu.load(Ordering::SeqCst) && thread.affinity() & 1 << to != 0
}

/// Takes a thread that may run here from another CPU's queue; the longest is tried first.
fn steal(me: usize) -> Option<Arc<Thread>> {
    let online = cpu::online();
    let len = |n: usize| CPUS[n].len.load(Ordering::Relaxed);
    let mut left: u32 = (0..online)
        .filter(|n| *n != me && len(*n) > 0)
        .fold(0, |bits, n| bits | 1 << n);
    while left != 0 {
        let victim = (0..online)
            .filter(|n| left & 1 << n != 0)
            .max_by_key(|n| len(*n))?;
        left &= !(1 << victim);
        if let Some(thread) = steal_from(&CPUS[victim], me) {
            return Some(thread);
        }
    }
    None
}

fn steal_from(victim: &Cpu, me: usize) -> Option<Arc<Thread>> {
    let (thread, floor) = {
        let mut queue = victim.queue.try_lock()?;
        let at = queue
            .entries
            .iter()
            .rposition(|e| can_move(&e.thread, me))?;
        let entry = queue.entries.remove(at);
        victim.len.store(queue.entries.len(), Ordering::SeqCst);
        (entry.thread, queue.floor_ns)
    };
    // Its distance from the floor comes along.
    let distance = thread
        .virtual_ns
        .load(Ordering::Relaxed)
        .saturating_sub(floor);
    let own_floor = CPUS[me].queue.lock().floor_ns;
    thread
        .virtual_ns
        .store(own_floor + distance.min(SLICE_NS), Ordering::Relaxed);
    thread.cpu.store(me, Ordering::Relaxed);
    Some(thread)
}

/// Gives the CPU away: to the next ready thread, or to idleness until there is one. The caller has set the state of the
/// running thread, and returns when it runs again.
pub(super) fn schedule() {
    let thread = current();
    let me = cpu::index();
    charge(thread, time::now());
    if thread.state.load(Ordering::SeqCst) == RUNNING {
        // Preempted or yielding: it waits like the others.
        thread.state.store(READY, Ordering::SeqCst);
        if thread.affinity() & 1 << me == 0 {
            // It must run elsewhere; `finish_switch` queues it once its stack is free.
            thread.moving.store(true, Ordering::Relaxed);
            // SAFETY: called on its own CPU with interrupts off.
            let idle_thread = unsafe { (*CPUS[me].idle_thread.get()).clone() };
            let next = pick(me)
                .or(idle_thread)
                .expect("every CPU has an idle context");
            return run(next, me);
        }
        enqueue_preempted(thread);
    }
    loop {
        if let Some(next) = pick(me) {
            return run(next, me);
        }
        idle::wait(me);
    }
}

/// Puts the running thread into its own CPU's queue.
fn enqueue_preempted(thread: &Thread) {
    let home = &CPUS[cpu::index()];
    let mut queue = home.queue.lock();
    queue.insert(thread.arc());
    home.len.store(queue.entries.len(), Ordering::SeqCst);
}

/// The idle context: runs whoever comes.
extern "C" fn idle_run(_: usize) {
    finish_switch();
    loop {
        schedule();
    }
}

fn charge(thread: &Thread, now: u64) {
    let ran = now.saturating_sub(thread.started_ns.load(Ordering::Relaxed));
    thread.started_ns.store(now, Ordering::Relaxed);
    thread.run_ns.fetch_add(ran, Ordering::Relaxed);
    CPUS[cpu::index()].busy_ns.fetch_add(ran, Ordering::Relaxed);
    thread
        .virtual_ns
        .fetch_add(charged(ran, thread.nice()), Ordering::Relaxed);
}

/// Continues `next` on this CPU.
fn run(next: Arc<Thread>, me: usize) {
    let home = &CPUS[me];
    let now = time::now();
    if next.state.load(Ordering::Relaxed) != IDLE {
        next.state.store(RUNNING, Ordering::SeqCst);
    }
    next.started_ns.store(now, Ordering::Relaxed);
    home.run_started_ns.store(now, Ordering::Relaxed);
    home.run_nice.store(next.nice(), Ordering::Relaxed);
    home.run_share_ns
        .store(next.virtual_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    if next.affinity() & 1 << me != 0 {
        next.pending
            .fetch_and(!PENDING_RESCHEDULE, Ordering::Relaxed);
    } else {
        // It was restricted to other CPUs while it waited here: it goes there before it enters the application.
        next.pending.fetch_or(PENDING_RESCHEDULE, Ordering::Relaxed);
    }
    home.slice_end_ns.store(u64::MAX, Ordering::Relaxed);
    if home.len.load(Ordering::Relaxed) > 0 {
        start_slice(home);
    }
    if core::ptr::eq(Arc::as_ptr(&next), current()) {
        return;
    }
    SWITCHES.fetch_add(1, Ordering::Relaxed);
    switch_to(next, home);
}

fn switch_to(next: Arc<Thread>, home: &Cpu) {
    next.on_cpu.store(true, Ordering::SeqCst);
    next.cpu.store(cpu::index(), Ordering::Relaxed);
    let load = next.context.get();
    // SAFETY: only this CPU touches its `running` and `previous`; the threads' contexts are not live elsewhere (`next`
    // was not on a CPU, and nobody takes `previous` before `finish_switch`).
    unsafe {
        let previous = (*home.running.get()).replace(next);
        let previous = previous.expect("a thread runs");
        previous.fs_base.store(cpu::fs_base(), Ordering::Relaxed);
        previous
            .gs_base
            .store(cpu::user_gs_base(), Ordering::Relaxed);
        if previous.state.load(Ordering::Relaxed) != DEAD {
            fpu::save((*previous.fpu.get()).bytes_mut().as_mut_ptr());
        }
        let save = previous.context.get();
        *home.previous.get() = Some(previous);
        context::switch(save, *load);
    }
    finish_switch();
}

/// The first thing a thread does after it was switched to.
fn finish_switch() {
    let me = cpu::index();
    let home = &CPUS[me];
    // SAFETY: as in `switch_to`; the state in the running thread's area is complete since it is not on another CPU.
    let previous = unsafe {
        let running = (*home.running.get()).as_ref().expect("a thread runs");
        cpu::set_current(Arc::as_ptr(running) as usize);
        cpu::set_kernel_stack(running.stack.top());
        cpu::set_fs_base(running.fs_base.load(Ordering::Relaxed));
        cpu::set_user_gs_base(running.gs_base.load(Ordering::Relaxed));
        fpu::restore((*running.fpu.get()).bytes_mut().as_ptr());
        (*home.previous.get()).take()
    };
    if let Some(previous) = previous {
        let moves = previous.moving.swap(false, Ordering::Relaxed);
        let waits = previous.state.load(Ordering::SeqCst) == READY;
        // From here on another CPU may take it, unless it moves: then no queue has it.
        previous.on_cpu.store(false, Ordering::SeqCst);
        if moves {
            enqueue(previous, false);
            return;
        }
        // A finished thread's last reference may go here; its stack is not in use any more.
        drop(previous);
        if waits {
            wake_a_thief();
        }
    }
}

/// A thread waits behind another: a CPU that sleeps should come and take it. One that is awake looks by itself.
fn wake_a_thief() {
    let sleeping =
        (0..cpu::online()).find(|n| CPUS[*n].idle.load(Ordering::SeqCst) == idle::HALTED);
    if let Some(cpu) = sleeping {
        smp::interrupt(cpu, smp::WAKE_VECTOR);
    }
}

/// Entered by the first switch to a new thread; goes on into the application.
pub(super) extern "C" fn first_run(_: usize) {
    finish_switch();
    if current().pending() != 0 {
        // Unlike other threads it does not come by the place where requests are looked at: an interrupt of its own
        // brings it there as soon as it has entered the application.
        smp::interrupt(cpu::index(), smp::WAKE_VECTOR);
    }
}

/// Lets another thread run if there is one (`sched_yield(2)`).
pub fn yield_now() {
    if has_work(cpu::index()) {
        // The share rises to that of the next in line, so it really goes behind it.
        let thread = current();
        let next = CPUS[cpu::index()]
            .queue
            .lock()
            .entries
            .last()
            .map_or(0, |e| e.virtual_ns);
        thread.virtual_ns.fetch_max(next, Ordering::Relaxed);
        schedule();
    }
}

/// On the way back to the application: switches if that was asked for.
#[inline]
pub fn preempt_if_needed() {
    if current().take_request(PENDING_RESCHEDULE) {
        schedule();
    }
}

/// Ends the running thread. Its number is free again, its stack too once this CPU left it.
pub fn exit_current() -> ! {
    let thread = current();
    super::state::account_ended(thread);
    THREADS
        .lock()
        .retain(|t| !core::ptr::eq(Arc::as_ptr(t), thread));
    // It may be the one that was told of a signal to the process.
    crate::signal::pass_on(SignalSet(u64::MAX));
    // The number of the first thread is that of the process and stays taken.
    if thread.tid() != FIRST_TID {
        TIDS.lock().free(thread.tid());
    }
    super::alone::on_end();
    thread.state.store(DEAD, Ordering::SeqCst);
    schedule();
    unreachable!("a finished thread is not scheduled");
}

/// Runs the first thread of this CPU: on the first CPU the program's, on others whatever comes. Does not return.
pub fn run_first(first: Option<Arc<Thread>>) -> ! {
    let me = cpu::index();
    let home = &CPUS[me];
    // SAFETY: called on its own CPU with interrupts off.
    let idle_thread = unsafe { (*home.idle_thread.get()).clone() };
    let next = first
        .or(idle_thread)
        .expect("every CPU has an idle context");
    if next.state.load(Ordering::Relaxed) != IDLE {
        next.state.store(RUNNING, Ordering::SeqCst);
    }
    next.on_cpu.store(true, Ordering::SeqCst);
    next.cpu.store(me, Ordering::Relaxed);
    next.started_ns.store(time::now(), Ordering::Relaxed);
    let mut unused = 0;
    // SAFETY: nothing ran here before, so there is no context to keep; `next` is not on another CPU.
    unsafe {
        let load = *next.context.get();
        *home.running.get() = Some(next);
        context::switch(&raw mut unused, load);
    }
    unreachable!("the boot stack is not continued");
}

/// Whether a CPU sleeps until an interrupt.
#[must_use]
pub fn is_any_halted() -> bool {
    (0..cpu::online()).any(|n| CPUS[n].idle.load(Ordering::Relaxed) == idle::HALTED)
}

/// Whether another CPU has a thread waiting that could run here.
pub(super) fn can_steal(me: usize) -> bool {
    (0..cpu::online()).any(|n| {
        let other = &CPUS[n];
        n != me
            && other.len.load(Ordering::SeqCst) > 0
            && other.idle.load(Ordering::Relaxed) == idle::BUSY
            && other
                .queue
                .try_lock()
                .is_some_and(|queue| queue.entries.iter().any(|e| can_move(&e.thread, me)))
    })
}
