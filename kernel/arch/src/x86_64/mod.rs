// SPDX-License-Identifier: Apache-2.0
//! x86-64: PVH entry, descriptor tables, traps, the system-call door, page tables, local APIC, TSC, FPU state.

mod boot;
pub mod clock;
pub mod context;
pub mod cpu;
pub mod describe;
mod descriptors;
pub mod fpu;
pub mod interrupt;
pub mod lapic;
pub mod layout;
pub mod mem_ops;
pub mod paging;
pub mod port;
pub mod signal;
pub mod smp;
pub mod trap;
pub mod unwind;
pub mod user;
pub mod vdso;

pub use trap::TrapFrame;
