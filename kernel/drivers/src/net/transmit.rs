// SPDX-License-Identifier: Apache-2.0
//! The sending half of a queue pair.
//!
//! Sent packets are freed when their place is needed or somebody polls; the device interrupts for them only while the
//! queue is full and senders wait.

use alloc::vec::Vec;

use coracle_core::packet::{Fragment, PacketBuf, TxPacket};

use super::header;
use crate::ring::{Span, Virtqueue};

/// A packet with its device, kept alive until it is sent.
pub(super) struct Sending {
    packet: TxPacket,
    /// The header, if it did not fit in front of the packet.
    _header: Option<PacketBuf>,
}

/// A transmit queue.
pub(super) struct TransmitQueue {
    queue: Virtqueue<Sending>,
    /// Filled for each packet; kept for its memory.
    spans: Vec<Span>,
    /// Senders were turned away and wait for an interrupt.
    full: bool,
}

impl TransmitQueue {
    pub(super) fn new(queue: Virtqueue<Sending>) -> Self {
        Self {
            queue,
            spans: Vec::with_capacity(32),
            full: false,
        }
    }

    /// Queues a packet, or gives it back when the queue is full; then an interrupt comes when there is room.
    pub(super) fn send(&mut self, mut packet: TxPacket) -> Result<(), TxPacket> {
        if self.queue.free() <= self.queue.size() / 2 {
            self.free_sent();
        }
        loop {
            packet = match self.add(packet) {
                Ok(()) => return Ok(()),
                Err(packet) => packet,
            };
            self.full = true;
            // Waking up for a single place would mean one interrupt for each packet.
            let half = self.queue.in_flight() / 2;
            if !self.queue.enable_interrupts_after(half) {
                return Err(packet);
            }
            self.free_sent();
        }
    }

    fn add(&mut self, mut packet: TxPacket) -> Result<(), TxPacket> {
        let header = header::for_packet(&packet);
        let in_front = packet.head.headroom() >= header::LEN;
        let separate = if in_front {
            packet.head.prepend(header::LEN).copy_from_slice(&header);
            None
        } else {
            let mut buffer = PacketBuf::new(0, header::LEN);
            buffer.append(header::LEN).copy_from_slice(&header);
            Some(buffer)
        };
        self.spans.clear();
        self.spans
            .extend(separate.iter().map(|h| Span::readable(h.data())));
        if !packet.head.is_empty() {
            self.spans.push(Span::readable(packet.head.data()));
        }
        let fragments = packet.fragments.iter().filter(|f| !f.is_empty());
        self.spans.extend(fragments.map(|fragment| match fragment {
            Fragment::Buffer {
                buffer,
                offset,
                len,
            } => Span::readable(&buffer.data()[*offset..*offset + *len]),
            Fragment::Page { page, offset, len } => Span::page(page, *offset, *len),
        }));
        if self.spans.len() > usize::from(self.queue.size()) {
            log::error!(
                "virtio-net: a packet of {} pieces is dropped, the queue has {} entries",
                self.spans.len(),
                self.queue.size()
            );
            return Ok(());
        }
        let sending = Sending {
            packet,
            _header: separate,
        };
        self.queue.add(&self.spans, sending).map_err(|sending| {
            let mut packet = sending.packet;
            if in_front {
                packet.head.trim_front(header::LEN);
            }
            packet
        })
    }

    /// Frees what was sent, for a caller that lets senders try again afterwards.
    pub(super) fn reclaim(&mut self) {
        self.free_sent();
        if self.full && self.queue.free() > 0 {
            self.full = false;
            self.queue.disable_interrupts();
        }
    }

    fn free_sent(&mut self) {
        while self.queue.pop_used().is_some() {}
    }

    pub(super) fn queue(&mut self) -> &mut Virtqueue<Sending> {
        &mut self.queue
    }
}
