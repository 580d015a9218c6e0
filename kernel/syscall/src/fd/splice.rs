// SPDX-License-Identifier: Apache-2.0
//! Through a pipe without a buffer of the application: splice(2), tee(2), vmsplice(2).
//!
//! Bytes are copied inside the kernel. What is taken from one side has a place on the other before it is taken, so
//! nothing is lost when the other side is full, fails, or a signal comes.

use alloc::sync::Arc;
use alloc::vec;

use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::user::{User, UserIn, UserOut};
use coracle_core::{Errno, PollEvents, Result};
use coracle_fs::pipe::{Pipe, PipeEnd};
use coracle_fs::vfs::VnodeFile;

use super::transfer::{Segments, read_from, write_to};
use crate::argument::Fd;
use crate::process::process;
use crate::socket::patience;
use crate::wait::{self, Wait};

/// Bytes that are moved at a time.
const CHUNK: usize = 16 * 1024;

const MOVE: u32 = 1;
const NONBLOCK: u32 = 2;
const MORE: u32 = 4;
const GIFT: u32 = 8;
const KNOWN: u32 = MOVE | NONBLOCK | MORE | GIFT;

/// The pipe's end behind a descriptor, if it is one.
fn end_of(open: &OpenFile) -> Option<&PipeEnd> {
    open.downcast::<PipeEnd>().or_else(|| {
        let inner = open.downcast::<VnodeFile>()?.inner().ok()?;
        inner.as_any().downcast_ref()
    })
}

/// Waits for a pipe, unless the call or the descriptor says not to.
fn on_pipe<T>(
    open: &OpenFile,
    flags: u32,
    interest: PollEvents,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    if flags & NONBLOCK != 0 {
        return attempt();
    }
    wait::unless_nonblocking(open, Wait::new(interest), attempt)
}

/// The other side of a splice: a file, and where in it.
struct Side {
    open: Arc<OpenFile>,
    /// `None` for the file's own position, or for one that has none.
    at: Option<u64>,
    kept_at: User,
}

impl Side {
    /// `EINVAL` for a position in a file that has none.
    fn new(open: Arc<OpenFile>, offset: User) -> Result<Self> {
        let at = match UserIn::<i64>::new(offset.0).optional() {
            None => None,
            Some(_) if !open.file().is_seekable() => return Err(Errno::EINVAL),
            Some(offset) => Some(u64::try_from(offset.read()?).map_err(|_| Errno::EINVAL)?),
        };
        Ok(Self {
            open,
            at,
            kept_at: offset,
        })
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let open = &self.open;
        let count = match self.at {
            Some(at) => open.file().read_at(at, &mut IoDst::kernel(bytes))?,
            None => wait::unless_nonblocking(open, patience(open, PollEvents::IN), || {
                open.read(&mut IoDst::kernel(bytes))
            })?,
        };
        self.advance(count);
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let open = &self.open;
        let mut src = IoSrc::kernel(bytes);
        let count = match self.at {
            Some(at) => open.file().write_at(at, false, &mut src)?.0,
            None => wait::unless_nonblocking(open, patience(open, PollEvents::OUT), || {
                open.write(&mut src)
            })?,
        };
        self.advance(count);
        Ok(count)
    }

    fn advance(&mut self, count: usize) {
        self.at = self.at.map(|at| at + u64_from(count));
    }

    fn store(&self) -> Result<()> {
        match self.at {
            Some(at) => UserOut::<i64>::new(self.kept_at.0).write(at.cast_signed()),
            None => Ok(()),
        }
    }
}

/// `splice(2)`
pub(crate) fn splice(
    input: Fd,
    offset_in: User,
    out: Fd,
    offset_out: User,
    len: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let (source, sink) = (process().file(input)?, process().file(out)?);
    source.check_readable()?;
    sink.check_writable()?;
    let (from, to) = (end_of(&source), end_of(&sink));
    if from.is_some() && !offset_in.is_null() || to.is_some() && !offset_out.is_null() {
        return Err(Errno::ESPIPE);
    }
    let result = match (from, to) {
        (Some(from), Some(to)) => {
            check_different(from.pipe(), to.pipe())?;
            between(&source, from, &sink, to, len, flags, true)
        }
        (Some(from), None) => {
            if sink.flags() & g::O_APPEND != 0 {
                return Err(Errno::EINVAL);
            }
            let mut side = Side::new(sink.clone(), offset_out)?;
            let moved = out_of(&source, from, &mut side, len, flags);
            side.store().and(moved)
        }
        (None, Some(to)) => {
            let mut side = Side::new(source.clone(), offset_in)?;
            let moved = into(&mut side, &sink, to, len, flags);
            side.store().and(moved)
        }
        (None, None) => Err(Errno::EINVAL),
    };
    if result == Err(Errno::EPIPE) {
        wait::signals::broken_pipe();
    }
    result
}

fn check_different(a: &Arc<Pipe>, b: &Arc<Pipe>) -> Result<()> {
    if Arc::ptr_eq(a, b) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// From a pipe to something else, as far as there are bytes in the pipe.
fn out_of(open: &OpenFile, from: &PipeEnd, to: &mut Side, len: usize, flags: u32) -> Result<usize> {
    let mut chunk = vec![0; len.min(CHUNK)];
    let mut moved = 0;
    while moved < len {
        let want = (len - moved).min(CHUNK);
        let step = (|| {
            let mut borrow = || from.borrow(&mut chunk[..want]);
            // Only the first bytes are waited for.
            let got = if moved > 0 {
                borrow()?
            } else {
                on_pipe(open, flags, PollEvents::IN, borrow)?
            };
            if got == 0 {
                return Ok(0);
            }
            let put = to.write(&chunk[..got]);
            from.give_back(put.unwrap_or(0));
            put
        })();
        match step {
            Ok(0) => break,
            Ok(put) => moved += put,
            Err(_) if moved > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(moved)
}

/// From something else to a pipe: what one reading gives.
fn into(from: &mut Side, open: &OpenFile, to: &PipeEnd, len: usize, flags: u32) -> Result<usize> {
    let reserved = on_pipe(open, flags, PollEvents::OUT, || to.reserve(len))?;
    let mut chunk = vec![0; reserved.min(4 * CHUNK)];
    let got = from.read(&mut chunk);
    to.fill(reserved, &chunk[..*got.as_ref().unwrap_or(&0)]);
    got
}

/// From pipe to pipe; with `consumes` the bytes leave the first one.
fn between(
    source: &OpenFile,
    from: &PipeEnd,
    sink: &OpenFile,
    to: &PipeEnd,
    len: usize,
    flags: u32,
    consumes: bool,
) -> Result<usize> {
    let reserved = on_pipe(sink, flags, PollEvents::OUT, || to.reserve(len))?;
    let mut chunk = vec![0; reserved.min(4 * CHUNK)];
    let got = on_pipe(source, flags, PollEvents::IN, || from.borrow(&mut chunk));
    let count = *got.as_ref().unwrap_or(&0);
    to.fill(reserved, &chunk[..count]);
    if count > 0 {
        from.give_back(if consumes { count } else { 0 });
    }
    got
}

/// `tee(2)`
pub(crate) fn tee(input: Fd, out: Fd, len: usize, flags: u32) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let (source, sink) = (process().file(input)?, process().file(out)?);
    source.check_readable()?;
    sink.check_writable()?;
    let (Some(from), Some(to)) = (end_of(&source), end_of(&sink)) else {
        return Err(Errno::EINVAL);
    };
    check_different(from.pipe(), to.pipe())?;
    let result = between(&source, from, &sink, to, len, flags, false);
    if result == Err(Errno::EPIPE) {
        wait::signals::broken_pipe();
    }
    result
}

/// `vmsplice(2)`: the pages are copied, also with `SPLICE_F_GIFT`.
pub(crate) fn vmsplice(fd: Fd, vector: User, count: usize, flags: u32) -> Result<usize> {
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let open = process().file(fd)?;
    let end = end_of(&open).ok_or(Errno::EBADF)?;
    let segments = Segments::read(vector, count)?;
    let is_nonblocking = flags & NONBLOCK != 0;
    match end.directions() {
        (_, true) => write_to(&open, segments.as_slice(), is_nonblocking),
        _ => read_from(&open, segments.as_slice(), is_nonblocking),
    }
}
