// SPDX-License-Identifier: Apache-2.0
//! A UDP socket (`udp(7)`).

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};

use coracle_core::io::{IoDst, IoSrc};
use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

use super::{UdpOptions, lite};
use crate::address::{Address, Endpoint};
use crate::ip::{IpHeader, checksum_in_place};
use crate::link::Path;
use crate::packet::memory_of;
use crate::ports::Binding;
use crate::socket::Shutdown;
use crate::stack::{NetStack, Transport};
use crate::wire::protocol;
use crate::wire::udp::{self, Udp};

/// Longest payload: a 16-bit length less the header.
const LONGEST: usize = 65_535 - udp::HEADER - 20;
/// What one queued datagram costs besides its payload: many empty datagrams must not be free.
const OVERHEAD: usize = 128;

/// A received datagram.
pub(crate) struct Datagram {
    pub(super) buf: PacketBuf,
    pub(crate) source: Endpoint,
    pub(crate) destination: Address,
    /// Index of the interface it came in by, from 0.
    pub(crate) interface: usize,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
}

impl Datagram {
    /// Memory it holds.
    fn cost(&self) -> usize {
        memory_of(&self.buf) + OVERHEAD
    }
}

struct Inner {
    options: UdpOptions,
    local: Endpoint,
    /// The address before `connect` chose one.
    bound_address: Address,
    bound: bool,
    peer: Option<Endpoint>,
    /// The way to the last destination.
    path: Option<(Address, Path)>,
    queue: VecDeque<Datagram>,
    /// Bytes in the queue, with their overhead.
    queued: usize,
    error: Option<Errno>,
    shutdown: Shutdown,
}

/// A UDP socket.
pub(crate) struct UdpSocket {
    pub(crate) poll: PollSource,
    pub(crate) v6: bool,
    /// `UDP` or `UDP_LITE`.
    pub(crate) protocol: u8,
    me: Weak<Self>,
    inner: SpinLock<Inner>,
}

/// What a receive call got, besides the bytes.
pub(crate) struct UdpReceived {
    /// Bytes copied.
    pub(crate) copied: usize,
    /// Length of the datagram.
    pub(crate) len: usize,
    pub(crate) source: Endpoint,
    pub(crate) destination: Address,
    pub(crate) interface: usize,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
}

/// What one datagram is to have instead of what the socket's options and the route say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UdpSend {
    pub(crate) ttl: Option<u8>,
    pub(crate) tos: Option<u8>,
    pub(crate) source: Option<Address>,
    /// Index of the interface, from 0.
    pub(crate) interface: Option<usize>,
}

impl UdpSend {
    fn has_own_path(&self) -> bool {
        self.source.is_some() || self.interface.is_some()
    }
}

/// The unspecified address of a family.
fn any(v6: bool) -> Address {
    if v6 { Address::ANY_V6 } else { Address::ANY_V4 }
}

const READABLE: PollEvents = PollEvents::IN.union(PollEvents::RDNORM);

impl UdpSocket {
    /// A socket of `protocol`, which is `UDP` or `UDP_LITE`.
    pub(crate) fn new(v6: bool, protocol: u8) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            poll: PollSource::new(),
            v6,
            protocol,
            me: me.clone(),
            inner: SpinLock::new(Inner {
                options: UdpOptions::default(),
                local: Endpoint::new(any(v6), 0),
                bound_address: any(v6),
                bound: false,
                peer: None,
                path: None,
                queue: VecDeque::new(),
                queued: 0,
                error: None,
                shutdown: Shutdown::default(),
            }),
        })
    }

    /// `bind(2)`.
    pub(crate) fn bind(&self, stack: &NetStack, to: Endpoint) -> Result<()> {
        let me = self.me.upgrade().ok_or(Errno::EINVAL)?;
        let mut inner = self.inner.lock();
        if inner.bound {
            return Err(Errno::EINVAL);
        }
        let address = to.address;
        let known = address.is_unspecified()
            || address.is_multicast()
            || stack.is_local(address)
            || stack.is_broadcast(address);
        if !known {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let port = stack
            .udp
            .of(self.protocol)
            .bind(&me, to.port, inner.binding(address))?;
        inner.local = Endpoint::new(address, port);
        inner.bound_address = address;
        inner.bound = true;
        drop(inner);
        if to.port != 0 {
            stack.announce_listen(Transport::Udp, port);
        }
        Ok(())
    }

    fn ensure_bound(&self, stack: &NetStack) -> Result<()> {
        if self.inner.lock().bound {
            return Ok(());
        }
        match self.bind(stack, Endpoint::new(any(self.v6), 0)) {
            Err(Errno::EINVAL) => Ok(()), // another thread was quicker
            other => other,
        }
    }

    /// `connect(2)`: `None` dissolves the association.
    pub(crate) fn connect(&self, stack: &NetStack, peer: Option<Endpoint>) -> Result<()> {
        if peer.is_some() {
            self.ensure_bound(stack)?;
        }
        let me = self.me.upgrade().ok_or(Errno::EINVAL)?;
        let mut inner = self.inner.lock();
        if let Some(peer) = peer {
            if stack.is_broadcast(peer.address) && !inner.options.broadcast {
                return Err(Errno::EACCES);
            }
            let chosen = Some(inner.bound_address);
            let path = stack.route(peer.address, chosen, None)?;
            inner.local.address = path.source;
            inner.path = Some((peer.address, path));
        } else {
            inner.path = None;
            inner.local.address = inner.bound_address;
        }
        inner.peer = peer;
        let binding = inner.binding(inner.local.address);
        let port = inner.local.port;
        drop(inner);
        stack
            .udp
            .of(self.protocol)
            .update(&me, port, |b| *b = binding);
        Ok(())
    }

    /// Sends one datagram to `to`, or to the peer.
    pub(crate) fn send(
        &self,
        stack: &NetStack,
        src: &mut IoSrc<'_>,
        to: Option<Endpoint>,
        how: &UdpSend,
        now: u64,
    ) -> Result<usize> {
        let len = src.remaining();
        if len > LONGEST {
            return Err(Errno::EMSGSIZE);
        }
        {
            let mut inner = self.inner.lock();
            if inner.shutdown.write {
                return Err(Errno::EPIPE);
            }
            if let Some(error) = inner.error.take() {
                return Err(error);
            }
            if to.is_none() && inner.peer.is_none() {
                return Err(Errno::EDESTADDRREQ);
            }
        }
        if to.is_some_and(|to| to.port == 0) {
            return Err(Errno::EINVAL);
        }
        self.ensure_bound(stack)?;
        // The payload is copied before the lock is taken and before anything changes.
        let start = src.done();
        let mut head = PacketBuf::new(HEADROOM, len);
        let copied = src.read(head.append(len));
        if copied != Ok(len) {
            src.rewind(start);
            return Err(Errno::EFAULT);
        }
        let mut inner = self.inner.lock();
        let destination = to.or(inner.peer).ok_or(Errno::EDESTADDRREQ)?;
        let options = &inner.options;
        let address = destination.address;
        if stack.is_broadcast(address) && !options.broadcast {
            return Err(Errno::EACCES);
        }
        let ttl = how.ttl.unwrap_or(if address.is_multicast() {
            options.multicast_ttl
        } else {
            options.ttl
        });
        let tos = how.tos.unwrap_or(options.tos);
        let dont_fragment = options.dont_fragment;
        let out = options.multicast_interface;
        let out = how.interface.or(out.filter(|_| address.is_multicast()));
        let source = how.source.or(Some(inner.local.address));
        let usual = !how.has_own_path();
        let cached = if usual { inner.path.take() } else { None };
        let mut path = match cached.filter(|(to, _)| *to == address) {
            Some((_, path)) => path,
            None => stack.route(address, source, out)?,
        };
        let ip_len = if address.is_v4() { 20 } else { 40 };
        if dont_fragment && ip_len + udp::HEADER + len > path.interface.mtu {
            if usual {
                inner.path = Some((address, path));
            }
            src.rewind(start);
            return Err(Errno::EMSGSIZE);
        }
        let ports = [inner.local.port, destination.port];
        let packet = if self.protocol == protocol::UDP_LITE {
            lite::put_header(&mut head, ports, &inner.options, &path, address);
            TxPacket::new(head)
        } else {
            Udp {
                source: ports[0],
                destination: ports[1],
                len: udp::HEADER + len,
                has_checksum: true,
            }
            .emit(head.prepend(udp::HEADER));
            let mut packet = TxPacket::new(head);
            checksum_in_place(&mut packet, &path, address, protocol::UDP, udp::CHECKSUM);
            packet
        };
        let header = IpHeader {
            destination: address,
            protocol: self.protocol,
            ttl,
            tos,
            dont_fragment,
        };
        if address.is_multicast() && inner.options.multicast_loop {
            stack.loop_back_copy(&path, &packet, header, now);
        }
        stack.send_ip(&mut path, packet, header, now);
        if usual {
            inner.path = Some((address, path));
        }
        stack.counters.udp_sent.bump();
        Ok(len)
    }

    /// Takes a datagram. `EAGAIN` if there is none.
    pub(crate) fn receive(&self, dst: &mut IoDst<'_>, peek: bool) -> Result<UdpReceived> {
        let mut inner = self.inner.lock();
        if let Some(error) = inner.error.take() {
            return Err(error);
        }
        let Some(first) = inner.queue.front() else {
            if inner.shutdown.read {
                return Ok(UdpReceived {
                    copied: 0,
                    len: 0,
                    source: inner.local,
                    destination: inner.local.address,
                    interface: 0,
                    ttl: 0,
                    tos: 0,
                });
            }
            return Err(Errno::EAGAIN);
        };
        let len = first.buf.len();
        let copied = dst.write(first.buf.data())?;
        if dst.faulted().is_some() {
            return Err(Errno::EFAULT); // the datagram stays
        }
        let received = UdpReceived {
            copied,
            len,
            source: first.source,
            destination: first.destination,
            interface: first.interface,
            ttl: first.ttl,
            tos: first.tos,
        };
        if !peek {
            let taken = inner.queue.pop_front();
            let cost = taken.as_ref().map_or(0, Datagram::cost);
            inner.queued = inner.queued.saturating_sub(cost);
            drop(inner);
            drop(taken);
        }
        Ok(received)
    }

    pub(super) fn deliver(&self, datagram: Datagram) -> bool {
        let mut inner = self.inner.lock();
        let cost = datagram.cost();
        if inner.shutdown.read || inner.queued + cost > inner.options.receive_buffer {
            return false;
        }
        inner.queued += cost;
        inner.queue.push_back(datagram);
        drop(inner);
        self.poll.notify(READABLE);
        true
    }

    /// Whether a packet to a group is for this socket.
    pub(super) fn wants_group(&self, group: Address, interface: usize) -> bool {
        let inner = self.inner.lock();
        let joined = inner
            .options
            .groups
            .iter()
            .any(|(g, i)| *g == group && (*i == interface || interface == 0));
        joined || inner.local.address == group
    }

    pub(super) fn fail(&self, error: Errno) {
        self.inner.lock().error = Some(error);
        self.poll
            .notify(READABLE | PollEvents::ERR | PollEvents::OUT);
    }

    /// `shutdown(2)`: `ENOTCONN` without a peer, but it takes effect all the same, as on Linux.
    pub(crate) fn shutdown(&self, how: Shutdown) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.shutdown.read |= how.read;
        inner.shutdown.write |= how.write;
        let connected = inner.peer.is_some();
        drop(inner);
        self.poll
            .notify(READABLE | PollEvents::RDHUP | PollEvents::HUP | PollEvents::OUT);
        if connected {
            Ok(())
        } else {
            Err(Errno::ENOTCONN)
        }
    }

    /// The last descriptor was closed.
    pub(crate) fn close(&self, stack: &NetStack) {
        let mut inner = self.inner.lock();
        let port = core::mem::take(&mut inner.bound).then_some(inner.local.port);
        let queue = core::mem::take(&mut inner.queue);
        let groups = core::mem::take(&mut inner.options.groups);
        drop(inner);
        drop(queue);
        for (group, interface) in groups {
            stack.leave_group(group, interface, stack.now());
        }
        if let (Some(me), Some(port)) = (self.me.upgrade(), port) {
            stack.udp.of(self.protocol).unbind(&me, port);
        }
    }

    /// Readiness.
    pub(crate) fn poll(&self) -> PollEvents {
        let inner = self.inner.lock();
        let mut events = PollEvents::OUT | PollEvents::WRNORM;
        if !inner.queue.is_empty() {
            events |= READABLE;
        }
        if inner.shutdown.read {
            events |= READABLE | PollEvents::RDHUP;
        }
        if inner.shutdown.read && inner.shutdown.write {
            events |= PollEvents::HUP;
        }
        if inner.error.is_some() {
            events |= PollEvents::ERR;
        }
        events
    }

    pub(crate) fn local(&self) -> Endpoint {
        self.inner.lock().local
    }

    pub(crate) fn peer(&self) -> Result<Endpoint> {
        self.inner.lock().peer.ok_or(Errno::ENOTCONN)
    }

    pub(crate) fn take_error(&self) -> Option<Errno> {
        self.inner.lock().error.take()
    }

    /// Length of the next datagram (`FIONREAD`).
    pub(crate) fn readable_bytes(&self) -> usize {
        self.inner.lock().queue.front().map_or(0, |d| d.buf.len())
    }

    pub(crate) fn options<R>(&self, f: impl FnOnce(&UdpOptions) -> R) -> R {
        f(&self.inner.lock().options)
    }

    pub(crate) fn change_options(&self, stack: &NetStack, f: &mut dyn FnMut(&mut UdpOptions)) {
        let mut inner = self.inner.lock();
        f(&mut inner.options);
        let (port, binding) = (inner.local.port, inner.binding(inner.local.address));
        let bound = inner.bound;
        drop(inner);
        if let Some(me) = self.me.upgrade().filter(|_| bound) {
            stack
                .udp
                .of(self.protocol)
                .update(&me, port, |b| *b = binding);
        }
    }
}

impl Inner {
    fn binding(&self, address: Address) -> Binding {
        Binding {
            address,
            dual: !self.options.v6_only,
            reuse_address: self.options.reuse_address,
            reuse_port: self.options.reuse_port,
            listening: false,
            remote: self.peer,
        }
    }
}
