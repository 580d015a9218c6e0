// SPDX-License-Identifier: Apache-2.0
//! A TCP socket: what the application holds, in each of its roles.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};

use coracle_core::packet::PacketBuf;
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

use super::input::Segment;
use super::listener::Listener;
use super::options::TcpOptions;
use super::seq::before;
use super::table::Entry;
use super::tcb::{Context, State, Tcb};
use crate::address::{Address, Endpoint, Flow};
use crate::icmp::DeliveryError;
use crate::ports::{Binding, ephemeral_ports};
use crate::stack::{NetStack, Transport};

/// Longest queue of connections to be accepted (`net.core.somaxconn`).
const MAX_BACKLOG: usize = 4096;

/// What a socket is at the moment.
pub(super) enum Role {
    /// Neither connected nor listening.
    Idle,
    Listening(Listener),
    Connection(Box<Tcb>),
}

pub(super) struct Inner {
    pub(super) options: TcpOptions,
    /// The bound address, or the local end of the connection.
    local: Endpoint,
    /// In the port table under this port.
    pub(super) bound_port: Option<u16>,
    /// `connect` returned `EINPROGRESS` and its result has not been asked for.
    connecting: bool,
    pub(super) role: Role,
}

/// A TCP socket.
pub(crate) struct TcpSocket {
    pub(crate) poll: PollSource,
    /// Of the family `AF_INET6`.
    pub(crate) v6: bool,
    pub(super) me: Weak<Self>,
    pub(super) inner: SpinLock<Inner>,
}

impl TcpSocket {
    /// A new socket of family `AF_INET6` or `AF_INET`.
    pub(crate) fn new(v6: bool) -> Arc<Self> {
        let any = if v6 { Address::ANY_V6 } else { Address::ANY_V4 };
        Self::with_role(v6, TcpOptions::default(), Endpoint::new(any, 0), |_| {
            Role::Idle
        })
    }

    pub(super) fn with_role(
        v6: bool,
        options: TcpOptions,
        local: Endpoint,
        role: impl FnOnce(&Weak<Self>) -> Role,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            poll: PollSource::new(),
            v6,
            me: me.clone(),
            inner: SpinLock::new(Inner {
                options,
                local,
                bound_port: None,
                connecting: false,
                role: role(me),
            }),
        })
    }

    /// The unspecified address of this socket's family.
    pub(super) fn any_address(&self) -> Address {
        if self.v6 {
            Address::ANY_V6
        } else {
            Address::ANY_V4
        }
    }

    /// Runs `f` on the connection, if this is one.
    pub(super) fn with_tcb<R>(
        &self,
        stack: &NetStack,
        now: u64,
        f: impl FnOnce(&mut Tcb, &Context<'_>) -> R,
    ) -> Option<R> {
        let mut inner = self.inner.lock();
        let Inner { options, role, .. } = &mut *inner;
        let Role::Connection(tcb) = role else {
            return None;
        };
        let cx = Context {
            stack,
            options,
            socket: &self.me,
            now,
        };
        Some(f(tcb, &cx))
    }

    pub(super) fn notify(&self, events: PollEvents) {
        if !events.is_empty() {
            self.poll.notify(events);
        }
    }

    /// A segment of this connection has arrived.
    #[inline]
    pub(super) fn input(
        &self,
        stack: &NetStack,
        flow: &Flow,
        segment: &Segment,
        buf: PacketBuf,
        now: u64,
    ) {
        let events = self.with_tcb(stack, now, |tcb, cx| {
            (tcb.flow == *flow).then(|| {
                let events = tcb.on_segment(cx, segment, buf);
                tcb.settle_memory(stack);
                events
            })
        });
        self.notify(events.flatten().unwrap_or(PollEvents::empty()));
    }

    /// The connection's timer went off.
    pub(crate) fn on_timer(&self, stack: &NetStack, now: u64) {
        let events = self.with_tcb(stack, now, |tcb, cx| {
            let events = tcb.on_timer(cx);
            tcb.settle_memory(stack);
            events
        });
        self.notify(events.unwrap_or(PollEvents::empty()));
    }

    /// The network says something about segment `seq` of this connection (RFC 5927: only about one that is under way).
    pub(super) fn on_delivery_error(
        &self,
        stack: &NetStack,
        seq: u32,
        error: DeliveryError,
        now: u64,
    ) {
        let events = self.with_tcb(stack, now, |tcb, cx| {
            if before(seq, tcb.snd_una) || !before(seq, tcb.snd_max) {
                return PollEvents::empty();
            }
            match error {
                DeliveryError::Hard(errno) | DeliveryError::Soft(errno)
                    if matches!(tcb.state, State::SynSent | State::SynReceived) =>
                {
                    tcb.fail(cx, errno)
                }
                DeliveryError::Hard(errno) | DeliveryError::Soft(errno) => {
                    tcb.soft_error = Some(errno);
                    PollEvents::empty()
                }
                DeliveryError::TooBig(mtu) => {
                    tcb.shrink_segments(cx, mtu);
                    PollEvents::empty()
                }
            }
        });
        self.notify(events.unwrap_or(PollEvents::empty()));
    }

    /// `bind(2)`.
    pub(crate) fn bind(&self, stack: &NetStack, to: Endpoint) -> Result<()> {
        let Some(me) = self.me.upgrade() else {
            return Err(Errno::EINVAL);
        };
        let mut inner = self.inner.lock();
        if inner.bound_port.is_some() || !matches!(inner.role, Role::Idle) {
            return Err(Errno::EINVAL);
        }
        if !to.address.is_unspecified() && !stack.is_local(to.address) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let binding = inner.binding(to.address);
        let port = stack.tcp.ports.bind(&me, to.port, binding)?;
        inner.local = Endpoint::new(to.address, port);
        inner.bound_port = Some(port);
        Ok(())
    }

    /// `listen(2)`.
    pub(crate) fn listen(&self, stack: &NetStack, backlog: i32) -> Result<()> {
        let backlog = usize::try_from(backlog).map_or(MAX_BACKLOG, |b| b.min(MAX_BACKLOG));
        let Some(me) = self.me.upgrade() else {
            return Err(Errno::EINVAL);
        };
        if self.inner.lock().bound_port.is_none() {
            self.bind(stack, Endpoint::new(self.any_address(), 0))?;
        }
        let mut inner = self.inner.lock();
        let port = inner.bound_port.ok_or(Errno::EINVAL)?;
        match &mut inner.role {
            Role::Listening(queues) => {
                queues.backlog = backlog;
                return Ok(());
            }
            Role::Connection(_) => return Err(Errno::EINVAL),
            Role::Idle => {}
        }
        stack.tcp.ports.listen(&me, port)?;
        inner.role = Role::Listening(Listener::new(backlog));
        drop(inner);
        stack.announce_listen(Transport::Tcp, port);
        Ok(())
    }

    /// `accept(2)`: the oldest complete connection. `EAGAIN` if there is none.
    pub(crate) fn accept(&self) -> Result<Arc<Self>> {
        match &mut self.inner.lock().role {
            Role::Listening(queues) => queues.ready.pop_front().ok_or(Errno::EAGAIN),
            _ => Err(Errno::EINVAL),
        }
    }

    /// `connect(2)`: `EINPROGRESS` for a connection just begun, `EALREADY` while it is under way, then its result once.
    pub(crate) fn connect(&self, stack: &NetStack, to: Endpoint, now: u64) -> Result<()> {
        let Some(me) = self.me.upgrade() else {
            return Err(Errno::EINVAL);
        };
        let mut inner = self.inner.lock();
        match &mut inner.role {
            Role::Listening(_) => return Err(Errno::EISCONN),
            Role::Connection(tcb) => match tcb.state {
                State::SynSent | State::SynReceived => return Err(Errno::EALREADY),
                State::Closed if !tcb.established => {
                    let error = tcb.error.take();
                    inner.role = Role::Idle;
                    inner.connecting = false;
                    if inner.bound_port.is_none() {
                        inner.local = Endpoint::new(self.any_address(), 0);
                    }
                    if let Some(error) = error {
                        return Err(error);
                    }
                }
                _ => {
                    if core::mem::take(&mut inner.connecting) {
                        return Ok(());
                    }
                    return Err(Errno::EISCONN);
                }
            },
            Role::Idle => {}
        }
        let remote = Endpoint::new(reachable_as(to.address), to.port);
        if !remote.address.is_unicast() || stack.is_broadcast(remote.address) {
            return Err(Errno::ENETUNREACH);
        }
        let chosen = Some(inner.local.address);
        let path = stack.route(remote.address, chosen, None)?;
        let (flow, path) = inner.claim_flow(stack, &me, remote, path)?;
        inner.local = flow.local;
        inner.connecting = true;
        let Inner { options, role, .. } = &mut *inner;
        let iss = stack.initial_sequence(&flow, now);
        let mut tcb = Box::new(Tcb::new(flow, path, State::SynSent, iss, now));
        let cx = Context {
            stack,
            options,
            socket: &self.me,
            now,
        };
        tcb.send_syn(&cx);
        tcb.timing = Some((tcb.snd_nxt, now));
        tcb.schedule(&cx);
        *role = Role::Connection(tcb);
        stack.counters.tcp_connections.bump();
        stack.counters.tcp_connects.bump();
        Err(Errno::EINPROGRESS)
    }

    /// Readiness.
    pub(crate) fn poll(&self) -> PollEvents {
        let mut inner = self.inner.lock();
        let Inner { options, role, .. } = &mut *inner;
        match role {
            // What Linux reports for a socket that was never connected.
            Role::Idle => PollEvents::OUT | PollEvents::WRNORM | PollEvents::HUP,
            Role::Listening(queues) if queues.ready.is_empty() => PollEvents::empty(),
            Role::Listening(_) => PollEvents::IN | PollEvents::RDNORM,
            Role::Connection(tcb) => {
                let events = tcb.poll(options);
                tcb.wants_room |= !events.contains(PollEvents::OUT);
                events
            }
        }
    }

    /// `getsockname(2)`.
    pub(crate) fn local(&self) -> Endpoint {
        self.inner.lock().local
    }

    /// `getpeername(2)`: `ENOTCONN` without a connection.
    pub(crate) fn peer(&self) -> Result<Endpoint> {
        match &self.inner.lock().role {
            Role::Connection(tcb) if !matches!(tcb.state, State::SynSent | State::Closed) => {
                Ok(tcb.flow.remote)
            }
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// `SO_ERROR`: the pending error, which is thereby taken.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        match &mut self.inner.lock().role {
            Role::Connection(tcb) => tcb.error.take(),
            _ => None,
        }
    }

    /// Bytes that can be read.
    pub(crate) fn readable_bytes(&self) -> usize {
        match &self.inner.lock().role {
            Role::Connection(tcb) => tcb.receive.len(),
            _ => 0,
        }
    }

    /// Bytes queued and not acknowledged, and of those the ones not sent.
    pub(crate) fn queued_bytes(&self) -> (usize, usize) {
        match &self.inner.lock().role {
            Role::Connection(tcb) => (tcb.send.len(), tcb.unsent()),
            _ => (0, 0),
        }
    }

    /// Whether the socket listens.
    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.inner.lock().role, Role::Listening(_))
    }

    /// Reads the options.
    pub(crate) fn options<R>(&self, f: impl FnOnce(&TcpOptions) -> R) -> R {
        f(&self.inner.lock().options)
    }

    /// Changes the options; what waited because of the old ones is sent.
    pub(crate) fn change_options(
        &self,
        stack: &NetStack,
        now: u64,
        f: &mut dyn FnMut(&mut TcpOptions),
    ) {
        let mut inner = self.inner.lock();
        let was_keepalive = inner.options.keepalive;
        f(&mut inner.options);
        let binding = inner.binding(inner.local.address);
        let port = inner.bound_port;
        let is_listening = matches!(inner.role, Role::Listening(_));
        drop(inner);
        if let (Some(port), Some(me)) = (port, self.me.upgrade()) {
            stack.tcp.ports.update(&me, port, |b| {
                *b = Binding {
                    listening: is_listening,
                    ..binding
                };
            });
        }
        self.with_tcb(stack, now, |tcb, cx| {
            if cx.options.keepalive && !was_keepalive {
                tcb.keepalive_at = now + u64::from(cx.options.keep_idle_s) * 1_000_000_000;
                tcb.schedule(cx);
            }
            if tcb.unsent() > 0 {
                if !cx.options.cork {
                    tcb.more_promised = false;
                }
                tcb.output(cx);
            }
        });
    }
}

/// Connecting to an unspecified address means this machine, as on Linux.
fn reachable_as(address: Address) -> Address {
    use core::net::{Ipv4Addr, Ipv6Addr};
    if address == Address::ANY_V4 {
        Address::from_v4(Ipv4Addr::LOCALHOST)
    } else if address == Address::ANY_V6 {
        Address::from_v6(Ipv6Addr::LOCALHOST)
    } else {
        address
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
            remote: None,
        }
    }

    /// Chooses the local end and enters the conversation in the table.
    fn claim_flow(
        &self,
        stack: &NetStack,
        me: &Arc<TcpSocket>,
        remote: Endpoint,
        path: crate::link::Path,
    ) -> Result<(Flow, crate::link::Path)> {
        let flow = |port| Flow {
            local: Endpoint::new(path.source, port),
            remote,
        };
        let claim = |port: u16| {
            let entry = Entry::Connection(me.clone());
            stack.tcp.insert(flow(port), entry).then(|| flow(port))
        };
        let claimed = match self.bound_port {
            Some(port) => claim(port).ok_or(Errno::EADDRNOTAVAIL)?,
            None => ephemeral_ports()
                .filter(|port| !stack.tcp.ports.is_used(*port))
                .find_map(claim)
                .ok_or(Errno::EADDRNOTAVAIL)?,
        };
        Ok((claimed, path))
    }
}
