// SPDX-License-Identifier: Apache-2.0
//! UDP (RFC 768, `udp(7)`) and UDP-Lite (RFC 3828, `udplite(7)`), which differ in what the checksum covers and share
//! everything else but their ports.

mod input;
mod lite;
mod socket;

use alloc::vec::Vec;

use crate::address::Address;
use crate::map::HashKey;
use crate::ports::PortTable;
use crate::wire::protocol::UDP_LITE;

pub(crate) use socket::{UdpReceived, UdpSend, UdpSocket};

/// UDP sockets by port.
pub(crate) struct UdpTables {
    ports: PortTable<UdpSocket>,
    lite_ports: PortTable<UdpSocket>,
}

impl UdpTables {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            ports: PortTable::new(key),
            lite_ports: PortTable::new(key),
        }
    }

    /// The ports of one of the two protocols.
    fn of(&self, protocol: u8) -> &PortTable<UdpSocket> {
        if protocol == UDP_LITE {
            &self.lite_ports
        } else {
            &self.ports
        }
    }
}

/// Settings of a UDP socket (`socket(7)`, `ip(7)`).
#[derive(Clone, Debug)]
pub(crate) struct UdpOptions {
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) v6_only: bool,
    pub(crate) broadcast: bool,
    pub(crate) receive_buffer: usize,
    pub(crate) send_buffer: usize,
    pub(crate) ttl: u8,
    pub(crate) multicast_ttl: u8,
    pub(crate) multicast_loop: bool,
    pub(crate) multicast_interface: Option<usize>,
    pub(crate) tos: u8,
    /// `IP_PMTUDISC_DO`: a datagram that would need fragments is refused.
    pub(crate) dont_fragment: bool,
    /// `IP_PKTINFO` and `IPV6_RECVPKTINFO`.
    pub(crate) packet_info: bool,
    /// `IP_RECVTTL` and `IPV6_RECVHOPLIMIT`.
    pub(crate) receive_ttl: bool,
    /// `IP_RECVTOS` and `IPV6_RECVTCLASS`.
    pub(crate) receive_tos: bool,
    /// `UDPLITE_SEND_CSCOV`: bytes that the checksum covers; `None` and 0 for all.
    pub(crate) send_coverage: Option<u16>,
    /// `UDPLITE_RECV_CSCOV`: the least coverage of datagrams that are taken, 0 for all of them; `None` if any will do.
    pub(crate) receive_coverage: Option<u16>,
    /// Groups joined, each on an interface.
    pub(crate) groups: Vec<(Address, usize)>,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            reuse_address: false,
            reuse_port: false,
            v6_only: false,
            broadcast: false,
            receive_buffer: 212_992,
            send_buffer: 212_992,
            ttl: 64,
            multicast_ttl: 1,
            multicast_loop: true,
            multicast_interface: None,
            tos: 0,
            dont_fragment: false,
            packet_info: false,
            receive_ttl: false,
            receive_tos: false,
            send_coverage: None,
            receive_coverage: None,
            groups: Vec::new(),
        }
    }
}
