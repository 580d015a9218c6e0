// SPDX-License-Identifier: Apache-2.0
//! `AF_PACKET` (packet(7)): sockets that see and send whole frames, for programs that bring their own protocols, and for
//! those that watch.

use alloc::sync::Arc;

use coracle_core::io::{IoDst, IoSrc};
use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

use super::Interface;
use crate::inbox::Inbox;
use crate::packet::contiguous;
use crate::stack::NetStack;
use crate::wire::ethernet::{self, BROADCAST, Ethernet};

/// Protocol number for all frames (`ETH_P_ALL`).
pub(crate) const ALL: u16 = 3;

/// `struct sockaddr_ll` without its family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAddress {
    /// Ethernet type of the payload.
    pub protocol: u16,
    /// Linux's interface index, from 1; 0 for any.
    pub interface: u32,
    /// `ARPHRD_*`.
    pub hardware: u16,
    /// `PACKET_HOST`, `PACKET_BROADCAST` ...
    pub packet_type: u8,
    /// Length of the hardware address.
    pub len: u8,
    /// The hardware address.
    pub address: [u8; 8],
}

/// To whom a frame was addressed (packet(7), `sll_pkttype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Direction {
    Host = 0,
    Broadcast = 1,
    Multicast = 2,
    OtherHost = 3,
    Outgoing = 4,
}

/// Type of an Ethernet interface, and of loopback (`ARPHRD_ETHER`, `ARPHRD_LOOPBACK`).
const ETHER: u16 = 1;
const LOOPBACK: u16 = 772;

struct Inner {
    /// Ethernet type to receive; 0 for none, [`ALL`] for all.
    protocol: u16,
    /// Index in the stack; `None` for all interfaces.
    interface: Option<usize>,
    inbox: Inbox<LinkAddress>,
    /// Frames since the last look (`PACKET_STATISTICS`): all, and those for which there was no room.
    seen: u32,
    dropped: u32,
}

/// A packet socket.
pub(crate) struct PacketSocket {
    pub(crate) poll: PollSource,
    /// `SOCK_RAW`: frames with their link header.
    pub(crate) with_header: bool,
    inner: SpinLock<Inner>,
}

impl PacketSocket {
    /// `protocol` is the Ethernet type, 0 to receive nothing before it is bound.
    pub(crate) fn new(stack: &NetStack, with_header: bool, protocol: u16) -> Arc<Self> {
        let socket = Arc::new(Self {
            poll: PollSource::new(),
            with_header,
            inner: SpinLock::new(Inner {
                protocol,
                interface: None,
                inbox: Inbox::default(),
                seen: 0,
                dropped: 0,
            }),
        });
        stack.packets.add(&socket);
        socket
    }

    /// The last descriptor was closed.
    pub(crate) fn close(&self, stack: &NetStack) {
        stack.packets.remove(self);
    }

    /// `bind(2)`: interface and protocol; a protocol of 0 keeps the one from socket(2). `ENODEV`.
    pub(crate) fn bind(&self, stack: &NetStack, to: &LinkAddress) -> Result<()> {
        let interface = stack.by_linux_index(to.interface)?;
        let mut inner = self.inner.lock();
        inner.interface = interface.map(|i| i.index);
        if to.protocol != 0 {
            inner.protocol = to.protocol;
        }
        Ok(())
    }

    /// `getsockname(2)`.
    pub(crate) fn local(&self, stack: &NetStack) -> LinkAddress {
        let inner = self.inner.lock();
        let interface = inner.interface.and_then(|index| stack.interface(index));
        LinkAddress {
            protocol: inner.protocol,
            ..interface.map_or(LinkAddress::default(), |i| own_address(i))
        }
    }

    /// Sends a frame. `EMSGSIZE` if it is too long, `ENXIO` without an interface, `EINVAL` if it lacks its header.
    #[cold]
    pub(crate) fn send(
        &self,
        stack: &NetStack,
        src: &mut IoSrc<'_>,
        to: Option<&LinkAddress>,
    ) -> Result<usize> {
        let (bound, bound_protocol) = {
            let inner = self.inner.lock();
            (inner.interface, inner.protocol)
        };
        let interface = match to {
            Some(to) if to.interface != 0 => stack.by_linux_index(to.interface)?,
            _ => bound.and_then(|index| stack.interface(index)),
        };
        let interface = interface.ok_or(Errno::ENXIO)?;
        let len = src.remaining();
        let header = if self.with_header {
            ethernet::HEADER
        } else {
            0
        };
        if len < header {
            return Err(Errno::EINVAL);
        }
        if len > interface.mtu + header {
            return Err(Errno::EMSGSIZE);
        }
        let start = src.done();
        let mut frame = PacketBuf::new(HEADROOM, len);
        if src.read(frame.append(len)) != Ok(len) {
            src.rewind(start);
            return Err(Errno::EFAULT);
        }
        if !self.with_header {
            let to = to.ok_or(Errno::EDESTADDRREQ)?;
            let mac = to.address.first_chunk().copied().unwrap_or(BROADCAST);
            let kind = if to.protocol == 0 {
                bound_protocol
            } else {
                to.protocol
            };
            let head = interface.header(mac, kind);
            frame.prepend(head.len()).copy_from_slice(&head);
        }
        if interface.is_loopback() {
            stack.loop_frame_back(interface, frame);
        } else {
            stack.transmit(interface, TxPacket::new(frame));
        }
        Ok(len)
    }

    /// Takes a frame: bytes copied, its length, where it came from.
    pub(crate) fn receive(
        &self,
        dst: &mut IoDst<'_>,
        peek: bool,
    ) -> Result<(usize, usize, LinkAddress)> {
        self.inner.lock().inbox.take(dst, peek)
    }

    pub(crate) fn poll(&self) -> PollEvents {
        self.inner.lock().inbox.poll()
    }

    pub(crate) fn readable_bytes(&self) -> usize {
        self.inner.lock().inbox.readable_bytes()
    }

    /// `PACKET_STATISTICS`: frames since the last call, and how many of them were dropped.
    pub(crate) fn take_statistics(&self) -> (u32, u32) {
        let mut inner = self.inner.lock();
        (
            core::mem::take(&mut inner.seen),
            core::mem::take(&mut inner.dropped),
        )
    }

    /// Takes a copy of `frame` if it is one of those wanted.
    fn offer(&self, interface: usize, frame: &[u8], from: &LinkAddress) {
        let mut inner = self.inner.lock();
        // What is sent is seen by those alone who see everything.
        let wanted = inner.protocol == ALL
            || inner.protocol == from.protocol && from.packet_type != Direction::Outgoing as u8;
        if !wanted || inner.interface.is_some_and(|own| own != interface) {
            return;
        }
        let bytes = if self.with_header {
            frame
        } else {
            frame.get(ethernet::HEADER..).unwrap_or_default()
        };
        inner.seen = inner.seen.wrapping_add(1);
        if !inner.inbox.push(bytes, *from) {
            inner.dropped = inner.dropped.wrapping_add(1);
            return;
        }
        drop(inner);
        self.poll.notify(PollEvents::IN | PollEvents::RDNORM);
    }
}

fn own_address(interface: &Interface) -> LinkAddress {
    let mut address = [0; 8];
    address[..6].copy_from_slice(&interface.mac);
    LinkAddress {
        protocol: 0,
        interface: u32::try_from(interface.index + 1).unwrap_or(0),
        hardware: if interface.is_loopback() {
            LOOPBACK
        } else {
            ETHER
        },
        packet_type: Direction::Host as u8,
        len: 6,
        address,
    }
}

impl NetStack {
    /// The interface with Linux's index; `None` for 0, `ENODEV` for one that is not there.
    pub(crate) fn by_linux_index(&self, index: u32) -> Result<Option<&Arc<Interface>>> {
        match index.checked_sub(1) {
            None => Ok(None),
            Some(place) => usize::try_from(place)
                .ok()
                .and_then(|place| self.interface(place))
                .map(Some)
                .ok_or(Errno::ENODEV),
        }
    }

    /// Shows a received frame to the packet sockets.
    #[cold]
    pub(crate) fn tap_received(&self, interface: &Interface, frame: &[u8]) {
        let Some(header) = Ethernet::parse(frame) else {
            return;
        };
        let direction = match header.destination {
            mac if mac == interface.mac => Direction::Host,
            BROADCAST => Direction::Broadcast,
            mac if mac[0] & 1 != 0 => Direction::Multicast,
            _ => Direction::OtherHost,
        };
        self.tap(interface, frame, &header, direction);
    }

    /// Shows a frame that is about to be sent to the packet sockets.
    #[cold]
    pub(crate) fn tap_sent(&self, interface: &Interface, packet: &TxPacket) {
        let frame = contiguous(packet);
        if let Some(header) = Ethernet::parse(frame.data()) {
            self.tap(interface, frame.data(), &header, Direction::Outgoing);
        }
    }

    /// A frame sent on loopback: IP goes through the stack, everything else is for packet sockets alone.
    fn loop_frame_back(&self, interface: &Interface, mut frame: PacketBuf) {
        let Some(header) = Ethernet::parse(frame.data()) else {
            return;
        };
        if matches!(header.kind, ethernet::IPV4 | ethernet::IPV6) {
            frame.trim_front(ethernet::HEADER);
            self.send_loopback(TxPacket::new(frame));
            return;
        }
        for direction in [Direction::Outgoing, Direction::Host] {
            self.tap(interface, frame.data(), &header, direction);
        }
    }

    /// Shows an IP packet on loopback to the packet sockets, with the empty header that Linux has there.
    #[cold]
    pub(crate) fn tap_loopback(&self, interface: &Interface, packet: &PacketBuf) {
        let kind = match packet.data().first().map(|b| b >> 4) {
            Some(6) => ethernet::IPV6,
            _ => ethernet::IPV4,
        };
        let header = Ethernet {
            destination: [0; 6],
            source: [0; 6],
            kind,
        };
        let mut frame = header.emit().to_vec();
        frame.extend_from_slice(packet.data());
        for direction in [Direction::Outgoing, Direction::Host] {
            self.tap(interface, &frame, &header, direction);
        }
    }

    fn tap(&self, interface: &Interface, frame: &[u8], header: &Ethernet, direction: Direction) {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&header.source);
        let from = LinkAddress {
            protocol: header.kind,
            packet_type: direction as u8,
            address,
            ..own_address(interface)
        };
        for socket in self.packets.all() {
            socket.offer(interface.index, frame, &from);
        }
    }
}
