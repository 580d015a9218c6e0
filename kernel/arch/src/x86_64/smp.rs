// SPDX-License-Identifier: Apache-2.0
//! Starting the other CPUs, and interrupting them.
//!
//! Application processors start in real mode at a page below 1 MiB. The trampoline goes to protected mode, to long
//! mode with the kernel's tables, and to `ap_main`.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{clock, cpu, descriptors, lapic, layout, paging};
use crate::MAX_CPUS;

/// Asks a CPU to flush its translations.
pub(super) const FLUSH_VECTOR: u8 = 0xf0;
/// Wakes a CPU so that it looks at its run queue.
pub const WAKE_VECTOR: u8 = 0xf1;

static APIC_IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

unsafe extern "Rust" {
    /// First function of the kernel proper on a further CPU; defined once, in the image crate.
    safe fn ap_main(index: usize) -> !;
}

global_asm!(
    r#"
    .section .rodata.trampoline, "a", @progbits
    .code16
    .global ap_trampoline
ap_trampoline:
    cli
    cld
    xor ax, ax
    mov ax, cs
    mov ds, ax
    mov es, ax
    xor ebx, ebx
    mov bx, ax
    shl ebx, 4                          # physical address of this page
    lea eax, [ebx + off_ap_gdt]
    mov [off_ap_gdt_pointer + 2], eax
    lea eax, [ebx + off_ap32]
    mov [off_ap_far32], eax
    lea eax, [ebx + off_ap64]
    mov [off_ap_far64], eax
    lgdt [off_ap_gdt_pointer]
    mov eax, cr0
    or eax, 1
    mov cr0, eax
    .byte 0x66, 0xff, 0x2e              # jmp far [ap_far32]
    .word off_ap_far32
    .code32
ap32:
    mov ax, 16
    mov ds, ax
    mov ss, ax
    mov eax, cr4
    or eax, 0x6a0
    mov cr4, eax
    mov eax, [ebx + off_ap_low_root]
    mov cr3, eax
    mov ecx, 0xC0000080
    rdmsr
    or eax, 0x901
    wrmsr
    mov eax, cr0
    and eax, 0x9ffffffb                 # caches on, no x87 emulation
    or eax, 0x80010022
    mov cr0, eax
    jmp fword ptr [ebx + off_ap_far64]
    .code64
ap64:
    mov ebx, ebx
    mov rsp, [rbx + off_ap_stack]
    mov rax, [rbx + off_ap_entry]
    mov rdi, [rbx + off_ap_index]
    xor ebp, ebp
    call rax
    ud2
    .align 8
ap_gdt:
    .quad 0
    .quad 0x00af9b000000ffff            # 64-bit code
    .quad 0x00cf93000000ffff            # data
    .quad 0x00cf9b000000ffff            # 32-bit code
ap_gdt_pointer:
    .word 31
    .quad 0
    .align 4
ap_far32:
    .long 0
    .word 24
    .align 4
ap_far64:
    .long 0
    .word 8
    .align 8
    .global ap_low_root
ap_low_root:    .quad 0
    .global ap_stack
ap_stack:       .quad 0
    .global ap_entry
ap_entry:       .quad 0
    .global ap_index
ap_index:       .quad 0
    .global ap_trampoline_end
ap_trampoline_end:
    # Offsets from the start of the page: Intel syntax takes one symbol in an operand.
    .set off_ap32, ap32 - ap_trampoline
    .set off_ap64, ap64 - ap_trampoline
    .set off_ap_entry, ap_entry - ap_trampoline
    .set off_ap_far32, ap_far32 - ap_trampoline
    .set off_ap_far64, ap_far64 - ap_trampoline
    .set off_ap_gdt, ap_gdt - ap_trampoline
    .set off_ap_gdt_pointer, ap_gdt_pointer - ap_trampoline
    .set off_ap_index, ap_index - ap_trampoline
    .set off_ap_low_root, ap_low_root - ap_trampoline
    .set off_ap_stack, ap_stack - ap_trampoline
    .code64
    "#
);

unsafe extern "C" {
    static ap_trampoline: u8;
    static ap_low_root: u8;
    static ap_stack: u8;
    static ap_entry: u8;
    static ap_index: u8;
    static ap_trampoline_end: u8;
}

extern "C" fn ap_rust(index: usize) -> ! {
    descriptors::init(index);
    cpu::init_features();
    // From here on only the final tables: the trampoline's page is mapped one to one in them until the first CPU
    // removes it.
    paging::load_root();
    lapic::enable();
    APIC_IDS[index].store(lapic::id(), Ordering::Relaxed);
    cpu::mark_online();
    ap_main(index)
}

/// How long a CPU may take: the host may be busy with other things.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Starts the CPU with APIC identifier `apic_id` as number `index` and waits until it runs. Returns whether it did
/// within ten seconds. One that did not may still come up later, so what it was given stays its own.
///
/// # Safety
/// `page` is the physical address of a free page below 1 MiB, mapped one to one and executable; `stack` is the top of
/// a mapped stack nobody else uses. The table root lies below 4 GiB.
pub unsafe fn start(index: usize, apic_id: u32, page: u64, stack: usize) -> bool {
    APIC_IDS[0].store(lapic::id(), Ordering::Relaxed);
    let start = &raw const ap_trampoline;
    let len = &raw const ap_trampoline_end as usize - start as usize;
    let copy = layout::direct(page);
    let set = |symbol: *const u8, value: u64| {
        // SAFETY: the symbol is an aligned word inside the trampoline, and the copy is ours.
        unsafe {
            copy.add(symbol as usize - start as usize)
                .cast::<u64>()
                .write(value)
        };
    };
    // SAFETY: the page is free and mapped in the window, and the trampoline is shorter than a page.
    unsafe { core::ptr::copy_nonoverlapping(start, copy, len) };
    set(&raw const ap_low_root, paging::root());
    set(&raw const ap_stack, stack as u64);
    set(&raw const ap_entry, ap_rust as *const () as u64);
    set(&raw const ap_index, index as u64);
    let before = cpu::online();
    let vector = coracle_abi::convert::low_u32(page >> 12);
    lapic::send(apic_id, 0x4500); // INIT
    pause(200_000);
    for _ in 0..2 {
        lapic::send(apic_id, 0x4600 | vector); // STARTUP
        if wait_online(before, 10_000_000) {
            return true;
        }
    }
    wait_online(before, PATIENCE_NS)
}

fn pause(ns: u64) {
    let end = clock::monotonic_ns() + ns;
    while clock::monotonic_ns() < end {
        core::hint::spin_loop();
    }
}

fn wait_online(before: usize, ns: u64) -> bool {
    let end = clock::monotonic_ns() + ns;
    while clock::monotonic_ns() < end {
        if cpu::online() > before {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// Interrupts another CPU.
#[inline]
pub fn interrupt(target: usize, vector: u8) {
    lapic::send(
        APIC_IDS[target].load(Ordering::Relaxed),
        0x4000 | u32::from(vector),
    );
}
