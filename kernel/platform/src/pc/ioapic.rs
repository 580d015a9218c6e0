// SPDX-License-Identifier: Apache-2.0
//! The I/O APIC: lines of devices to vectors (82093AA datasheet).

use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_arch::port;

/// Where every PC of interest has its first I/O APIC.
pub const PHYSICAL: u64 = 0xfec0_0000;

static BASE: AtomicUsize = AtomicUsize::new(0);

/// Tells where the registers are mapped.
///
/// # Safety
/// `base` maps the page at [`PHYSICAL`], uncached, for ever.
pub unsafe fn init(base: usize) {
    BASE.store(base, Ordering::Relaxed);
    // The old interrupt controllers are masked: firmware leaves their timer at a vector of exceptions.
    // SAFETY: the mask registers of the two 8259s; without them the writes go nowhere.
    unsafe {
        port::write8(0x21, 0xff);
        port::write8(0xa1, 0xff);
    }
    for line in 0..lines() {
        write(0x10 + line * 2, 1 << 16); // masked
    }
}

fn read(register: u32) -> u32 {
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: `init` was given a mapping of the registers.
    unsafe {
        (base as *mut u32).write_volatile(register);
        ((base + 0x10) as *const u32).read_volatile()
    }
}

fn write(register: u32, value: u32) {
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: `init` was given a mapping of the registers.
    unsafe {
        (base as *mut u32).write_volatile(register);
        ((base + 0x10) as *mut u32).write_volatile(value);
    }
}

/// Number of lines.
#[must_use]
pub fn lines() -> u32 {
    (read(1) >> 16 & 0xff) + 1
}

/// Delivers `line` as `vector` to the CPU with APIC identifier `target`; level-triggered, so that a device that still
/// wants service interrupts again. Returns whether the line exists.
pub fn route(line: u32, vector: u8, target: u32) -> bool {
    if line >= lines() {
        return false;
    }
    write(0x10 + line * 2 + 1, target << 24);
    write(0x10 + line * 2, 1 << 15 | u32::from(vector));
    true
}
