// SPDX-License-Identifier: Apache-2.0

//! One connection of the engine: a socket that never blocks, at most one request under way on it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};

use crate::load::http::{Answer, Reader};

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
    pub(super) socket: Option<TcpStream>,
    pub(super) state: State,
    /// Counts the sockets it has had: events of an old one are told apart by it.
    pub(super) generation: u32,
    /// Since when it has this socket.
    pub(super) since: Instant,
    /// Since when it could be used again.
    pub(super) free: Instant,
    /// How much of the request is written.
    written: usize,
    reader: Reader,
}

impl Connection {
    pub(super) fn new(now: Instant) -> Self {
        Connection {
            socket: None,
            state: State::Down(now),
            generation: 0,
            since: now,
            free: now,
            written: 0,
            reader: Reader::new(false),
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
        let fd = socket(family, SockType::Stream, flags, None)?;
        setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(target)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(why) => return Err(why.into()),
        }
        self.socket = Some(TcpStream::from(fd));
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
        let Some(socket) = &mut self.socket else {
            return Event::None;
        };
        while let Some(rest) = request.get(self.written..).filter(|rest| !rest.is_empty()) {
            match socket.write(rest) {
                Ok(count) => self.written += count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Event::None,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Event::Lost(self.under_way(), kind(&why)),
            }
        }
        Event::None
    }

    /// The socket can be written.
    pub(super) fn writable(&mut self, request: &[u8]) -> Event {
        match self.state {
            State::Connecting(first) => {
                let failed = match &self.socket {
                    Some(socket) => socket.take_error(),
                    None => return Event::None,
                };
                match (failed, first) {
                    (Ok(Some(_)) | Err(_), first) => Event::Lost(first, "connect"),
                    (Ok(None), Some(first)) => {
                        self.state = State::Busy(first);
                        self.write(request)
                    }
                    (Ok(None), None) => {
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
        let Some(socket) = &mut self.socket else {
            return Event::None;
        };
        // The watch is edge triggered: whatever is there has to be read now.
        loop {
            let count = match socket.read(buffer) {
                Ok(count) => count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Event::None,
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Event::Lost(under_way, kind(&why)),
            };
            let Some(sent) = under_way else {
                // An idle connection that the server ends is no error; bytes that nobody asked for are.
                return Event::Lost(None, if count == 0 { "" } else { "malformed" });
            };
            let answer = if count == 0 {
                self.reader.end().ok_or("closed").map(Some)
            } else {
                self.reader.take(&buffer[..count]).map_err(|_| "malformed")
            };
            match answer {
                Ok(None) => {}
                Ok(Some(mut answer)) => {
                    answer.close |= ended;
                    self.state = State::Idle;
                    return Event::Answer(sent, answer);
                }
                Err(kind) => return Event::Lost(under_way, kind),
            }
        }
    }
}

fn kind(why: &std::io::Error) -> &'static str {
    match why.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "reset",
        ErrorKind::ConnectionRefused => "connect",
        _ => "socket",
    }
}
