// SPDX-License-Identifier: Apache-2.0
//! The input of a port. What has arrived stays in the device's buffers until it is read, so a host that sends faster
//! than somebody reads is held back by the lack of buffers.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use coracle_abi::convert::usize_from_u32;

use crate::ring::{Span, Virtqueue};

/// Buffers posted for each port.
pub(super) const BUFFERS: u16 = 4;
/// Bytes of each.
const BUFFER_BYTES: usize = 2048;

/// A buffer with bytes that were not read yet.
struct Arrived {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

pub(super) struct Input {
    queue: Virtqueue<Box<[u8]>>,
    arrived: VecDeque<Arrived>,
}

impl Input {
    pub(super) fn new(queue: Virtqueue<Box<[u8]>>) -> Self {
        Self {
            queue,
            arrived: VecDeque::new(),
        }
    }

    /// Posts the buffers, if that was not done before. Returns whether the device must be notified.
    pub(super) fn activate(&mut self) -> bool {
        if self.queue.in_flight() == 0 && self.arrived.is_empty() {
            for _ in 0..BUFFERS.min(self.queue.size()) {
                self.post(vec![0; BUFFER_BYTES].into_boxed_slice());
            }
        }
        self.queue.should_notify()
    }

    /// Takes what has arrived and asks for an interrupt for the next. Returns whether anything has.
    pub(super) fn pump(&mut self) -> bool {
        let before = self.arrived.len();
        loop {
            while let Some((buffer, len)) = self.queue.pop_used() {
                self.arrived.push_back(Arrived {
                    buffer,
                    start: 0,
                    end: usize_from_u32(len),
                });
            }
            if !self.queue.enable_interrupts() {
                return self.arrived.len() > before;
            }
        }
    }

    /// Fills `out` with what has arrived and returns how much that was, and whether the device must be notified.
    pub(super) fn read(&mut self, out: &mut [u8]) -> (usize, bool) {
        let mut done = 0;
        while let Some(arrived) = self.arrived.front_mut() {
            let waiting = &arrived.buffer[arrived.start..arrived.end];
            let step = waiting.len().min(out.len() - done);
            out[done..done + step].copy_from_slice(&waiting[..step]);
            done += step;
            arrived.start += step;
            if arrived.start < arrived.end {
                break;
            }
            if let Some(empty) = self.arrived.pop_front() {
                self.post(empty.buffer);
            }
        }
        (done, self.queue.should_notify())
    }

    /// Whether there is something to read.
    pub(super) fn is_readable(&self) -> bool {
        self.arrived.iter().any(|a| a.start < a.end)
    }

    /// Number of the queue.
    pub(super) fn queue_index(&self) -> u16 {
        self.queue.index()
    }

    fn post(&mut self, mut buffer: Box<[u8]>) {
        let span = Span::writable(&mut buffer);
        // There is always room for the few buffers; a broken queue refuses, and the buffer is freed.
        let _ = self.queue.add(&[span], buffer);
    }
}
