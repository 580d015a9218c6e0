// SPDX-License-Identifier: Apache-2.0
//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use super::{be16, be32, put16};

pub(crate) const LEN: usize = 28;

/// A request or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arp {
    pub(crate) is_request: bool,
    pub(crate) sender_mac: [u8; 6],
    pub(crate) sender: Ipv4Addr,
    pub(crate) target_mac: [u8; 6],
    pub(crate) target: Ipv4Addr,
}

impl Arp {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let p: &[u8; LEN] = bytes.first_chunk()?;
        let is_ethernet_ipv4 = p[..6] == [0, 1, 8, 0, 6, 4];
        let operation = be16(p, 6);
        if !is_ethernet_ipv4 || !(1..=2).contains(&operation) {
            return None;
        }
        Some(Self {
            is_request: operation == 1,
            sender_mac: [p[8], p[9], p[10], p[11], p[12], p[13]],
            sender: Ipv4Addr::from_bits(be32(p, 14)),
            target_mac: [p[18], p[19], p[20], p[21], p[22], p[23]],
            target: Ipv4Addr::from_bits(be32(p, 24)),
        })
    }

    pub(crate) fn emit(&self) -> [u8; LEN] {
        let mut p = [0; LEN];
        p[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        put16(&mut p, 6, if self.is_request { 1 } else { 2 });
        p[8..14].copy_from_slice(&self.sender_mac);
        p[14..18].copy_from_slice(&self.sender.octets());
        p[18..24].copy_from_slice(&self.target_mac);
        p[24..].copy_from_slice(&self.target.octets());
        p
    }
}
