// SPDX-License-Identifier: Apache-2.0
//! Segments, the task state with its interrupt stacks, and the interrupt table.
//!
//! Application and kernel run at the same privilege, so the CPU does not switch stacks by itself, and applications own
//! a red zone below their stack pointer. Every trap therefore enters on an interrupt stack (IST), which its entry code
//! leaves at once (see `trap.rs`).

use core::arch::asm;

use super::cpu;
use crate::MAX_CPUS;

/// Selector of the code segment.
pub(super) const CODE: u16 = 8;
const TASK: u16 = 24;

/// Interrupt stacks: 1 for interrupts and faults, 2 for NMI and machine check, 3 for double faults.
const IST_SIZE: usize = 4096;
const IST_COUNT: usize = 3;

/// Offset of the I/O permission map: behind the end, there is none.
const IO_MAP_NONE: u16 = 104;

#[repr(C, packed(4))]
struct TaskState {
    reserved0: u32,
    stacks: [u64; 3],
    reserved1: u64,
    interrupt_stacks: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    io_map: u16,
}

#[repr(C, align(16))]
struct Tables {
    gdt: [u64; 5],
    task: TaskState,
    stacks: [[u8; IST_SIZE]; IST_COUNT],
}

/// All zero until [`init`] fills them, so that they take no room in the image.
static mut TABLES: [Tables; MAX_CPUS] = [const {
    Tables {
        gdt: [0; 5],
        task: TaskState {
            reserved0: 0,
            stacks: [0; 3],
            reserved1: 0,
            interrupt_stacks: [0; 7],
            reserved2: 0,
            reserved3: 0,
            io_map: 0,
        },
        stacks: [[0; IST_SIZE]; IST_COUNT],
    }
}; MAX_CPUS];

#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    low: u64,
    high: u64,
}

static mut IDT: [Gate; 256] = [Gate { low: 0, high: 0 }; 256];

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

unsafe extern "C" {
    /// Entry stubs, one every 16 bytes, in order of the vector.
    static trap_stubs: u8;
}

/// Loads the tables of CPU `index` and sets up its GS base and the system-call door.
pub(super) fn init(index: usize) {
    // SAFETY: each CPU fills and loads its own tables once; the interrupt table is filled by the first CPU before
    // others run. The descriptors describe a flat address space at the highest privilege.
    unsafe {
        let tables = &raw mut TABLES[index];
        (*tables).gdt[1] = 0x00af_9b00_0000_ffff; // 64-bit code
        (*tables).gdt[2] = 0x00cf_9300_0000_ffff; // data
        (*tables).task.io_map = IO_MAP_NONE;
        for ist in 0..IST_COUNT {
            let top = (&raw mut (*tables).stacks[ist]).cast::<u8>().add(IST_SIZE) as u64;
            (*tables).task.interrupt_stacks[ist] = top;
        }
        let base = (&raw const (*tables).task) as u64;
        let limit = (size_of::<TaskState>() - 1) as u64;
        (*tables).gdt[3] = limit & 0xffff
            | (base & 0xff_ffff) << 16
            | 0x89 << 40
            | (limit >> 16 & 0xf) << 48
            | (base >> 24 & 0xff) << 56;
        (*tables).gdt[4] = base >> 32;
        if index == 0 {
            for vector in 0..256 {
                set_gate(vector);
            }
        }
        let gdt = Pointer {
            limit: 5 * 8 - 1,
            base: (&raw const (*tables).gdt) as u64,
        };
        let idt = Pointer {
            limit: 256 * 16 - 1,
            base: (&raw const IDT) as u64,
        };
        asm!(
            "lgdt [{gdt}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {data:e}",
            "mov es, {data:e}",
            "mov ss, {data:e}",
            "lidt [{idt}]",
            "ltr {task:x}",
            gdt = in(reg) &raw const gdt,
            idt = in(reg) &raw const idt,
            code = in(reg) u64::from(CODE),
            data = in(reg) 16u32,
            task = in(reg) TASK,
            scratch = out(reg) _,
        );
    }
    cpu::init_per_cpu(index);
    super::trap::init_syscall();
}

/// # Safety
/// Called by the first CPU before interrupts are on.
unsafe fn set_gate(vector: usize) {
    let ist: u64 = match vector {
        2 | 18 => 2,
        8 => 3,
        _ => 1,
    };
    let at = (&raw const trap_stubs) as u64 + vector as u64 * 16;
    // Interrupt gate (type 14), present, privilege 0: interrupts are off on entry.
    let low =
        at & 0xffff | u64::from(CODE) << 16 | ist << 32 | 0x8e << 40 | (at >> 16 & 0xffff) << 48;
    // SAFETY: the index is below 256, and nobody reads the table yet.
    unsafe {
        IDT[vector] = Gate {
            low,
            high: at >> 32,
        }
    };
}

/// Whether the address lies on one of the interrupt stacks: then the entry code itself failed.
pub(super) fn on_interrupt_stack(at: usize) -> bool {
    let start = (&raw const TABLES) as usize;
    (start..start + size_of::<[Tables; MAX_CPUS]>()).contains(&at)
}
