// SPDX-License-Identifier: Apache-2.0

//! The same way to every platform: a bridge with the host's address, and on it a TAP for a VM or one end of a veth pair
//! whose other end is in the instance's network namespace.

use std::net::Ipv4Addr;

use crate::Result;

/// What a platform is attached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TAP: VMs.
    Tap,
    /// A namespace: processes and containers.
    Namespace,
}

/// The network of a run. Dropping it removes all it made.
pub trait Network {
    /// A free place for an instance that listens on `port`.
    ///
    /// # Errors
    /// When the host lacks a right or a tool for it, with what to do.
    fn link(&mut self, kind: Kind, port: Option<u16>) -> Result<Link>;

    /// Takes back a place whose instance has ended.
    fn release(&mut self, link: Link);

    /// What it is, for the record: "bridge and tap or veth", "user-mode (no root)".
    fn about(&self) -> String;
}

/// A place in the network for one instance.
#[derive(Clone, Debug)]
pub enum Link {
    /// A TAP on the bridge.
    Tap {
        /// The interface of the host.
        interface: String,
        /// The bridge's address: the guest's gateway.
        host: Ipv4Addr,
        /// The instance's.
        guest: Ipv4Addr,
        /// Network bits.
        prefix: u8,
        /// The instance's card.
        guest_mac: String,
    },
    /// A network namespace with one end of a veth pair, address and route in place.
    Namespace {
        /// Its name, as of `ip netns`.
        namespace: String,
        /// The bridge's address.
        host: Ipv4Addr,
        /// The instance's.
        guest: Ipv4Addr,
        /// Network bits.
        prefix: u8,
    },
    /// Without rights: user-mode network of the VMM, a port of the host forwarded. Such samples are marked, and not compared
    /// with others.
    User {
        /// On 127.0.0.1.
        host_port: u16,
        /// In the guest.
        port: u16,
    },
    /// None, for programs that need none.
    None,
}
