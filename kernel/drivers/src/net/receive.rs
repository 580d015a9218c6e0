// SPDX-License-Identifier: Apache-2.0
//! The receiving half of a queue pair.

use coracle_abi::convert::usize_from_u32;
use coracle_core::packet::{PacketBuf, RxPacket};

use super::header;
use crate::ring::{Span, Virtqueue};

/// Frames up to this length are copied into a small buffer, and the large one goes back to the device at once: a copy
/// this short costs less than another large buffer, of which a socket could otherwise hold many for a few bytes each.
const COPY_BREAK: usize = 256;

/// A receive queue and the buffers posted to it.
pub(super) struct ReceiveQueue {
    queue: Virtqueue<PacketBuf>,
    /// Bytes of each posted buffer, header included.
    buffer_bytes: usize,
}

impl ReceiveQueue {
    /// Posts `buffers` buffers for frames of at most `frame_bytes` bytes.
    pub(super) fn new(queue: Virtqueue<PacketBuf>, frame_bytes: usize, buffers: u16) -> Self {
        let mut this = Self {
            queue,
            buffer_bytes: header::LEN + frame_bytes,
        };
        for _ in 0..buffers.min(this.queue.size()) {
            let buffer = this.new_buffer();
            this.post(buffer);
        }
        this
    }

    pub(super) fn queue(&mut self) -> &mut Virtqueue<PacketBuf> {
        &mut self.queue
    }

    /// Takes the next frame and puts a fresh buffer in its place. Takes one from `budget` for each buffer looked at.
    pub(super) fn take(&mut self, budget: &mut usize) -> Option<RxPacket> {
        while *budget > 0 {
            let (mut buffer, len) = self.queue.pop_used()?;
            *budget -= 1;
            let len = usize_from_u32(len);
            if len <= header::LEN {
                self.post(buffer); // not even a header: nothing to hand on
                continue;
            }
            let checksum_valid = header::checksum_valid(buffer.data());
            let buf = if len - header::LEN <= COPY_BREAK {
                let frame = &buffer.data()[header::LEN..len];
                let mut small = PacketBuf::new(0, frame.len());
                small.append(frame.len()).copy_from_slice(frame);
                self.post(buffer);
                small
            } else {
                buffer.truncate(len);
                buffer.trim_front(header::LEN);
                let fresh = self.new_buffer();
                self.post(fresh);
                buffer
            };
            return Some(RxPacket {
                buf,
                checksum_valid,
            });
        }
        None
    }

    fn new_buffer(&self) -> PacketBuf {
        let mut buffer = PacketBuf::new(0, self.buffer_bytes);
        buffer.append(self.buffer_bytes);
        buffer
    }

    fn post(&mut self, mut buffer: PacketBuf) {
        let span = Span::writable(buffer.data_mut());
        // There is always room, since buffers are replaced one by one; a broken queue refuses, and the buffer is freed.
        let _ = self.queue.add(&[span], buffer);
    }
}
