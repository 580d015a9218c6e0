// SPDX-License-Identifier: Apache-2.0
//! Network cards (virtio 1.2, 5.1).
//!
//! Frames are received into and sent from the buffers of `core::packet` without copying. Checksums are left to the
//! device, large TCP segments are cut by it. With several queue pairs each CPU sends through its own.
//!
//! Registers are touched to notify a device that sleeps, and to acknowledge a line interrupt; a poll costs none.

mod control;
mod header;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::array;

use coracle_arch::cpu;
use coracle_core::device::{InterruptHandler, NetCapabilities, NetDevice};
use coracle_core::packet::{RxPacket, TxPacket};
use coracle_core::random;
use coracle_core::sync::SpinLock;

use crate::error::DriverError;
use crate::ring::Virtqueue;
use crate::signal::{Callback, Signal};
use crate::transport::{self, Transport, feature};
use control::Command;
use receive::ReceiveQueue;
use transmit::TransmitQueue;

pub(crate) const NAME: &str = "virtio-net";

/// Feature bits (5.1.3).
mod bit {
    pub(super) const CSUM: u64 = 1 << 0;
    pub(super) const GUEST_CSUM: u64 = 1 << 1;
    pub(super) const MTU: u64 = 1 << 3;
    pub(super) const MAC: u64 = 1 << 5;
    pub(super) const HOST_TSO4: u64 = 1 << 11;
    pub(super) const HOST_TSO6: u64 = 1 << 12;
    pub(super) const STATUS: u64 = 1 << 16;
    pub(super) const CTRL_VQ: u64 = 1 << 17;
    pub(super) const MQ: u64 = 1 << 22;
}

/// Configuration (5.1.4), by offset.
mod config {
    pub(super) const MAC: usize = 0;
    pub(super) const STATUS: usize = 6;
    pub(super) const MAX_PAIRS: usize = 8;
    pub(super) const MTU: usize = 10;
}

/// `VIRTIO_NET_S_LINK_UP`.
const LINK_UP: u16 = 1;

const ETHERNET_MTU: u16 = 1500;

/// Ethernet header with a VLAN tag.
const FRAME_OVERHEAD: usize = 18;

/// Bytes of a receive buffer that `NetOptions::rx_buffers` counts.
const RX_BUFFER_BYTES: usize = 2048;

const MIN_RX_BUFFERS: u16 = 8;
const MAX_RX_BUFFERS: u16 = 4096;

const TX_QUEUE_SIZE: u16 = 256;

/// Most queue pairs of a device, so that the number of its control queue fits (5.1.5 allows one more).
const MAX_PAIRS: u16 = 0x7fff;

/// A segment of 64 KiB in pages, and as many again for pieces that do not fill theirs.
const MAX_FRAGMENTS: usize = 32;

/// An IP packet of at most 65535 bytes, less the longest headers.
const MAX_SEGMENTED_BYTES: usize = 65_535 - 120;

/// What one virtio-net device may use.
#[derive(Clone, Copy, Debug)]
pub struct NetOptions {
    /// Receive buffers of 2048 bytes for each queue pair: 512 KiB for the default of 256. At least 8.
    pub rx_buffers: u16,
    /// Most queue pairs to use, useful up to the number of CPUs.
    pub queue_pairs: u16,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            rx_buffers: 256,
            queue_pairs: 1,
        }
    }
}

struct Pair {
    receive: SpinLock<ReceiveQueue>,
    transmit: SpinLock<TransmitQueue>,
}

/// A virtio network card.
pub struct VirtioNet {
    transport: Arc<dyn Transport>,
    features: u64,
    mac: [u8; 6],
    mtu: u16,
    /// All pairs with queues; the device uses the first `active` of them.
    pairs: Vec<Pair>,
    active: usize,
    max_fragments: usize,
    /// Kept for as long as the device may look at it.
    _control: Option<Virtqueue<Box<Command>>>,
    /// One for each pair, so that pairs can interrupt different CPUs; all do the same.
    signals: Vec<Arc<Signal>>,
}

impl VirtioNet {
    /// Starts the device, with interrupts switched off. Must be a network card.
    pub fn new(transport: Arc<dyn Transport>, options: NetOptions) -> Result<Self, DriverError> {
        let several = options.queue_pairs > 1;
        let features = transport::negotiate(&*transport, NAME, |offered| wanted(offered, several))?;
        transport::require_config(&*transport, NAME, config_bytes(features))?;
        let has = |bit| features & bit != 0;
        let (mac, mtu, offered_pairs) = transport::read_config(&*transport, |config| {
            let mac = has(bit::MAC).then(|| array::from_fn(|i| config.read8(config::MAC + i)));
            let mtu = has(bit::MTU).then(|| config.read16(config::MTU));
            let pairs = has(bit::MQ).then(|| config.read16(config::MAX_PAIRS));
            (mac, mtu, pairs)
        });
        let mut this = Self {
            transport,
            features,
            mac: mac.unwrap_or_else(random_mac),
            mtu: mtu.unwrap_or(ETHERNET_MTU),
            pairs: Vec::new(),
            active: 1,
            max_fragments: MAX_FRAGMENTS,
            _control: None,
            signals: Vec::new(),
        };
        this.make_pairs(options, offered_pairs.unwrap_or(1).clamp(1, MAX_PAIRS))?;
        Ok(this)
    }

    /// Makes the queues and lets the device work. Queue 2n receives and 2n + 1 transmits; the control queue follows the
    /// last pair the device *could* use (5.1.2).
    fn make_pairs(&mut self, options: NetOptions, offered: u16) -> Result<(), DriverError> {
        let transport = &*self.transport;
        let frame_bytes =
            (usize::from(self.mtu) + FRAME_OVERHEAD).max(RX_BUFFER_BYTES - header::LEN);
        let posted = receive_buffers(options.rx_buffers, frame_bytes);
        let count = options.queue_pairs.clamp(1, offered);
        for pair in 0..count {
            let signal = Arc::new(Signal::default());
            self.signals.push(signal.clone());
            let handler: Arc<dyn InterruptHandler> = signal;
            let receive = transport::make_queue(
                transport,
                NAME,
                2 * pair,
                posted.next_power_of_two(),
                self.features,
                &handler,
            )?;
            let transmit = transport::make_queue(
                transport,
                NAME,
                2 * pair + 1,
                TX_QUEUE_SIZE,
                self.features,
                &handler,
            )?;
            // A separate header and the head take a place each.
            let most = usize::from(transmit.size()).saturating_sub(2);
            self.max_fragments = self.max_fragments.min(most);
            self.pairs.push(Pair {
                receive: SpinLock::new(ReceiveQueue::new(receive, frame_bytes, posted)),
                transmit: SpinLock::new(TransmitQueue::new(transmit)),
            });
        }
        if count == 1 {
            transport::start(transport);
        } else {
            let index = 2 * offered;
            let handler: Arc<dyn InterruptHandler> = self.signals[0].clone();
            let mut control =
                transport::make_queue(transport, NAME, index, 2, self.features, &handler)?;
            transport::start(transport);
            match control::set_queue_pairs(transport, &mut control, count) {
                Ok(()) => self.active = usize::from(count),
                Err(error) => log::warn!("{error}; using one queue pair"),
            }
            self._control = Some(control);
        }
        for pair in &mut self.pairs[..self.active] {
            let queue = pair.receive.get_mut().queue();
            if queue.should_notify() {
                self.transport.notify(queue.index());
            }
        }
        Ok(())
    }

    /// Sets what is done on an interrupt: packets have arrived, or a transmit queue that was full has room. Runs with
    /// interrupts off, without the driver's locks, and must not sleep. Set once.
    pub fn set_on_receive(&self, callback: Callback) {
        for signal in &self.signals {
            signal.set(callback.clone());
        }
    }

    /// Whether the cable is plugged in, as far as the device says (5.1.4). Reads a register.
    pub fn link_up(&self) -> bool {
        self.features & bit::STATUS == 0
            || transport::read_config(&*self.transport, |c| c.read16(config::STATUS)) & LINK_UP != 0
    }

    /// Whether interrupts come over a line, to be attached by the caller to this device's [`InterruptHandler`].
    pub fn has_line(&self) -> bool {
        self.transport.has_line()
    }

    /// Queue pairs in use.
    pub fn queue_pairs(&self) -> usize {
        self.active
    }

    /// The pair of the calling CPU.
    fn own_pair(&self) -> &Pair {
        &self.pairs[cpu::index() % self.active]
    }

    /// All pairs in use, that of the calling CPU first.
    fn pairs_from_own(&self) -> impl Iterator<Item = &Pair> {
        let own = cpu::index() % self.active;
        let (before, from) = self.pairs[..self.active].split_at(own);
        from.iter().chain(before)
    }

    fn notify_if_needed<T>(&self, queue: &mut Virtqueue<T>) {
        if queue.should_notify() {
            self.transport.notify(queue.index());
        }
    }
}

impl NetDevice for VirtioNet {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        usize::from(self.mtu)
    }

    fn capabilities(&self) -> NetCapabilities {
        NetCapabilities {
            tx_checksum: self.features & bit::CSUM != 0,
            tso4: self.features & bit::HOST_TSO4 != 0,
            tso6: self.features & bit::HOST_TSO6 != 0,
            max_fragments: self.max_fragments,
            max_segmented_bytes: MAX_SEGMENTED_BYTES,
        }
    }

    fn transmit(&self, packet: TxPacket) -> Result<(), TxPacket> {
        let mut transmit = self.own_pair().transmit.lock();
        let result = transmit.send(packet);
        if result.is_err() {
            // The device must know of all packets, or none will ever leave and make room.
            self.notify_if_needed(transmit.queue());
        }
        result
    }

    fn flush(&self) {
        self.notify_if_needed(self.own_pair().transmit.lock().queue());
    }

    fn receive(&self, budget: usize, sink: &mut dyn FnMut(RxPacket)) -> bool {
        let mut left = budget;
        let mut more = false;
        for pair in self.pairs_from_own() {
            // The lock is not held while a packet is handed on: what follows may send, or poll.
            loop {
                let packet = pair.receive.lock().take(&mut left);
                let Some(packet) = packet else { break };
                sink(packet);
            }
            let mut receive = pair.receive.lock();
            self.notify_if_needed(receive.queue());
            more |= receive.queue().has_used();
            drop(receive);
            // Somebody who is sending meanwhile frees sent packets anyway.
            if let Some(mut transmit) = pair.transmit.try_lock() {
                transmit.reclaim();
            }
        }
        more
    }

    fn set_receive_interrupts(&self, on: bool) -> bool {
        let mut more = false;
        for pair in &self.pairs[..self.active] {
            let mut receive = pair.receive.lock();
            if on {
                more |= receive.queue().enable_interrupts();
            } else {
                receive.queue().disable_interrupts();
            }
        }
        more
    }
}

impl InterruptHandler for VirtioNet {
    /// Serves a line interrupt: one register read and one written, then the callback.
    fn on_interrupt(&self) -> bool {
        let ours = self.transport.acknowledge();
        if ours {
            self.signals[0].raise();
        }
        ours
    }
}

impl Drop for VirtioNet {
    fn drop(&mut self) {
        // The device must not touch the buffers once they are freed.
        self.transport.set_status(0);
    }
}

/// Which of the `offered` features are used. Segmentation needs the checksum (5.1.3.1).
fn wanted(offered: u64, several_pairs: bool) -> u64 {
    let mut wanted =
        feature::EVENT_IDX | bit::CSUM | bit::GUEST_CSUM | bit::MTU | bit::MAC | bit::STATUS;
    if offered & bit::CSUM != 0 {
        wanted |= bit::HOST_TSO4 | bit::HOST_TSO6;
    }
    if several_pairs && offered & bit::CTRL_VQ != 0 {
        wanted |= bit::CTRL_VQ | bit::MQ;
    }
    wanted
}

/// Bytes of configuration that the features promise.
fn config_bytes(features: u64) -> usize {
    [
        (bit::MAC, config::MAC + 6),
        (bit::STATUS, config::STATUS + 2),
        (bit::MQ, config::MAX_PAIRS + 2),
        (bit::MTU, config::MTU + 2),
    ]
    .into_iter()
    .filter(|(bit, _)| features & bit != 0)
    .map(|(_, end)| end)
    .max()
    .unwrap_or(0)
}

/// How many buffers to post, so that larger ones take no more memory than was allowed.
fn receive_buffers(allowed: u16, buffer_bytes: usize) -> u16 {
    let count = usize::from(allowed) * RX_BUFFER_BYTES / buffer_bytes.max(RX_BUFFER_BYTES);
    u16::try_from(count)
        .unwrap_or(MAX_RX_BUFFERS)
        .clamp(MIN_RX_BUFFERS, MAX_RX_BUFFERS)
}

/// An address that no vendor gives out ("locally administered"), for devices that have none.
fn random_mac() -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = random::u64().to_le_bytes();
    [a & 0xfc | 0x02, b, c, d, e, f]
}
