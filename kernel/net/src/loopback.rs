// SPDX-License-Identifier: Apache-2.0
//! Packets from this machine to itself.
//!
//! They are queued by the sender, who may hold a socket's lock, and delivered by the next `flush` or `poll`, which
//! holds none: so a packet that causes another never recurses.

use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_core::packet::{PacketBuf, TxPacket};
use coracle_core::sync::SpinLock;

use crate::packet::contiguous;
use crate::stack::NetStack;

/// Packets that may wait. TCP recovers from a drop, as on any network.
const CAPACITY: usize = 8192;

pub(crate) struct Loopback {
    queue: SpinLock<VecDeque<PacketBuf>>,
    len: AtomicUsize,
    /// Held by the CPU that delivers, so that packets stay in order.
    worker: SpinLock<()>,
}

impl Loopback {
    pub(crate) fn new() -> Self {
        Self {
            queue: SpinLock::new(VecDeque::new()),
            len: AtomicUsize::new(0),
            worker: SpinLock::new(()),
        }
    }

    fn pop(&self) -> Option<PacketBuf> {
        let mut queue = self.queue.lock();
        let packet = queue.pop_front();
        self.len.store(queue.len(), Ordering::Release);
        packet
    }
}

/// All bytes of a packet in one buffer.
fn into_contiguous(packet: TxPacket) -> PacketBuf {
    if packet.fragments.is_empty() {
        return packet.head;
    }
    contiguous(&packet)
}

impl NetStack {
    /// Queues an IP packet for this machine.
    pub(crate) fn send_loopback(&self, packet: TxPacket) {
        let packet = into_contiguous(packet);
        let mut queue = self.loopback.queue.lock();
        if queue.len() >= CAPACITY {
            drop(queue);
            self.counters.drop_receive_full.bump();
            return;
        }
        queue.push_back(packet);
        self.loopback.len.store(queue.len(), Ordering::Release);
    }

    /// Delivers all queued packets, and those they cause.
    pub(crate) fn deliver_loopback(&self) {
        // Whoever fails to become the worker leaves its packets to the one that is: the worker looks at the length
        // again after it has stepped back.
        while self.loopback.len.load(Ordering::Acquire) > 0 {
            let Some(worker) = self.loopback.worker.try_lock() else {
                return;
            };
            let Some(lo) = self.interface(0) else { return };
            let now = self.now();
            while let Some(packet) = self.loopback.pop() {
                self.counters.loopback_packets.bump();
                if !self.packets.is_empty() {
                    self.tap_loopback(lo, &packet);
                }
                self.input_ip(lo, packet, true, now);
            }
            drop(worker);
        }
    }
}
