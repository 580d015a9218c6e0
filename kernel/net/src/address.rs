// SPDX-License-Identifier: Apache-2.0
//! Addresses inside the stack: IPv4 and IPv6 in one type, so that tables and sockets need no second copy.
//!
//! An IPv4 address is kept in its IPv4-mapped IPv6 form (RFC 4291, 2.5.5.2), which is also how a dual-stack socket
//! names it.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address of either version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    high: u64,
    low: u64,
}

const MAPPED: u64 = 0xffff_0000_0000;

impl Address {
    /// `0.0.0.0`.
    pub const ANY_V4: Self = Self::from_v4(Ipv4Addr::UNSPECIFIED);
    /// `::`.
    pub const ANY_V6: Self = Self { high: 0, low: 0 };
    /// `255.255.255.255`.
    pub const BROADCAST: Self = Self::from_v4(Ipv4Addr::BROADCAST);

    /// From an IPv4 address.
    #[must_use]
    pub const fn from_v4(v4: Ipv4Addr) -> Self {
        Self {
            high: 0,
            low: MAPPED | v4.to_bits() as u64,
        }
    }

    /// From an IPv6 address. A mapped one becomes an IPv4 address.
    #[must_use]
    pub fn from_v6(v6: Ipv6Addr) -> Self {
        let o = v6.octets();
        Self {
            high: u64::from_be_bytes([o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7]]),
            low: u64::from_be_bytes([o[8], o[9], o[10], o[11], o[12], o[13], o[14], o[15]]),
        }
    }

    /// Whether this is an IPv4 address.
    #[inline]
    #[must_use]
    pub const fn is_v4(self) -> bool {
        self.high == 0 && self.low >> 32 == 0xffff
    }

    /// The IPv4 address, if it is one.
    #[must_use]
    pub fn v4(self) -> Option<Ipv4Addr> {
        self.is_v4()
            .then(|| Ipv4Addr::from_bits(coracle_abi::convert::low_u32(self.low)))
    }

    /// As an IPv6 address; IPv4 addresses in mapped form.
    #[must_use]
    pub fn v6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from(self.high) << 64 | u128::from(self.low))
    }

    /// The halves, for hashing.
    #[inline]
    pub(crate) const fn halves(self) -> (u64, u64) {
        (self.high, self.low)
    }

    /// `0.0.0.0` or `::`.
    #[must_use]
    pub fn is_unspecified(self) -> bool {
        self == Self::ANY_V4 || self == Self::ANY_V6
    }

    /// `127.0.0.0/8` or `::1`.
    #[must_use]
    pub fn is_loopback(self) -> bool {
        match self.v4() {
            Some(v4) => v4.is_loopback(),
            None => self == (Self { high: 0, low: 1 }),
        }
    }

    /// `224.0.0.0/4` or `ff00::/8`.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        match self.v4() {
            Some(v4) => v4.is_multicast(),
            None => self.high >> 56 == 0xff,
        }
    }

    /// `fe80::/10`.
    #[must_use]
    pub fn is_v6_link_local(self) -> bool {
        self.high >> 54 == 0xfe80 >> 6
    }

    /// An address that can be the source of a packet to one receiver.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && !self.is_unspecified() && self != Self::BROADCAST
    }

    /// The unspecified address of the same version.
    #[must_use]
    pub fn any_like(self) -> Self {
        if self.is_v4() {
            Self::ANY_V4
        } else {
            Self::ANY_V6
        }
    }

    /// Whether the first `length` bits agree (counted from the start of the IPv4 part for IPv4).
    #[must_use]
    pub fn in_prefix(self, prefix: Self, length: u8) -> bool {
        if self.is_v4() != prefix.is_v4() {
            return false;
        }
        let length = u32::from(length) + if self.is_v4() { 96 } else { 0 };
        let differ = self.v6().to_bits() ^ prefix.v6().to_bits();
        length == 0 || differ.leading_zeros() >= length.min(128)
    }

    /// The first `length` bits, the others zero.
    pub(crate) fn network(self, length: u8) -> Self {
        let length = u32::from(length) + if self.is_v4() { 96 } else { 0 };
        let host = u128::MAX.checked_shr(length).unwrap_or(0);
        Self::from_v6(Ipv6Addr::from_bits(self.v6().to_bits() & !host))
    }

    /// The IPv6 link-local address of an Ethernet interface (RFC 4291, appendix A).
    pub(crate) fn link_local(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self {
            high: 0xfe80 << 48,
            low: u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]),
        }
    }

    /// This network's address with the lower half of `host`.
    pub(crate) const fn with_interface_id(self, host: Self) -> Self {
        Self {
            high: self.high,
            low: host.low,
        }
    }

    /// The group of all hosts that may have this IPv6 address (RFC 4291, 2.7.1).
    pub(crate) const fn solicited_node(self) -> Self {
        Self {
            high: 0xff02_0000_0000_0000,
            low: 0x1_ff00_0000 | (self.low & 0xff_ffff),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self::from_v4(v4),
            IpAddr::V6(v6) => Self::from_v6(v6),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        match address.v4() {
            Some(v4) => v4.into(),
            None => address.v6().into(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.v4() {
            Some(v4) => v4.fmt(f),
            None => self.v6().fmt(f),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The host.
    pub address: Address,
    /// The port; 0 where none was chosen.
    pub port: u16,
}

impl Endpoint {
    /// An endpoint.
    #[must_use]
    pub const fn new(address: Address, port: u16) -> Self {
        Self { address, port }
    }
}

/// The two ends of a conversation, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) local: Endpoint,
    pub(crate) remote: Endpoint,
}

/// An address with the length of its network prefix in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The address.
    pub address: Address,
    /// Bits of the network part: at most 32 or 128.
    pub length: u8,
}

impl Prefix {
    /// Whether `other` is in this network.
    #[must_use]
    pub fn contains(self, other: Address) -> bool {
        other.in_prefix(self.address, self.length)
    }

    /// The IPv4 address that means all hosts of this network.
    #[must_use]
    pub fn broadcast(self) -> Option<Address> {
        let v4 = self.address.v4()?;
        (self.length < 31).then(|| {
            let host = u32::MAX.checked_shr(u32::from(self.length)).unwrap_or(0);
            Address::from_v4(Ipv4Addr::from_bits(v4.to_bits() | host))
        })
    }

    /// The network mask of an IPv4 prefix.
    #[must_use]
    pub fn netmask(self) -> Ipv4Addr {
        let host = u32::MAX.checked_shr(u32::from(self.length)).unwrap_or(0);
        Ipv4Addr::from_bits(!host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_prefixes() {
        let a = |s: &str| Address::from(s.parse::<IpAddr>().unwrap());
        assert!(a("127.3.0.1").is_loopback() && a("::1").is_loopback());
        assert!(a("224.0.0.1").is_multicast() && a("ff02::1").is_multicast());
        assert!(a("fe80::1").is_v6_link_local() && !a("fec0::1").is_v6_link_local());
        assert_eq!(a("::ffff:10.0.0.1"), a("10.0.0.1"));
        assert!(a("10.0.2.15").in_prefix(a("10.0.2.2"), 24));
        assert!(!a("10.0.3.15").in_prefix(a("10.0.2.2"), 24));
        assert!(a("8.8.8.8").in_prefix(Address::ANY_V4, 0));
        assert!(!a("8.8.8.8").in_prefix(Address::ANY_V6, 0));
        assert!(a("fd00::5").in_prefix(a("fd00::"), 64));
        let net = Prefix {
            address: a("10.0.2.15"),
            length: 24,
        };
        assert_eq!(net.broadcast(), Some(a("10.0.2.255")));
        assert_eq!(net.netmask(), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(
            a("fe80::1:2ff:fe03:405").solicited_node(),
            a("ff02::1:ff03:405")
        );
    }
}
