// SPDX-License-Identifier: Apache-2.0
//! The machine around the CPU: serial port, interrupt controller, wall clock, configuration ports, power.

#![cfg_attr(target_os = "none", no_std)]

#[cfg(all(target_os = "none", target_arch = "x86_64"))]
mod pc;
#[cfg(all(target_os = "none", target_arch = "x86_64"))]
pub use pc::*;
