// SPDX-License-Identifier: Apache-2.0
//! Everything about starting and watching a VMM.
//!
//! The way of an instance: [`qemu`] finds the program, [`accel`] chooses how guest code runs, [`command`] writes the
//! command line, [`instance`] keeps what is known about it on disk, and [`supervise`] starts it and stays until the end,
//! speaking the control channel of decision 0002 ([`control`]) with the guest and with other `coracle` processes.

pub mod accel;
pub mod boot;
pub mod client;
pub mod command;
mod console;
pub mod control;
mod disks;
pub mod host;
pub mod instance;
pub mod kvm;
pub mod network;
pub mod process;
pub mod qemu;
mod report;
mod spawn;
pub mod supervise;
mod tsc;

pub use accel::{Accel, AccelChoice};
pub use boot::Boot;
pub use command::{Disk, Endpoint, Machine, Share, Spec};
pub use control::{Event, Op, Show};
pub use host::Host;
pub use instance::{Exit, Instance, Reason, State, Status, Store};
pub use network::{Network, PortForward, Protocol};
pub use qemu::Qemu;
