// SPDX-License-Identifier: Apache-2.0
//! Sockets: from descriptors, addresses and messages of the application to the sockets of `net` (socket(7)).

mod address;
mod control;
mod message;
mod options;

use alloc::sync::Arc;

use coracle_abi::convert::{low_u32, u64_from};
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::sync::Once;
use coracle_core::thread::FIRST_TID;
use coracle_core::user::{User, UserOut};
use coracle_core::{Errno, PollEvents, Result, time};
use coracle_net::{Credentials, NetStack, Shutdown, SocketAddress, SocketFile};

use crate::argument::Fd;
use crate::info::identity;
use crate::process::{Process, process};
use crate::wait::{Interrupt, Wait, until_ready};

pub(crate) use message::{recvfrom, recvmmsg, recvmsg, sendmmsg, sendmsg, sendto};
pub(crate) use options::{getsockopt, setsockopt};

static STACK: Once<Arc<NetStack>> = Once::new();

/// Sets the stack that sockets are made in. The first call wins; before it there are no sockets (`EAFNOSUPPORT`).
pub fn install(stack: Arc<NetStack>) {
    let _ = STACK.set(stack);
}

/// The stack, if there is one: for reports.
#[must_use]
pub fn stack() -> Option<&'static Arc<NetStack>> {
    STACK.get()
}

/// Who the application is, for `NetConfig::credentials`.
#[must_use]
pub fn credentials() -> Credentials {
    let identity = identity();
    Credentials {
        pid: FIRST_TID,
        uid: identity.user.effective,
        gid: identity.group.effective,
    }
}

/// An open socket: its description is kept alive while a call works with it.
struct Socket {
    open: Arc<OpenFile>,
}

impl Socket {
    /// The socket open as `fd`. `EBADF`, or `ENOTSOCK` for another object.
    fn of(fd: Fd) -> Result<Self> {
        let open = process().file(fd)?;
        if open.downcast::<SocketFile>().is_none() {
            return Err(Errno::ENOTSOCK);
        }
        Ok(Self { open })
    }

    fn file(&self) -> &SocketFile {
        self.open
            .downcast()
            .expect("a Socket is made of socket files only")
    }

    /// Runs `attempt` until it has a result, unless the call may not wait. Packets that an attempt queued are sent
    /// before the thread sleeps.
    fn wait<T>(
        &self,
        may_wait: bool,
        how: Wait,
        mut attempt: impl FnMut(&SocketFile) -> Result<T>,
    ) -> Result<T> {
        let file = self.file();
        if !may_wait || self.open.is_nonblocking() {
            return attempt(file);
        }
        until_ready(&self.open, how, || {
            let result = attempt(file);
            if matches!(result, Err(Errno::EAGAIN)) {
                file.stack().flush();
            }
            result
        })
    }
}

/// How a call waits for `interest` on a file: sockets may have a time limit, and a call with one is not begun again
/// after a signal (signal(7)).
pub(crate) fn patience(open: &OpenFile, interest: PollEvents) -> Wait {
    let limit_ns = open.downcast::<SocketFile>().and_then(|socket| {
        if interest.contains(PollEvents::OUT) {
            socket.send_timeout_ns()
        } else {
            socket.receive_timeout_ns()
        }
    });
    let wait = Wait::new(interest);
    match limit_ns {
        None => wait,
        Some(limit) => Wait {
            deadline: Some(time::now().saturating_add(limit)),
            interrupt: Interrupt::Never,
            ..wait
        },
    }
}

/// Separates `SOCK_NONBLOCK` and `SOCK_CLOEXEC` from the type. `EINVAL` for other bits.
fn split_kind(kind: i32) -> Result<(u32, u32)> {
    const TYPE_BITS: u32 = 0xf;
    let kind = kind.cast_unsigned();
    let flags = kind & !TYPE_BITS;
    check_flags(flags)?;
    Ok((kind & TYPE_BITS, flags))
}

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC` have the values of `O_NONBLOCK` and `O_CLOEXEC`.
fn check_flags(flags: u32) -> Result<()> {
    if flags & !(g::O_NONBLOCK | g::O_CLOEXEC) == 0 {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Gives a new socket a descriptor. `EMFILE`.
fn add(file: Arc<SocketFile>, flags: u32) -> Result<usize> {
    let open = OpenFile::new(file, g::O_RDWR | flags & g::O_NONBLOCK);
    process().add_file(open, flags & g::O_CLOEXEC != 0)
}

/// Takes back a descriptor that was given out in this call.
fn take_back(process: &Process, fd: usize) {
    let removed = process.fds.lock().remove(low_u32(u64_from(fd)));
    drop(removed); // after the lock is released
}

/// `socket(2)`
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32) -> Result<usize> {
    let (kind, flags) = split_kind(kind)?;
    let stack = stack().ok_or(Errno::EAFNOSUPPORT)?;
    let file = SocketFile::new(
        stack,
        domain.cast_unsigned(),
        kind,
        protocol.cast_unsigned(),
    )?;
    add(file, flags)
}

/// `socketpair(2)`
pub(crate) fn socketpair(
    domain: i32,
    kind: i32,
    protocol: i32,
    fds: UserOut<[i32; 2]>,
) -> Result<usize> {
    let (kind, flags) = split_kind(kind)?;
    let stack = stack().ok_or(Errno::EAFNOSUPPORT)?;
    let [one, other] = SocketFile::pair(
        stack,
        domain.cast_unsigned(),
        kind,
        protocol.cast_unsigned(),
    )?;
    let process = process();
    let one = add(one, flags)?;
    let number = |fd: usize| low_u32(u64_from(fd)).cast_signed();
    let result = add(other, flags).and_then(|other| {
        fds.write([number(one), number(other)])
            .inspect_err(|_| take_back(process, other))
    });
    if let Err(error) = result {
        take_back(process, one);
        return Err(error);
    }
    Ok(0)
}

/// `bind(2)`. A path becomes a file of its own kind in the file system (unix(7)).
pub(crate) fn bind(fd: Fd, address: User, len: usize) -> Result<usize> {
    let socket = Socket::of(fd)?;
    let mut address = address::read(socket.file(), address, len)?;
    if address::is_path(&address) && address::is_unix(socket.file())? {
        if socket.file().local_address()? != address::UNNAMED {
            return Err(Errno::EINVAL);
        }
        let created = address::create_path(&mut address)?;
        return match socket.file().bind(&address) {
            Ok(()) => Ok(0),
            Err(error) => {
                created.undo();
                Err(error)
            }
        };
    }
    socket.file().bind(&address)?;
    Ok(0)
}

/// `listen(2)`
pub(crate) fn listen(fd: Fd, backlog: i32) -> Result<usize> {
    Socket::of(fd)?.file().listen(backlog)?;
    Ok(0)
}

/// `accept(2)`
pub(crate) fn accept(fd: Fd, address: User, len: User) -> Result<usize> {
    accept4(fd, address, len, 0)
}

/// `accept4(2)`. One connection wakes one of several threads that wait.
pub(crate) fn accept4(fd: Fd, address: User, len: User, flags: u32) -> Result<usize> {
    check_flags(flags)?;
    let socket = Socket::of(fd)?;
    {
        // A connection that could not get a descriptor would be lost.
        let fds = process().fds.lock();
        if fds.open_count() >= fds.limit() {
            return Err(Errno::EMFILE);
        }
    }
    let how = Wait {
        exclusive: true,
        ..patience(&socket.open, PollEvents::IN)
    };
    let (file, peer) = socket.wait(true, how, SocketFile::accept)?;
    if !address.is_null() {
        // As on Linux, the connection is gone if its address has no place.
        address::write(&peer, address, len)?;
    }
    add(file, flags)
}

/// `connect(2)`. With a time limit that passes the connection goes on being made: `EINPROGRESS` (socket(7)).
pub(crate) fn connect(fd: Fd, address: User, len: usize) -> Result<usize> {
    let socket = Socket::of(fd)?;
    let mut address = address::read(socket.file(), address, len)?;
    if address::is_unix(socket.file())? {
        address::find_path(&mut address)?;
    }
    let may_wait = !socket.open.is_nonblocking();
    let how = patience(&socket.open, PollEvents::OUT);
    let mut begun = false;
    let result = socket.wait(true, how, |file| match file.connect(&address) {
        Err(Errno::EINPROGRESS | Errno::EALREADY) if may_wait => {
            begun = true;
            Err(Errno::EAGAIN)
        }
        result => result,
    });
    match result {
        Err(Errno::EAGAIN) if begun => Err(Errno::EINPROGRESS),
        result => result.map(|()| 0),
    }
}

fn tell(address: Result<SocketAddress>, at: User, len: User) -> Result<usize> {
    address::write(&address?, at, len)?;
    Ok(0)
}

/// `getsockname(2)`
pub(crate) fn getsockname(fd: Fd, address: User, len: User) -> Result<usize> {
    tell(Socket::of(fd)?.file().local_address(), address, len)
}

/// `getpeername(2)`
pub(crate) fn getpeername(fd: Fd, address: User, len: User) -> Result<usize> {
    tell(Socket::of(fd)?.file().peer_address(), address, len)
}

/// `shutdown(2)`
pub(crate) fn shutdown(fd: Fd, how: i32) -> Result<usize> {
    let socket = Socket::of(fd)?;
    socket
        .file()
        .shutdown(Shutdown::parse(how.cast_unsigned())?)?;
    Ok(0)
}
