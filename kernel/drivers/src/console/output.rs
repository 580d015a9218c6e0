// SPDX-License-Identifier: Apache-2.0
//! The output of a port: a ring of bytes of which the device has at most one stretch at a time.
//!
//! While the device works, what is written gathers behind that stretch and goes out together with the next
//! notification. So an idle device gets every write at once, and a busy one gets few large pieces.

use alloc::boxed::Box;
use alloc::vec;

use crate::ring::{Span, Virtqueue};

/// Bytes that wait at most, for the device or in it.
const CAPACITY: usize = 16 * 1024;

pub(super) struct Output {
    queue: Virtqueue<()>,
    /// Empty until the port is in use.
    bytes: Box<[u8]>,
    /// Where the oldest waiting byte lies.
    start: usize,
    /// Bytes waiting, those that the device has included.
    len: usize,
    /// Bytes from `start` on that the device has.
    sent: usize,
    /// A writer was turned away.
    full: bool,
}

impl Output {
    pub(super) fn new(queue: Virtqueue<()>) -> Self {
        Self {
            queue,
            bytes: Box::default(),
            start: 0,
            len: 0,
            sent: 0,
            full: false,
        }
    }

    /// Allocates the ring.
    pub(super) fn activate(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = vec![0; CAPACITY].into_boxed_slice();
        }
    }

    /// Takes as much of `data` as fits and returns how much that was.
    pub(super) fn push(&mut self, data: &[u8]) -> usize {
        let take = data.len().min(self.bytes.len() - self.len);
        let (mut at, mut rest) = (self.start + self.len, &data[..take]);
        while !rest.is_empty() {
            if at >= self.bytes.len() {
                at -= self.bytes.len();
            }
            let step = rest.len().min(self.bytes.len() - at);
            self.bytes[at..at + step].copy_from_slice(&rest[..step]);
            (at, rest) = (at + step, &rest[step..]);
        }
        self.len += take;
        self.full |= take < data.len();
        take
    }

    /// Takes back what is sent and, if `may_send`, gives the device what waits. Returns whether the device must be
    /// notified.
    pub(super) fn pump(&mut self, may_send: bool) -> bool {
        loop {
            while self.queue.pop_used().is_some() {
                self.start = (self.start + self.sent) % self.bytes.len();
                self.len -= self.sent;
                self.sent = 0;
            }
            if self.sent == 0 && self.len > 0 && may_send {
                self.send();
            }
            // An interrupt is wanted only if somebody has something to do then.
            if self.sent == 0 || (self.sent == self.len && !self.full) {
                self.queue.disable_interrupts();
                break;
            }
            if !self.queue.enable_interrupts() {
                break;
            }
        }
        self.queue.should_notify()
    }

    fn send(&mut self) {
        let first = self.len.min(self.bytes.len() - self.start);
        let spans = [
            Span::readable(&self.bytes[self.start..self.start + first]),
            Span::readable(&self.bytes[..self.len - first]),
        ];
        let used = if first < self.len { 2 } else { 1 };
        if self.queue.add(&spans[..used], ()).is_ok() {
            self.sent = self.len;
        }
    }

    /// Whether a writer that was turned away can go on. True once.
    pub(super) fn take_room(&mut self) -> bool {
        let room = self.full && self.has_room();
        self.full &= !room;
        room
    }

    /// Bytes that fit.
    pub(super) fn room(&self) -> usize {
        self.bytes.len() - self.len
    }

    /// Whether a byte fits.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of the queue.
    pub(super) fn queue_index(&self) -> u16 {
        self.queue.index()
    }

    /// Whether the device broke the rules.
    pub(super) fn is_broken(&self) -> bool {
        self.queue.is_broken()
    }
}
