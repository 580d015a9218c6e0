// SPDX-License-Identifier: Apache-2.0
//! ICMP and `ICMPv6`: answering echoes, saying what cannot be delivered, and passing on what others say about us.

mod autoconf;
mod errors;
mod ndp;

pub(crate) use autoconf::Autoconf;
pub(crate) use errors::DeliveryError;

use core::sync::atomic::Ordering;

use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};

use crate::address::Address;
use crate::ip::{IpHeader, IpMeta, MLD_QUERY};
use crate::link::Path;
use crate::stack::NetStack;
use crate::wire::checksum::Sum;
use crate::wire::icmp::{self, Icmp, v4, v6};
use crate::wire::{ndp as wire_ndp, protocol};

/// ICMP errors sent in one second at most (RFC 1812 4.3.2.8), so that we are no amplifier.
const ERRORS_PER_SECOND: u64 = 1000;

impl NetStack {
    #[cold]
    pub(crate) fn input_icmp(&self, meta: &IpMeta<'_>, mut buf: PacketBuf, now: u64) {
        let Some(message) = Icmp::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        if !Sum::default().add(buf.data()).is_valid() {
            self.counters.drop_checksum.bump();
            return;
        }
        if !self.is_for_us(meta) {
            self.counters.drop_not_for_us.bump();
            return;
        }
        self.deliver_raw(meta, &mut buf);
        match message.kind {
            // Echoes to broadcast addresses are not answered (RFC 1122 3.2.2.6 allows it).
            v4::ECHO if self.is_local(meta.destination) => {
                self.answer_echo(meta, &mut buf, v4::ECHO_REPLY, now);
            }
            v4::UNREACHABLE | v4::TIME_EXCEEDED | v4::PARAMETER_PROBLEM => {
                self.input_icmp_error(&message, &buf, now);
            }
            _ => {}
        }
    }

    #[cold]
    pub(crate) fn input_icmpv6(&self, meta: &IpMeta<'_>, mut buf: PacketBuf, now: u64) {
        let Some(message) = Icmp::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        let sum = Sum::pseudo(meta.source, meta.destination, protocol::ICMPV6, buf.len());
        if !sum.add(buf.data()).is_valid() {
            self.counters.drop_checksum.bump();
            return;
        }
        if !self.is_for_us(meta) {
            self.counters.drop_not_for_us.bump();
            return;
        }
        self.deliver_raw(meta, &mut buf);
        match message.kind {
            v6::ECHO if self.is_local(meta.destination) => {
                self.answer_echo(meta, &mut buf, v6::ECHO_REPLY, now);
            }
            v6::UNREACHABLE | v6::TOO_BIG | v6::TIME_EXCEEDED | v6::PARAMETER_PROBLEM => {
                self.input_icmp_error(&message, &buf, now);
            }
            // A hop limit of 255 proves that no router forwarded it (RFC 4861, 7.1).
            wire_ndp::ROUTER_ADVERT..=wire_ndp::NEIGHBOUR_ADVERT if meta.ttl == 255 => {
                self.input_ndp(meta, &message, buf.data(), now);
            }
            MLD_QUERY if meta.source.is_v6_link_local() => {
                if let Some(group) = buf.data().get(8..24).and_then(<[u8]>::first_chunk::<16>) {
                    self.answer_group_query(meta, Address::from_v6((*group).into()), now);
                }
            }
            _ => {}
        }
    }

    /// Sends the request back as the answer, from the address that was asked.
    #[cold]
    fn answer_echo(&self, meta: &IpMeta<'_>, buf: &mut PacketBuf, kind: u8, now: u64) {
        let mut head = PacketBuf::new(HEADROOM, buf.len());
        head.append(buf.len()).copy_from_slice(buf.data());
        head.data_mut()[0] = kind;
        self.send_icmp(meta.source, Some(meta.destination), None, head, 64, now);
    }

    /// Fills in the checksum of an ICMP message of the right version for `destination`, and sends it.
    #[cold]
    pub(crate) fn send_icmp(
        &self,
        destination: Address,
        source: Option<Address>,
        interface: Option<usize>,
        message: PacketBuf,
        ttl: u8,
        now: u64,
    ) {
        match self.route(destination, source, interface) {
            Ok(path) => self.send_icmp_on(path, destination, message, ttl, now),
            Err(_) => self.counters.drop_unreachable.bump(),
        }
    }

    /// As [`NetStack::send_icmp`], by a way that is known.
    #[cold]
    fn send_icmp_on(
        &self,
        mut path: Path,
        destination: Address,
        mut message: PacketBuf,
        ttl: u8,
        now: u64,
    ) {
        let (protocol, sum) = if destination.is_v4() {
            (protocol::ICMP, Sum::default())
        } else {
            let sum = Sum::pseudo(path.source, destination, protocol::ICMPV6, message.len());
            (protocol::ICMPV6, sum)
        };
        let bytes = message.data_mut();
        bytes[2..4].fill(0);
        let checksum = sum.add(bytes).finish();
        bytes[2..4].copy_from_slice(&checksum);
        let header = IpHeader {
            destination,
            protocol,
            ttl,
            tos: 0,
            dont_fragment: false,
        };
        self.send_ip(&mut path, TxPacket::new(message), header, now);
    }

    /// Tells the sender of a packet that nobody listens on that port.
    pub(crate) fn send_port_unreachable(&self, meta: &IpMeta<'_>, buf: PacketBuf, now: u64) {
        let (kind, code) = if meta.destination.is_v4() {
            (v4::UNREACHABLE, v4::CODE_PORT)
        } else {
            (v6::UNREACHABLE, v6::CODE_PORT)
        };
        self.send_icmp_error(meta, buf, kind, code, 0, now);
    }

    /// Tells the sender of a packet that we do not speak its protocol.
    pub(crate) fn send_protocol_unreachable(&self, meta: &IpMeta<'_>, buf: PacketBuf, now: u64) {
        let (kind, code, pointer) = if meta.destination.is_v4() {
            (v4::UNREACHABLE, v4::CODE_PROTOCOL, 0)
        } else {
            // The pointer names the next-header field of the fixed header.
            (v6::PARAMETER_PROBLEM, v6::CODE_NEXT_HEADER, 6)
        };
        self.send_icmp_error(meta, buf, kind, code, pointer, now);
    }

    #[cold]
    fn send_icmp_error(
        &self,
        meta: &IpMeta<'_>,
        mut buf: PacketBuf,
        kind: u8,
        code: u8,
        rest: u32,
        now: u64,
    ) {
        // No error about a packet to many, from nobody, or whose header is gone (RFC 1122 3.2.2).
        let answerable = meta.source.is_unicast() && meta.header_len > 0;
        if !answerable || !self.is_local(meta.destination) || !self.may_send_error(now) {
            return;
        }
        buf.prepend(meta.header_len); // the IP header is still there
        let limit = if meta.source.is_v4() { 548 } else { 1232 };
        let quoted = buf.len().min(limit);
        let mut message = PacketBuf::new(HEADROOM, icmp::HEADER + quoted);
        let header = Icmp {
            kind,
            code,
            id: 0,
            rest,
        };
        message.append(icmp::HEADER).copy_from_slice(&header.emit());
        message
            .append(quoted)
            .copy_from_slice(&buf.data()[..quoted]);
        self.send_icmp(meta.source, Some(meta.destination), None, message, 64, now);
    }

    fn may_send_error(&self, now: u64) -> bool {
        let second = now / 1_000_000_000;
        let packed = self.icmp_errors.load(Ordering::Relaxed);
        let (last, count) = (packed >> 16, packed & 0xffff);
        let count = if last == second & (u64::MAX >> 16) {
            count
        } else {
            0
        };
        let next = (second << 16) | (count + 1).min(0xffff);
        self.icmp_errors.store(next, Ordering::Relaxed);
        count < ERRORS_PER_SECOND
    }
}
