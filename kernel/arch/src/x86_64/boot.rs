// SPDX-License-Identifier: Apache-2.0
//! From the PVH entry point (32-bit, no paging; Xen's `docs/misc/pvh.pandoc`) to `kernel_main` in the high half.
//!
//! The image is a position-independent executable. It is loaded at a fixed physical address, mapped at its link address
//! plus a random multiple of 2 MiB, and relocated here before any Rust code runs. Everything the 32-bit code touches
//! lies in one section (`.boot`), so offsets within it are constants and need no absolute relocation.

use core::arch::global_asm;

use super::layout;

/// What the entry code hands over. Filled by assembly below; offsets are fixed there.
#[repr(C)]
struct Handover {
    start_info: u64,
    load_base: u64,
}

unsafe extern "C" {
    static __boot_handover: Handover;
}

unsafe extern "Rust" {
    /// The kernel's first safe function, defined once in the image crate. `start_info` is the physical address of
    /// the PVH start info.
    safe fn kernel_main(start_info: u64) -> !;
}

global_asm!(
    r#"
    .section .note.Xen, "a", @note
    .align 4
    .long 4                     # name size
    .long 8                     # description size
    .long 18                    # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad __pvh_entry_physical  # absolute symbol of the linker script

    .section .boot, "awx", @progbits
    .code32
    .global pvh_entry
pvh_entry:
    cld
    cli
    # The load address is fixed by the program headers; the linker script gives it as an absolute symbol.
    mov ebp, offset __boot_physical
    mov [ebp + off_boot_handover_low], ebx

    # A random slot for the image: mix the time stamp counter and, where there is one, the hardware generator.
    xor esi, esi
    mov eax, 1
    cpuid
    test ecx, 0x40000000        # RDRAND
    jz 1f
    rdrand esi
1:  rdtsc
    xor eax, esi
    imul eax, eax, 0x9E3779B1
    shr eax, 24                 # 0..=255
    mov edi, eax                # slot of 2 MiB within the image's 1 GiB

    # PML4[0] and PML4[511] -> tables; PDPT low [0] -> 1 GiB of identity; PDPT high [510] -> image.
    lea eax, [ebp + off_boot_pdpt_low + 3]
    mov [ebp + off_boot_pml4], eax
    lea eax, [ebp + off_boot_pdpt_high + 3]
    mov [ebp + off_boot_pml4 + 511*8], eax
    lea eax, [ebp + off_boot_pd_low + 3]
    mov [ebp + off_boot_pdpt_low], eax
    lea eax, [ebp + off_boot_pd_high + 3]
    mov [ebp + off_boot_pdpt_high + 510*8], eax
    xor ecx, ecx
    mov eax, 0x83               # present, writable, 2 MiB
2:  mov [ebp + ecx*8 + off_boot_pd_low], eax
    add eax, 0x200000
    inc ecx
    cmp ecx, 512
    jne 2b
    mov eax, ebp                # the boot section is the first of the image
    or eax, 0x83
    lea edx, [ebp + edi*8 + off_boot_pd_high]
    mov [edx], eax
    add eax, 0x200000
    mov [edx + 8], eax
    add eax, 0x200000
    mov [edx + 16], eax
    add eax, 0x200000
    mov [edx + 24], eax

    mov eax, cr4
    or eax, 0x6a0               # PAE, PGE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    lea eax, [ebp + off_boot_pml4]
    mov cr3, eax
    mov ecx, 0xC0000080         # EFER: SCE, LME, NXE
    rdmsr
    or eax, 0x901
    wrmsr
    mov eax, cr0
    and eax, 0xfffffffb         # no x87 emulation
    or eax, 0x80010022          # PG, WP, NE, MP
    mov cr0, eax
    lea eax, [ebp + off_boot_gdt]
    mov [ebp + off_boot_gdt_pointer + 2], eax
    lgdt [ebp + off_boot_gdt_pointer]
    lea eax, [ebp + off_boot64]
    mov [ebp + off_boot_far], eax
    jmp fword ptr [ebp + off_boot_far]

    .code64
boot64:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov edi, edi
    shl rdi, 21                 # slide in bytes
    mov ebp, ebp
    mov rbx, 0xffffffff80000000
    add rbx, rdi                # where the image runs
    lea rax, [rip + boot_high]
    sub rax, rbp
    add rax, rbx
    jmp rax
boot_high:
    lea rsp, [rip + boot_stack_top]
    # Relocate: every entry is R_X86_64_RELATIVE.
    lea rsi, [rip + __rela_start]
    lea rcx, [rip + __rela_end]
3:  cmp rsi, rcx
    jae 4f
    mov rax, [rsi]              # offset, as linked
    add rax, rdi
    mov rdx, [rsi + 16]         # addend, as linked
    add rdx, rdi
    mov [rax], rdx
    add rsi, 24
    jmp 3b
4:  lea rax, [rip + __boot_handover]
    mov [rax + 8], rbp
    # .bss was zeroed by the loader (memsz > filesz).
    xor ebp, ebp
    call boot_rust
    ud2

    .align 16
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff    # 64-bit code
    .quad 0x00cf93000000ffff    # data
boot_gdt_pointer:
    .word 23
    .quad 0
    .align 8
boot_far:
    .long 0
    .word 8
    .align 8
    .global __boot_handover
__boot_handover:
boot_handover_low:
    .quad 0
    .quad 0

    .section .boot, "awx", @progbits
    .align 4096
    .global boot_pml4
boot_pml4:      .zero 4096
boot_pdpt_low:  .zero 4096
boot_pdpt_high: .zero 4096
boot_pd_low:    .zero 4096
boot_pd_high:   .zero 4096
    .global boot_tables_end
boot_tables_end:
    .section .bss.boot_stack, "aw", @nobits
    .align 16
boot_stack:     .zero 32768
    .global boot_stack_top
boot_stack_top:
    .section .boot, "awx", @progbits
    # Offsets from the start of the section: Intel syntax takes one symbol in an operand.
    .set off_boot64, boot64 - pvh_entry
    .set off_boot_far, boot_far - pvh_entry
    .set off_boot_gdt, boot_gdt - pvh_entry
    .set off_boot_gdt_pointer, boot_gdt_pointer - pvh_entry
    .set off_boot_handover_low, boot_handover_low - pvh_entry
    .set off_boot_pd_high, boot_pd_high - pvh_entry
    .set off_boot_pd_low, boot_pd_low - pvh_entry
    .set off_boot_pdpt_high, boot_pdpt_high - pvh_entry
    .set off_boot_pdpt_low, boot_pdpt_low - pvh_entry
    .set off_boot_pml4, boot_pml4 - pvh_entry
"#
);

/// First Rust code: relocated, in the high half, on the boot stack, with the low gigabyte mapped one to one.
#[unsafe(no_mangle)]
extern "C" fn boot_rust() -> ! {
    // SAFETY: written by the entry code before this call, never again.
    let (start_info, load_base) =
        unsafe { (__boot_handover.start_info, __boot_handover.load_base) };
    layout::set_image_physical(coracle_abi::convert::usize_from(load_base));
    // Until the real window exists, the low gigabyte serves as one.
    layout::set_direct_offset(0);
    super::descriptors::init(0);
    super::cpu::init_features();
    kernel_main(start_info)
}
