// SPDX-License-Identifier: Apache-2.0
//! The registers in a signal frame: `struct sigcontext` and `struct ucontext` of Linux on x86-64
//! (`arch/x86/include/uapi/asm/{sigcontext,ucontext}.h`), and where the frame goes.

use coracle_abi::convert::{low_u32, u64_from, usize_from};
use coracle_abi::signal::AltStack;

use super::{TrapFrame, fpu};

/// Bytes that an application may use below its stack pointer (System V ABI, 3.2.2).
const RED_ZONE: usize = 128;
/// `uc_flags`: extended state is there; SS is saved and restored.
const UC_FLAGS: u64 = 1 | 2 | 4;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;

/// A signal frame without its FPU state: return address, `ucontext`, `siginfo`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SignalFrame {
    /// Where the handler returns to.
    pub restorer: usize,
    flags: u64,
    link: u64,
    stack: AltStack,
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags, then the segments, err, trapno, oldmask, cr2.
    registers: [u64; 23],
    fpu_state: u64,
    reserved: [u64; 8],
    /// Signals that were blocked before.
    pub mask: u64,
    /// `siginfo_t`
    pub info: [u64; 16],
}

const _: () = assert!(size_of::<SignalFrame>() == 8 + 16 + 24 + 256 + 8 + 128);

/// Where the parts of a frame go.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// Address of the [`SignalFrame`]; also the stack pointer the handler begins with.
    pub frame: usize,
    /// Address of the FPU state.
    pub fpu: usize,
}

/// Bytes of the FPU state in a frame: the state and a closing magic number.
#[must_use]
pub fn fpu_bytes() -> usize {
    if fpu::components() == 0 {
        fpu::size()
    } else {
        fpu::size() + 4
    }
}

/// Places a frame below `stack_pointer`, or on the alternate stack whose end is given.
#[must_use]
pub fn place(stack_pointer: usize, alternate_end: Option<usize>) -> Placement {
    let top = alternate_end.unwrap_or(stack_pointer.wrapping_sub(RED_ZONE));
    let fpu = top.wrapping_sub(fpu_bytes()) & !63;
    let frame = (fpu.wrapping_sub(size_of::<SignalFrame>()) & !15).wrapping_sub(8);
    Placement { frame, fpu }
}

impl SignalFrame {
    /// The frame for interrupted code at `from`. `fault_address` and `trap` are what a fault was about.
    #[must_use]
    pub fn new(
        from: &TrapFrame,
        at: Placement,
        stack: AltStack,
        mask: u64,
        info: [u64; 16],
        fault_address: usize,
    ) -> Self {
        let selectors = u64_from(from.cs) | u64_from(from.ss) << 48;
        let is_trap = from.vector < 32;
        let r = [
            from.r8,
            from.r9,
            from.r10,
            from.r11,
            from.r12,
            from.r13,
            from.r14,
            from.r15,
            from.rdi,
            from.rsi,
            from.rbp,
            from.rbx,
            from.rdx,
            from.rax,
            from.rcx,
            from.rsp,
            from.rip,
            from.rflags,
        ];
        let mut registers = [0; 23];
        for (to, value) in registers.iter_mut().zip(r) {
            *to = u64_from(value);
        }
        registers[18] = selectors;
        registers[19] = if is_trap { u64_from(from.error) } else { 0 };
        registers[20] = if is_trap { u64_from(from.vector) } else { 0 };
        registers[21] = mask;
        registers[22] = u64_from(fault_address);
        Self {
            restorer: 0,
            flags: UC_FLAGS,
            link: 0,
            stack,
            registers,
            fpu_state: u64_from(at.fpu),
            reserved: [0; 8],
            mask,
            info,
        }
    }

    /// Changes `frame` so that the handler begins: with the signal's number and the addresses of info and context.
    pub fn enter(frame: &mut TrapFrame, handler: usize, at: Placement, signal: u32) {
        frame.rip = handler;
        frame.rsp = at.frame;
        frame.rdi = coracle_abi::convert::usize_from_u32(signal);
        frame.rsi = at.frame + core::mem::offset_of!(SignalFrame, info);
        frame.rdx = at.frame + core::mem::offset_of!(SignalFrame, flags);
        frame.rax = 0;
        frame.rflags &= !0x4_0500; // DF, TF, AC
        frame.sanitize();
        frame.restore_fully();
    }

    /// Puts the registers back (`rt_sigreturn`). What could harm the kernel is made safe.
    pub fn restore(&self, frame: &mut TrapFrame) {
        let r = |n: usize| usize_from(self.registers[n]);
        *frame = TrapFrame {
            r8: r(0),
            r9: r(1),
            r10: r(2),
            r11: r(3),
            r12: r(4),
            r13: r(5),
            r14: r(6),
            r15: r(7),
            rdi: r(8),
            rsi: r(9),
            rbp: r(10),
            rbx: r(11),
            rdx: r(12),
            rax: r(13),
            rcx: r(14),
            rsp: r(15),
            rip: r(16),
            rflags: r(17),
            ..TrapFrame::default()
        };
        frame.sanitize();
        frame.restore_fully();
    }

    /// Address of the FPU state that came with it; 0 for none.
    #[must_use]
    pub fn fpu_address(&self) -> usize {
        usize_from(self.fpu_state)
    }

    /// The alternate stack as the frame has it, to be set again.
    #[must_use]
    pub fn stack(&self) -> AltStack {
        self.stack
    }

    /// Address of the frame when the handler has returned: `ret` took the first word.
    #[must_use]
    pub fn address_at_return(frame: &TrapFrame) -> usize {
        frame.rsp.wrapping_sub(8)
    }
}

/// Adds what tells programs how long the FPU state in a frame is (`struct _fpx_sw_bytes`). `state` is [`fpu_bytes`]
/// long and begins with the state.
pub fn mark_fpu_state(state: &mut [u8]) {
    let components = fpu::components();
    if components == 0 {
        return;
    }
    let size = fpu::size();
    let (total, size32) = (low_u32(u64_from(size + 4)), low_u32(u64_from(size)));
    state[464..468].copy_from_slice(&FP_XSTATE_MAGIC1.to_le_bytes());
    state[468..472].copy_from_slice(&total.to_le_bytes());
    state[472..480].copy_from_slice(&components.to_le_bytes());
    state[480..484].copy_from_slice(&size32.to_le_bytes());
    state[size..size + 4].copy_from_slice(&FP_XSTATE_MAGIC2.to_le_bytes());
}
