// SPDX-License-Identifier: Apache-2.0
//! Threads: what one is, how it sleeps and is woken.
//!
//! Sleeping follows one pattern, and nothing else does: [`prepare_to_wait`], make the waiter known, look once more,
//! [`sleep_until`]. A wake-up that comes at any time after the first step ends the sleep, so none can be lost.

mod alone;
mod idle;
mod nice;
pub(crate) mod scheduler;
mod state;

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use coracle_abi::PollEvents;
use coracle_arch::{TrapFrame, context, cpu, fpu};
use coracle_logic::id_alloc::IdAlloc;
use coracle_logic::recent_calls::RecentCalls;

pub use alone::{become_only, end_others, forget_program};
pub use idle::{IdleHooks, set_idle_hooks};
pub use nice::NICE;
pub use scheduler::{
    busy_ns, context_switches, exit_current, init_cpu, is_any_halted, on_timer_interrupt,
    on_wake_interrupt, preempt_if_needed, run_first, spawn, timer_settings, yield_now,
};
pub use state::{RunState, for_each, process_cpu_ns, report, thread_count};

use crate::futex::FutexState;
use crate::memory::Stack;
use crate::poll::Waiter;
use crate::signal::ThreadSignals;
use crate::sync::SpinLock;
use crate::timer::{Timer, TimerTarget};
use crate::{Errno, Result};

/// Number of a thread, as `gettid(2)` returns it.
pub type Tid = u32;

/// The program's first thread; also the process id.
pub const FIRST_TID: Tid = 1;

/// FPU state, aligned as the hardware wants it.
struct FpuArea(Box<[FpuLine]>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct FpuLine([u8; 64]);

const _: () = assert!(fpu::ALIGN == 64);

impl FpuArea {
    fn new() -> Self {
        let mut area =
            Self(alloc::vec![FpuLine([0; 64]); fpu::size().div_ceil(64)].into_boxed_slice());
        fpu::init_area(area.bytes_mut());
        area
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.0.len() * 64;
        // SAFETY: lines are arrays of bytes without gaps.
        unsafe { core::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<u8>(), len) }
    }
}

/// A thread of the application.
pub struct Thread {
    /// Changes once at most, when the thread becomes the only one.
    tid: AtomicU32,
    me: Weak<Thread>,
    stack: Stack,
    /// Stack pointer while it does not run; owned by whoever holds it off a CPU.
    context: UnsafeCell<usize>,
    fpu: UnsafeCell<FpuArea>,
    fs_base: AtomicUsize,
    gs_base: AtomicUsize,
    state: AtomicU8,
    /// A wake-up came since `prepare_to_wait`.
    notified: AtomicBool,
    /// Its context is live on a CPU: nobody else may continue it.
    on_cpu: AtomicBool,
    /// It left its CPU to run on another; whoever finishes the switch queues it.
    moving: AtomicBool,
    /// Where it runs or ran last.
    cpu: AtomicUsize,
    /// CPUs it may use, one bit each.
    affinity: AtomicU64,
    /// Fair share used so far; only differences within one queue mean something.
    nice: AtomicI32,
    virtual_ns: AtomicU64,
    started_ns: AtomicU64,
    run_ns: AtomicU64,
    created_ns: u64,
    /// Work for the way back to the application.
    pending: AtomicU32,
    sleep_timer: SpinLock<Option<Timer>>,
    name: SpinLock<[u8; 16]>,
    /// Its wait for a futex.
    pub futex: FutexState,
    /// Signals for this thread alone.
    pub signals: ThreadSignals,
    /// Where `CLONE_CHILD_CLEARTID` wants a zero (and a futex wake-up) at the end; 0 for nowhere.
    pub clear_child_tid: AtomicUsize,
    /// Head of the robust futex list; 0 for none.
    pub robust_list: AtomicUsize,
    /// Number of the system call it is in, plus one; 0 outside.
    pub in_syscall: AtomicU32,
    /// The system calls it came back from.
    pub recent_calls: RecentCalls,
    /// Registers to continue with instead of those it entered with.
    new_frame: SpinLock<Option<Box<TrapFrame>>>,
    has_new_frame: AtomicBool,
    /// The call that is interrupted now may not be restarted whatever `SA_RESTART` says.
    no_restart: AtomicBool,
}

// SAFETY: `context` and `fpu` are touched only by the CPU that runs or switches the thread; everything else is atomic
// or locked.
unsafe impl Sync for Thread {}
// SAFETY: as above.
unsafe impl Send for Thread {}

const RUNNING: u8 = 0;
const READY: u8 = 1;
const BLOCKED: u8 = 2;
const DEAD: u8 = 3;
/// A CPU's idle context.
const IDLE: u8 = 4;

/// A signal may be deliverable.
pub const PENDING_SIGNAL: u32 = 1;
/// Another thread should run.
pub const PENDING_RESCHEDULE: u32 = 2;
/// The thread must end.
pub const PENDING_EXIT: u32 = 4;

static TIDS: SpinLock<IdAlloc> = SpinLock::new(IdAlloc::new(FIRST_TID, 1 << 22));
static THREADS: SpinLock<Vec<Arc<Thread>>> = SpinLock::new(Vec::new());

/// What a new thread begins with.
pub struct NewThread<'a> {
    /// Registers it enters the application with.
    pub frame: &'a TrapFrame,
    /// Its thread-local storage.
    pub fs_base: usize,
    /// The thread whose FPU state, name, affinity and signal mask it inherits.
    pub parent: Option<&'a Thread>,
}

/// Makes a thread that does not run yet; [`spawn`] starts it. `EAGAIN` if little memory is left.
pub fn new(what: &NewThread<'_>) -> Result<Arc<Thread>> {
    if crate::memory::is_scarce() {
        return Err(Errno::EAGAIN);
    }
    let tid = TIDS.lock().alloc().ok_or(Errno::EAGAIN)?;
    let thread = build(tid, BLOCKED, scheduler::first_run, what).map_err(|_| {
        TIDS.lock().free(tid);
        Errno::EAGAIN
    })?;
    let mut threads = THREADS.lock();
    if alone::is_wanted() {
        // All but one are ending, the caller among them.
        drop(threads);
        TIDS.lock().free(tid);
        return Err(Errno::EAGAIN);
    }
    threads.push(thread.clone());
    Ok(thread)
}

/// Makes the idle context of the calling CPU. It is not in the list of threads.
fn new_idle(entry: extern "C" fn(usize)) -> Result<Arc<Thread>> {
    let thread = build(
        0,
        IDLE,
        entry,
        &NewThread {
            frame: &TrapFrame::default(),
            fs_base: 0,
            parent: None,
        },
    )?;
    thread.set_name(b"idle");
    Ok(thread)
}

fn build(
    tid: Tid,
    state: u8,
    first: extern "C" fn(usize),
    what: &NewThread<'_>,
) -> Result<Arc<Thread>> {
    let stack = Stack::new()?;
    let mut area = FpuArea::new();
    if what.parent.is_some() {
        // The parent is the caller, so its state is in the CPU.
        // SAFETY: the area has the size and alignment of the state and was zeroed.
        unsafe { fpu::save(area.bytes_mut().as_mut_ptr()) };
    }
    // SAFETY: the stack is new and nobody uses it.
    let start = unsafe { context::prepare(stack.top(), first, 0, what.frame) };
    let all_cpus = (1 << coracle_arch::MAX_CPUS) - 1;
    let thread = Arc::new_cyclic(|me| Thread {
        tid: AtomicU32::new(tid),
        me: me.clone(),
        stack,
        context: UnsafeCell::new(start),
        fpu: UnsafeCell::new(area),
        fs_base: AtomicUsize::new(what.fs_base),
        gs_base: AtomicUsize::new(what.parent.map_or(0, |_| cpu::user_gs_base())),
        state: AtomicU8::new(state),
        notified: AtomicBool::new(false),
        on_cpu: AtomicBool::new(false),
        moving: AtomicBool::new(false),
        cpu: AtomicUsize::new(cpu::index()),
        affinity: AtomicU64::new(what.parent.map_or(all_cpus, Thread::affinity)),
        nice: AtomicI32::new(what.parent.map_or(0, Thread::nice)),
        virtual_ns: AtomicU64::new(
            what.parent
                .map_or(0, |p| p.virtual_ns.load(Ordering::Relaxed)),
        ),
        started_ns: AtomicU64::new(0),
        run_ns: AtomicU64::new(0),
        created_ns: crate::time::now(),
        pending: AtomicU32::new(0),
        sleep_timer: SpinLock::new(None),
        name: SpinLock::new(what.parent.map_or([0; 16], Thread::name)),
        signals: what.parent.map_or_else(ThreadSignals::default, |p| {
            ThreadSignals::inherit(&p.signals)
        }),
        futex: FutexState::default(),
        clear_child_tid: AtomicUsize::new(0),
        robust_list: AtomicUsize::new(0),
        in_syscall: AtomicU32::new(0),
        recent_calls: RecentCalls::default(),
        new_frame: SpinLock::new(None),
        has_new_frame: AtomicBool::new(false),
        no_restart: AtomicBool::new(false),
    });
    let target: Weak<Thread> = thread.me.clone();
    *thread.sleep_timer.lock() = Some(Timer::new(target));
    Ok(thread)
}

/// The running thread. Panics before the first thread runs.
#[inline]
#[must_use]
pub fn current() -> &'static Thread {
    let at = cpu::current() as *const Thread;
    assert!(!at.is_null(), "a thread runs");
    // SAFETY: the scheduler keeps the running thread alive while it runs, and only that thread's own code gets this
    // reference; it never outlives the thread's run.
    unsafe { &*at }
}

/// The running thread, if one runs on this CPU yet.
#[must_use]
pub fn try_current() -> Option<&'static Thread> {
    (cpu::current() != 0).then(current)
}

impl Thread {
    /// Its number.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid.load(Ordering::Relaxed)
    }

    /// A counted reference to it.
    #[must_use]
    pub fn arc(&self) -> Arc<Thread> {
        self.me
            .upgrade()
            .expect("a thread that is referred to is alive")
    }

    /// The name set by `PR_SET_NAME`, padded with NUL.
    #[must_use]
    pub fn name(&self) -> [u8; 16] {
        *self.name.lock()
    }

    /// Sets the name; cut to 15 bytes.
    pub fn set_name(&self, name: &[u8]) {
        let mut padded = [0; 16];
        let len = name.len().min(15);
        padded[..len].copy_from_slice(&name[..len]);
        *self.name.lock() = padded;
    }

    /// CPUs it may use, one bit each.
    #[must_use]
    pub fn affinity(&self) -> u64 {
        self.affinity.load(Ordering::Relaxed)
    }

    /// Restricts it to CPUs; `EINVAL` if none of them runs.
    pub fn set_affinity(&self, mask: u64) -> Result<()> {
        if mask & ((1 << cpu::online()) - 1) == 0 {
            return Err(Errno::EINVAL);
        }
        self.affinity.store(mask, Ordering::Relaxed);
        self.request(PENDING_RESCHEDULE);
        Ok(())
    }

    /// Processor time it used, in nanoseconds.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let done = self.run_ns.load(Ordering::Relaxed);
        if self.state.load(Ordering::Relaxed) == RUNNING {
            done + crate::time::now().saturating_sub(self.started_ns.load(Ordering::Relaxed))
        } else {
            done
        }
    }

    /// Sets what must be looked at on the way back to the application, and makes the thread come that way soon.
    pub fn request(&self, what: u32) {
        self.pending.fetch_or(what, Ordering::SeqCst);
        if !self.wake_for_request() && self.on_cpu.load(Ordering::SeqCst) {
            let cpu = self.cpu.load(Ordering::Relaxed);
            if cpu != cpu::index() {
                coracle_arch::smp::interrupt(cpu, coracle_arch::smp::WAKE_VECTOR);
            }
        }
    }

    fn wake_for_request(&self) -> bool {
        self.notified.store(true, Ordering::SeqCst);
        scheduler::make_ready(self)
    }

    /// What must be looked at on the way back to the application.
    #[inline]
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Clears a request and returns whether it was set.
    pub fn take_request(&self, what: u32) -> bool {
        self.pending.fetch_and(!what, Ordering::SeqCst) & what != 0
    }

    /// Ends its sleep, now or if it is about to begin one.
    #[inline]
    pub fn wake(&self) -> bool {
        let first = !self.notified.swap(true, Ordering::SeqCst);
        scheduler::make_ready(self) || first
    }

    /// FPU state of a thread that does not run, or of the caller after [`save_fpu`].
    pub fn with_fpu_state<R>(&self, with: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(core::ptr::eq(self, current()), "only the thread itself");
        // SAFETY: only the thread itself gets here, and the kernel is not preempted.
        let area = unsafe { &mut *self.fpu.get() };
        let bytes = area.bytes_mut();
        // SAFETY: the area has the size and alignment of the state.
        unsafe { fpu::save(bytes.as_mut_ptr()) };
        let len = fpu::size();
        let result = with(&mut bytes[..len]);
        fpu::sanitize(bytes);
        // SAFETY: sanitised just now.
        unsafe { fpu::restore(bytes.as_ptr()) };
        result
    }

    /// Sets the thread-local storage register of the running thread.
    pub fn set_fs_base(&self, value: usize) {
        self.fs_base.store(value, Ordering::Relaxed);
        if core::ptr::eq(self, current()) {
            cpu::set_fs_base(value);
        }
    }
}

impl Waiter for Thread {
    fn notify(&self, _: PollEvents) -> bool {
        self.wake()
    }
}

impl TimerTarget for Thread {
    fn on_timer(&self) {
        self.wake();
    }
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something woke the thread.
    Notified,
    /// The deadline passed.
    TimedOut,
    /// A signal can be delivered.
    Interrupted,
}

/// The running thread as something that can be attached to a poll source.
#[must_use]
pub fn current_waiter() -> Arc<dyn Waiter> {
    current().arc()
}

/// Begins waiting: wake-ups count from here.
#[inline]
pub fn prepare_to_wait() {
    current().notified.store(false, Ordering::SeqCst);
}

/// Sleeps until a wake-up, a deliverable signal, or `deadline_ns` of the monotonic clock. Returns at once if one of
/// them came since [`prepare_to_wait`].
pub fn sleep_until(deadline_ns: Option<u64>) -> Wake {
    let thread = current();
    let must_look = |thread: &Thread| {
        thread.notified.load(Ordering::SeqCst)
            || thread.pending.load(Ordering::SeqCst) & (PENDING_SIGNAL | PENDING_EXIT) != 0
    };
    if !must_look(thread) && deadline_ns.is_none_or(|d| d > crate::time::now()) {
        if let (Some(deadline), Some(timer)) = (deadline_ns, thread.sleep_timer.lock().as_ref()) {
            timer.arm(deadline);
        }
        thread.state.store(BLOCKED, Ordering::SeqCst);
        if must_look(thread)
            && thread
                .state
                .compare_exchange(BLOCKED, RUNNING, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            // Something came in between, and nobody queued the thread.
        } else {
            idle::flush();
            scheduler::schedule();
        }
        if let (Some(_), Some(timer)) = (deadline_ns, thread.sleep_timer.lock().as_ref()) {
            timer.cancel();
        }
    }
    if thread.pending() & (PENDING_SIGNAL | PENDING_EXIT) != 0 {
        Wake::Interrupted
    } else if deadline_ns.is_some_and(|d| d <= crate::time::now()) {
        Wake::TimedOut
    } else {
        Wake::Notified
    }
}

/// Sleeps until a wake-up, whatever signals are pending; returns at once if one came since [`prepare_to_wait`]. May
/// return without one, so the caller looks at what it waits for.
pub fn sleep_uninterruptible() {
    let thread = current();
    thread.state.store(BLOCKED, Ordering::SeqCst);
    if thread.notified.load(Ordering::SeqCst)
        && thread
            .state
            .compare_exchange(BLOCKED, RUNNING, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    {
        return;
    }
    idle::flush();
    scheduler::schedule();
}

/// Lets the next [`sleep_until`] return at once, unless [`prepare_to_wait`] comes first.
pub fn look_again() {
    current().notified.store(true, Ordering::SeqCst);
}

/// Says whether the call that is being interrupted may be restarted (`SA_RESTART`).
pub fn set_restart(allowed: bool) {
    current().no_restart.store(!allowed, Ordering::Relaxed);
}

/// Whether the interrupted call may be restarted; resets to yes.
#[must_use]
pub fn take_restart() -> bool {
    !current().no_restart.swap(false, Ordering::Relaxed)
}

/// A copy of the registers with which the caller entered the kernel.
#[must_use]
pub fn entry_frame() -> TrapFrame {
    // SAFETY: the entry code wrote the frame at the top of the caller's own stack; it is only copied.
    unsafe { *context::application_frame(current().stack.top()) }
}

/// Lets the caller continue with other registers than it entered with, once its system call ends.
pub fn replace_frame(frame: TrapFrame) {
    let thread = current();
    *thread.new_frame.lock() = Some(Box::new(frame));
    thread.has_new_frame.store(true, Ordering::Relaxed);
}

/// Moves what [`replace_frame`] set to `frame`. Returns whether there was something.
#[inline]
pub fn take_new_frame(frame: &mut TrapFrame) -> bool {
    let thread = current();
    if !thread.has_new_frame.load(Ordering::Relaxed) {
        return false;
    }
    thread.has_new_frame.store(false, Ordering::Relaxed);
    thread
        .new_frame
        .lock()
        .take()
        .map(|new| *frame = *new)
        .is_some()
}

/// Number of CPUs that run.
#[must_use]
pub fn online_cpus() -> usize {
    cpu::online()
}

/// Number of the CPU the caller runs on.
#[must_use]
pub fn this_cpu() -> usize {
    cpu::index()
}

/// Feature bits for `AT_HWCAP`.
#[must_use]
pub fn hardware_capabilities() -> u32 {
    cpu::cpuid(1, 0)[3]
}

/// Whether programs may use `wrfsbase` and its kind (`AT_HWCAP2`).
#[must_use]
pub fn has_fsgsbase() -> bool {
    cpu::features().fsgsbase
}

/// The caller's GS base.
#[must_use]
pub fn gs_base() -> usize {
    cpu::user_gs_base()
}

/// Sets the caller's GS base. The address must lie in the application's half.
pub fn set_gs_base(value: usize) {
    cpu::set_user_gs_base(value);
}

/// The caller's thread-local storage register.
#[must_use]
pub fn fs_base() -> usize {
    cpu::fs_base()
}

/// Finds a thread by number.
#[must_use]
pub fn find(tid: Tid) -> Option<Arc<Thread>> {
    THREADS.lock().iter().find(|t| t.tid() == tid).cloned()
}
