// SPDX-License-Identifier: Apache-2.0

//! One connection of the engine: a socket that never blocks, at most one request under way on it.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, connect, getsockopt, recv, send,
    setsockopt, socket, sockopt,
};

use super::Protocol;
use crate::load::http::{Answer, Reader};
use crate::load::query;

/// What a connection is doing.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// No socket; a connection may be tried from this time on.
    Down(Instant),
    /// It is being made. With a request, that one is sent when it is there.
    Connecting(Option<Sent>),
    /// Nothing is under way.
    Idle,
    /// A request is under way.
    Busy(Sent),
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Its time counts from here.
    pub(super) start: Instant,
    /// It was sent; the timeout counts from here.
    pub(super) at: Instant,
}

/// What came of an event.
#[derive(Debug)]
pub(super) enum Event {
    /// Nothing yet.
    None,
    /// It is there, and idle.
    Connected,
    /// The answer to the request under way.
    Answer(Sent, Answer),
    /// The connection, and with it the request that was under way, if one was, is lost; the kind says why.
    Lost(Option<Sent>, &'static str),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: Option<OwnedFd>,
    pub(super) state: State,
    /// Counts the sockets it has had: events of an old one are told apart by it.
    pub(super) generation: u32,
    /// Since when it has this socket.
    pub(super) since: Instant,
    /// Since when it could be used again.
    pub(super) free: Instant,
    /// Which of the plan's requests is under way.
    pub(super) request: usize,
    protocol: Protocol,
    /// How much of the request is written.
    written: usize,
    reader: Reader,
    /// Of the DNS query under way.
    id: u16,
}

impl Connection {
    pub(super) fn new(protocol: Protocol, now: Instant) -> Self {
        Connection {
            socket: None,
            state: State::Down(now),
            generation: 0,
            since: now,
            free: now,
            request: 0,
            protocol,
            written: 0,
            reader: Reader::new(false),
            id: 0,
        }
    }

    /// Begins to connect.
    pub(super) fn open(
        &mut self,
        target: SocketAddr,
        first: Option<Sent>,
        now: Instant,
    ) -> std::io::Result<()> {
        let family = if target.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = match self.protocol {
            Protocol::Http => {
                let fd = socket(family, SockType::Stream, flags, None)?;
                setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
                fd
            }
            // Connecting it keeps answers of others away, and lets ICMP errors be seen.
            Protocol::Dns => socket(family, SockType::Datagram, flags, None)?,
        };
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(target)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(why) => return Err(why.into()),
        }
        self.socket = Some(fd);
        self.generation = self.generation.wrapping_add(1);
        self.state = State::Connecting(first);
        self.since = now;
        self.written = 0;
        self.reader.reset();
        Ok(())
    }

    /// Closes the socket.
    pub(super) fn close(&mut self, retry: Instant) {
        self.socket = None;
        self.state = State::Down(retry);
    }

    /// The request under way.
    pub(super) fn under_way(&self) -> Option<Sent> {
        match self.state {
            State::Busy(sent) | State::Connecting(Some(sent)) => Some(sent),
            _ => None,
        }
    }

    /// Sends a request over an idle connection. The rest of what does not fit goes out when the socket can be written.
    pub(super) fn send(&mut self, request: &[u8], sent: Sent) -> Event {
        self.state = State::Busy(sent);
        self.written = 0;
        self.reader.reset();
        self.id = self.id.wrapping_add(1);
        self.write(request)
    }

    /// True while bytes of the request wait for the socket.
    pub(super) fn is_writing(&self, request: &[u8]) -> bool {
        match self.state {
            State::Connecting(_) => true,
            State::Busy(_) => self.written < request.len(),
            _ => false,
        }
    }

    fn write(&mut self, request: &[u8]) -> Event {
        let Some(socket) = &self.socket else {
            return Event::None;
        };
        let of_this_id;
        let request = match self.protocol {
            Protocol::Http => request,
            Protocol::Dns => {
                of_this_id = query::with_id(request, self.id);
                &of_this_id
            }
        };
        while let Some(rest) = request.get(self.written..).filter(|rest| !rest.is_empty()) {
            match send(socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => self.written += count,
                Err(Errno::EAGAIN) => return Event::None,
                Err(Errno::EINTR) => {}
                Err(why) => return Event::Lost(self.under_way(), kind(why)),
            }
        }
        Event::None
    }

    /// The socket can be written.
    pub(super) fn writable(&mut self, request: &[u8]) -> Event {
        match self.state {
            State::Connecting(first) => {
                let failed = match &self.socket {
                    Some(socket) => getsockopt(socket, sockopt::SocketError),
                    None => return Event::None,
                };
                match (failed, first) {
                    (Ok(1..) | Err(_), first) => Event::Lost(first, "connect"),
                    (Ok(_), Some(first)) => {
                        self.state = State::Busy(first);
                        self.write(request)
                    }
                    (Ok(_), None) => {
                        self.state = State::Idle;
                        Event::Connected
                    }
                }
            }
            State::Busy(_) => self.write(request),
            State::Idle | State::Down(_) => Event::None,
        }
    }

    /// The socket can be read, or has `ended`. `buffer` is scratch.
    pub(super) fn readable(&mut self, buffer: &mut [u8], ended: bool) -> Event {
        let under_way = self.under_way();
        let Some(socket) = &self.socket else {
            return Event::None;
        };
        // The watch is edge triggered: whatever is there has to be read now.
        loop {
            let count = match recv(socket.as_raw_fd(), buffer, MsgFlags::empty()) {
                Ok(count) => count,
                Err(Errno::EAGAIN) => return Event::None,
                Err(Errno::EINTR) => continue,
                Err(why) => return Event::Lost(under_way, kind(why)),
            };
            let bytes = &buffer[..count];
            let answer = match (self.protocol, under_way) {
                // Anything else that comes over UDP is not for this query: an answer sent twice.
                (Protocol::Dns, None) => Ok(None),
                (Protocol::Dns, Some(_)) => Ok(query::answer(bytes, self.id)),
                // An idle connection that the server ends is no error; bytes that nobody asked for are.
                (Protocol::Http, None) if count == 0 => Err(""),
                (Protocol::Http, None) => Err("malformed"),
                (Protocol::Http, Some(_)) if count == 0 => {
                    self.reader.end().ok_or("closed").map(Some)
                }
                (Protocol::Http, Some(_)) => self.reader.take(bytes).map_err(|_| "malformed"),
            };
            match (answer, under_way) {
                (Ok(Some(mut answer)), Some(sent)) => {
                    answer.close |= ended;
                    self.state = State::Idle;
                    return Event::Answer(sent, answer);
                }
                (Ok(_), _) => {}
                (Err(kind), under_way) => return Event::Lost(under_way, kind),
            }
        }
    }
}

fn kind(why: Errno) -> &'static str {
    match why {
        Errno::ECONNRESET | Errno::EPIPE => "reset",
        Errno::ECONNREFUSED => "connect",
        _ => "socket",
    }
}
