// SPDX-License-Identifier: Apache-2.0
//! The CPU: entry, page tables, traps, context switch, timer, barriers.
//!
//! One module per architecture exports the same names; `hosted` stands in when the kernel crates are built as ordinary
//! libraries for host tests.

#![cfg_attr(target_os = "none", no_std)]

#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod x86_64;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
pub use x86_64::*;

#[cfg(not(target_os = "none"))]
mod hosted;
#[cfg(not(target_os = "none"))]
pub use hosted::*;

mod patience;
pub use patience::Patience;

/// Most CPUs the kernel starts.
pub const MAX_CPUS: usize = 8;
