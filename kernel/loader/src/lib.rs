// SPDX-License-Identifier: Apache-2.0
//! Bytes from outside turned into plans: executables, the boot module, the boot information, the process stack.
//!
//! Every function here is pure. It reads a slice, checks it, and returns plain data or an error that names what is
//! wrong; nothing is mapped, nothing is trusted, and no input can cause a panic. The kernel acts on the result.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod bytes;
pub mod cmdline;
pub mod config;
pub mod cpio;
pub mod elf;
pub mod pvh;
pub mod script;
pub mod stack;
pub mod symbols;
pub mod vdso;
