// SPDX-License-Identifier: Apache-2.0
//! Pipes and named pipes: pipe(7), fifo(7).

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_core::file::{File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;
use coracle_core::time;
use coracle_logic::ring::ByteRing;

use crate::{Errno, PollEvents, Result};

/// Writes of at most this many bytes are never interleaved or split (pipe(7)).
pub const PIPE_BUF: usize = 4096;

/// Capacity of a new pipe in bytes.
pub const DEFAULT_CAPACITY: usize = 64 * 1024;

/// Largest capacity that `F_SETPIPE_SZ` gives (`/proc/sys/fs/pipe-max-size`).
pub const MAX_CAPACITY: usize = 1024 * 1024;

/// A queue of bytes between those who write and those who read.
pub struct Pipe {
    number: u64,
    created_ns: u64,
    state: SpinLock<State>,
    source: PollSource,
}

struct State {
    ring: ByteRing,
    /// Somebody has borrowed the bytes in front.
    is_lent: bool,
    /// Room that is kept for bytes on their way.
    reserved: usize,
    readers: u32,
    writers: u32,
    /// How often a writer or reader came, so that a named pipe's first end can wait for the other.
    writers_ever: u64,
    readers_ever: u64,
}

impl State {
    fn can_write(&self) -> bool {
        self.room() >= PIPE_BUF
    }

    /// Bytes that can be written.
    fn room(&self) -> usize {
        self.ring.free().saturating_sub(self.reserved)
    }
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Pipe {
    /// A pipe nobody has open.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            created_ns: time::wall(),
            state: SpinLock::new(State {
                ring: ByteRing::new(DEFAULT_CAPACITY),
                is_lent: false,
                reserved: 0,
                readers: 0,
                writers: 0,
                writers_ever: 0,
                readers_ever: 0,
            }),
            source: PollSource::new(),
        })
    }

    /// `pipe(2)`: a new pipe's end to read from and end to write to.
    #[must_use]
    pub fn pair() -> (Arc<PipeEnd>, Arc<PipeEnd>) {
        let pipe = Self::new();
        (
            PipeEnd::new(&pipe, true, false),
            PipeEnd::new(&pipe, false, true),
        )
    }

    /// An end for a descriptor opened with `flags` by name. Does not wait: see [`PipeEnd::peer_came`]. `ENXIO` for
    /// writing without waiting when nobody reads (fifo(7)).
    pub fn open_named(self: &Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        let (reads, writes) = match flags & g::O_ACCMODE {
            g::O_RDONLY => (true, false),
            g::O_WRONLY => (false, true),
            g::O_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        if writes && !reads && flags & g::O_NONBLOCK != 0 && self.state.lock().readers == 0 {
            return Err(Errno::ENXIO);
        }
        Ok(PipeEnd::new(self, reads, writes))
    }

    /// The number in `pipe:[N]` of `/proc/self/fd`.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// One end of a pipe; both ends at once for a named pipe opened with `O_RDWR`.
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
    /// The other side's counter when this end was opened.
    peers_before: u64,
}

impl PipeEnd {
    fn new(pipe: &Arc<Pipe>, reads: bool, writes: bool) -> Arc<Self> {
        let mut state = pipe.state.lock();
        let peers_before = if reads {
            state.writers_ever
        } else {
            state.readers_ever
        };
        if reads {
            state.readers += 1;
            state.readers_ever += 1;
        }
        if writes {
            state.writers += 1;
            state.writers_ever += 1;
        }
        drop(state);
        pipe.source.notify(PollEvents::IN | PollEvents::OUT);
        Arc::new(Self {
            pipe: pipe.clone(),
            reads,
            writes,
            peers_before,
        })
    }

    /// The pipe.
    #[must_use]
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.pipe
    }

    /// Whether the other side is there or has come since this end was opened: what opening a named pipe waits for.
    #[must_use]
    pub fn peer_came(&self) -> bool {
        let state = self.pipe.state.lock();
        match (self.reads, self.writes) {
            (true, true) => true,
            (true, false) => state.writers > 0 || state.writers_ever != self.peers_before,
            _ => state.readers > 0 || state.readers_ever != self.peers_before,
        }
    }

    /// Capacity in bytes (`F_GETPIPE_SZ`).
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pipe.state.lock().ring.limit()
    }

    /// `F_SETPIPE_SZ`: rounds up to a power of two of at least a page and returns it. `EPERM` above the maximum,
    /// `EBUSY` if more is waiting.
    pub fn set_capacity(&self, bytes: usize) -> Result<usize> {
        if bytes > MAX_CAPACITY {
            return Err(Errno::EPERM);
        }
        let capacity = bytes.max(PIPE_BUF).next_power_of_two();
        let mut state = self.pipe.state.lock();
        if state.ring.len() + state.reserved > capacity {
            return Err(Errno::EBUSY);
        }
        let could_write = state.can_write();
        state.ring.set_limit(capacity);
        let can_write = state.can_write();
        drop(state);
        if can_write && !could_write {
            self.pipe
                .source
                .notify(PollEvents::OUT | PollEvents::WRNORM);
        }
        Ok(capacity)
    }

    /// Bytes waiting (`FIONREAD`).
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.pipe.state.lock().ring.len()
    }
}

impl File for PipeEnd {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        if dst.remaining() == 0 {
            return Ok(0);
        }
        let mut state = self.pipe.state.lock();
        if state.ring.is_empty() || state.is_lent {
            return if state.writers == 0 && !state.is_lent {
                Ok(0)
            } else {
                Err(Errno::EAGAIN)
            };
        }
        let could_write = state.can_write();
        let (first, second) = state.ring.peek_range(0, dst.remaining());
        let mut count = dst.write(first)?;
        if count == first.len() && !second.is_empty() {
            // A fault here is reported by the next call: something was read.
            count += dst.write(second).unwrap_or(0);
        }
        state.ring.consume(count);
        let wake_writers = !could_write && state.can_write();
        drop(state);
        if wake_writers {
            self.pipe
                .source
                .notify(PollEvents::OUT | PollEvents::WRNORM);
        }
        Ok(count)
    }

    fn write(&self, src: &mut IoSrc<'_>) -> Result<usize> {
        let mut state = self.pipe.state.lock();
        if state.readers == 0 {
            return Err(Errno::EPIPE);
        }
        let want = src.remaining();
        if want == 0 {
            return Ok(0);
        }
        let free = state.room();
        if free == 0 || (want <= PIPE_BUF && free < want) {
            return Err(Errno::EAGAIN);
        }
        let before = src.done();
        let (first, second) = state.ring.spare(want.min(free));
        let filled = first.len();
        let mut count = src.read(first)?;
        if count == filled && !second.is_empty() {
            count += src.read(second).unwrap_or(0);
        }
        if count < want && want <= PIPE_BUF {
            // A short write is one piece: nothing of it is queued until all of its memory is present.
            src.rewind(before);
            return Err(Errno::EFAULT);
        }
        state.ring.commit(count);
        drop(state);
        self.pipe.source.notify(PollEvents::IN | PollEvents::RDNORM);
        Ok(count)
    }

    fn poll(&self) -> PollEvents {
        let state = self.pipe.state.lock();
        let mut events = PollEvents::empty();
        if self.reads {
            if !state.ring.is_empty() {
                events |= PollEvents::IN | PollEvents::RDNORM;
            }
            if state.writers == 0 && state.writers_ever != self.peers_before {
                events |= PollEvents::HUP;
            }
        }
        if self.writes {
            if state.can_write() {
                events |= PollEvents::OUT | PollEvents::WRNORM;
            }
            if state.readers == 0 {
                events |= PollEvents::ERR;
            }
        }
        events
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(&self.pipe.source)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata {
            device: crate::anonymous::device(),
            inode: self.pipe.number,
            mode: g::S_IFIFO | 0o600,
            links: 1,
            accessed_ns: self.pipe.created_ns,
            modified_ns: self.pipe.created_ns,
            changed_ns: self.pipe.created_ns,
            ..Metadata::default()
        })
    }

    fn ioctl(&self, command: u32, argument: usize) -> Result<usize> {
        match command {
            coracle_abi::raw::ioctl::FIONREAD => {
                let waiting = coracle_abi::convert::low_u32(u64_from(self.waiting()));
                coracle_core::user::UserOut::new(argument).write(waiting)?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn on_release(&self) {
        let mut state = self.pipe.state.lock();
        state.readers -= u32::from(self.reads);
        state.writers -= u32::from(self.writes);
        if state.readers == 0 && state.writers == 0 {
            // A named pipe forgets what nobody read (fifo(7)).
            let limit = state.ring.limit();
            state.ring = ByteRing::new(limit);
        }
        drop(state);
        self.pipe
            .source
            .notify(PollEvents::IN | PollEvents::OUT | PollEvents::HUP | PollEvents::ERR);
    }
}

mod splice;
#[cfg(test)]
mod tests;
