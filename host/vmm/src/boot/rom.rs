// SPDX-License-Identifier: Apache-2.0
//! The boot ROM: 64 KiB at 0xF0000, made for one guest. It holds the PVH start info, what that points to, the table of
//! processors, and the few instructions from the reset vector to the kernel's entry.
//!
//! Sources: Xen `xen/include/public/arch-x86/hvm/start_info.h`, version 1, and `docs/misc/pvh.pandoc` for the state of
//! the CPU at the entry. The task register is not set: loading it would write into this ROM, and no kernel uses it.

use std::arch::global_asm;

use super::mp_table;

/// Size in bytes; QEMU takes multiples of this only.
const SIZE: usize = 0x10000;
/// Where the guest sees the ROM.
const BASE: u32 = 0xf_0000;

/// Offsets of the parts.
const ENTRY: usize = 0x0ff8;
const START_INFO: usize = 0x1000;
const MEMORY_MAP: usize = 0x1100;
const MODULES: usize = 0x1200;
const MP_TABLE: usize = 0x1400;
const COMMAND_LINE: usize = 0x2000;
/// The longest command line the kernel reads, with its NUL.
const COMMAND_LINE_MAX: usize = 4096;

/// `XEN_HVM_START_MAGIC_VALUE`
const MAGIC: u32 = 0x336e_c578;
/// `XEN_HVM_MEMMAP_TYPE_RAM`, `XEN_HVM_MEMMAP_TYPE_RESERVED`
const RAM: u32 = 1;
const RESERVED: u32 = 2;

global_asm!(
    ".pushsection .rodata.coracle_boot_rom, \"a\", @progbits",
    ".balign 16",
    ".globl coracle_boot_rom",
    ".hidden coracle_boot_rom",
    ".code16",
    "coracle_boot_rom:",
    "    cli",
    "    lgdtl %cs:(9f - coracle_boot_rom)",
    "    movl %cr0, %eax",
    "    orb $1, %al",
    "    movl %eax, %cr0",
    "    .byte 0x66, 0xea", // far jump to 32-bit code
    "    .long 2f - coracle_boot_rom + 0xf0000",
    "    .word 8",
    ".balign 8",
    "8:  .quad 0",
    "    .quad 0x00cf9b000000ffff", // 0x08: 32-bit code
    "    .quad 0x00cf93000000ffff", // 0x10: data
    "9:  .word 23",
    "    .long 8b - coracle_boot_rom + 0xf0000",
    ".code32",
    "2:  movl $0x10, %eax",
    "    movl %eax, %ds",
    "    movl %eax, %es",
    "    movl %eax, %ss",
    "    movl $0xf1000, %ebx", // the start info
    "    jmpl *0xf0ff8",       // the entry
    ".org coracle_boot_rom + 0xfff0",
    ".code16",
    "    .byte 0xea", // reset vector: far jump to f000:0000
    "    .word 0, 0xf000",
    ".org coracle_boot_rom + 0x10000",
    ".code64",
    ".popsection",
    options(att_syntax)
);

unsafe extern "C" {
    #[link_name = "coracle_boot_rom"]
    static TEMPLATE: [u8; SIZE];
}

/// What the ROM tells.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    /// The kernel's entry.
    pub(super) entry: u32,
    /// All memory; below 3 GiB, so it is one range.
    pub(super) memory_bytes: u64,
    /// The last part of it, the boot module.
    pub(super) bundle_bytes: u64,
    /// Number of vCPUs.
    pub(super) cpus: u32,
    /// The kernel command line; what is too long for the kernel is cut.
    pub(super) command_line: &'a str,
}

/// Makes the ROM.
pub(super) fn build(guest: &Guest<'_>) -> Box<[u8; SIZE]> {
    // SAFETY: the assembly above defines SIZE bytes of read-only data at this symbol.
    let mut rom = Box::new(unsafe { TEMPLATE });
    put(&mut rom, ENTRY, &[guest.entry.to_le_bytes()]);

    let memory_map = [
        (0, 0x9_fc00, RAM),
        (0x9_fc00, 0x400, RESERVED),
        (u64::from(BASE), SIZE as u64, RESERVED),
        (0x10_0000, guest.memory_bytes - 0x10_0000, RAM),
    ];
    for (at, (from, size, kind)) in memory_map.iter().enumerate() {
        let at = MEMORY_MAP + at * 24;
        put(&mut rom, at, &[from.to_le_bytes(), size.to_le_bytes()]);
        put(&mut rom, at + 16, &[kind.to_le_bytes()]);
    }
    let bundle_at = guest.memory_bytes - guest.bundle_bytes;
    put(
        &mut rom,
        MODULES,
        &[bundle_at.to_le_bytes(), guest.bundle_bytes.to_le_bytes()],
    );

    let text = guest.command_line.as_bytes();
    put(
        &mut rom,
        COMMAND_LINE,
        &[&text[..text.len().min(COMMAND_LINE_MAX - 1)], &[0]],
    );
    put(
        &mut rom,
        MP_TABLE,
        &[mp_table::build(address(MP_TABLE), guest.cpus)],
    );

    let entries = u32::try_from(memory_map.len()).expect("four");
    let pointer = |offset: usize| [address(offset), 0];
    let [modules, command_line, map] = [MODULES, COMMAND_LINE, MEMORY_MAP].map(pointer);
    // magic, version, flags, number of modules; pointers of 64 bits; number of ranges, reserved
    let words = [
        [MAGIC, 1],
        [0, 1],
        modules,
        command_line,
        [0, 0],
        map,
        [entries, 0],
    ];
    let words: Vec<[u8; 4]> = words
        .as_flattened()
        .iter()
        .map(|word| word.to_le_bytes())
        .collect();
    put(&mut rom, START_INFO, &words);
    rom
}

/// Where the guest sees an offset of the ROM.
fn address(offset: usize) -> u32 {
    BASE + u32::try_from(offset).expect("the ROM has 64 KiB")
}

/// Writes parts one after another from an offset on.
fn put(rom: &mut [u8; SIZE], mut offset: usize, parts: &[impl AsRef<[u8]>]) {
    for part in parts {
        let part = part.as_ref();
        rom[offset..offset + part.len()].copy_from_slice(part);
        offset += part.len();
    }
}
