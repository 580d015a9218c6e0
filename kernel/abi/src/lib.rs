// SPDX-License-Identifier: Apache-2.0
//! The Linux vocabulary: types and numbers of the system-call interface, and the one list of system calls.
//!
//! Numbers and structures come from `linux-raw-sys`; what is missing there is defined here, with its source.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

pub mod convert;
mod errno;
pub mod numbers;
mod poll_events;
pub mod signal;
pub mod syscalls;

pub use errno::Errno;
pub use linux_raw_sys as raw;
pub use poll_events::PollEvents;

/// Size of a base page in bytes, the same on x86-64 and on arm64 with a 4 KiB granule.
pub const PAGE_SIZE: usize = 4096;

/// First address that no application may use (end of the lower canonical half, less one guard page).
pub const USER_END: usize = 0x0000_7fff_ffff_f000;

/// Lowest address that an application may map (`vm.mmap_min_addr` of Linux).
pub const USER_START: usize = 0x1_0000;

/// The machine's name as `uname -m` shows it.
pub const MACHINE: &str = if cfg!(target_arch = "aarch64") {
    "aarch64"
} else {
    "x86_64"
};
