// SPDX-License-Identifier: Apache-2.0
//! Floating-point and vector state. The kernel uses none, so it is saved only when another thread takes the CPU.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::cpu;

static MASK: AtomicU64 = AtomicU64::new(0);
static SIZE: AtomicUsize = AtomicUsize::new(512);

/// Alignment that the save area needs.
pub const ALIGN: usize = 64;

/// State components the kernel keeps: x87, SSE, AVX, AVX-512 (three), PKRU is left alone.
const COMPONENTS: u64 = 0b1110_0111;

/// Switches on what the CPU has.
pub(super) fn init() {
    if !cpu::features().xsave {
        return;
    }
    let [low, ..] = cpu::cpuid(13, 0);
    let mask = u64::from(low) & COMPONENTS;
    // SAFETY: XCR0 exists with XSAVE, and the mask names supported components; x87 and SSE are always among them.
    unsafe {
        asm!("xsetbv", in("ecx") 0, in("eax") coracle_abi::convert::low_u32(mask), in("edx") 0, options(nostack, preserves_flags));
    }
    let [_, size, ..] = cpu::cpuid(13, 0);
    MASK.store(mask, Ordering::Relaxed);
    SIZE.store(
        coracle_abi::convert::usize_from_u32(size),
        Ordering::Relaxed,
    );
}

/// Bytes of a save area.
#[must_use]
pub fn size() -> usize {
    SIZE.load(Ordering::Relaxed)
}

/// Components in use (XCR0), 0 without XSAVE.
#[must_use]
pub fn components() -> u64 {
    MASK.load(Ordering::Relaxed)
}

/// Fills a save area with the state of a new program (System V ABI: x87 control word 0x37f, MXCSR 0x1f80). The area is
/// zeroed and at least [`size`] bytes long.
pub fn init_area(area: &mut [u8]) {
    area[0..2].copy_from_slice(&0x37f_u16.to_le_bytes());
    area[24..28].copy_from_slice(&0x1f80_u32.to_le_bytes());
}

/// Saves the state of the running thread.
///
/// # Safety
/// `area` is [`size`] bytes, aligned to [`ALIGN`], and was zeroed once before its first use.
pub unsafe fn save(area: *mut u8) {
    let mask = MASK.load(Ordering::Relaxed);
    // SAFETY: promised by the caller.
    unsafe {
        if mask == 0 {
            asm!("fxsave64 [{}]", in(reg) area, options(nostack, preserves_flags));
        } else {
            asm!("xsave64 [{}]", in(reg) area, in("eax") coracle_abi::convert::low_u32(mask), in("edx") 0, options(nostack, preserves_flags));
        }
    }
}

/// Loads the state of the thread that runs next.
///
/// # Safety
/// `area` holds a state written by [`save`] or [`init_area`], or one that [`sanitize`] accepted.
pub unsafe fn restore(area: *const u8) {
    let mask = MASK.load(Ordering::Relaxed);
    // SAFETY: promised by the caller.
    unsafe {
        if mask == 0 {
            asm!("fxrstor64 [{}]", in(reg) area, options(nostack, preserves_flags));
        } else {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") coracle_abi::convert::low_u32(mask), in("edx") 0, options(nostack, preserves_flags));
        }
    }
}

/// Makes a state from a signal frame loadable: reserved MXCSR bits and unknown components would fault.
pub fn sanitize(area: &mut [u8]) {
    let mask = MASK.load(Ordering::Relaxed);
    if let Some(mxcsr) = area.get_mut(24..28) {
        let value = u32::from_le_bytes([mxcsr[0], mxcsr[1], mxcsr[2], mxcsr[3]]) & 0xffff;
        mxcsr.copy_from_slice(&value.to_le_bytes());
    }
    if mask != 0
        && let Some(header) = area.get_mut(512..576)
    {
        let mut word = [0; 8];
        word.copy_from_slice(&header[..8]);
        let bits = u64::from_le_bytes(word) & mask;
        header.fill(0);
        header[..8].copy_from_slice(&bits.to_le_bytes());
    }
}

/// `FPE_*` code for the exceptions in the low six bits (IE, DE, ZE, OE, UE, PE) that are not masked.
fn code(exceptions: u16) -> i32 {
    const CODES: [(u16, i32); 6] = [(1, 7), (4, 3), (8, 4), (0x12, 5), (0x20, 6), (0, 7)];
    CODES
        .iter()
        .find(|(bits, _)| *bits == 0 || exceptions & bits != 0)
        .map_or(7, |(_, code)| *code)
}

/// What the x87 unit complains about.
pub(super) fn x87_exception() -> i32 {
    let (mut status, mut control) = (0u16, 0u16);
    // SAFETY: both store a word and wait for nothing.
    unsafe {
        asm!("fnstsw [{}]", "fnstcw [{}]", in(reg) &raw mut status, in(reg) &raw mut control, options(nostack, preserves_flags));
    }
    code(status & !control & 0x3f)
}

/// What the SSE unit complains about.
pub(super) fn sse_exception() -> i32 {
    let mut mxcsr = 0u32;
    // SAFETY: stores a word.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack, preserves_flags)) };
    let exceptions = mxcsr & !(mxcsr >> 7) & 0x3f;
    code(coracle_abi::convert::low_u16(exceptions.into()))
}
