// SPDX-License-Identifier: Apache-2.0
//! Drivers for virtio devices (Virtual I/O Device version 1.2): network card, disk, console with ports,
//! entropy, shares of the host's files.
//!
//! They see the traits of `core` only; `image` finds the devices and introduces them to whoever uses them:
//!
//! ```ignore
//! match drivers::probe_mmio(registers, NetOptions::default())? {
//!     Device::Net(net) => {
//!         net.set_on_receive(wake_the_poller);   // runs in the interrupt
//!         net.set_receive_interrupts(true);
//!         …                                      // poll: off, receive until false, on; again if that says true
//!     }
//!     Device::Console(console) => {
//!         let stdio = console.console(timeout_ns);
//!         let control = console.port("org.coracle.control", timeout_ns);
//!         …                                      // before the end: console.drain(timeout_ns); in a crash write_in_crash
//!     }
//!     Device::Block(disk) => { … }           // a `BlockDevice`
//!     Device::Entropy(rng) => { rng.fill(&mut seed, timeout_ns); }
//!     Device::Share(share) => { … }          // a `ShareDevice`
//!     Device::Unknown(_) | Device::Absent => {}
//! }
//! ```
//!
//! - Interrupts of virtio-mmio and of PCI's INTx are lines: attach [`Device::line_handler`] to the line, which may be
//!   shared. Message interrupts are attached by the transport.
//! - Nothing a device says is trusted. One that breaks the rules is shut with one line in the log and cannot corrupt
//!   the kernel (it can still read and write the buffers it is given, and withhold its service).
//! - Registers are touched at start, to notify a device that sleeps, and to acknowledge a line interrupt. All else
//!   happens in shared memory, since each register access is a trap to the VMM.
//! - There is no `unsafe` here: shared memory consists of atomics, and registers are behind `core::memory::Mmio`.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(not(test), forbid(unsafe_code))]

extern crate alloc;

pub mod block;
pub mod console;
pub mod entropy;
mod error;
pub mod net;
pub mod ninep;
pub mod pci;
mod probe;
mod ring;
mod signal;
#[cfg(test)]
mod testing;
pub mod transport;

pub use block::VirtioBlock;
pub use console::{Port, VirtioConsole};
pub use entropy::VirtioEntropy;
pub use error::{DriverError, Reason};
pub use net::{NetOptions, VirtioNet};
pub use ninep::VirtioShare;
pub use probe::{Device, probe, probe_mmio, probe_pci};
pub use signal::Callback;
