// SPDX-License-Identifier: Apache-2.0
//! A Unix socket in its roles.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

use super::UnixNames;
use super::channel::{Attachment, Channel, LIMIT, Taken};
use super::names::Name;
use crate::socket::{Credentials, Shutdown, UnixAddress};

const READABLE: PollEvents = PollEvents::IN.union(PollEvents::RDNORM);
const WRITABLE: PollEvents = PollEvents::OUT.union(PollEvents::WRNORM);

/// Type of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnixKind {
    Stream,
    Packet,
    Datagram,
}

/// Two channels and the two sockets at their ends.
struct Pair {
    /// `channels[side]` is written by that side.
    channels: [Channel; 2],
    ends: [SpinLock<Weak<UnixSocket>>; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            channels: [Channel::default(), Channel::default()],
            ends: [SpinLock::new(Weak::new()), SpinLock::new(Weak::new())],
        })
    }

    fn end(&self, side: usize) -> Option<Arc<UnixSocket>> {
        self.ends[side].lock().upgrade()
    }
}

enum Role {
    Idle,
    Listening {
        backlog: usize,
        ready: VecDeque<Arc<UnixSocket>>,
    },
    Connected {
        pair: Arc<Pair>,
        side: usize,
        peer_name: UnixAddress,
    },
    /// A datagram socket with a fixed destination.
    Directed {
        peer: Weak<UnixSocket>,
    },
}

struct Inner {
    name: UnixAddress,
    role: Role,
    error: Option<Errno>,
    pass_credentials: bool,
    send_buffer: usize,
    shutdown: Shutdown,
    /// Sockets that found our inbox, or the queue of our connections, full.
    waiting: Vec<Weak<UnixSocket>>,
}

/// A Unix socket.
pub(crate) struct UnixSocket {
    pub(crate) poll: PollSource,
    pub(crate) kind: UnixKind,
    me: Weak<Self>,
    inner: SpinLock<Inner>,
    /// Where a datagram socket receives.
    inbox: Channel,
}

/// What a receive call got.
pub(crate) struct UnixReceived {
    pub(crate) copied: usize,
    pub(crate) len: usize,
    pub(crate) source: Option<UnixAddress>,
    pub(crate) rights: Vec<Arc<OpenFile>>,
    pub(crate) credentials: Option<Credentials>,
}

/// Tells sockets that waited for room that they may try again.
fn tell(waiting: Vec<Weak<UnixSocket>>) {
    for socket in waiting.iter().filter_map(Weak::upgrade) {
        socket.poll.notify(WRITABLE);
    }
}

impl UnixSocket {
    pub(crate) fn new(kind: UnixKind) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            poll: PollSource::new(),
            kind,
            me: me.clone(),
            inner: SpinLock::new(Inner {
                name: UnixAddress::Unnamed,
                role: Role::Idle,
                error: None,
                pass_credentials: false,
                send_buffer: LIMIT,
                shutdown: Shutdown::default(),
                waiting: Vec::new(),
            }),
            inbox: Channel::default(),
        })
    }

    /// `socketpair(2)`.
    pub(crate) fn pair(kind: UnixKind) -> [Arc<Self>; 2] {
        let sockets = [Self::new(kind), Self::new(kind)];
        if kind == UnixKind::Datagram {
            for side in 0..2 {
                let peer = Arc::downgrade(&sockets[1 - side]);
                sockets[side].inner.lock().role = Role::Directed { peer };
            }
        } else {
            let pair = Pair::new();
            for (side, socket) in sockets.iter().enumerate() {
                *pair.ends[side].lock() = Arc::downgrade(socket);
                socket.inner.lock().role = Role::Connected {
                    pair: pair.clone(),
                    side,
                    peer_name: UnixAddress::Unnamed,
                };
            }
        }
        sockets
    }

    /// `bind(2)`: an unnamed address asks for any abstract name.
    pub(crate) fn bind(&self, names: &UnixNames, address: &UnixAddress) -> Result<()> {
        let me = self.me.upgrade().ok_or(Errno::EINVAL)?;
        let mut inner = self.inner.lock();
        if inner.name != UnixAddress::Unnamed {
            return Err(Errno::EINVAL);
        }
        inner.name = match Name::of(address)? {
            None => UnixAddress::Abstract(names.bind_any(&me)?),
            Some(name) => {
                names.bind(name, &me)?;
                address.clone()
            }
        };
        Ok(())
    }

    /// `listen(2)`.
    pub(crate) fn listen(&self, backlog: i32) -> Result<()> {
        if self.kind == UnixKind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        let backlog = usize::try_from(backlog).map_or(4096, |b| b.min(4096));
        let mut inner = self.inner.lock();
        if inner.name == UnixAddress::Unnamed {
            return Err(Errno::EINVAL);
        }
        match &mut inner.role {
            Role::Idle => {
                let ready = VecDeque::new();
                inner.role = Role::Listening { backlog, ready };
                Ok(())
            }
            Role::Listening { backlog: old, .. } => {
                *old = backlog;
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// `accept(2)`.
    pub(crate) fn accept(&self) -> Result<(Arc<Self>, UnixAddress)> {
        if self.kind == UnixKind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut inner = self.inner.lock();
        let socket = match &mut inner.role {
            Role::Listening { ready, .. } => ready.pop_front().ok_or(Errno::EAGAIN)?,
            _ => return Err(Errno::EINVAL),
        };
        let waiting = core::mem::take(&mut inner.waiting);
        drop(inner);
        tell(waiting);
        let peer = socket.peer_name().unwrap_or(UnixAddress::Unnamed);
        Ok((socket, peer))
    }

    fn find(&self, names: &UnixNames, address: &UnixAddress) -> Result<Arc<Self>> {
        let name = Name::of(address)?.ok_or(Errno::EINVAL)?;
        let found = names.find(&name).ok_or(Errno::ECONNREFUSED)?;
        if found.kind == self.kind {
            Ok(found)
        } else {
            Err(Errno::EPROTOTYPE)
        }
    }

    /// `connect(2)`. `ECONNREFUSED` if nobody listens there, `EAGAIN` if its backlog is full.
    pub(crate) fn connect(&self, names: &UnixNames, to: Option<&UnixAddress>) -> Result<()> {
        let me = self.me.upgrade().ok_or(Errno::EINVAL)?;
        if self.kind == UnixKind::Datagram {
            let role = match to {
                Some(to) => Role::Directed {
                    peer: Arc::downgrade(&self.find(names, to)?),
                },
                None => Role::Idle,
            };
            self.inner.lock().role = role;
            self.poll.notify(WRITABLE);
            return Ok(());
        }
        let to = to.ok_or(Errno::EINVAL)?;
        let own_name = {
            let inner = self.inner.lock();
            match inner.role {
                Role::Idle => inner.name.clone(),
                Role::Listening { .. } => return Err(Errno::EINVAL),
                _ => return Err(Errno::EISCONN),
            }
        };
        let listener = self.find(names, to)?;
        let pair = Pair::new();
        let server = Self::new(self.kind);
        {
            let mut inner = server.inner.lock();
            inner.name = to.clone();
            inner.role = Role::Connected {
                pair: pair.clone(),
                side: 1,
                peer_name: own_name,
            };
        }
        *pair.ends[0].lock() = Arc::downgrade(&me);
        *pair.ends[1].lock() = Arc::downgrade(&server);
        {
            let mut inner = listener.inner.lock();
            let pass = inner.pass_credentials;
            let Role::Listening { backlog, ready } = &mut inner.role else {
                return Err(Errno::ECONNREFUSED);
            };
            if ready.len() > *backlog {
                inner.waiting.retain(|w| w.strong_count() > 0);
                if !inner.waiting.iter().any(|w| w.ptr_eq(&self.me)) {
                    inner.waiting.push(self.me.clone());
                }
                return Err(Errno::EAGAIN);
            }
            server.inner.lock().pass_credentials = pass;
            ready.push_back(server);
        }
        self.inner.lock().role = Role::Connected {
            pair,
            side: 0,
            peer_name: to.clone(),
        };
        listener.poll.notify(READABLE);
        self.poll.notify(WRITABLE);
        Ok(())
    }

    /// Our channels, to write and to read, and the socket at the other end.
    fn connection(&self) -> Result<(Arc<Pair>, usize)> {
        match &self.inner.lock().role {
            Role::Connected { pair, side, .. } => Ok((pair.clone(), *side)),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Sends bytes or one message. `EPIPE` if the other end is closed (the caller raises `SIGPIPE`).
    pub(crate) fn send(
        &self,
        names: &UnixNames,
        src: &mut IoSrc<'_>,
        to: Option<&UnixAddress>,
        rights: Vec<Arc<OpenFile>>,
        credentials: Credentials,
    ) -> Result<usize> {
        let (shutdown, limit) = {
            let mut inner = self.inner.lock();
            if let Some(error) = inner.error.take() {
                return Err(error);
            }
            (inner.shutdown.write, inner.send_buffer)
        };
        if shutdown {
            return Err(Errno::EPIPE);
        }
        let mut attachment = Attachment {
            rights,
            credentials: None,
            source: None,
        };
        if self.kind == UnixKind::Datagram {
            return self.send_datagram(names, src, to, attachment, credentials, limit);
        }
        if to.is_some() {
            let connected = self.connection().is_ok();
            return Err(if connected {
                Errno::EISCONN
            } else {
                Errno::EOPNOTSUPP
            });
        }
        let (pair, side) = self.connection()?;
        let peer = pair.end(1 - side);
        if peer
            .as_ref()
            .is_some_and(|p| p.inner.lock().pass_credentials)
        {
            attachment.credentials = Some(credentials);
        }
        let channel = &pair.channels[side];
        let count = if self.kind == UnixKind::Stream {
            channel.write_stream(src, attachment, limit)?
        } else {
            channel.write_message(src, attachment, limit)?
        };
        if let Some(peer) = peer {
            peer.poll.notify(READABLE);
        }
        Ok(count)
    }

    fn send_datagram(
        &self,
        names: &UnixNames,
        src: &mut IoSrc<'_>,
        to: Option<&UnixAddress>,
        mut attachment: Attachment,
        credentials: Credentials,
        limit: usize,
    ) -> Result<usize> {
        let target = match to {
            Some(to) => self.find(names, to)?,
            None => match &self.inner.lock().role {
                Role::Directed { peer } => peer.upgrade().ok_or(Errno::ECONNREFUSED)?,
                _ => return Err(Errno::ENOTCONN),
            },
        };
        attachment.source = Some(self.inner.lock().name.clone());
        if target.inner.lock().pass_credentials {
            attachment.credentials = Some(credentials);
        }
        match target.inbox.write_message(src, attachment, limit) {
            Err(Errno::EAGAIN) => {
                target.add_waiting(&self.me);
                Err(Errno::EAGAIN)
            }
            Ok(count) => {
                target.poll.notify(READABLE);
                Ok(count)
            }
            // Its inbox is closed: by `shutdown`, or because nobody refers to it any more.
            Err(Errno::EPIPE) if !target.inner.lock().shutdown.read => Err(Errno::ECONNREFUSED),
            Err(error) => Err(error),
        }
    }

    /// Notes that `sender` waits for room in our inbox.
    fn add_waiting(&self, sender: &Weak<Self>) {
        let mut inner = self.inner.lock();
        inner.waiting.retain(|w| w.strong_count() > 0);
        if !inner.waiting.iter().any(|w| w.ptr_eq(sender)) {
            inner.waiting.push(sender.clone());
        }
    }

    /// Takes bytes or one message.
    pub(crate) fn receive(&self, dst: &mut IoDst<'_>, peek: bool) -> Result<UnixReceived> {
        if let Some(error) = self.inner.lock().error.take() {
            return Err(error);
        }
        let taken = match self.kind {
            UnixKind::Datagram => {
                let taken = self.inbox.read_message(dst, peek)?;
                if self.inbox.has_room() {
                    let waiting = core::mem::take(&mut self.inner.lock().waiting);
                    tell(waiting);
                }
                taken
            }
            kind => {
                let (pair, side) = self.connection().map_err(|_| Errno::EINVAL)?;
                let channel = &pair.channels[1 - side];
                let taken = if kind == UnixKind::Stream {
                    channel.read_stream(dst, peek)?
                } else {
                    channel.read_message(dst, peek)?
                };
                if taken.made_room
                    && let Some(peer) = pair.end(1 - side)
                {
                    peer.poll.notify(WRITABLE);
                }
                taken
            }
        };
        let Taken {
            copied,
            len,
            attachment,
            ..
        } = taken;
        Ok(UnixReceived {
            copied,
            len,
            source: attachment.source,
            rights: attachment.rights,
            credentials: attachment.credentials,
        })
    }

    /// `shutdown(2)`.
    pub(crate) fn shutdown(&self, how: Shutdown) -> Result<()> {
        if self.kind == UnixKind::Datagram {
            let mut inner = self.inner.lock();
            inner.shutdown.write |= how.write;
            inner.shutdown.read |= how.read;
            drop(inner);
            if how.read {
                self.inbox.end();
            }
            self.poll.notify(READABLE | WRITABLE);
            return Ok(());
        }
        let (pair, side) = self.connection()?;
        if how.write {
            pair.channels[side].end();
        }
        if how.read {
            pair.channels[1 - side].end();
        }
        let both = READABLE | WRITABLE | PollEvents::RDHUP | PollEvents::HUP;
        self.poll.notify(both);
        if let Some(peer) = pair.end(1 - side) {
            peer.poll.notify(both);
        }
        Ok(())
    }

    /// The last descriptor was closed.
    pub(crate) fn close(&self, names: &UnixNames) {
        let mut inner = self.inner.lock();
        let role = core::mem::replace(&mut inner.role, Role::Idle);
        let name = core::mem::replace(&mut inner.name, UnixAddress::Unnamed);
        let waiting = core::mem::take(&mut inner.waiting);
        drop(inner);
        tell(waiting);
        let registered = Name::of(&name).ok().flatten();
        if let Some(name) = registered
            && names
                .find(&name)
                .is_some_and(|s| Weak::ptr_eq(&Arc::downgrade(&s), &self.me))
        {
            names.forget(&name);
        }
        self.inbox.abandon();
        match role {
            Role::Connected { pair, side, .. } => Self::hang_up(&pair, side),
            Role::Listening { ready, .. } => {
                for socket in ready {
                    socket.close(names);
                }
            }
            _ => {}
        }
    }

    fn hang_up(pair: &Pair, side: usize) {
        pair.channels[side].end();
        let unread = pair.channels[1 - side].abandon();
        if let Some(peer) = pair.end(1 - side) {
            if unread {
                peer.inner.lock().error = Some(Errno::ECONNRESET);
            }
            let all = READABLE | WRITABLE | PollEvents::RDHUP | PollEvents::HUP | PollEvents::ERR;
            peer.poll.notify(all);
        }
    }

    /// Readiness (`unix_poll` of Linux).
    pub(crate) fn poll(&self) -> PollEvents {
        let inner = self.inner.lock();
        let mut events = PollEvents::empty();
        if inner.error.is_some() {
            events |= PollEvents::ERR;
        }
        match &inner.role {
            Role::Listening { ready, .. } => {
                if !ready.is_empty() {
                    events |= READABLE;
                }
            }
            Role::Connected { pair, side, .. } => {
                let (out, incoming) = (&pair.channels[*side], &pair.channels[1 - *side]);
                if !incoming.is_empty() {
                    events |= READABLE;
                }
                if incoming.is_ended() {
                    events |= READABLE | PollEvents::RDHUP;
                    if out.is_ended() || pair.end(1 - *side).is_none() {
                        events |= PollEvents::HUP;
                    }
                }
                if out.has_room() {
                    events |= WRITABLE;
                }
            }
            role if self.kind == UnixKind::Datagram => {
                if !self.inbox.is_empty() || self.inbox.is_ended() {
                    events |= READABLE;
                }
                let peer = match role {
                    Role::Directed { peer } => peer.upgrade(),
                    _ => None,
                };
                drop(inner); // the peer's lock may be taken
                let has_room = peer.is_none_or(|peer| {
                    // Say that we wait before looking, so that no reader is missed.
                    peer.inbox.has_room() || {
                        peer.add_waiting(&self.me);
                        peer.inbox.has_room()
                    }
                });
                if has_room {
                    events |= WRITABLE;
                }
            }
            _ => events |= WRITABLE | PollEvents::HUP,
        }
        events
    }

    pub(crate) fn name(&self) -> UnixAddress {
        self.inner.lock().name.clone()
    }

    /// `getpeername(2)`.
    pub(crate) fn peer_name(&self) -> Result<UnixAddress> {
        let peer = match &self.inner.lock().role {
            Role::Connected { peer_name, .. } => return Ok(peer_name.clone()),
            Role::Directed { peer } => peer.upgrade().ok_or(Errno::ENOTCONN)?,
            _ => return Err(Errno::ENOTCONN),
        };
        Ok(peer.name())
    }

    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.inner.lock().role, Role::Listening { .. })
    }

    pub(crate) fn take_error(&self) -> Option<Errno> {
        self.inner.lock().error.take()
    }

    /// `FIONREAD`.
    pub(crate) fn readable_bytes(&self) -> usize {
        match self.connection() {
            Ok((pair, side)) => {
                pair.channels[1 - side].readable_bytes(self.kind != UnixKind::Stream)
            }
            Err(_) => self.inbox.readable_bytes(true),
        }
    }

    pub(crate) fn passes_credentials(&self) -> bool {
        self.inner.lock().pass_credentials
    }

    pub(crate) fn pass_credentials(&self, on: bool) {
        self.inner.lock().pass_credentials = on;
    }

    pub(crate) fn send_buffer(&self) -> usize {
        self.inner.lock().send_buffer
    }

    pub(crate) fn set_send_buffer(&self, bytes: usize) {
        self.inner.lock().send_buffer = bytes;
    }
}
