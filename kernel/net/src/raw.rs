// SPDX-License-Identifier: Apache-2.0
//! Sockets for ICMP messages (`raw(7)`, `icmp(7)`): raw ones, which see all messages, and ping sockets, which see the
//! answers to their own echoes.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use coracle_core::io::{IoDst, IoSrc};
use coracle_core::packet::{HEADROOM, PacketBuf};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

use crate::address::Address;
use crate::ip::IpMeta;
use crate::stack::NetStack;
use crate::wire::icmp::{HEADER, v4, v6};

/// Bytes queued at most, with an overhead for each message.
const LIMIT: usize = 212_992;
const OVERHEAD: usize = 256;
/// Longest message sent.
const LONGEST: usize = 65_507;

struct Inner {
    /// Identifier of a ping socket.
    id: u16,
    local: Option<Address>,
    peer: Option<Address>,
    queue: VecDeque<(Vec<u8>, Address)>,
    held: usize,
}

/// A raw ICMP or ping socket.
pub(crate) struct RawSocket {
    pub(crate) poll: PollSource,
    pub(crate) v6: bool,
    /// `SOCK_DGRAM`: echoes only, with an identifier the kernel chooses.
    pub(crate) ping: bool,
    inner: SpinLock<Inner>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct RawSockets {
    list: SpinLock<Vec<Weak<RawSocket>>>,
}

impl RawSocket {
    pub(crate) fn new(stack: &NetStack, v6: bool, ping: bool) -> Arc<Self> {
        let socket = Arc::new(Self {
            poll: PollSource::new(),
            v6,
            ping,
            inner: SpinLock::new(Inner {
                id: coracle_abi::convert::low_u16(coracle_core::random::u64()),
                local: None,
                peer: None,
                queue: VecDeque::new(),
                held: 0,
            }),
        });
        let mut list = stack.raw.list.lock();
        list.retain(|s| s.strong_count() > 0);
        list.push(Arc::downgrade(&socket));
        socket
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

    /// Sends one ICMP message; its checksum is filled in.
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
        if len < HEADER {
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
        stack.route(destination, source, None)?; // to say ENETUNREACH
        stack.send_icmp(destination, source, None, message, 64, now);
        Ok(len)
    }

    /// Takes a message: bytes copied, its length, its sender.
    #[cold]
    pub(crate) fn receive(
        &self,
        dst: &mut IoDst<'_>,
        peek: bool,
    ) -> Result<(usize, usize, Address)> {
        let mut inner = self.inner.lock();
        let (bytes, from) = inner.queue.front().ok_or(Errno::EAGAIN)?;
        let (len, from) = (bytes.len(), *from);
        let copied = dst.write(bytes)?;
        if dst.faulted().is_some() {
            return Err(Errno::EFAULT);
        }
        if !peek {
            inner.queue.pop_front();
            inner.held -= len + OVERHEAD;
        }
        Ok((copied, len, from))
    }

    /// Whether a message is for this socket.
    fn wants(&self, meta: &IpMeta<'_>, message: &[u8]) -> bool {
        let inner = self.inner.lock();
        let fits = self.v6 != meta.destination.is_v4()
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

    fn deliver(&self, bytes: Vec<u8>, from: Address) -> bool {
        let mut inner = self.inner.lock();
        let cost = bytes.len() + OVERHEAD;
        if inner.held + cost > LIMIT {
            return false;
        }
        inner.held += cost;
        inner.queue.push_back((bytes, from));
        drop(inner);
        self.poll.notify(PollEvents::IN | PollEvents::RDNORM);
        true
    }

    pub(crate) fn poll(&self) -> PollEvents {
        let write = PollEvents::OUT | PollEvents::WRNORM;
        if self.inner.lock().queue.is_empty() {
            write
        } else {
            write | PollEvents::IN | PollEvents::RDNORM
        }
    }

    pub(crate) fn readable_bytes(&self) -> usize {
        self.inner.lock().queue.front().map_or(0, |(b, _)| b.len())
    }
}

impl NetStack {
    /// Gives an ICMP message to the sockets that want it. A raw IPv4 socket gets the IP header with it, as raw(7) says.
    #[cold]
    pub(crate) fn deliver_raw(&self, meta: &IpMeta<'_>, buf: &mut PacketBuf) {
        let sockets: Vec<Arc<RawSocket>> = {
            let list = self.raw.list.lock();
            if list.is_empty() {
                return;
            }
            list.iter().filter_map(Weak::upgrade).collect()
        };
        for socket in sockets {
            if !socket.wants(meta, buf.data()) {
                continue;
            }
            let with_header = !socket.ping && !socket.v6;
            let bytes = if with_header {
                buf.prepend(meta.header_len);
                let bytes = buf.data().to_vec();
                buf.trim_front(meta.header_len);
                bytes
            } else {
                buf.data().to_vec()
            };
            if !socket.deliver(bytes, meta.source) {
                self.counters.drop_receive_full.bump();
            }
        }
    }
}
