// SPDX-License-Identifier: Apache-2.0
//! The file behind a socket's descriptor.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use coracle_core::file::{File, Metadata, OpenFile};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;
use coracle_core::poll::PollSource;
use coracle_core::{Errno, PollEvents, Result};

use super::Shutdown;
use super::address::SocketAddress;
use super::linux::{
    AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, MSG_ERRQUEUE, MSG_MORE, MSG_OOB, MSG_PEEK,
    MSG_TRUNC, SCM_CREDENTIALS, SOCK_DGRAM, SOCK_MAX, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM,
    SOL_SOCKET,
};
use super::packet_control;
use crate::address::Endpoint;
use crate::link::PacketSocket;
use crate::netlink::NetlinkSocket;
use crate::raw::RawSocket;
use crate::stack::NetStack;
use crate::tcp::TcpSocket;
use crate::udp::UdpSocket;
use crate::unix::{UnixKind, UnixReceived, UnixSocket};
use crate::wire::protocol;

/// What a socket is, by family and type.
pub(super) enum Kind {
    Tcp(Arc<TcpSocket>),
    Udp(Arc<UdpSocket>),
    Unix(Arc<UnixSocket>),
    Netlink(Arc<NetlinkSocket>),
    Raw(Arc<RawSocket>),
    Packet(Arc<PacketSocket>),
}

/// A socket of any family.
pub struct SocketFile {
    pub(super) stack: Arc<NetStack>,
    pub(super) kind: Kind,
    inode: u64,
    /// `SO_RCVTIMEO` and `SO_SNDTIMEO` in nanoseconds, 0 for none.
    pub(super) receive_timeout: AtomicU64,
    pub(super) send_timeout: AtomicU64,
    /// Switches of `setsockopt(2)`, for `getsockopt(2)`.
    pub(super) switches: AtomicU32,
}

static NEXT_INODE: AtomicU64 = AtomicU64::new(1000);

/// Everything about a message but its bytes.
#[derive(Default)]
pub struct SendRequest<'a> {
    /// Where to; `None` for the peer.
    pub to: Option<&'a SocketAddress>,
    /// `MSG_*` bits. `MSG_DONTWAIT` and `MSG_NOSIGNAL` are the caller's business.
    pub flags: u32,
    /// Control messages.
    pub control: Vec<ControlMessage>,
}

/// Part of a page that is sent from where it lies.
pub struct PagePart {
    /// The page.
    pub page: Page,
    /// Where in the page it begins, in bytes.
    pub offset: usize,
    /// How many bytes.
    pub len: usize,
}

/// What a receive call got besides the bytes.
#[derive(Default)]
pub struct Received {
    /// The result of the call: bytes copied, or with `MSG_TRUNC` the length of the datagram.
    pub count: usize,
    /// From where, if the socket's type has that.
    pub from: Option<SocketAddress>,
    /// `msg_flags`: `MSG_TRUNC` if the datagram was longer than the buffer.
    pub flags: u32,
    /// Control messages.
    pub control: Vec<ControlMessage>,
}

/// A control message of `sendmsg(2)` and `recvmsg(2)` (`cmsg(3)`).
pub enum ControlMessage {
    /// `SCM_RIGHTS`: open file descriptions.
    Rights(Vec<Arc<OpenFile>>),
    /// Any other one, as bytes.
    Other {
        /// `cmsg_level`.
        level: u32,
        /// `cmsg_type`.
        kind: u32,
        /// The data behind the header.
        data: Vec<u8>,
    },
}

impl SocketFile {
    fn from_kind(stack: &Arc<NetStack>, kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            stack: stack.clone(),
            kind,
            inode: NEXT_INODE.fetch_add(1, Ordering::Relaxed),
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            switches: AtomicU32::new(0),
        })
    }

    /// `socket(2)`. `kind` without `SOCK_NONBLOCK` and `SOCK_CLOEXEC`. `EAFNOSUPPORT`, `EINVAL`, `ESOCKTNOSUPPORT`,
    /// `EPROTONOSUPPORT`.
    pub fn new(stack: &Arc<NetStack>, domain: u32, kind: u32, protocol: u32) -> Result<Arc<Self>> {
        if kind >= SOCK_MAX {
            return Err(Errno::EINVAL);
        }
        let v6 = match u16::try_from(domain) {
            Ok(AF_INET) => false,
            Ok(AF_INET6) => true,
            Ok(AF_UNIX) => {
                let kind = unix_kind(kind, protocol)?;
                return Ok(Self::from_kind(stack, Kind::Unix(UnixSocket::new(kind))));
            }
            Ok(AF_NETLINK) => {
                // NETLINK_ROUTE only.
                return match (kind, protocol) {
                    (SOCK_RAW | SOCK_DGRAM, 0) => {
                        Ok(Self::from_kind(stack, Kind::Netlink(NetlinkSocket::new())))
                    }
                    (SOCK_RAW | SOCK_DGRAM, _) => Err(Errno::EPROTONOSUPPORT),
                    _ => Err(Errno::ESOCKTNOSUPPORT),
                };
            }
            Ok(AF_PACKET) => {
                let with_header = match kind {
                    SOCK_RAW => true,
                    SOCK_DGRAM => false,
                    _ => return Err(Errno::ESOCKTNOSUPPORT),
                };
                // The argument is in network order.
                let protocol = u16::from_be(coracle_abi::convert::low_u16(protocol.into()));
                let socket = PacketSocket::new(stack, with_header, protocol);
                return Ok(Self::from_kind(stack, Kind::Packet(socket)));
            }
            _ => return Err(Errno::EAFNOSUPPORT),
        };
        let icmp = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
        let protocol = u8::try_from(protocol).map_err(|_| Errno::EPROTONOSUPPORT)?;
        let kind = match (kind, protocol) {
            (SOCK_STREAM, 0 | protocol::TCP) => Kind::Tcp(TcpSocket::new(v6)),
            (SOCK_DGRAM, 0 | protocol::UDP) => Kind::Udp(UdpSocket::new(v6, protocol::UDP)),
            (SOCK_DGRAM, protocol::UDP_LITE) => Kind::Udp(UdpSocket::new(v6, protocol)),
            (SOCK_DGRAM, p) if p == icmp => Kind::Raw(RawSocket::ping(stack, v6)),
            (SOCK_RAW, p) if p != 0 => Kind::Raw(RawSocket::raw(stack, v6, p)),
            (SOCK_STREAM | SOCK_DGRAM | SOCK_RAW, _) => return Err(Errno::EPROTONOSUPPORT),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };
        Ok(Self::from_kind(stack, kind))
    }

    /// `socketpair(2)`: two connected sockets. `EOPNOTSUPP` for families other than `AF_UNIX`.
    pub fn pair(
        stack: &Arc<NetStack>,
        domain: u32,
        kind: u32,
        protocol: u32,
    ) -> Result<[Arc<Self>; 2]> {
        if domain != u32::from(AF_UNIX) {
            Self::new(stack, domain, kind, protocol)?;
            return Err(Errno::EOPNOTSUPP);
        }
        let kind = unix_kind(kind, protocol)?;
        Ok(UnixSocket::pair(kind).map(|s| Self::from_kind(stack, Kind::Unix(s))))
    }

    /// The stack this socket belongs to.
    #[must_use]
    pub fn stack(&self) -> &Arc<NetStack> {
        &self.stack
    }

    /// The inode number in `fstat` and in `/proc/self/fd/N` (`socket:[N]`).
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// `SO_RCVTIMEO` in nanoseconds.
    #[must_use]
    pub fn receive_timeout_ns(&self) -> Option<u64> {
        Some(self.receive_timeout.load(Ordering::Relaxed)).filter(|t| *t > 0)
    }

    /// `SO_SNDTIMEO` in nanoseconds.
    #[must_use]
    pub fn send_timeout_ns(&self) -> Option<u64> {
        Some(self.send_timeout.load(Ordering::Relaxed)).filter(|t| *t > 0)
    }

    /// `bind(2)`.
    pub fn bind(&self, to: &SocketAddress) -> Result<()> {
        match &self.kind {
            Kind::Tcp(socket) => socket.bind(&self.stack, to.endpoint(socket.v6)?),
            Kind::Udp(socket) => socket.bind(&self.stack, to.endpoint(socket.v6)?),
            Kind::Unix(socket) => socket.bind(&self.stack.unix, to.unix()?),
            Kind::Netlink(socket) => match to {
                SocketAddress::Netlink { pid, .. } => {
                    socket.bind(*pid);
                    Ok(())
                }
                _ => Err(Errno::EINVAL),
            },
            Kind::Raw(socket) => {
                let to = to.endpoint(socket.v6)?;
                socket.bind(&self.stack, to.address, to.port)
            }
            Kind::Packet(socket) => socket.bind(&self.stack, to.link()?),
        }
    }

    /// `listen(2)`.
    pub fn listen(&self, backlog: i32) -> Result<()> {
        match &self.kind {
            Kind::Tcp(socket) => socket.listen(&self.stack, backlog),
            Kind::Unix(socket) => socket.listen(backlog),
            Kind::Udp(_) | Kind::Netlink(_) | Kind::Raw(_) | Kind::Packet(_) => {
                Err(Errno::EOPNOTSUPP)
            }
        }
    }

    /// `accept(2)`: the new socket and its peer. `EAGAIN` if nobody waits.
    pub fn accept(&self) -> Result<(Arc<Self>, SocketAddress)> {
        match &self.kind {
            Kind::Tcp(listener) => {
                let socket = listener.accept()?;
                let peer = socket.flow_remote();
                let address = SocketAddress::from_endpoint(peer, listener.v6);
                let file = Self::from_kind(&self.stack, Kind::Tcp(socket));
                for (to, from) in [
                    (&file.receive_timeout, &self.receive_timeout),
                    (&file.send_timeout, &self.send_timeout),
                ] {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                let switches = self.switches.load(Ordering::Relaxed);
                file.switches.store(switches, Ordering::Relaxed);
                Ok((file, address))
            }
            Kind::Udp(_) | Kind::Netlink(_) | Kind::Raw(_) | Kind::Packet(_) => {
                Err(Errno::EOPNOTSUPP)
            }
            Kind::Unix(listener) => {
                let (socket, peer) = listener.accept()?;
                let file = Self::from_kind(&self.stack, Kind::Unix(socket));
                Ok((file, SocketAddress::Unix(peer)))
            }
        }
    }

    /// `connect(2)`. A TCP socket answers `EINPROGRESS` when it begins and `EALREADY` until it is done: a blocking
    /// caller waits for `OUT` and calls again; the call that finds it done returns the result.
    pub fn connect(&self, to: &SocketAddress) -> Result<()> {
        match &self.kind {
            Kind::Tcp(_) if *to == SocketAddress::Unspecified => self.shutdown(Shutdown {
                read: true,
                write: true,
            }),
            Kind::Tcp(socket) => {
                let to = to.endpoint(socket.v6)?;
                socket.connect(&self.stack, to, self.stack.now())
            }
            Kind::Udp(socket) => match to {
                SocketAddress::Unspecified => socket.connect(&self.stack, None),
                to => socket.connect(&self.stack, Some(to.endpoint(socket.v6)?)),
            },
            Kind::Unix(socket) => match to {
                SocketAddress::Unspecified => socket.connect(&self.stack.unix, None),
                to => socket.connect(&self.stack.unix, Some(to.unix()?)),
            },
            Kind::Packet(_) => Err(Errno::EOPNOTSUPP),
            Kind::Netlink(_) => match to {
                SocketAddress::Netlink { pid: 0, .. } => Ok(()), // the kernel is the only peer
                _ => Err(Errno::ECONNREFUSED),
            },
            Kind::Raw(socket) => {
                socket.connect(match to {
                    SocketAddress::Unspecified => None,
                    to => Some(to.endpoint(socket.v6)?.address),
                });
                Ok(())
            }
        }
    }

    /// `sendmsg(2)`: returns how many bytes were taken. `EAGAIN` if there is no room; `EPIPE` (the caller raises
    /// `SIGPIPE`) if this side is closed.
    pub fn send(&self, src: &mut IoSrc<'_>, request: SendRequest<'_>) -> Result<usize> {
        if request.flags & MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let now = self.stack.now();
        match &self.kind {
            Kind::Tcp(socket) => {
                let more = request.flags & MSG_MORE != 0;
                socket.send(&self.stack, src, more, now)
            }
            Kind::Udp(socket) => {
                let to = match request.to {
                    None | Some(SocketAddress::Unspecified) => None,
                    Some(to) => Some(to.endpoint(socket.v6)?),
                };
                let how = packet_control::wanted(&request.control, socket.v6, &self.stack)?;
                socket.send(&self.stack, src, to, &how, now)
            }
            Kind::Unix(socket) => {
                let to = request.to.map(SocketAddress::unix).transpose()?;
                let rights = request.control.into_iter().filter_map(|c| match c {
                    ControlMessage::Rights(files) => Some(files),
                    ControlMessage::Other { .. } => None,
                });
                let rights = rights.flatten().collect();
                let who = (self.stack.config.credentials)();
                socket.send(&self.stack.unix, src, to, rights, who)
            }
            Kind::Netlink(socket) => socket.send(&self.stack, src),
            Kind::Packet(socket) => {
                let to = request.to.map(SocketAddress::link).transpose()?;
                socket.send(&self.stack, src, to)
            }
            Kind::Raw(socket) => {
                let to = request.to.map(|to| to.endpoint(socket.v6)).transpose()?;
                socket.send(&self.stack, src, to.map(|to| to.address), now)
            }
        }
    }

    /// `recvmsg(2)`. `EAGAIN` if nothing has arrived.
    pub fn receive(&self, dst: &mut IoDst<'_>, flags: u32) -> Result<Received> {
        if flags & MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN);
        }
        let peek = flags & MSG_PEEK != 0;
        match &self.kind {
            Kind::Tcp(socket) => {
                if flags & MSG_OOB != 0 {
                    return Err(Errno::EINVAL); // no urgent data
                }
                let discard = flags & MSG_TRUNC != 0 && !peek;
                let now = self.stack.now();
                let count = socket.receive(&self.stack, dst, peek, discard, now)?;
                Ok(Received {
                    count,
                    ..Received::default()
                })
            }
            Kind::Udp(socket) => {
                if flags & MSG_OOB != 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
                let got = socket.receive(dst, peek)?;
                let cut = got.len > got.copied;
                let whole = flags & MSG_TRUNC != 0;
                Ok(Received {
                    count: if whole { got.len } else { got.copied },
                    from: Some(SocketAddress::from_endpoint(got.source, socket.v6)),
                    flags: if cut { MSG_TRUNC } else { 0 },
                    control: self.told_of(&got),
                })
            }
            Kind::Unix(socket) => {
                if flags & MSG_OOB != 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
                let whole = flags & MSG_TRUNC != 0;
                Ok(unix_received(socket.receive(dst, peek)?, whole))
            }
            Kind::Packet(socket) => {
                let (copied, len, from) = socket.receive(dst, peek)?;
                Ok(message_received(
                    copied,
                    len,
                    SocketAddress::Link(from),
                    flags,
                ))
            }
            Kind::Netlink(socket) => {
                let (copied, len) = socket.receive(dst, peek)?;
                let from = SocketAddress::Netlink { pid: 0, groups: 0 };
                Ok(message_received(copied, len, from, flags))
            }
            Kind::Raw(socket) => {
                let (copied, len, from) = socket.receive(dst, peek)?;
                let from = SocketAddress::from_endpoint(Endpoint::new(from, 0), socket.v6);
                Ok(message_received(copied, len, from, flags))
            }
        }
    }

    /// Sends parts of pages from where they lie (`sendfile(2)`): returns how many bytes were taken. The pages may change
    /// until they are acknowledged, as on Linux. `EOPNOTSUPP` for sockets that are no TCP streams: copy instead.
    pub fn send_pages(&self, parts: &[PagePart], more: bool) -> Result<usize> {
        match &self.kind {
            Kind::Tcp(socket) => {
                let now = self.stack.now();
                socket.send_pages(&self.stack, parts, more, now)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// `shutdown(2)`.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        match &self.kind {
            Kind::Tcp(socket) => socket.shutdown(&self.stack, how, self.stack.now()),
            Kind::Udp(socket) => socket.shutdown(how),
            Kind::Unix(socket) => socket.shutdown(how),
            Kind::Netlink(_) | Kind::Packet(_) => Err(Errno::EOPNOTSUPP),
            Kind::Raw(socket) => socket.peer().map(|_| ()),
        }
    }

    /// `getsockname(2)`.
    pub fn local_address(&self) -> Result<SocketAddress> {
        Ok(match &self.kind {
            Kind::Tcp(socket) => SocketAddress::from_endpoint(socket.local(), socket.v6),
            Kind::Udp(socket) => SocketAddress::from_endpoint(socket.local(), socket.v6),
            Kind::Unix(socket) => SocketAddress::Unix(socket.name()),
            Kind::Packet(socket) => SocketAddress::Link(socket.local(&self.stack)),
            Kind::Netlink(socket) => SocketAddress::Netlink {
                pid: socket.port(),
                groups: 0,
            },
            Kind::Raw(socket) => {
                let (address, id) = socket.local();
                SocketAddress::from_endpoint(Endpoint::new(address, id), socket.v6)
            }
        })
    }

    /// `getpeername(2)`.
    pub fn peer_address(&self) -> Result<SocketAddress> {
        Ok(match &self.kind {
            Kind::Tcp(socket) => SocketAddress::from_endpoint(socket.peer()?, socket.v6),
            Kind::Udp(socket) => SocketAddress::from_endpoint(socket.peer()?, socket.v6),
            Kind::Unix(socket) => SocketAddress::Unix(socket.peer_name()?),
            Kind::Netlink(_) => SocketAddress::Netlink { pid: 0, groups: 0 },
            Kind::Packet(_) => return Err(Errno::EOPNOTSUPP),
            Kind::Raw(socket) => {
                SocketAddress::from_endpoint(Endpoint::new(socket.peer()?, 0), socket.v6)
            }
        })
    }
}

impl File for SocketFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        match &self.kind {
            Kind::Tcp(socket) => socket.receive(&self.stack, dst, false, false, self.stack.now()),
            Kind::Udp(socket) => socket.receive(dst, false).map(|r| r.copied),
            Kind::Unix(socket) => socket.receive(dst, false).map(|r| r.copied),
            Kind::Netlink(socket) => socket.receive(dst, false).map(|r| r.0),
            Kind::Raw(socket) => socket.receive(dst, false).map(|r| r.0),
            Kind::Packet(socket) => socket.receive(dst, false).map(|r| r.0),
        }
    }

    fn write(&self, src: &mut IoSrc<'_>) -> Result<usize> {
        match &self.kind {
            Kind::Tcp(socket) => socket.send(&self.stack, src, false, self.stack.now()),
            _ => self.send(src, SendRequest::default()),
        }
    }

    fn poll(&self) -> PollEvents {
        match &self.kind {
            Kind::Tcp(socket) => socket.poll(),
            Kind::Udp(socket) => socket.poll(),
            Kind::Unix(socket) => socket.poll(),
            Kind::Netlink(socket) => socket.poll(),
            Kind::Raw(socket) => socket.poll(),
            Kind::Packet(socket) => socket.poll(),
        }
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(match &self.kind {
            Kind::Tcp(socket) => &socket.poll,
            Kind::Udp(socket) => &socket.poll,
            Kind::Unix(socket) => &socket.poll,
            Kind::Netlink(socket) => &socket.poll,
            Kind::Raw(socket) => &socket.poll,
            Kind::Packet(socket) => &socket.poll,
        })
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata {
            device: 8, // sockfs
            inode: self.inode,
            mode: coracle_abi::raw::general::S_IFSOCK | 0o777,
            links: 1,
            ..Metadata::default()
        })
    }

    fn ioctl(&self, command: u32, argument: usize) -> Result<usize> {
        self.socket_ioctl(command, argument)
    }

    fn on_release(&self) {
        match &self.kind {
            Kind::Tcp(socket) => socket.close(&self.stack, self.stack.now()),
            Kind::Udp(socket) => socket.close(&self.stack),
            Kind::Unix(socket) => socket.close(&self.stack.unix),
            Kind::Packet(socket) => socket.close(&self.stack),
            Kind::Raw(socket) => socket.close(&self.stack),
            Kind::Netlink(_) => {}
        }
    }
}

/// The type of a Unix socket. `ESOCKTNOSUPPORT`, `EPROTONOSUPPORT`.
fn unix_kind(kind: u32, protocol: u32) -> Result<UnixKind> {
    if protocol != 0 && protocol != u32::from(AF_UNIX) {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind {
        SOCK_STREAM => Ok(UnixKind::Stream),
        SOCK_DGRAM => Ok(UnixKind::Datagram),
        SOCK_SEQPACKET => Ok(UnixKind::Packet),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// What a receive call got of a message of `len` bytes.
fn message_received(copied: usize, len: usize, from: SocketAddress, flags: u32) -> Received {
    Received {
        count: if flags & MSG_TRUNC != 0 { len } else { copied },
        from: Some(from),
        flags: if len > copied { MSG_TRUNC } else { 0 },
        control: Vec::new(),
    }
}

/// `whole`: `MSG_TRUNC` was given, so the length of the message counts.
fn unix_received(got: UnixReceived, whole: bool) -> Received {
    let mut control = Vec::new();
    if let Some(who) = got.credentials {
        let words = [who.pid, who.uid, who.gid];
        control.push(ControlMessage::Other {
            level: SOL_SOCKET,
            kind: SCM_CREDENTIALS,
            data: words.iter().flat_map(|w| w.to_ne_bytes()).collect(),
        });
    }
    if !got.rights.is_empty() {
        control.push(ControlMessage::Rights(got.rights));
    }
    Received {
        count: if whole { got.len } else { got.copied },
        from: got.source.map(SocketAddress::Unix),
        flags: if got.len > got.copied { MSG_TRUNC } else { 0 },
        control,
    }
}
