// SPDX-License-Identifier: Apache-2.0
//! Notification of changes to files: inotify(7). The name space says what happened ([`events`]); this is the object that
//! remembers it for those who read.
//!
//! A watch holds the inode it watches, as on Linux, and inodes are told apart by their address.

pub(crate) mod events;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_abi::convert::{low_u32, u64_from};
use coracle_abi::raw::general as g;
use coracle_core::file::{File, Metadata};
use coracle_core::io::IoDst;
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;

use crate::vfs::Inode;
use crate::{Errno, PollEvents, Result};

/// Size of `struct inotify_event` without its name; names are padded to multiples of it.
const HEADER: usize = 16;

/// Events that may wait in an instance, and watches and instances there may be: what Linux allows a user, or less.
const MAX_EVENTS: usize = 16384;
const MAX_WATCHES: usize = 65536;
const MAX_INSTANCES: usize = 128;

/// Bits of a watch that are conditions or manners, not events.
const KEPT: u32 = g::IN_ALL_EVENTS | g::IN_ONESHOT;

/// All watches of all instances: as long as there is none, files pay one look at this.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

static INSTANCES: SpinLock<Vec<Weak<Inotify>>> = SpinLock::new(Vec::new());

/// What `inotify_init(2)` makes.
pub struct Inotify {
    state: SpinLock<State>,
    source: PollSource,
}

#[derive(Default)]
struct State {
    /// By address of the inode.
    watches: BTreeMap<usize, Watch>,
    last_number: i32,
    queue: VecDeque<Event>,
}

struct Watch {
    number: i32,
    mask: u32,
    inode: Arc<dyn Inode>,
}

#[derive(PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    /// With its padding; empty for the watched object itself.
    name: Vec<u8>,
}

impl Event {
    fn size(&self) -> usize {
        HEADER + self.name.len()
    }

    fn header(&self) -> [u8; HEADER] {
        let words = [
            self.watch.cast_unsigned(),
            self.mask,
            self.cookie,
            low_u32(u64_from(self.name.len())),
        ];
        let mut bytes = [0; HEADER];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// How a watch that exists already is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Its events are replaced.
    Replace,
    /// Events are added (`IN_MASK_ADD`).
    Add,
    /// It is an error, `EEXIST` (`IN_MASK_CREATE`).
    Refuse,
}

fn address(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).addr()
}

impl Inotify {
    /// An instance without watches; `EMFILE` if there are too many.
    pub fn new() -> Result<Arc<Self>> {
        let new = Arc::new(Self {
            state: SpinLock::new(State::default()),
            source: PollSource::new(),
        });
        let mut instances = INSTANCES.lock();
        instances.retain(|one| one.strong_count() > 0);
        if instances.len() >= MAX_INSTANCES {
            return Err(Errno::EMFILE);
        }
        instances.push(Arc::downgrade(&new));
        Ok(new)
    }

    /// `inotify_add_watch(2)`: asks for the events of `mask` about `inode`, and returns the watch's number. `ENOSPC` if
    /// there are too many watches.
    pub fn watch(&self, inode: Arc<dyn Inode>, mask: u32, existing: Existing) -> Result<i32> {
        let mut state = self.state.lock();
        if let Some(watch) = state.watches.get_mut(&address(&inode)) {
            match existing {
                Existing::Replace => watch.mask = mask & KEPT,
                Existing::Add => watch.mask |= mask & KEPT,
                Existing::Refuse => return Err(Errno::EEXIST),
            }
            return Ok(watch.number);
        }
        if WATCHES.fetch_add(1, Ordering::Relaxed) >= MAX_WATCHES {
            WATCHES.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        state.last_number = state.last_number.checked_add(1).unwrap_or(1);
        let number = state.last_number;
        let watch = Watch {
            number,
            mask: mask & KEPT,
            inode,
        };
        state.watches.insert(address(&watch.inode), watch);
        Ok(number)
    }

    /// `inotify_rm_watch(2)`; `EINVAL` if there is no watch of that number.
    pub fn remove(&self, number: i32) -> Result<()> {
        let mut state = self.state.lock();
        let key = state
            .watches
            .iter()
            .find(|(_, watch)| watch.number == number)
            .map(|(key, _)| *key)
            .ok_or(Errno::EINVAL)?;
        let watch = state.end_watch(key);
        drop(state);
        // Outside the lock: it may be the last to hold the inode.
        drop(watch);
        self.source.notify(PollEvents::IN | PollEvents::RDNORM);
        Ok(())
    }

    /// Queues an event for the watch of `inode`, if it has one that asks for it.
    fn tell(&self, inode: &Arc<dyn Inode>, mask: u32, cookie: u32, name: &[u8]) {
        let mut state = self.state.lock();
        let Some(watch) = state.watches.get(&address(inode)) else {
            return;
        };
        if watch.mask & mask & g::IN_ALL_EVENTS == 0 {
            return;
        }
        let once = watch.mask & g::IN_ONESHOT != 0;
        let event = Event {
            watch: watch.number,
            mask,
            cookie,
            name: padded(name),
        };
        state.queue_event(event);
        let ended = if once {
            state.end_watch(address(inode))
        } else {
            None
        };
        drop(state);
        drop(ended);
        self.source.notify(PollEvents::IN | PollEvents::RDNORM);
    }

    /// The object is gone, and with it its watch.
    fn forget(&self, inode: &Arc<dyn Inode>) {
        let ended = self.state.lock().end_watch(address(inode));
        if ended.is_some() {
            self.source.notify(PollEvents::IN | PollEvents::RDNORM);
        }
    }

    /// Bytes that can be read (`FIONREAD`).
    fn waiting(&self) -> usize {
        self.state.lock().queue.iter().map(Event::size).sum()
    }
}

impl State {
    /// Adds an event, unless it says what the one before it says. When there are too many, one last event says so.
    fn queue_event(&mut self, event: Event) {
        let last = self.queue.back();
        if last.is_some_and(|last| last.mask == g::IN_Q_OVERFLOW || *last == event) {
            return;
        }
        self.queue.push_back(if self.queue.len() < MAX_EVENTS {
            event
        } else {
            Event {
                watch: -1,
                mask: g::IN_Q_OVERFLOW,
                cookie: 0,
                name: Vec::new(),
            }
        });
    }

    /// Removes a watch and says so to the reader.
    fn end_watch(&mut self, key: usize) -> Option<Watch> {
        let watch = self.watches.remove(&key)?;
        WATCHES.fetch_sub(1, Ordering::Relaxed);
        self.queue_event(Event {
            watch: watch.number,
            mask: g::IN_IGNORED,
            cookie: 0,
            name: Vec::new(),
        });
        Some(watch)
    }
}

/// A name with at least one NUL behind it.
fn padded(name: &[u8]) -> Vec<u8> {
    let mut padded = name.to_vec();
    if !name.is_empty() {
        padded.resize((name.len() + 1).next_multiple_of(HEADER), 0);
    }
    padded
}

impl Drop for Inotify {
    fn drop(&mut self) {
        let watches = core::mem::take(&mut self.state.lock().watches);
        WATCHES.fetch_sub(watches.len(), Ordering::Relaxed);
    }
}

impl File for Inotify {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn read(&self, dst: &mut IoDst<'_>) -> Result<usize> {
        let mut state = self.state.lock();
        if state.queue.is_empty() {
            return Err(Errno::EAGAIN);
        }
        // Written in one piece: if a page is missing nothing was taken, and the caller tries again.
        let (mut bytes, mut count) = (Vec::new(), 0);
        for event in &state.queue {
            if bytes.len() + event.size() > dst.remaining() {
                break;
            }
            bytes.extend_from_slice(&event.header());
            bytes.extend_from_slice(&event.name);
            count += 1;
        }
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        if dst.write(&bytes)? < bytes.len() {
            return Err(Errno::EFAULT);
        }
        state.queue.drain(..count);
        Ok(bytes.len())
    }

    fn poll(&self) -> PollEvents {
        if self.state.lock().queue.is_empty() {
            PollEvents::empty()
        } else {
            PollEvents::IN | PollEvents::RDNORM
        }
    }

    fn poll_source(&self) -> Option<&PollSource> {
        Some(&self.source)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(crate::anonymous::metadata())
    }

    fn ioctl(&self, command: u32, argument: usize) -> Result<usize> {
        match command {
            coracle_abi::raw::ioctl::FIONREAD => {
                let waiting = low_u32(u64_from(self.waiting()));
                coracle_core::user::UserOut::new(argument).write(waiting)?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}

#[cfg(test)]
mod tests;
