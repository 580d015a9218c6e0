// SPDX-License-Identifier: Apache-2.0
//! The middle of the kernel: memory, threads, scheduler, time, signals, user pointers, and the traits in which
//! drivers, network and file systems meet without knowing each other.

#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod cache;
pub mod device;
#[cfg(target_os = "none")]
pub mod exit;
pub mod file;
#[cfg(target_os = "none")]
pub mod futex;
pub mod io;
pub mod memory;
pub mod packet;
pub mod poll;
pub mod random;
#[cfg(target_os = "none")]
pub mod signal;
pub mod sync;
#[cfg(target_os = "none")]
pub mod thread;
pub mod time;
pub mod timer;
pub mod user;
#[cfg(target_os = "none")]
pub mod vdso;

pub use coracle_abi::{Errno, PollEvents};

/// The result of nearly everything in the kernel.
pub type Result<T, E = Errno> = core::result::Result<T, E>;
