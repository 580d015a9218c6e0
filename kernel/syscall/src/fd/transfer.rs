// SPDX-License-Identifier: Apache-2.0
//! read(2), write(2) and their kind.

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc, Segment};
use coracle_core::memory;
use coracle_core::user::{User, UserIn};
use coracle_core::{Errno, PollEvents, Result};
use coracle_fs::eventfd::EventFd;

use crate::argument::Fd;
use crate::process::process;
use crate::socket::patience;
use crate::wait;

/// Most bytes of one transfer (read(2), NOTES).
const MAX_TRANSFER: usize = 0x7fff_f000;

/// Most pieces of one vectored transfer (`IOV_MAX`).
const MAX_SEGMENTS: usize = 1024;

/// Pieces that need no allocation.
const INLINE_SEGMENTS: usize = 8;

fn one_segment(buf: User, len: usize) -> Result<[Segment; 1]> {
    // A range that leaves the application's half is a bad address, whatever its length (access_ok() on Linux).
    if isize::try_from(len).is_err() {
        return Err(Errno::EFAULT);
    }
    Ok([Segment {
        base: buf.0,
        len: len.min(MAX_TRANSFER),
    }])
}

/// The pieces of a vectored transfer, on the stack if they are few.
pub(crate) struct Segments {
    inline: [Segment; INLINE_SEGMENTS],
    more: Vec<Segment>,
    count: usize,
}

impl Segments {
    /// Reads `count` `struct iovec` from the application. `EINVAL` if there are too many or they are too long.
    pub(crate) fn read(vector: User, count: usize) -> Result<Self> {
        if count > MAX_SEGMENTS {
            return Err(Errno::EINVAL);
        }
        let mut segments = Self {
            inline: [Segment::default(); INLINE_SEGMENTS],
            more: Vec::new(),
            count,
        };
        if count > INLINE_SEGMENTS {
            segments.more.resize(count, Segment::default());
        }
        let pairs = UserIn::<[usize; 2]>::new(vector.0);
        let mut room = MAX_TRANSFER;
        for (at, segment) in segments.as_mut().iter_mut().enumerate() {
            let [base, len] = pairs.at(at)?.read()?;
            if isize::try_from(len).is_err() {
                return Err(Errno::EINVAL);
            }
            let len = len.min(room);
            room -= len;
            *segment = Segment { base, len };
        }
        Ok(segments)
    }

    fn as_mut(&mut self) -> &mut [Segment] {
        if self.count > INLINE_SEGMENTS {
            &mut self.more
        } else {
            &mut self.inline[..self.count]
        }
    }

    /// The pieces.
    pub(crate) fn as_slice(&self) -> &[Segment] {
        if self.count > INLINE_SEGMENTS {
            &self.more
        } else {
            &self.inline[..self.count]
        }
    }
}

/// Runs `step`, makes the pages present that it stopped at, and runs it again. What was moved before an error counts.
fn with_faults<B>(
    buffer: &mut B,
    write: bool,
    fault: impl Fn(&mut B) -> Option<usize>,
    mut step: impl FnMut(&mut B) -> Result<usize>,
) -> Result<usize> {
    let mut total = 0;
    loop {
        let result = step(buffer);
        let stopped_at = fault(buffer);
        match (result, stopped_at) {
            (Ok(count), None) => return Ok(total + count),
            (Ok(count), Some(_)) => total += count,
            (Err(Errno::EFAULT), Some(_)) => {}
            // The page cache has something to give, which could not be taken under the locks of the file.
            (Err(Errno::ENOMEM), None) if memory::make_room(1) => {}
            (Err(_), _) if total > 0 => return Ok(total),
            (Err(error), _) => return Err(error),
        }
        if let Some(address) = stopped_at
            && let Err(error) = memory::fault_in(address, write)
        {
            return if total > 0 { Ok(total) } else { Err(error) };
        }
    }
}

/// One attempt to read, with the pages of the destination made present as needed.
pub(crate) fn read_step(
    dst: &mut IoDst<'_>,
    mut step: impl FnMut(&mut IoDst<'_>) -> Result<usize>,
) -> Result<usize> {
    let fault = |dst: &mut IoDst<'_>| {
        let at = dst.faulted();
        dst.clear_fault();
        at
    };
    with_faults(dst, true, fault, |dst| {
        // What fails consumed nothing, but may have copied a part.
        let before = dst.done();
        step(dst).inspect_err(|_| dst.rewind(before))
    })
}

/// One attempt to write, with the pages of the source made present as needed.
pub(crate) fn write_step(
    src: &mut IoSrc<'_>,
    step: impl FnMut(&mut IoSrc<'_>) -> Result<usize>,
) -> Result<usize> {
    let fault = |src: &mut IoSrc<'_>| {
        let at = src.faulted();
        src.clear_fault();
        at
    };
    with_faults(src, false, fault, step)
}

/// Reads from a file, waiting if it has to.
pub(super) fn read_from(open: &OpenFile, segments: &[Segment], nowait: bool) -> Result<usize> {
    open.check_readable()?;
    let mut dst = IoDst::user(segments)?;
    let mut attempt = || read_step(&mut dst, |dst| open.read(dst));
    if nowait {
        return attempt();
    }
    wait::unless_nonblocking(open, patience(open, PollEvents::IN), attempt)
}

/// Writes to a file, waiting until all is written if it has to. `SIGPIPE` goes with `EPIPE`.
pub(super) fn write_to(open: &OpenFile, segments: &[Segment], nowait: bool) -> Result<usize> {
    open.check_writable()?;
    let mut src = IoSrc::user(segments)?;
    let result = write_all_of(open, &mut src, nowait, |src| open.write(src));
    if result == Err(Errno::EPIPE) {
        wait::signals::broken_pipe();
    }
    result
}

/// The loop of a blocking write: goes on after a short count. A later error leaves the count.
pub(crate) fn write_all_of(
    open: &OpenFile,
    src: &mut IoSrc<'_>,
    nowait: bool,
    mut step: impl FnMut(&mut IoSrc<'_>) -> Result<usize>,
) -> Result<usize> {
    // Files with positions end short only for good; an event counter takes eight bytes whatever the length.
    let whole = !nowait
        && !open.is_nonblocking()
        && !open.file().is_seekable()
        && open.downcast::<EventFd>().is_none();
    let wanted = src.remaining();
    let mut total = 0;
    loop {
        let mut attempt = || write_step(src, &mut step);
        let result = if nowait {
            attempt()
        } else {
            wait::unless_nonblocking(open, patience(open, PollEvents::OUT), attempt)
        };
        match result {
            Ok(count) => total += count,
            Err(_) if total > 0 => return Ok(total),
            Err(error) => return Err(error),
        }
        if !whole || total >= wanted {
            return Ok(total);
        }
    }
}

/// `read(2)`
pub(crate) fn read(fd: Fd, buf: User, len: usize) -> Result<usize> {
    let open = process().any_file(fd)?;
    read_from(&open, &one_segment(buf, len)?, false)
}

/// `write(2)`
pub(crate) fn write(fd: Fd, buf: User, len: usize) -> Result<usize> {
    let open = process().any_file(fd)?;
    write_to(&open, &one_segment(buf, len)?, false)
}

/// `readv(2)`
pub(crate) fn readv(fd: Fd, vector: User, count: usize) -> Result<usize> {
    let open = process().any_file(fd)?;
    open.check_readable()?;
    read_from(&open, Segments::read(vector, count)?.as_slice(), false)
}

/// `writev(2)`
pub(crate) fn writev(fd: Fd, vector: User, count: usize) -> Result<usize> {
    let open = process().any_file(fd)?;
    open.check_writable()?;
    write_to(&open, Segments::read(vector, count)?.as_slice(), false)
}

/// The position of a positioned transfer; `EINVAL` if negative.
fn position(offset: i64) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Errno::EINVAL)
}

/// A file for a transfer at a position. Whether it has positions comes before whether the access is allowed.
fn positioned(fd: Fd) -> Result<Arc<OpenFile>> {
    let open = process().file(fd)?;
    if open.file().is_seekable() {
        Ok(open)
    } else {
        Err(Errno::ESPIPE)
    }
}

fn read_at(open: &OpenFile, segments: &[Segment], at: u64) -> Result<usize> {
    open.check_readable()?;
    let mut dst = IoDst::user(segments)?;
    read_step(&mut dst, |dst| {
        let here = at.saturating_add(u64_from(dst.done()));
        open.file().read_at(here, dst)
    })
}

fn write_at(open: &OpenFile, segments: &[Segment], at: u64, append: bool) -> Result<usize> {
    open.check_writable()?;
    let mut src = IoSrc::user(segments)?;
    // On Linux pwrite(2) appends if the file was opened with O_APPEND, whatever the offset (BUGS).
    let append = append || open.flags() & g::O_APPEND != 0;
    write_step(&mut src, |src| {
        let here = at.saturating_add(u64_from(src.done()));
        open.file()
            .write_at(here, append, src)
            .map(|(count, _)| count)
    })
}

/// `pread64(2)`
pub(crate) fn pread64(fd: Fd, buf: User, len: usize, offset: i64) -> Result<usize> {
    let at = position(offset)?;
    let open = positioned(fd)?;
    read_at(&open, &one_segment(buf, len)?, at)
}

/// `pwrite64(2)`
pub(crate) fn pwrite64(fd: Fd, buf: User, len: usize, offset: i64) -> Result<usize> {
    let at = position(offset)?;
    let open = positioned(fd)?;
    write_at(&open, &one_segment(buf, len)?, at, false)
}

/// `preadv(2)`; the offset comes in one register on 64-bit machines.
pub(crate) fn preadv(fd: Fd, vector: User, count: usize, offset: i64) -> Result<usize> {
    let at = position(offset)?;
    let open = positioned(fd)?;
    read_at(&open, Segments::read(vector, count)?.as_slice(), at)
}

/// `pwritev(2)`
pub(crate) fn pwritev(fd: Fd, vector: User, count: usize, offset: i64) -> Result<usize> {
    let at = position(offset)?;
    let open = positioned(fd)?;
    write_at(&open, Segments::read(vector, count)?.as_slice(), at, false)
}

const READ_FLAGS: u32 = g::RWF_HIPRI | g::RWF_NOWAIT;
const WRITE_FLAGS: u32 = g::RWF_HIPRI | g::RWF_NOWAIT | g::RWF_APPEND | g::RWF_DSYNC | g::RWF_SYNC;

/// `preadv2(2)`; offset -1 means the current position. The sixth register carries the flags.
pub(crate) fn preadv2(
    fd: Fd,
    vector: User,
    count: usize,
    offset: i64,
    _offset_high: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !READ_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let open = process().any_file(fd)?;
    open.check_readable()?;
    let segments = Segments::read(vector, count)?;
    if offset == -1 {
        read_from(&open, segments.as_slice(), flags & g::RWF_NOWAIT != 0)
    } else {
        read_at(&open, segments.as_slice(), position(offset)?)
    }
}

/// `pwritev2(2)`; offset -1 means the current position.
pub(crate) fn pwritev2(
    fd: Fd,
    vector: User,
    count: usize,
    offset: i64,
    _offset_high: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !WRITE_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let open = process().any_file(fd)?;
    open.check_writable()?;
    let segments = Segments::read(vector, count)?;
    let append = flags & g::RWF_APPEND != 0 && open.file().is_seekable();
    let written = match offset {
        -1 if append => {
            let mut src = IoSrc::user(segments.as_slice())?;
            write_step(&mut src, |src| {
                let mut at = open.position().lock();
                let (count, after) = open.file().write_at(*at, true, src)?;
                *at = after;
                Ok(count)
            })
        }
        -1 => write_to(&open, segments.as_slice(), flags & g::RWF_NOWAIT != 0),
        _ => write_at(&open, segments.as_slice(), position(offset)?, append),
    }?;
    match flags & (g::RWF_SYNC | g::RWF_DSYNC) {
        // What cannot be synced (pipes, sockets) has nothing to bring to a disk.
        0 => {}
        _ if !open.file().is_seekable() => {}
        g::RWF_DSYNC => open.file().sync_data()?,
        _ => open.file().sync()?,
    }
    Ok(written)
}
