// SPDX-License-Identifier: Apache-2.0
//! What sockets of whole packets have in common (raw(7), packet(7)): a bounded queue of copies, and the list of sockets
//! that a packet is offered to.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_core::io::IoDst;
use coracle_core::sync::SpinLock;
use coracle_core::{Errno, PollEvents, Result};

/// Bytes queued at most, with an overhead for each packet.
const LIMIT: usize = 212_992;
const OVERHEAD: usize = 256;

/// Packets that wait to be received, each with its sender.
pub(crate) struct Inbox<A> {
    queue: VecDeque<(Vec<u8>, A)>,
    held: usize,
}

impl<A> Default for Inbox<A> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            held: 0,
        }
    }
}

impl<A: Copy> Inbox<A> {
    /// Adds a copy. Returns whether there was room.
    pub(crate) fn push(&mut self, bytes: &[u8], from: A) -> bool {
        let cost = bytes.len() + OVERHEAD;
        if self.held + cost > LIMIT {
            return false;
        }
        self.held += cost;
        self.queue.push_back((bytes.to_vec(), from));
        true
    }

    /// Takes a packet: bytes copied, its length, its sender. With `peek` it stays.
    #[cold]
    pub(crate) fn take(&mut self, dst: &mut IoDst<'_>, peek: bool) -> Result<(usize, usize, A)> {
        let (bytes, from) = self.queue.front().ok_or(Errno::EAGAIN)?;
        let (len, from) = (bytes.len(), *from);
        let copied = dst.write(bytes)?;
        if dst.faulted().is_some() {
            return Err(Errno::EFAULT);
        }
        if !peek {
            self.queue.pop_front();
            self.held -= len + OVERHEAD;
        }
        Ok((copied, len, from))
    }

    /// Readiness of a socket that can always send.
    pub(crate) fn poll(&self) -> PollEvents {
        let write = PollEvents::OUT | PollEvents::WRNORM;
        if self.queue.is_empty() {
            write
        } else {
            write | PollEvents::IN | PollEvents::RDNORM
        }
    }

    /// Length of the next packet.
    pub(crate) fn readable_bytes(&self) -> usize {
        self.queue.front().map_or(0, |(bytes, _)| bytes.len())
    }
}

/// All sockets of a kind.
pub(crate) struct Watchers<S> {
    list: SpinLock<Vec<Weak<S>>>,
    /// Length of the list: a packet looks at nothing else while there are none.
    count: AtomicUsize,
}

impl<S> Default for Watchers<S> {
    fn default() -> Self {
        Self {
            list: SpinLock::new(Vec::new()),
            count: AtomicUsize::new(0),
        }
    }
}

impl<S> Watchers<S> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        self.list.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn add(&self, socket: &Arc<S>) {
        let socket = Arc::downgrade(socket);
        self.change(|list| list.push(socket));
    }

    pub(crate) fn remove(&self, socket: &S) {
        self.change(|list| list.retain(|s| !core::ptr::eq(s.as_ptr(), socket)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Weak<S>>)) {
        let mut list = self.list.lock();
        change(&mut list);
        self.count.store(list.len(), Ordering::Relaxed);
    }
}
