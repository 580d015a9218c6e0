// SPDX-License-Identifier: Apache-2.0
//! Sending and receiving: send(2), recv(2) and their longer forms.

use alloc::vec::Vec;

use coracle_abi::convert::{low_u32, u64_from, usize_from_u32};
use coracle_abi::raw::net as n;
use coracle_core::io::{IoDst, IoSrc, Segment};
use coracle_core::user::{self, User};
use coracle_core::{Errno, PollEvents, Result, time};
use coracle_net::socket::linux::{
    AF_UNIX, MSG_CTRUNC, MSG_DONTWAIT, MSG_EOR, MSG_ERRQUEUE, MSG_MORE, MSG_NOSIGNAL, MSG_OOB,
    MSG_PEEK, MSG_TRUNC, MSG_WAITALL, SOCK_SEQPACKET, SOCK_STREAM, SOL_SOCKET,
};
use coracle_net::{ControlMessage, Received, SendRequest, SocketAddress, SocketFile, UnixAddress};

use super::control::{self, Room};
use super::{Socket, address, patience};
use crate::argument::Fd;
use crate::fd::transfer::{Segments, read_step, write_step};
use crate::wait::signals::broken_pipe;
use crate::wait::timeout;

const MSG_DONTROUTE: u32 = 0x4;
const MSG_CONFIRM: u32 = 0x800;
const MSG_WAITFORONE: u32 = 0x1_0000;
const MSG_ZEROCOPY: u32 = 0x400_0000;
const MSG_FASTOPEN: u32 = 0x2000_0000;
const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;

/// Flags of send(2). The route, confirmed neighbours and transmission without a copy are hints.
const SEND_FLAGS: u32 = MSG_OOB
    | MSG_DONTROUTE
    | MSG_DONTWAIT
    | MSG_EOR
    | MSG_CONFIRM
    | MSG_NOSIGNAL
    | MSG_MORE
    | MSG_ZEROCOPY;

/// Flags of recv(2).
const RECEIVE_FLAGS: u32 = MSG_OOB
    | MSG_PEEK
    | MSG_TRUNC
    | MSG_DONTWAIT
    | MSG_WAITALL
    | MSG_ERRQUEUE
    | MSG_NOSIGNAL
    | MSG_CMSG_CLOEXEC;

/// Most bytes of one transfer.
const MAX_TRANSFER: usize = 0x7fff_f000;

/// Most pieces of one message (`UIO_MAXIOV`), and most messages of one call.
const MANY: usize = 1024;

/// What a type of socket means for a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Bytes without borders; of TCP they can be thrown away unseen (`MSG_TRUNC` of tcp(7)).
    Stream { is_tcp: bool },
    /// Messages on a connection.
    Packet,
    /// Messages.
    Datagram,
}

impl Style {
    fn of(file: &SocketFile) -> Self {
        let number = |name| {
            let mut bytes = [0; 4];
            let got = file.get_option(SOL_SOCKET, name, &mut bytes);
            got.map_or(0, |_| u32::from_ne_bytes(bytes))
        };
        match number(n::SO_TYPE) {
            SOCK_STREAM => Self::Stream {
                is_tcp: number(n::SO_DOMAIN) != u32::from(AF_UNIX),
            },
            SOCK_SEQPACKET => Self::Packet,
            _ => Self::Datagram,
        }
    }

    fn is_stream(self) -> bool {
        matches!(self, Self::Stream { .. })
    }
}

/// Sends the bytes of `segments`. A blocking call on a stream goes on until all are taken; an error after the first
/// ones leaves the count.
fn send(
    socket: &Socket,
    segments: &[Segment],
    flags: u32,
    to: Option<&SocketAddress>,
    mut control: Vec<ControlMessage>,
) -> Result<usize> {
    if flags & MSG_FASTOPEN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & !SEND_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let mut src = IoSrc::user(segments)?;
    let may_wait = flags & MSG_DONTWAIT == 0;
    let how = patience(&socket.open, PollEvents::OUT);
    let mut total = 0;
    let result = loop {
        let result = socket.wait(may_wait, how, |file| {
            write_step(&mut src, |src| {
                let request = SendRequest {
                    to,
                    flags,
                    control: control::copy_of(&control),
                };
                let count = file.send(src, request)?;
                // Control messages go with the first bytes.
                control.clear();
                Ok(count)
            })
        });
        match result {
            Ok(count) => total += count,
            Err(_) if total > 0 => break Ok(total),
            Err(error) => break Err(error),
        }
        let waits = may_wait && !socket.open.is_nonblocking();
        if src.remaining() == 0 || !waits || !Style::of(socket.file()).is_stream() {
            break Ok(total);
        }
    };
    if result == Err(Errno::EPIPE)
        && flags & MSG_NOSIGNAL == 0
        && Style::of(socket.file()) != Style::Datagram
    {
        broken_pipe();
    }
    result
}

/// Receives into `segments`. With `deadline` the call waits no longer than that, whatever the socket's own limit.
fn receive(
    socket: &Socket,
    segments: &[Segment],
    flags: u32,
    deadline: Option<u64>,
) -> Result<Received> {
    if flags & !RECEIVE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let mut how = patience(&socket.open, PollEvents::IN);
    if let Some(limit) = deadline {
        how.deadline = Some(how.deadline.map_or(limit, |own| own.min(limit)));
    }
    let mut dst = IoDst::user(segments)?;
    // Errors that were queued are there or not; nobody waits for them.
    let may_wait = flags & (MSG_DONTWAIT | MSG_ERRQUEUE) == 0;
    let attempt =
        |dst: &mut IoDst<'_>| socket.wait(may_wait, how, |file| receive_step(file, dst, flags));
    if flags & (MSG_WAITALL | MSG_TRUNC) == 0 {
        return attempt(&mut dst);
    }
    let style = Style::of(socket.file());
    let all = flags & MSG_WAITALL != 0 && flags & MSG_PEEK == 0 && style.is_stream();
    if style == (Style::Stream { is_tcp: true }) && flags & (MSG_TRUNC | MSG_PEEK) == MSG_TRUNC {
        return discard(dst.remaining(), all, attempt);
    }
    let mut received = attempt(&mut dst)?;
    while all && received.count > 0 && dst.remaining() > 0 && received.control.is_empty() {
        match attempt(&mut dst) {
            Ok(more) if more.count > 0 => {
                received.count += more.count;
                received.control = more.control;
            }
            // The end, or an error that the next call will see.
            _ => break,
        }
    }
    Ok(received)
}

/// Throws away up to `len` bytes of a TCP stream.
fn discard(
    len: usize,
    all: bool,
    mut attempt: impl FnMut(&mut IoDst<'_>) -> Result<Received>,
) -> Result<Received> {
    let mut total = Received::default();
    loop {
        // Nothing is copied, so the address does not matter.
        let rest = [Segment {
            base: 0,
            len: len - total.count,
        }];
        let count = match attempt(&mut IoDst::user(&rest)?) {
            Ok(received) => received.count,
            Err(_) if total.count > 0 => 0,
            Err(error) => return Err(error),
        };
        total.count += count;
        if !all || count == 0 || total.count >= len {
            return Ok(total);
        }
    }
}

/// One attempt to receive, with the pages of the destination made present as needed.
fn receive_step(file: &SocketFile, dst: &mut IoDst<'_>, flags: u32) -> Result<Received> {
    let mut all = Received::default();
    let count = read_step(dst, |dst| {
        let received = file.receive(dst, flags)?;
        let count = received.count;
        all = Received {
            control: core::mem::take(&mut all.control)
                .into_iter()
                .chain(received.control)
                .collect(),
            ..received
        };
        Ok(count)
    })?;
    Ok(Received { count, ..all })
}

fn one_segment(buf: User, len: usize) -> [Segment; 1] {
    [Segment {
        base: buf.0,
        len: len.min(MAX_TRANSFER),
    }]
}

/// The destination of a message; none for NULL.
fn destination(socket: &Socket, at: User, len: usize) -> Result<Option<SocketAddress>> {
    if at.is_null() || len == 0 {
        return Ok(None);
    }
    let mut to = address::read(socket.file(), at, len)?;
    if address::is_path(&to) && address::is_unix(socket.file())? {
        address::find_path(&mut to)?;
    }
    Ok(Some(to))
}

/// The bytes of a sender's address: none if the socket's type does not tell it, or the sender has no name.
fn encoded_source(from: Option<&SocketAddress>) -> Vec<u8> {
    match from {
        None | Some(SocketAddress::Unix(UnixAddress::Unnamed)) => Vec::new(),
        Some(from) => from.encode().as_slice().to_vec(),
    }
}

/// `sendto(2)`
pub(crate) fn sendto(
    fd: Fd,
    buf: User,
    len: usize,
    flags: u32,
    address: User,
    address_len: usize,
) -> Result<usize> {
    let socket = Socket::of(fd)?;
    let to = destination(&socket, address, address_len)?;
    send(
        &socket,
        &one_segment(buf, len),
        flags,
        to.as_ref(),
        Vec::new(),
    )
}

/// `recvfrom(2)`
pub(crate) fn recvfrom(
    fd: Fd,
    buf: User,
    len: usize,
    flags: u32,
    address: User,
    address_len: User,
) -> Result<usize> {
    let socket = Socket::of(fd)?;
    let received = receive(&socket, &one_segment(buf, len), flags, None)?;
    if !address.is_null() {
        let source = encoded_source(received.from.as_ref());
        address::write_bytes(&source, address, address_len)?;
    }
    Ok(received.count)
}

/// `struct msghdr`, as 64-bit Linux lays it out.
struct Header {
    at: User,
    name: User,
    name_len: usize,
    segments: Segments,
    control: User,
    control_len: usize,
}

impl Header {
    const NAME_LEN: usize = 8;
    const CONTROL_LEN: usize = 40;
    const FLAGS: usize = 48;
    /// Size of the structure, where `struct mmsghdr` has its count.
    const SIZE: usize = 56;

    /// Reads it. `EMSGSIZE` for too many pieces, `EINVAL` for a negative length, `EFAULT`.
    fn read(at: User) -> Result<Self> {
        let [name, name_len, vector, count, control, control_len]: [usize; 6] = at.read()?;
        let name_len = low_u32(u64_from(name_len));
        if name_len.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        if count > MANY {
            return Err(Errno::EMSGSIZE);
        }
        Ok(Self {
            at,
            name: User(name),
            name_len: usize_from_u32(name_len).min(128),
            segments: Segments::read(User(vector), count)?,
            control: User(control),
            control_len,
        })
    }

    fn send(&self, socket: &Socket, flags: u32) -> Result<usize> {
        let to = destination(socket, self.name, self.name_len)?;
        let control = control::read(self.control, self.control_len)?;
        send(
            socket,
            self.segments.as_slice(),
            flags,
            to.as_ref(),
            control,
        )
    }

    fn receive(&self, socket: &Socket, flags: u32, deadline: Option<u64>) -> Result<usize> {
        let received = receive(socket, self.segments.as_slice(), flags, deadline)?;
        let close_on_exec = flags & MSG_CMSG_CLOEXEC;
        let mut room = Room::new(self.control, self.control_len, close_on_exec != 0);
        for message in received.control {
            room.put(message)?;
        }
        if !self.name.is_null() {
            let source = encoded_source(received.from.as_ref());
            user::write_all(self.name.0, &source[..source.len().min(self.name_len)])?;
            let len = u32::try_from(source.len()).map_err(|_| Errno::EINVAL)?;
            self.at.offset(Self::NAME_LEN)?.write(len)?;
        }
        let cut = if room.is_cut() { MSG_CTRUNC } else { 0 };
        self.at
            .offset(Self::FLAGS)?
            .write(received.flags | cut | close_on_exec)?;
        self.at.offset(Self::CONTROL_LEN)?.write(room.used())?;
        Ok(received.count)
    }
}

/// `sendmsg(2)`
pub(crate) fn sendmsg(fd: Fd, message: User, flags: u32) -> Result<usize> {
    let socket = Socket::of(fd)?;
    Header::read(message)?.send(&socket, flags)
}

/// `recvmsg(2)`
pub(crate) fn recvmsg(fd: Fd, message: User, flags: u32) -> Result<usize> {
    let socket = Socket::of(fd)?;
    Header::read(message)?.receive(&socket, flags, None)
}

/// The `index`th `struct mmsghdr`.
fn nth(messages: User, index: usize) -> Result<User> {
    messages.offset(index * (Header::SIZE + size_of::<u64>()))
}

/// Runs `each` for up to `count` messages and stores what it returns with the message. Returns how many succeeded, or
/// the first error if none did.
fn for_messages(
    messages: User,
    count: u32,
    mut each: impl FnMut(usize, Header) -> Result<usize>,
) -> Result<usize> {
    let count = usize_from_u32(count).min(MANY);
    for index in 0..count {
        let mut step = || {
            let at = nth(messages, index)?;
            let len = each(index, Header::read(at)?)?;
            at.offset(Header::SIZE)?.write(low_u32(u64_from(len)))
        };
        match step() {
            Ok(()) => {}
            Err(_) if index > 0 => return Ok(index),
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// `sendmmsg(2)`
pub(crate) fn sendmmsg(fd: Fd, messages: User, count: u32, flags: u32) -> Result<usize> {
    let socket = Socket::of(fd)?;
    for_messages(messages, count, |_, header| header.send(&socket, flags))
}

/// `recvmmsg(2)`. Unlike on Linux the time limit also ends the wait for a message; what remains of it is stored.
pub(crate) fn recvmmsg(
    fd: Fd,
    messages: User,
    count: u32,
    flags: u32,
    limit: User,
) -> Result<usize> {
    let deadline = timeout::from_pointer(limit)?;
    let socket = Socket::of(fd)?;
    let (mut flags, for_one) = (flags & !MSG_WAITFORONE, flags & MSG_WAITFORONE != 0);
    let result = for_messages(messages, count, |index, header| {
        if index > 0 && (for_one || deadline.is_some_and(|end| end <= time::now())) {
            flags |= MSG_DONTWAIT;
        }
        header.receive(&socket, flags, deadline)
    });
    if let (Ok(_), Some(end)) = (result, deadline) {
        limit.write(crate::time::timespec_of(end.saturating_sub(time::now())))?;
    }
    result
}
