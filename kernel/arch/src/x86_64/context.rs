// SPDX-License-Identifier: Apache-2.0
//! Switching between kernel stacks.

use core::arch::global_asm;

use super::TrapFrame;

global_asm!(
    r#"
    .section .text.context, "ax", @progbits
    .align 16
    # rdi: where to store the old stack pointer; rsi: the new one
    .global context_switch
context_switch:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, rsi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

    # First run of a thread: r12 is the function, r13 its argument; behind them lies a trap frame.
    .global context_start
context_start:
    mov rdi, r13
    xor ebp, ebp
    call r12
    jmp trap_return
    "#
);

unsafe extern "C" {
    fn context_switch(save: *mut usize, load: usize);
    fn context_start();
}

/// Saves the running context to `save` and continues the one whose stack pointer is `load`.
///
/// # Safety
/// `load` was stored by an earlier switch or made by [`prepare`], and its stack is mapped and used by nobody else.
#[inline]
pub unsafe fn switch(save: *mut usize, load: usize) {
    // SAFETY: promised by the caller.
    unsafe { context_switch(save, load) }
}

/// Lays out a new kernel stack so that the first switch to it calls `first(argument)` and then continues the
/// application at `frame`. Returns the stack pointer for [`switch`].
///
/// # Safety
/// `top` is the 16-byte aligned end of a mapped stack of at least 1 KiB that nobody uses.
#[must_use]
pub unsafe fn prepare(
    top: usize,
    first: extern "C" fn(usize),
    argument: usize,
    frame: &TrapFrame,
) -> usize {
    let frame_at = top - size_of::<TrapFrame>();
    let words: [usize; 7] = [
        0,
        0,
        argument,
        first as *const () as usize,
        0,
        0,
        context_start as *const () as usize,
    ];
    // In the order of the pops: r15 r14 r13 r12 rbx rbp, and the return address.
    let at = frame_at - 7 * 8;
    // SAFETY: the stack is ours and large enough.
    unsafe {
        (frame_at as *mut TrapFrame).write(*frame);
        core::ptr::copy_nonoverlapping(words.as_ptr(), at as *mut usize, 7);
    }
    at
}

/// Where the frame of the application lies on a kernel stack with this top.
#[must_use]
pub const fn application_frame(top: usize) -> *mut TrapFrame {
    (top - size_of::<TrapFrame>()) as *mut TrapFrame
}
