// SPDX-License-Identifier: Apache-2.0
//! The local APIC: end of interrupt, one-shot timer, interrupts between CPUs (Intel SDM volume 3, chapter 11).

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{clock, cpu};

const ID: usize = 0x20;
const TASK_PRIORITY: usize = 0x80;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
const COMMAND_LOW: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const TIMER: usize = 0x320;
const LINT1: usize = 0x360;
const INITIAL_COUNT: usize = 0x380;
const CURRENT_COUNT: usize = 0x390;
const DIVIDE: usize = 0x3e0;

const MSR_APIC_BASE: u32 = 0x1b;
const MSR_TSC_DEADLINE: u32 = 0x6e0;

/// Vector of the timer.
pub const TIMER_VECTOR: u8 = 0xe8;
/// Vector of spurious interrupts.
const SPURIOUS_VECTOR: u8 = 0xff;

static BASE: AtomicUsize = AtomicUsize::new(0);
/// Timer ticks per nanosecond, as a fraction of 2^32.
static TICKS_PER_NS: AtomicU64 = AtomicU64::new(0);

/// Physical address of the registers.
#[must_use]
pub fn physical() -> u64 {
    // SAFETY: every 64-bit CPU with a local APIC has the register.
    unsafe { cpu::read_msr(MSR_APIC_BASE) & 0xf_ffff_f000 }
}

fn read(register: usize) -> u32 {
    // SAFETY: `init` was given a mapping of the registers.
    unsafe { ((BASE.load(Ordering::Relaxed) + register) as *const u32).read_volatile() }
}

fn write(register: usize, value: u32) {
    // SAFETY: `init` was given a mapping of the registers.
    unsafe { ((BASE.load(Ordering::Relaxed) + register) as *mut u32).write_volatile(value) }
}

/// Switches the first CPU's APIC on. `base` is where the registers are mapped.
///
/// # Safety
/// `base` maps the page at [`physical`], uncached, for ever.
pub unsafe fn init(base: usize) {
    BASE.store(base, Ordering::Relaxed);
    enable();
    if !cpu::features().tsc_deadline {
        calibrate();
    }
}

/// Switches this CPU's APIC on.
pub(super) fn enable() {
    // SAFETY: sets the enable bit and leaves the address alone.
    unsafe { cpu::write_msr(MSR_APIC_BASE, cpu::read_msr(MSR_APIC_BASE) | 1 << 11) };
    write(TASK_PRIORITY, 0);
    write(SPURIOUS, 0x100 | u32::from(SPURIOUS_VECTOR));
    write(DIVIDE, 0b1011); // by 1
    write(LINT1, 0b100 << 8); // the line by which a VMM sends an NMI
    let mode = if cpu::features().tsc_deadline {
        0b10 << 17
    } else {
        0
    };
    write(TIMER, mode | u32::from(TIMER_VECTOR));
}

/// Measures the timer against the TSC.
fn calibrate() {
    // A virtual CPU that loses its processor in between makes the timer seem slower, never faster.
    let best = (0..4).map(|_| ticks_per(40_000, clock::monotonic_ns)).max();
    TICKS_PER_NS.store(best.unwrap_or(0).max(1), Ordering::Relaxed);
}

/// Counts of the timer per unit of `clock`, as a fraction of 2^32, measured for `units`.
fn ticks_per(units: u64, clock: fn() -> u64) -> u64 {
    write(TIMER, 1 << 16 | u32::from(TIMER_VECTOR)); // masked
    write(INITIAL_COUNT, u32::MAX);
    let (start, first) = (clock(), read(CURRENT_COUNT));
    while clock() - start < units {}
    let ticks = u64::from(first - read(CURRENT_COUNT));
    let passed = clock() - start;
    write(INITIAL_COUNT, 0);
    write(TIMER, u32::from(TIMER_VECTOR));
    (ticks << 32) / passed
}

/// Frequency of the TSC in kHz, measured with the timer where that one's frequency is known: QEMU's counts nanoseconds
/// under software emulation. `None` elsewhere. `base` as for [`init`].
///
/// # Safety
/// As [`init`].
pub unsafe fn measure_tsc_khz(base: usize) -> Option<u64> {
    if !cpu::features().emulated {
        return None;
    }
    BASE.store(base, Ordering::Relaxed);
    enable();
    let best = (0..4).map(|_| ticks_per(1_000_000, clock::tsc)).max()?;
    (1_000_000_u64 << 32).checked_div(best)
}

/// Lets the timer interrupt this CPU at `deadline_ns` of the monotonic clock, or as soon as possible if that has
/// passed. Replaces an earlier setting.
pub fn set_timer(deadline_ns: u64) {
    if cpu::features().tsc_deadline {
        // SAFETY: the register exists with the feature.
        unsafe { cpu::write_msr(MSR_TSC_DEADLINE, clock::tsc_at(deadline_ns).max(1)) };
        return;
    }
    let ns = deadline_ns
        .saturating_sub(clock::monotonic_ns())
        .min(2_000_000_000);
    let ticks = (u128::from(ns) * u128::from(TICKS_PER_NS.load(Ordering::Relaxed))) >> 32;
    // Counting a little further than the deadline spares a second interrupt for a rounding error.
    write(INITIAL_COUNT, u32::try_from(ticks + 1).unwrap_or(u32::MAX));
}

/// Tells the APIC that the interrupt was taken.
#[inline]
pub fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Identifier of this CPU's APIC.
#[must_use]
pub fn id() -> u32 {
    read(ID) >> 24
}

/// Sends an NMI to all other CPUs: each says what it does and stops.
pub fn ask_others() {
    write(COMMAND_LOW, 0xc_4400);
}

/// Sends a command to the CPU with APIC identifier `target`.
pub(super) fn send(target: u32, command: u32) {
    write(COMMAND_HIGH, target << 24);
    write(COMMAND_LOW, command);
    while read(COMMAND_LOW) & 1 << 12 != 0 {
        core::hint::spin_loop();
    }
}
