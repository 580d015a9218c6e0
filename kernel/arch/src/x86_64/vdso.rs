// SPDX-License-Identifier: Apache-2.0
//! Code of the vDSO (vdso(7)): time without a system call.
//!
//! The code lies at a fixed distance behind a page of data that the kernel writes: the start of the clock, its scale,
//! and the difference to the wall clock. Each is one aligned word, so there is nothing to be torn.

use core::arch::global_asm;

/// What the code reads, at the start of the data page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VdsoData {
    /// Time stamp counter at the start of the monotonic clock.
    pub start: u64,
    /// Nanoseconds per count, times 2^32.
    pub scale: u64,
    /// Nanoseconds from 1970 to the start of the monotonic clock.
    pub wall_offset: u64,
}

// The data page lies one page before the image, and the code 0x800 bytes into it (`loader::vdso::TEXT_OFFSET`).
global_asm!(
    r#"
    .section .rodata.vdso, "a", @progbits
    .align 16
    .global vdso_text
vdso_text:
    .set vdso_data, vdso_text - 0x1800

    # Monotonic nanoseconds in rax; spoils rcx, rdx, r8.
vdso_now:
    lea r8, [rip + vdso_data]
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [r8]
    mul qword ptr [r8 + 8]
    shrd rax, rdx, 32
    ret

    .align 16
    .global vdso_clock_gettime
vdso_clock_gettime:                     # edi: clock, rsi: struct timespec
    cmp edi, 7
    ja 9f
    mov ecx, 1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7
    bt ecx, edi
    jnc 9f
    mov r9, rdi
    call vdso_now
    test r9d, r9d                       # CLOCK_REALTIME
    je 1f
    cmp r9d, 5                          # CLOCK_REALTIME_COARSE
    jne 2f
1:  add rax, [r8 + 16]
2:  xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rsi], rax
    mov [rsi + 8], rdx
    xor eax, eax
    ret
9:  mov eax, 228                        # the rest is for the kernel
    syscall
    ret
    .global vdso_clock_gettime_end
vdso_clock_gettime_end:

    .align 16
    .global vdso_gettimeofday
vdso_gettimeofday:                      # rdi: struct timeval or NULL, rsi: struct timezone or NULL
    test rdi, rdi
    jz 1f
    call vdso_now
    add rax, [r8 + 16]
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    mov [rdi], rax
    mov rax, rdx
    xor edx, edx
    mov ecx, 1000
    div rcx
    mov [rdi + 8], rax
1:  test rsi, rsi
    jz 2f
    mov qword ptr [rsi], 0              # UTC
2:  xor eax, eax
    ret
    .global vdso_gettimeofday_end
vdso_gettimeofday_end:

    .align 16
    .global vdso_time
vdso_time:                              # rdi: time_t or NULL
    call vdso_now
    add rax, [r8 + 16]
    xor edx, edx
    mov ecx, 1000000000
    div rcx
    test rdi, rdi
    jz 1f
    mov [rdi], rax
1:  ret
    .global vdso_time_end
vdso_time_end:

    .global vdso_text_end
vdso_text_end:
    "#
);

unsafe extern "C" {
    static vdso_text: u8;
    static vdso_text_end: u8;
    static vdso_clock_gettime: u8;
    static vdso_clock_gettime_end: u8;
    static vdso_gettimeofday: u8;
    static vdso_gettimeofday_end: u8;
    static vdso_time: u8;
    static vdso_time_end: u8;
}

/// The code.
#[must_use]
pub fn text() -> &'static [u8] {
    let start = &raw const vdso_text;
    let len = &raw const vdso_text_end as usize - start as usize;
    // SAFETY: the symbols enclose constant bytes.
    unsafe { core::slice::from_raw_parts(start, len) }
}

/// Name, offset in the code and length of each function.
#[must_use]
pub fn functions() -> [(&'static str, usize, usize); 3] {
    let base = &raw const vdso_text as usize;
    let place =
        |from: *const u8, to: *const u8| (from as usize - base, to as usize - from as usize);
    let (clock_gettime, clock_gettime_len) = place(
        &raw const vdso_clock_gettime,
        &raw const vdso_clock_gettime_end,
    );
    let (gettimeofday, gettimeofday_len) = place(
        &raw const vdso_gettimeofday,
        &raw const vdso_gettimeofday_end,
    );
    let (time, time_len) = place(&raw const vdso_time, &raw const vdso_time_end);
    [
        ("__vdso_clock_gettime", clock_gettime, clock_gettime_len),
        ("__vdso_gettimeofday", gettimeofday, gettimeofday_len),
        ("__vdso_time", time, time_len),
    ]
}
