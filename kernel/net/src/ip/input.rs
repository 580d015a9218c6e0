// SPDX-License-Identifier: Apache-2.0
//! Received IP packets.

use alloc::sync::Arc;

use coracle_core::packet::PacketBuf;

use crate::address::Address;
use crate::link::Interface;
use crate::stack::NetStack;
use crate::wire::ipv4::Ipv4;
use crate::wire::ipv6::{self, Ipv6};
use crate::wire::protocol;

/// What the network layer knows about a packet whose buffer now begins with the transport header.
pub(crate) struct IpMeta<'a> {
    pub(crate) interface: &'a Arc<Interface>,
    pub(crate) source: Address,
    pub(crate) destination: Address,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    /// Type of service, or traffic class.
    pub(crate) tos: u8,
    /// Bytes of IP header that lie in front of the buffer's data. 0 after reassembly.
    pub(crate) header_len: usize,
    /// The transport checksum needs no check.
    pub(crate) checksum_valid: bool,
}

impl NetStack {
    /// An IP packet has arrived: `buf` begins with its header.
    #[inline]
    pub(crate) fn input_ip(
        &self,
        interface: &Arc<Interface>,
        buf: PacketBuf,
        checksum_valid: bool,
        now: u64,
    ) {
        match buf.data().first().map(|b| b >> 4) {
            Some(4) => self.input_ipv4(interface, buf, checksum_valid, now),
            Some(6) => self.input_ipv6(interface, buf, checksum_valid, now),
            _ => self.counters.drop_malformed.bump(),
        }
    }

    fn input_ipv4(
        &self,
        interface: &Arc<Interface>,
        mut buf: PacketBuf,
        checksum_valid: bool,
        now: u64,
    ) {
        let Some(header) = Ipv4::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        buf.truncate(header.total_len);
        buf.trim_front(header.header_len);
        let mut meta = IpMeta {
            interface,
            source: Address::from_v4(header.source),
            destination: Address::from_v4(header.destination),
            protocol: header.protocol,
            ttl: header.ttl,
            tos: header.tos,
            header_len: header.header_len,
            checksum_valid,
        };
        if header.more_fragments || header.fragment_offset != 0 {
            if !self.is_for_us(&meta) {
                self.counters.drop_not_for_us.bump();
                return;
            }
            let (more, offset) = (header.more_fragments, header.fragment_offset);
            let id = u32::from(header.id);
            let Some(whole) = self.reassemble(&meta, id, offset, more, &buf, now) else {
                return;
            };
            buf = whole;
            meta.header_len = 0;
            meta.checksum_valid = interface.is_loopback();
        }
        self.input_transport(&meta, buf, now);
    }

    fn input_ipv6(
        &self,
        interface: &Arc<Interface>,
        mut buf: PacketBuf,
        checksum_valid: bool,
        now: u64,
    ) {
        let upper = Ipv6::parse(buf.data()).and_then(|header| {
            let payload = &buf.data()[ipv6::HEADER..ipv6::HEADER + header.payload_len];
            Some((header, ipv6::upper(header.next_header, payload)?))
        });
        let Some((header, upper)) = upper else {
            self.counters.drop_malformed.bump();
            return;
        };
        let header_len = ipv6::HEADER + upper.offset;
        buf.truncate(ipv6::HEADER + header.payload_len);
        buf.trim_front(header_len);
        let mut meta = IpMeta {
            interface,
            source: Address::from_v6(header.source),
            destination: Address::from_v6(header.destination),
            protocol: upper.protocol,
            ttl: header.hop_limit,
            tos: header.traffic_class,
            header_len,
            checksum_valid,
        };
        // Mapped addresses must not appear on the wire (RFC 4942, 2.2).
        if meta.source.is_v4() || meta.destination.is_v4() {
            self.counters.drop_malformed.bump();
            return;
        }
        if let Some(fragment) = upper.fragment {
            if !self.is_for_us(&meta) {
                self.counters.drop_not_for_us.bump();
                return;
            }
            let (offset, more) = (fragment.offset, fragment.more);
            let Some(whole) = self.reassemble(&meta, fragment.id, offset, more, &buf, now) else {
                return;
            };
            buf = whole;
            meta.header_len = 0;
            meta.checksum_valid = interface.is_loopback();
        }
        self.input_transport(&meta, buf, now);
    }

    fn input_transport(&self, meta: &IpMeta<'_>, buf: PacketBuf, now: u64) {
        // An outsider must not speak for an inner address (RFC 1122 3.2.1.3), nor to one.
        let claims_loopback = meta.source.is_loopback() || meta.destination.is_loopback();
        if meta.source.is_multicast() || claims_loopback && !meta.interface.is_loopback() {
            self.counters.drop_malformed.bump();
            return;
        }
        let mut buf = buf;
        // Those for ICMP get what has a good checksum, from there.
        let taken = !self.raw.is_empty()
            && !matches!(meta.protocol, protocol::ICMP | protocol::ICMPV6)
            && self.is_for_us(meta)
            && self.deliver_raw(meta, &mut buf);
        match meta.protocol {
            protocol::TCP => self.input_tcp(meta, buf, now),
            protocol::UDP => self.input_udp(meta, buf, now),
            protocol::UDP_LITE => self.input_udp_lite(meta, buf, now),
            protocol::IGMP if meta.destination.is_v4() => self.input_igmp(meta, &buf, now),
            protocol::ICMP if meta.destination.is_v4() => self.input_icmp(meta, buf, now),
            protocol::ICMPV6 if !meta.destination.is_v4() => self.input_icmpv6(meta, buf, now),
            _ if taken => {}
            _ if self.is_local(meta.destination) => self.send_protocol_unreachable(meta, buf, now),
            _ => self.counters.drop_not_for_us.bump(),
        }
    }

    /// Whether a packet is addressed to this machine: to it alone, to all, or to a group it is in.
    pub(crate) fn is_for_us(&self, meta: &IpMeta<'_>) -> bool {
        let to = meta.destination;
        self.is_local(to)
            || if to.is_v4() {
                to == Address::BROADCAST || to.is_multicast() || meta.interface.is_broadcast(to)
            } else {
                to.is_multicast()
            }
    }
}
