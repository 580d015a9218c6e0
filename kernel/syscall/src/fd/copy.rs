// SPDX-License-Identifier: Apache-2.0
//! From file to file inside the kernel: sendfile(2), copy_file_range(2).

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::user::{User, UserIn, UserOut};
use coracle_core::{Errno, PollEvents, Result};
use coracle_fs::vfs::{Kind, VnodeFile};
use coracle_net::{PagePart, SocketFile};

use crate::argument::Fd;
use crate::process::process;
use crate::socket::patience;
use crate::wait;

/// Bytes that are copied at a time.
const CHUNK: usize = 16 * 1024;

/// Bytes that are lent at a time: what a network card takes as one large segment.
const LENT: usize = 64 * 1024;

/// Most bytes of one call, as for read(2).
const MAX_TRANSFER: usize = 0x7fff_f000;

/// The position that a copy reads or writes at: the file's own, or one that the application keeps.
struct Position {
    at: u64,
    kept_at: User,
}

impl Position {
    fn read(open: &OpenFile, offset: User) -> Result<Self> {
        let at = match UserIn::<i64>::new(offset.0).optional() {
            None => *open.position().lock(),
            Some(offset) => u64::try_from(offset.read()?).map_err(|_| Errno::EINVAL)?,
        };
        Ok(Self {
            at,
            kept_at: offset,
        })
    }

    fn store(&self, open: &OpenFile) -> Result<()> {
        match UserOut::<i64>::new(self.kept_at.0).optional() {
            None => *open.position().lock() = self.at,
            Some(offset) => offset.write(self.at.cast_signed())?,
        }
        Ok(())
    }
}

/// Moves up to `count` bytes: fills a chunk from `read(position)`, passes it to `write`, and counts what arrived.
fn pump(
    from: &mut Position,
    count: usize,
    read: impl Fn(u64, &mut IoDst<'_>) -> Result<usize>,
    mut write: impl FnMut(&mut IoSrc<'_>) -> Result<usize>,
) -> Result<usize> {
    let mut chunk = vec![0; count.min(CHUNK)];
    let mut total = 0;
    while total < count {
        let want = (count - total).min(CHUNK);
        let step =
            read(from.at, &mut IoDst::kernel(&mut chunk[..want])).and_then(|got| match got {
                0 => Ok((0, 0)),
                _ => write(&mut IoSrc::kernel(&chunk[..got])).map(|put| (got, put)),
            });
        match step {
            Ok((got, put)) => {
                total += put;
                from.at += u64_from(put);
                if got == 0 {
                    break;
                }
            }
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Parts of pages of a regular file from a position on, up to its end; none beyond it.
fn lend(open: &OpenFile, at: u64, count: usize) -> Result<Vec<PagePart>> {
    let file = open.file();
    let (mut index, mut offset) = (
        at / u64_from(PAGE_SIZE),
        usize_from(at % u64_from(PAGE_SIZE)),
    );
    let mut parts = Vec::with_capacity((offset + count).div_ceil(PAGE_SIZE));
    let mut left = count;
    while left > 0 {
        let page = match file.page(index, false) {
            Ok(page) => page,
            Err(Errno::EAGAIN) => {
                file.fetch(index, false)?;
                continue;
            }
            // The file was cut short meanwhile.
            Err(Errno::ENXIO) => break,
            Err(_) if !parts.is_empty() => break,
            Err(error) => return Err(error),
        };
        let len = left.min(PAGE_SIZE - offset);
        parts.push(PagePart { page, offset, len });
        left -= len;
        index += 1;
        offset = 0;
    }
    Ok(parts)
}

/// As `pump`, from a regular file to a TCP connection: the connection keeps the file's pages until they have arrived,
/// nothing is copied. `None` if one of the two cannot do that; nothing was moved then.
fn pump_pages(
    from: &mut Position,
    count: usize,
    source: &OpenFile,
    sink: &OpenFile,
) -> Result<Option<usize>> {
    let Some(socket) = sink.downcast::<SocketFile>() else {
        return Ok(None);
    };
    let metadata = source.file().metadata()?;
    let left = usize::try_from(metadata.size.saturating_sub(from.at)).unwrap_or(usize::MAX);
    let count = count.min(left);
    // A page costs more than the copy of a few bytes.
    if metadata.mode & g::S_IFMT != g::S_IFREG || count < PAGE_SIZE {
        return Ok(None);
    }
    let mut total = 0;
    while total < count {
        let want = (count - total).min(LENT);
        let step = lend(source, from.at, want).and_then(|parts| {
            if parts.is_empty() {
                return Ok(0);
            }
            let more = total + want < count;
            let attempt = || socket.send_pages(&parts, more);
            wait::unless_nonblocking(sink, patience(sink, PollEvents::OUT), attempt)
        });
        match step {
            Ok(0) => break,
            Ok(put) => {
                total += put;
                from.at += u64_from(put);
            }
            Err(Errno::ENODEV | Errno::EOPNOTSUPP) if total == 0 => return Ok(None),
            Err(_) if total > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Some(total))
}

/// `sendfile(2)`
pub(crate) fn sendfile(out: Fd, input: Fd, offset: User, count: usize) -> Result<usize> {
    let source = process().file(input)?;
    let sink = process().file(out)?;
    source.check_readable()?;
    sink.check_writable()?;
    if !source.file().is_seekable() {
        return Err(if offset.0 == 0 {
            Errno::EINVAL
        } else {
            Errno::ESPIPE
        });
    }
    if sink.flags() & g::O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let mut from = Position::read(&source, offset)?;
    let count = count.min(MAX_TRANSFER);
    let result = match pump_pages(&mut from, count, &source, &sink) {
        Ok(None) => pump(
            &mut from,
            count,
            |at, dst| source.file().read_at(at, dst),
            |src| {
                let patience = patience(&sink, PollEvents::OUT);
                wait::unless_nonblocking(&sink, patience, || sink.write(src))
            },
        ),
        Ok(Some(moved)) => Ok(moved),
        Err(error) => Err(error),
    };
    if result == Err(Errno::EPIPE) {
        wait::signals::broken_pipe();
    }
    let moved = result?;
    from.store(&source)?;
    Ok(moved)
}

fn regular(open: &Arc<OpenFile>) -> Result<&VnodeFile> {
    let file = open.downcast::<VnodeFile>().ok_or(Errno::EINVAL)?;
    match file.place().inode.kind() {
        Kind::File => Ok(file),
        Kind::Directory => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    }
}

/// `copy_file_range(2)`
pub(crate) fn copy_file_range(
    input: Fd,
    offset_in: User,
    out: Fd,
    offset_out: User,
    len: usize,
    flags: u32,
) -> Result<usize> {
    let source = process().file(input)?;
    let sink = process().file(out)?;
    let (a, b) = (regular(&source)?, regular(&sink)?);
    source.check_readable()?;
    sink.check_writable()?;
    if sink.flags() & g::O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let mut from = Position::read(&source, offset_in)?;
    let mut to = Position::read(&sink, offset_out)?;
    let len = len.min(MAX_TRANSFER);
    let overlap = from.at.abs_diff(to.at) < u64_from(len);
    if a.place().is_same(b.place()) && overlap {
        return Err(Errno::EINVAL);
    }
    let moved = pump(
        &mut from,
        len,
        |at, dst| source.file().read_at(at, dst),
        |src| {
            let (count, after) = sink.file().write_at(to.at, false, src)?;
            to.at = after;
            Ok(count)
        },
    )?;
    from.store(&source)?;
    to.store(&sink)?;
    Ok(moved)
}
