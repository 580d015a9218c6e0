// SPDX-License-Identifier: Apache-2.0
//! Sockets below the transport protocols (`raw(7)`, `icmp(7)`): raw ones, which see all packets of a protocol and send
//! their own, and ping sockets, which see the answers to their own echoes.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use coracle_abi::raw::net as n;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

use crate::address::Address;
use crate::inbox::Inbox;
use crate::ip::{IpHeader, IpMeta};
use crate::stack::NetStack;
use crate::wire::icmp::{HEADER, v4, v6};
use crate::wire::{ipv4, protocol};

/// Longest message sent.
const LONGEST: usize = 65_507;

struct Inner {
    /// Identifier of a ping socket.
    id: u16,
    local: Option<Address>,
    peer: Option<Address>,
    inbox: Inbox<Address>,
}

/// Protocol number of sockets that only send, and bring their own IP header (`IPPROTO_RAW`).
const OWN_HEADER: u8 = 255;

/// A raw or ping socket.
pub(crate) struct RawSocket {
    pub(crate) poll: PollSource,
    pub(crate) v6: bool,
    /// `SOCK_DGRAM`: echoes only, with an identifier the kernel chooses.
    pub(crate) ping: bool,
    /// The IP protocol.
    pub(crate) protocol: u8,
    /// `IP_HDRINCL`.
    header_included: AtomicBool,
    ttl: AtomicU8,
    tos: AtomicU8,
    inner: SpinLock<Inner>,
}

impl RawSocket {
    /// `SOCK_RAW`
    pub(crate) fn raw(stack: &NetStack, v6: bool, protocol: u8) -> Arc<Self> {
        Self::new(stack, v6, false, protocol)
    }

    /// `SOCK_DGRAM`
    pub(crate) fn ping(stack: &NetStack, v6: bool) -> Arc<Self> {
        let protocol = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
        Self::new(stack, v6, true, protocol)
    }

    fn new(stack: &NetStack, v6: bool, ping: bool, protocol: u8) -> Arc<Self> {
        let socket = Arc::new(Self {
            poll: PollSource::new(),
            v6,
            ping,
            protocol,
            header_included: AtomicBool::new(protocol == OWN_HEADER && !v6),
            ttl: AtomicU8::new(64),
            tos: AtomicU8::new(0),
            inner: SpinLock::new(Inner {
                id: coracle_abi::convert::low_u16(coracle_core::random::u64()),
                local: None,
                peer: None,
                inbox: Inbox::default(),
            }),
        });
        stack.raw.add(&socket);
        socket
    }

    /// The last descriptor was closed.
    pub(crate) fn close(&self, stack: &NetStack) {
        stack.raw.remove(self);
    }

    /// Options of IP that raw sockets have. Returns whether it is one of them.
    pub(crate) fn set_option(&self, v6: bool, name: u32, value: i32) -> Result<bool> {
        let byte = |default: u8| match value {
            -1 => Ok(default),
            _ => u8::try_from(value).map_err(|_| Errno::EINVAL),
        };
        match (v6, name) {
            (false, n::IP_HDRINCL) if !self.v6 && !self.ping => {
                self.header_included.store(value != 0, Ordering::Relaxed);
            }
            (false, n::IP_TTL) | (true, n::IPV6_UNICAST_HOPS) => {
                self.ttl.store(byte(64)?, Ordering::Relaxed);
            }
            (false, n::IP_TOS) | (true, n::IPV6_TCLASS) => {
                self.tos.store(byte(0)?, Ordering::Relaxed);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The value of such an option.
    pub(crate) fn option(&self, v6: bool, name: u32) -> Option<usize> {
        Some(match (v6, name) {
            (false, n::IP_HDRINCL) => self.header_included.load(Ordering::Relaxed).into(),
            (false, n::IP_TTL) | (true, n::IPV6_UNICAST_HOPS) => {
                self.ttl.load(Ordering::Relaxed).into()
            }
            (false, n::IP_TOS) | (true, n::IPV6_TCLASS) => self.tos.load(Ordering::Relaxed).into(),
            _ => return None,
        })
    }

    /// `bind(2)`: the address to receive on and send from; the port is the identifier of a ping socket.
    pub(crate) fn bind(&self, stack: &NetStack, address: Address, id: u16) -> Result<()> {
        if !address.is_unspecified() && !stack.is_local(address) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let mut inner = self.inner.lock();
        inner.local = Some(address).filter(|a| !a.is_unspecified());
        if self.ping && id != 0 {
            inner.id = id;
        }
        Ok(())
    }

    pub(crate) fn connect(&self, peer: Option<Address>) {
        self.inner.lock().peer = peer;
    }

    pub(crate) fn local(&self) -> (Address, u16) {
        let inner = self.inner.lock();
        let any = if self.v6 {
            Address::ANY_V6
        } else {
            Address::ANY_V4
        };
        (
            inner.local.unwrap_or(any),
            if self.ping { inner.id } else { 0 },
        )
    }

    pub(crate) fn peer(&self) -> Result<Address> {
        self.inner.lock().peer.ok_or(Errno::ENOTCONN)
    }

    /// Sends one packet. The checksum of ICMPv6, and of the echoes of ping sockets, is filled in.
    #[cold]
    pub(crate) fn send(
        &self,
        stack: &NetStack,
        src: &mut IoSrc<'_>,
        to: Option<Address>,
        now: u64,
    ) -> Result<usize> {
        let len = src.remaining();
        if len > LONGEST {
            return Err(Errno::EMSGSIZE);
        }
        if self.ping && len < HEADER {
            return Err(Errno::EINVAL);
        }
        let start = src.done();
        let mut message = PacketBuf::new(HEADROOM, len);
        if src.read(message.append(len)) != Ok(len) {
            src.rewind(start);
            return Err(Errno::EFAULT);
        }
        let (destination, source, id) = {
            let inner = self.inner.lock();
            let destination = to.or(inner.peer).ok_or(Errno::EDESTADDRREQ)?;
            (destination, inner.local, inner.id)
        };
        if self.ping {
            let echo = if self.v6 { v6::ECHO } else { v4::ECHO };
            let bytes = message.data_mut();
            if bytes[0] != echo || bytes[1] != 0 {
                return Err(Errno::EINVAL);
            }
            bytes[4..6].copy_from_slice(&id.to_be_bytes());
        }
        let mut path = stack.route(destination, source, None)?;
        let ttl = self.ttl.load(Ordering::Relaxed);
        if self.header_included.load(Ordering::Relaxed) {
            if len > path.interface.mtu {
                return Err(Errno::EMSGSIZE);
            }
            ipv4::complete(message.data_mut(), path.source.v4(), stack.new_ip_id())
                .ok_or(Errno::EINVAL)?;
            stack.send_on_path(&mut path, TxPacket::new(message), now);
        } else if self.ping || self.protocol == protocol::ICMPV6 && len >= HEADER {
            stack.send_icmp(destination, source, None, message, ttl, now);
        } else {
            let header = IpHeader {
                destination,
                protocol: self.protocol,
                ttl,
                tos: self.tos.load(Ordering::Relaxed),
                dont_fragment: false,
            };
            stack.send_ip(&mut path, TxPacket::new(message), header, now);
        }
        Ok(len)
    }

    /// Takes a message: bytes copied, its length, its sender.
    pub(crate) fn receive(
        &self,
        dst: &mut IoDst<'_>,
        peek: bool,
    ) -> Result<(usize, usize, Address)> {
        self.inner.lock().inbox.take(dst, peek)
    }

    /// Whether a message is for this socket.
    fn wants(&self, meta: &IpMeta<'_>, message: &[u8]) -> bool {
        let inner = self.inner.lock();
        let fits = self.v6 != meta.destination.is_v4()
            && self.protocol == meta.protocol
            && inner.local.is_none_or(|l| l == meta.destination)
            && inner.peer.is_none_or(|p| p == meta.source);
        let reply = if self.v6 {
            v6::ECHO_REPLY
        } else {
            v4::ECHO_REPLY
        };
        let own_echo = || message[0] == reply && message[4..6] == inner.id.to_be_bytes();
        fits && (!self.ping || own_echo())
    }

    fn deliver(&self, bytes: &[u8], from: Address) -> bool {
        if !self.inner.lock().inbox.push(bytes, from) {
            return false;
        }
        self.poll.notify(PollEvents::IN | PollEvents::RDNORM);
        true
    }

    pub(crate) fn poll(&self) -> PollEvents {
        self.inner.lock().inbox.poll()
    }

    pub(crate) fn readable_bytes(&self) -> usize {
        self.inner.lock().inbox.readable_bytes()
    }
}

impl NetStack {
    /// Gives a packet to the sockets that want it, and returns whether there are any. A raw IPv4 socket gets the IP
    /// header with it, as raw(7) says.
    #[cold]
    pub(crate) fn deliver_raw(&self, meta: &IpMeta<'_>, buf: &mut PacketBuf) -> bool {
        if self.raw.is_empty() {
            return false;
        }
        let mut taken = false;
        for socket in self.raw.all() {
            if !socket.wants(meta, buf.data()) {
                continue;
            }
            taken = true;
            let with_header = !socket.ping && !socket.v6;
            let header_len = if with_header { meta.header_len } else { 0 };
            buf.prepend(header_len);
            let delivered = socket.deliver(buf.data(), meta.source);
            buf.trim_front(header_len);
            if !delivered {
                self.counters.drop_receive_full.bump();
            }
        }
        taken
    }
}
