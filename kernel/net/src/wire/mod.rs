// SPDX-License-Identifier: Apache-2.0
//! Packet headers: bytes to structures and back.
//!
//! Each `parse` checks the length once and returns `None` for what is malformed; after that nothing can panic. Each
//! `emit` fills a slice of exactly the header's length. Nothing here knows about sockets, time or memory.

pub(crate) mod arp;
pub(crate) mod checksum;
pub(crate) mod dhcp;
pub(crate) mod ethernet;
pub(crate) mod icmp;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod ndp;
pub(crate) mod tcp;
pub(crate) mod udp;

/// Numbers of the protocols above IP (IANA, "Assigned Internet Protocol Numbers").
pub(crate) mod protocol {
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const IGMP: u8 = 2;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const UDP_LITE: u8 = 136;
}

/// Big-endian 16 bits at a constant offset of a header whose length was checked.
#[inline]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Big-endian 32 bits at a constant offset of a header whose length was checked.
#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline]
fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// A length that the caller has bounded by the maximum of a 16-bit field.
#[inline]
pub(crate) fn len16(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}
