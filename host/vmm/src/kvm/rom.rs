// SPDX-License-Identifier: Apache-2.0
//! The boot ROM of the KVM probe: reset vector to 64-bit mode, one timer interrupt, end.
//!
//! Source: AMD64 Architecture Programmer's Manual volume 2, chapter 14 (processor initialisation) and 16 (local APIC).
//! The ROM is 64 KiB, seen at 0xF0000 and below 4 GiB. Memory: page tables 0x1000-0x6fff (4 GiB in 2 MiB pages),
//! interrupt table 0x8000, stack below 0x10000.

use std::arch::global_asm;

/// Size of the ROM in bytes; QEMU takes multiples of this only.
const SIZE: usize = 0x10000;

global_asm!(
    ".pushsection .rodata.coracle_kvm_rom, \"a\", @progbits",
    ".balign 16",
    ".code16",
    ".globl coracle_kvm_rom",
    ".hidden coracle_kvm_rom",
    "coracle_kvm_rom:",
    "    cli",
    "    lgdtl %cs:(9f - coracle_kvm_rom)",
    "    movl %cr0, %eax",
    "    orb $1, %al",
    "    movl %eax, %cr0",
    "    .byte 0x66, 0xea", // far jump to 32-bit code
    "    .long 2f - coracle_kvm_rom + 0xf0000",
    "    .word 8",
    ".balign 8",
    "8:  .quad 0",
    "    .quad 0x00cf9b000000ffff", // 0x08: 32-bit code
    "    .quad 0x00cf93000000ffff", // 0x10: data
    "    .quad 0x00af9b000000ffff", // 0x18: 64-bit code
    "9:  .word 31",
    "    .long 8b - coracle_kvm_rom + 0xf0000",
    ".code32",
    "2:  movl $0x10, %eax",
    "    movl %eax, %ds",
    "    movl %eax, %es",
    "    movl %eax, %ss",
    "    movl $0x10000, %esp",
    "    movl $0x2003, 0x1000", // level 4 -> level 3
    "    movl $0x2000, %edi",
    "    movl $0x3003, %eax",
    "3:  movl %eax, (%edi)", // level 3 -> four tables of level 2
    "    addl $8, %edi",
    "    addl $0x1000, %eax",
    "    cmpl $0x2020, %edi",
    "    jb 3b",
    "    movl $0x3000, %edi",
    "    movl $0x83, %eax",
    "4:  movl %eax, (%edi)", // level 2: 2 MiB pages
    "    addl $8, %edi",
    "    addl $0x200000, %eax",
    "    cmpl $0x7000, %edi",
    "    jb 4b",
    "    movl $0x1000, %eax",
    "    movl %eax, %cr3",
    "    movl $0x20, %eax", // CR4.PAE
    "    movl %eax, %cr4",
    "    movl $0xc0000080, %ecx", // EFER.LME
    "    movl $0x100, %eax",
    "    xorl %edx, %edx",
    "    wrmsr",
    "    movl $0x80000001, %eax", // CR0.PG, CR0.PE
    "    movl %eax, %cr0",
    "    .byte 0xea", // far jump to 64-bit code
    "    .long 5f - coracle_kvm_rom + 0xf0000",
    "    .word 0x18",
    ".code64",
    "5:  movl $(7f - coracle_kvm_rom + 0xf0000), %eax",
    "    movl $0x8200, %edi", // gate of vector 0x20
    "    movw %ax, (%rdi)",
    "    movl $0x8e000018, 2(%rdi)",
    "    shrl $16, %eax",
    "    movw %ax, 6(%rdi)",
    "    movl $0x7000, %edi",
    "    movw $0xfff, (%rdi)",
    "    movq $0x8000, 2(%rdi)",
    "    lidt (%rdi)",
    "    movl $0xfee00000, %edi",
    "    movl $0x1ff, 0xf0(%rdi)", // APIC on
    "    movl $0xb, 0x3e0(%rdi)",  // timer counts bus cycles
    "    movl $0x20, 0x320(%rdi)", // one shot, vector 0x20
    "    movl $100000, 0x380(%rdi)",
    "    sti",
    "6:  hlt",
    "    jmp 6b",
    "7:  movb $0x10, %al",
    "    outb %al, $0xf4", // debug exit
    "    hlt",
    ".org coracle_kvm_rom + 0xfff0",
    ".code16",
    "    .byte 0xea", // reset vector: far jump to f000:0000
    "    .word 0, 0xf000",
    ".org coracle_kvm_rom + 0x10000",
    ".code64",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    #[link_name = "coracle_kvm_rom"]
    static ROM: [u8; SIZE];
}

/// The ROM.
pub(super) fn bytes() -> &'static [u8; SIZE] {
    // SAFETY: the assembly above defines SIZE bytes of read-only data at this symbol.
    unsafe { &ROM }
}
