// SPDX-License-Identifier: Apache-2.0
//! The kernel binary: the order of boot on one page ([`boot`]), and the only place that names drivers.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod console;
#[cfg(target_os = "none")]
mod control;
#[cfg(target_os = "none")]
mod crash;
#[cfg(target_os = "none")]
mod devices;
#[cfg(target_os = "none")]
mod end;
#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod interrupts;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod mounts;
#[cfg(target_os = "none")]
mod network;
#[cfg(target_os = "none")]
mod processors;
#[cfg(target_os = "none")]
mod report;
#[cfg(target_os = "none")]
mod root;

/// The kernel runs on a machine of its own; as a host program it only says so.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "coracle-kernel is built for a machine: cargo build -p coracle-kernel --target x86_64-unknown-none"
    );
    std::process::exit(1);
}
