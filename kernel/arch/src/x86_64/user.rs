// SPDX-License-Identifier: Apache-2.0
//! Copies to and from application memory, whose faults are caught.
//!
//! The copies move eight bytes at a time, then single bytes. A fault in either loop lands behind them with the number
//! of bytes left. After a fault in the wide loop the rest is tried byte by byte, so that exactly the accessible bytes
//! are copied.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .text.user, "ax", @progbits
    .align 16
    # rdi destination, rsi source, rdx length; returns the bytes left in rax
    .global user_copy
user_copy:
    mov rcx, rdx
    shr rcx, 5
    jz 2f
    .align 16
    .global user_copy_wide
user_copy_wide:
1:  mov rax, [rsi]
    mov r8, [rsi + 8]
    mov r9, [rsi + 16]
    mov r10, [rsi + 24]
    mov [rdi], rax
    mov [rdi + 8], r8
    mov [rdi + 16], r9
    mov [rdi + 24], r10
    add rsi, 32
    add rdi, 32
    sub rdx, 32
    dec rcx
    jnz 1b
2:  mov rcx, rdx
    shr rcx, 3
    jz 4f
3:  mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    dec rcx
    jnz 3b
    .global user_copy_wide_end
user_copy_wide_end:
4:  test rdx, rdx
    jz 6f
    .global user_copy_bytes
user_copy_bytes:
5:  mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
    jnz 5b
    .global user_copy_end
user_copy_end:
6:  mov rax, rdx
    ret

    .align 16
    # rdi destination, rsi length; returns the bytes left in rax
    .global user_zero
user_zero:
    xor eax, eax
    mov rcx, rsi
    shr rcx, 3
    jz 2f
    .global user_zero_wide
user_zero_wide:
1:  mov [rdi], rax
    add rdi, 8
    sub rsi, 8
    dec rcx
    jnz 1b
    .global user_zero_wide_end
user_zero_wide_end:
2:  test rsi, rsi
    jz 4f
    .global user_zero_bytes
user_zero_bytes:
3:  mov [rdi], al
    inc rdi
    dec rsi
    jnz 3b
    .global user_zero_end
user_zero_end:
4:  mov rax, rsi
    ret

    .align 16
    # rdi address, esi old, edx new; returns the word that was there, or all ones after a fault
    .global user_cmpxchg
user_cmpxchg:
    mov eax, esi
    .global user_cmpxchg_try
user_cmpxchg_try:
    lock cmpxchg [rdi], edx
    .global user_cmpxchg_end
user_cmpxchg_end:
    mov eax, eax
    ret
    .global user_cmpxchg_fault
user_cmpxchg_fault:
    mov rax, -1
    ret
    "#
);

unsafe extern "C" {
    fn user_copy(dst: *mut u8, src: *const u8, len: usize) -> usize;
    fn user_zero(dst: *mut u8, len: usize) -> usize;
    fn user_cmpxchg(at: *mut u32, old: u32, new: u32) -> u64;
    static user_cmpxchg_try: u8;
    static user_cmpxchg_end: u8;
    static user_cmpxchg_fault: u8;
    static user_copy_wide: u8;
    static user_copy_wide_end: u8;
    static user_copy_bytes: u8;
    static user_copy_end: u8;
    static user_zero_wide: u8;
    static user_zero_wide_end: u8;
    static user_zero_bytes: u8;
    static user_zero_end: u8;
}

/// Where to continue after a fault at `rip`, if that is in one of the copies.
pub(super) fn landing(rip: usize) -> Option<usize> {
    let spots = [
        (
            &raw const user_copy_wide,
            &raw const user_copy_wide_end,
            &raw const user_copy_wide_end,
        ),
        (
            &raw const user_copy_bytes,
            &raw const user_copy_end,
            &raw const user_copy_end,
        ),
        (
            &raw const user_zero_wide,
            &raw const user_zero_wide_end,
            &raw const user_zero_wide_end,
        ),
        (
            &raw const user_zero_bytes,
            &raw const user_zero_end,
            &raw const user_zero_end,
        ),
        (
            &raw const user_cmpxchg_try,
            &raw const user_cmpxchg_end,
            &raw const user_cmpxchg_fault,
        ),
    ];
    spots
        .iter()
        .find(|(from, to, _)| (*from as usize..*to as usize).contains(&rip))
        .map(|(_, _, land)| *land as usize)
}

/// Copies `len` bytes and returns how many were not copied because memory was missing or forbade it.
///
/// # Safety
/// The kernel's side must be valid, and the application's side must lie in the application's half.
#[inline]
#[must_use]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> usize {
    // SAFETY: promised by the caller; faults on the application's side are caught.
    unsafe { user_copy(dst, src, len) }
}

/// Writes `len` zero bytes and returns how many were not written.
///
/// # Safety
/// The range must lie in the application's half.
#[inline]
#[must_use]
pub unsafe fn zero(dst: *mut u8, len: usize) -> usize {
    // SAFETY: promised by the caller; faults are caught.
    unsafe { user_zero(dst, len) }
}

/// Compares and swaps a 32-bit word of the application and returns what was there. `None` if the memory is missing or
/// read-only.
///
/// # Safety
/// The address must lie in the application's half.
#[must_use]
pub unsafe fn compare_exchange_u32(at: *mut u32, old: u32, new: u32) -> Option<u32> {
    // SAFETY: promised by the caller; a fault is caught.
    let result = unsafe { user_cmpxchg(at, old, new) };
    u32::try_from(result).ok()
}
