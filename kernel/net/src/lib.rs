// SPDX-License-Identifier: Apache-2.0
//! Our TCP/IP stack and sockets.
//!
//! # How to drive it
//!
//! ```text
//! let stack = NetStack::new(NetConfig { on_listen: Some(hook), ..NetConfig::default() });
//! stack.add_interface(device, InterfaceConfig { ipv4: Some(prefix), gateway, ..Default::default() })?;
//! ```
//!
//! - [`NetStack::poll`] receives. Call it from the device's interrupt and from the idle loop, until it returns `false`;
//!   any CPU may call it at any time. It flushes at its end.
//! - [`NetStack::flush`] tells the devices about what was queued and delivers loopback packets. Sending only queues, so
//!   that several packets share one notification (on a virtual machine each costs microseconds): call `flush` when a
//!   system call that may have sent returns, and before a CPU goes idle. It costs a few loads if there is nothing.
//! - Timers need nothing: the stack uses a kernel timer (`coracle_core::timer`).
//!
//! # Sockets
//!
//! [`SocketFile::new`] is `socket(2)`; the file goes into an `OpenFile` and is found again by
//! `OpenFile::downcast::<SocketFile>()`. Nothing blocks: what would have to wait returns `EAGAIN` (`connect`:
//! `EINPROGRESS`, then `EALREADY` until it is done), and the poll source is notified on every change. Blocking, time-outs
//! ([`SocketFile::receive_timeout_ns`]), `MSG_DONTWAIT`, `MSG_WAITALL` and `SIGPIPE` are the caller's business.
//!
//! When the application ends, release its sockets (drop its `OpenFile`s) and call `flush` once more: peers then see the
//! end of their connections instead of silence.
//!
//! # Memory
//!
//! All queues together are bounded by [`NetConfig::memory_limit`]; a good value is a quarter of the machine's memory.
//! Each TCP connection may hold 16 KiB in each direction however short memory is; half-open connections, TIME-WAIT
//! entries, fragments, neighbours and packets behind a full transmit ring have bounds of their own. An idle connection
//! costs about 1.3 KB (`tests/cost.rs` measures it, and that an exchange of messages allocates nothing).
//!
//! # Locks
//!
//! Each socket has one lock. Under it the following leaf locks may be taken, none of which is held while another is
//! taken (except the timer queue, which is last): the tables (connections in shards, ports in shards, routes,
//! neighbours), the loopback queue, an interface's backlog, a device's transmit queue, the timer queue. No two sockets
//! are locked at once, but a listener while its new connection, which nobody knows yet, is made. Waiters are notified
//! without any lock held.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod address;
mod counters;
mod dhcp;
mod icmp;
mod inbox;
mod ip;
mod link;
mod loopback;
mod map;
mod netlink;
mod packet;
mod ports;
mod raw;
mod report;
mod route;
mod siphash;
pub mod socket;
mod stack;
mod tcp;
mod timers;
mod udp;
mod unix;
mod wire;

pub use address::{Address, Endpoint, Prefix};
pub use counters::{Counter, Counters};
pub use link::LinkAddress;
pub use report::InterfaceReport;
pub use route::Route;
pub use socket::{
    ControlMessage, Credentials, EncodedAddress, PagePart, Received, SendRequest, Shutdown,
    SocketAddress, SocketFile, UnixAddress,
};
pub use stack::{InterfaceConfig, MAX_INTERFACES, NetConfig, NetStack, Transport};
