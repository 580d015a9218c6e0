// SPDX-License-Identifier: Apache-2.0
//! Objects that only have descriptors: pipe(2), eventfd(2), epoll_create(2), timerfd_create(2), signalfd(2),
//! memfd_create(2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::low_u32;
use coracle_abi::raw::general as g;
use coracle_core::file::{File, OpenFile};
use coracle_core::user::{User, UserIn, UserOut, read_c_string};
use coracle_core::{Errno, Result};
use coracle_fs::epoll::Epoll;
use coracle_fs::eventfd::EventFd;
use coracle_fs::pipe::Pipe;
use coracle_fs::signalfd::SignalFd;
use coracle_fs::timerfd::{Clock, TimerFd};
use coracle_fs::tmpfs::Node;
use coracle_fs::vfs::{NewKind, Place, VnodeFile};

use crate::argument::Fd;
use crate::process::process;

/// Gives a new object a descriptor. `flags` may hold `O_NONBLOCK` and `O_CLOEXEC`, which have the same value in all
/// families of flags.
fn install(file: Arc<dyn File>, access: u32, flags: u32) -> Result<usize> {
    let open = OpenFile::new(file, access | (flags & g::O_NONBLOCK));
    process().add_file(open, flags & g::O_CLOEXEC != 0)
}

/// `pipe(2)`
pub(crate) fn pipe(out: UserOut<[i32; 2]>) -> Result<usize> {
    pipe2(out, 0)
}

/// `pipe2(2)`. Packet mode (`O_DIRECT`) is not supported: `EINVAL`.
pub(crate) fn pipe2(out: UserOut<[i32; 2]>, flags: u32) -> Result<usize> {
    if flags & !(g::O_CLOEXEC | g::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let (reader, writer) = Pipe::pair();
    let first = install(reader, g::O_RDONLY, flags)?;
    let number = |fd: usize| low_u32(coracle_abi::convert::u64_from(fd));
    let close = |fd: usize| super::close(Fd(number(fd).cast_signed()));
    let second = match install(writer, g::O_WRONLY, flags) {
        Ok(second) => second,
        Err(error) => {
            close(first)?;
            return Err(error);
        }
    };
    let pair = [number(first).cast_signed(), number(second).cast_signed()];
    if let Err(error) = out.write(pair) {
        close(first)?;
        close(second)?;
        return Err(error);
    }
    Ok(0)
}

/// `eventfd(2)`, the older call.
pub(crate) fn eventfd(initial: u32) -> Result<usize> {
    eventfd2(initial, 0)
}

/// `eventfd(2)`
pub(crate) fn eventfd2(initial: u32, flags: u32) -> Result<usize> {
    if flags & !(g::EFD_CLOEXEC | g::EFD_NONBLOCK | g::EFD_SEMAPHORE) != 0 {
        return Err(Errno::EINVAL);
    }
    let counter = EventFd::new(initial.into(), flags & g::EFD_SEMAPHORE != 0);
    install(counter, g::O_RDWR, flags)
}

/// `epoll_create(2)`; the size only has to be positive.
pub(crate) fn epoll_create(size: i32) -> Result<usize> {
    if size <= 0 {
        return Err(Errno::EINVAL);
    }
    epoll_create1(0)
}

/// `epoll_create1(2)`
pub(crate) fn epoll_create1(flags: u32) -> Result<usize> {
    if flags & !g::EPOLL_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    install(Epoll::new(), g::O_RDWR, flags)
}

/// `timerfd_create(2)`
pub(crate) fn timerfd_create(clock: i32, flags: u32) -> Result<usize> {
    if flags & !(g::TFD_CLOEXEC | g::TFD_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let clock = match clock.cast_unsigned() {
        g::CLOCK_REALTIME | g::CLOCK_REALTIME_ALARM => Clock::Realtime,
        // The machine never sleeps: boot time and monotonic time are one.
        g::CLOCK_MONOTONIC | g::CLOCK_BOOTTIME | g::CLOCK_BOOTTIME_ALARM => Clock::Monotonic,
        _ => return Err(Errno::EINVAL),
    };
    install(TimerFd::new(clock), g::O_RDWR, flags)
}

/// `signalfd(2)`, the older call.
pub(crate) fn signalfd(fd: Fd, mask: User, size: usize) -> Result<usize> {
    signalfd4(fd, mask, size, 0)
}

/// `signalfd(2)`; with a descriptor instead of -1 its set is replaced.
pub(crate) fn signalfd4(fd: Fd, mask: User, size: usize, flags: u32) -> Result<usize> {
    if flags & !(g::O_CLOEXEC | g::O_NONBLOCK) != 0 || size != size_of::<u64>() {
        return Err(Errno::EINVAL);
    }
    let mask = UserIn::<u64>::new(mask.0).read()?;
    if fd.0 == -1 {
        return install(
            SignalFd::new(crate::wait::signals::source(), mask),
            g::O_RDWR,
            flags,
        );
    }
    let open = process().file(fd)?;
    open.downcast::<SignalFd>()
        .ok_or(Errno::EINVAL)?
        .set_mask(mask);
    Ok(coracle_abi::convert::usize_from_u32(fd.index()?))
}

/// `memfd_create(2)`. Huge pages are not supported: `EINVAL`.
pub(crate) fn memfd_create(name: User, flags: u32) -> Result<usize> {
    // 249 bytes and "memfd:" make 255.
    let text = read_c_string(name.0, 250).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })?;
    let known = g::MFD_CLOEXEC | g::MFD_ALLOW_SEALING | g::MFD_NOEXEC_SEAL | g::MFD_EXEC;
    let both = g::MFD_NOEXEC_SEAL | g::MFD_EXEC;
    if flags & !known != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    let no_exec = flags & g::MFD_NOEXEC_SEAL != 0;
    let shown = [b"memfd:", &text[..]].concat();
    let (node, file) = memory_file(if no_exec { 0o666 } else { 0o777 }, shown);
    if flags & (g::MFD_ALLOW_SEALING | g::MFD_NOEXEC_SEAL) != 0 {
        node.allow_sealing();
    }
    if no_exec {
        coracle_fs::vfs::Inode::seals(&*node, g::F_SEAL_EXEC)?;
    }
    // memfd_create(2) knows no O_NONBLOCK; its flag for close-on-exec has another value than the others.
    let close_on_exec = flags & g::MFD_CLOEXEC != 0;
    process().add_file(file, close_on_exec)
}

/// A new file in memory without a name, and the name it is shown by.
fn memory_file(mode: u32, shown: Vec<u8>) -> (Arc<Node>, Arc<OpenFile>) {
    let (fs, mount) = &process().memory_files;
    let (uid, gid) = process().owner();
    let node = fs.unnamed_file(&coracle_fs::vfs::NewNode {
        kind: NewKind::File,
        mode,
        uid,
        gid,
    });
    let place = Place {
        mount: mount.clone(),
        inode: node.clone(),
    };
    let directory = Place {
        mount: mount.clone(),
        inode: mount.root().clone(),
    };
    let file = VnodeFile::new(place, Some((directory, shown)), node.clone(), true);
    (node, OpenFile::new(Arc::new(file), g::O_RDWR))
}

/// The object behind a shared anonymous mapping of `len` bytes (mmap(2)).
pub(crate) fn shared_memory(len: u64) -> Result<Arc<OpenFile>> {
    let (_, file) = memory_file(0o600, b"/dev/zero".to_vec());
    file.file().truncate(len)?;
    Ok(file)
}
