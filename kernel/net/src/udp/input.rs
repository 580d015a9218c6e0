// SPDX-License-Identifier: Apache-2.0
//! Received datagrams: to which socket, or sockets, each goes.

use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};

use super::UdpSocket;
use super::lite::Covered;
use super::socket::Datagram;
use crate::address::{Endpoint, Flow};
use crate::icmp::DeliveryError;
use crate::ip::{IpHeader, IpMeta};
use crate::link::Path;
use crate::packet::compact;
use crate::stack::NetStack;
use crate::wire::checksum::Sum;
use crate::wire::dhcp::{CLIENT_PORT, SERVER_PORT};
use crate::wire::protocol;
use crate::wire::udp::{self, Udp};

impl NetStack {
    /// A UDP packet has arrived.
    pub(crate) fn input_udp(&self, meta: &IpMeta<'_>, mut buf: PacketBuf, now: u64) {
        let Some(header) = Udp::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        if !meta.checksum_valid && (header.has_checksum || !meta.destination.is_v4()) {
            let data = &buf.data()[..header.len];
            let sum = Sum::pseudo(meta.source, meta.destination, protocol::UDP, header.len);
            if !sum.add(data).is_valid() {
                self.counters.drop_checksum.bump();
                return;
            }
        }
        if header.destination == CLIENT_PORT
            && header.source == SERVER_PORT
            && self.input_dhcp(meta, &buf.data()[udp::HEADER..header.len], now)
        {
            return;
        }
        let local = Endpoint::new(meta.destination, header.destination);
        let remote = Endpoint::new(meta.source, header.source);
        buf.truncate(header.len);
        self.input_datagram(meta, buf, [local, remote], None, now);
    }

    /// A datagram, from its header on, that is whole. `covered` if it is one of UDP-Lite.
    pub(super) fn input_datagram(
        &self,
        meta: &IpMeta<'_>,
        mut buf: PacketBuf,
        [local, remote]: [Endpoint; 2],
        covered: Option<Covered>,
        now: u64,
    ) {
        let ports = self.udp.of(meta.protocol);
        if !self.is_local(meta.destination) {
            if !self.is_for_us(meta) {
                self.counters.drop_not_for_us.bump();
                return;
            }
            buf.trim_front(udp::HEADER);
            self.deliver_to_many(meta, &buf, local, remote, covered);
            return;
        }
        let choose = || self.key.flow(&Flow { local, remote });
        let Some(socket) = ports.find(local, remote, false, choose) else {
            self.counters.drop_no_socket.bump();
            self.send_port_unreachable(meta, buf, now);
            return;
        };
        buf.trim_front(udp::HEADER);
        self.deliver_datagram(&socket, meta, buf, remote, covered);
    }

    fn deliver_datagram(
        &self,
        socket: &UdpSocket,
        meta: &IpMeta<'_>,
        buf: PacketBuf,
        source: Endpoint,
        covered: Option<Covered>,
    ) {
        if covered.is_some_and(|covered| !socket.options(|o| o.takes(covered))) {
            self.counters.drop_checksum.bump();
            return;
        }
        let datagram = Datagram {
            buf: compact(buf),
            source,
            destination: meta.destination,
            interface: meta.interface.index,
            ttl: meta.ttl,
            tos: meta.tos,
        };
        if socket.deliver(datagram) {
            self.counters.udp_received.bump();
        } else {
            self.counters.drop_receive_full.bump();
        }
    }

    /// Broadcast and multicast: every socket that fits gets a copy.
    #[cold]
    fn deliver_to_many(
        &self,
        meta: &IpMeta<'_>,
        buf: &PacketBuf,
        local: Endpoint,
        remote: Endpoint,
        covered: Option<Covered>,
    ) {
        let group = meta.destination.is_multicast();
        for socket in self.udp.of(meta.protocol).find_all(local, remote) {
            if group && !socket.wants_group(meta.destination, meta.interface.index) {
                continue;
            }
            let mut copy = PacketBuf::new(0, buf.len());
            copy.append(buf.len()).copy_from_slice(buf.data());
            self.deliver_datagram(&socket, meta, copy, remote, covered);
        }
    }

    /// Members of a group on this machine get what this machine sends to it.
    pub(super) fn loop_back_copy(
        &self,
        path: &Path,
        packet: &TxPacket,
        header: IpHeader,
        now: u64,
    ) {
        if path.interface.is_loopback() {
            return;
        }
        let Some(lo) = self.interface(0) else { return };
        let mut head = PacketBuf::new(HEADROOM, packet.head.len());
        head.append(packet.head.len())
            .copy_from_slice(packet.head.data());
        let mut own = Path::new(lo.clone(), path.source, header.destination);
        self.send_ip(&mut own, TxPacket::new(head), header, now);
    }

    /// A network error about a datagram of ours: reported on sockets that are connected to that peer, and on others
    /// not at all, as on Linux without `IP_RECVERR`.
    #[cold]
    pub(crate) fn udp_error(&self, protocol: u8, flow: &Flow, error: DeliveryError) {
        let DeliveryError::Hard(errno) = error else {
            return;
        };
        let ports = self.udp.of(protocol);
        let socket = ports.find(flow.local, flow.remote, false, || 0);
        if let Some(socket) = socket
            && socket.peer() == Ok(flow.remote)
        {
            socket.fail(errno);
        }
    }
}
