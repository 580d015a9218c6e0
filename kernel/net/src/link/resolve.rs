// SPDX-License-Identifier: Apache-2.0
//! Finding neighbours and being found: ARP (RFC 826), announcements (RFC 5227), and what happens to packets meanwhile.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};

use super::neighbour::RETRY_NS;
use super::{Interface, Path, Resolution};
use crate::address::Address;
use crate::stack::NetStack;
use crate::timers::TimerKey;
use crate::wire::arp::{self, Arp};
use crate::wire::ethernet::{self, BROADCAST, Ethernet};

/// How often and how far apart an address is announced: hosts and bridges that missed the first still learn it soon.
const ANNOUNCEMENTS: usize = 3;
const ANNOUNCE_INTERVAL_NS: u64 = 100_000_000;
const BACKLOG_RETRY_NS: u64 = 1_000_000;

fn ethertype(address: Address) -> u16 {
    if address.is_v4() {
        ethernet::IPV4
    } else {
        ethernet::IPV6
    }
}

/// The hardware group of an IP group (RFC 1112 6.4, RFC 2464 7).
fn multicast_mac(address: Address) -> [u8; 6] {
    match address.v4() {
        Some(v4) => {
            let o = v4.octets();
            [0x01, 0x00, 0x5e, o[1] & 0x7f, o[2], o[3]]
        }
        None => {
            let o = address.v6().octets();
            [0x33, 0x33, o[12], o[13], o[14], o[15]]
        }
    }
}

impl NetStack {
    /// A frame has arrived.
    #[inline]
    pub(crate) fn input_frame(
        &self,
        interface: &Arc<Interface>,
        mut buf: PacketBuf,
        checksum_valid: bool,
        now: u64,
    ) {
        let Some(frame) = Ethernet::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        if !self.packets.is_empty() {
            self.tap_received(interface, buf.data());
        }
        if frame.destination[0] & 1 == 0 && frame.destination != interface.mac {
            self.counters.drop_not_for_us.bump();
            return;
        }
        buf.trim_front(ethernet::HEADER);
        match frame.kind {
            ethernet::IPV4 | ethernet::IPV6 => self.input_ip(interface, buf, checksum_valid, now),
            ethernet::ARP => self.input_arp(interface, &buf, now),
            _ => self.counters.drop_not_for_us.bump(),
        }
    }

    /// Sends an IP packet to the path's next hop, or lets it wait for the neighbour's answer.
    #[inline]
    pub(crate) fn send_on_path(&self, path: &mut Path, mut packet: TxPacket, now: u64) {
        if path.interface.is_loopback() {
            self.send_loopback(packet);
            return;
        }
        if let Some(header) = path.header(now) {
            packet
                .head
                .prepend(ethernet::HEADER)
                .copy_from_slice(header);
            self.transmit(&path.interface, packet);
            return;
        }
        self.send_resolving(path, packet, now);
    }

    #[cold]
    fn send_resolving(&self, path: &mut Path, packet: TxPacket, now: u64) {
        let interface = path.interface.clone();
        let generation = interface.generation.load(Ordering::Relaxed);
        let next_hop = path.next_hop;
        let (mac, packet) = if next_hop.is_multicast() {
            (multicast_mac(next_hop), packet)
        } else if next_hop == Address::BROADCAST || interface.is_broadcast(next_hop) {
            (BROADCAST, packet)
        } else {
            let resolution = interface.neighbours.lock().resolve(next_hop, packet, now);
            match resolution {
                Resolution::Known(mac, packet, ask) => {
                    if ask {
                        self.ask_neighbour(&interface, next_hop, Some(mac), now);
                        self.arm_neighbour_timer(&interface, now);
                    }
                    (mac, packet)
                }
                Resolution::Waiting(ask) => {
                    if ask {
                        self.ask_neighbour(&interface, next_hop, None, now);
                        self.arm_neighbour_timer(&interface, now);
                    }
                    return;
                }
                Resolution::Full(packet) => {
                    self.counters.drop_unreachable.bump();
                    drop(packet);
                    return;
                }
            }
        };
        let header = interface.header(mac, ethertype(next_hop));
        path.remember(header, generation, now);
        self.transmit_to(&interface, mac, ethertype(next_hop), packet);
    }

    fn transmit_to(&self, interface: &Interface, mac: [u8; 6], kind: u16, mut packet: TxPacket) {
        packet
            .head
            .prepend(ethernet::HEADER)
            .copy_from_slice(&interface.header(mac, kind));
        self.transmit(interface, packet);
    }

    #[inline]
    pub(super) fn transmit(&self, interface: &Interface, packet: TxPacket) {
        if !self.packets.is_empty() {
            self.tap_sent(interface, &packet);
        }
        if interface.transmit(packet, &self.counters) {
            self.arm_backlog_timer(interface);
        }
    }

    /// Completions of sent packets cause no interrupt, so a full ring is looked at again soon.
    #[cold]
    pub(crate) fn arm_backlog_timer(&self, interface: &Interface) {
        if !interface.backlog_timer_set.swap(true, Ordering::Relaxed) {
            let key = TimerKey::Backlog(interface.index);
            self.timers.set(self.now() + BACKLOG_RETRY_NS, key);
        }
    }

    fn arm_neighbour_timer(&self, interface: &Interface, now: u64) {
        if !interface.neighbour_timer_set.swap(true, Ordering::Relaxed) {
            let key = TimerKey::Neighbours(interface.index);
            self.timers.set(now + RETRY_NS, key);
        }
    }

    /// Timer: asks again or gives up.
    #[cold]
    pub(crate) fn retry_neighbours(&self, index: usize, now: u64) {
        let Some(interface) = self.interface(index) else {
            return;
        };
        interface
            .neighbour_timer_set
            .store(false, Ordering::Relaxed);
        let retry = interface.neighbours.lock().retry(now);
        for (address, mac) in retry.ask {
            self.ask_neighbour(interface, address, mac, now);
        }
        if !retry.gone.is_empty() {
            interface.generation.fetch_add(1, Ordering::Relaxed);
        }
        for packet in retry.gone {
            self.counters.drop_unreachable.bump();
            self.report_unreachable(&packet, now);
        }
        if retry.pending {
            self.arm_neighbour_timer(interface, now);
        }
    }

    /// Asks who has `address`: everybody, or the one who had it.
    #[cold]
    fn ask_neighbour(
        &self,
        interface: &Arc<Interface>,
        address: Address,
        mac: Option<[u8; 6]>,
        now: u64,
    ) {
        let Some(target) = address.v4() else {
            self.solicit_neighbour(interface, address, now);
            return;
        };
        let Some(sender) = interface.source_for(address).and_then(Address::v4) else {
            return;
        };
        let request = Arp {
            is_request: true,
            sender_mac: interface.mac,
            sender,
            target_mac: [0; 6],
            target,
        };
        self.send_arp(interface, mac.unwrap_or(BROADCAST), &request);
    }

    #[cold]
    fn send_arp(&self, interface: &Interface, to: [u8; 6], message: &Arp) {
        let mut head = PacketBuf::new(HEADROOM, arp::LEN);
        head.append(arp::LEN).copy_from_slice(&message.emit());
        self.transmit_to(interface, to, ethernet::ARP, TxPacket::new(head));
    }

    #[cold]
    fn input_arp(&self, interface: &Arc<Interface>, buf: &PacketBuf, now: u64) {
        let Some(message) = Arp::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        let for_us = interface.has_address(Address::from_v4(message.target));
        if !message.sender.is_unspecified() && message.sender_mac[0] & 1 == 0 {
            let sender = Address::from_v4(message.sender);
            // Who asks for us will be talked to next: remember it at once (RFC 826, "merge").
            let create = for_us && message.is_request;
            self.neighbour_learned(interface, sender, message.sender_mac, create, now);
        }
        if for_us && message.is_request {
            let answer = Arp {
                is_request: false,
                sender_mac: interface.mac,
                sender: message.target,
                target_mac: message.sender_mac,
                target: message.sender,
            };
            self.send_arp(interface, message.sender_mac, &answer);
        }
    }

    /// A neighbour told its hardware address: sends what waited for it.
    #[cold]
    pub(crate) fn neighbour_learned(
        &self,
        interface: &Interface,
        address: Address,
        mac: [u8; 6],
        create: bool,
        now: u64,
    ) {
        let (waiting, changed) = interface.neighbours.lock().learn(address, mac, create, now);
        if changed {
            interface.generation.fetch_add(1, Ordering::Relaxed);
        }
        for packet in waiting {
            self.transmit_to(interface, mac, ethertype(address), packet);
        }
    }

    /// Announces the interface's addresses, now and a few times more.
    pub(crate) fn announce(&self, interface: &Arc<Interface>, now: u64) {
        interface
            .announcements
            .store(ANNOUNCEMENTS, Ordering::Relaxed);
        self.announce_again(interface, now);
    }

    /// Timer: the next announcement.
    #[cold]
    pub(crate) fn announce_again(&self, interface: &Arc<Interface>, now: u64) {
        let left = interface.announcements.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        interface.announcements.store(left - 1, Ordering::Relaxed);
        let addresses = interface.addresses.lock().clone();
        for prefix in addresses {
            match prefix.address.v4() {
                Some(v4) => {
                    let announcement = Arp {
                        is_request: true,
                        sender_mac: interface.mac,
                        sender: v4,
                        target_mac: [0; 6],
                        target: v4,
                    };
                    self.send_arp(interface, BROADCAST, &announcement);
                }
                None => {
                    let replace = !interface.autoconf.lock().is_tentative(prefix.address);
                    self.advertise_neighbour(interface, prefix.address, None, replace, now);
                }
            }
        }
        if left > 1 {
            let key = TimerKey::Announce(interface.index);
            self.timers.set(now + ANNOUNCE_INTERVAL_NS, key);
        }
    }
}
