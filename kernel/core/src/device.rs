// SPDX-License-Identifier: Apache-2.0
//! What a driver offers to the rest of the kernel.

use alloc::vec::Vec;

use crate::memory::Page;
use crate::packet::{RxPacket, TxPacket};
use crate::poll::PollSource;
use crate::{PollEvents, Result};

/// What a network device does for the protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCapabilities {
    /// Fills in checksums of sent packets.
    pub tx_checksum: bool,
    /// Cuts large TCP segments over IPv4.
    pub tso4: bool,
    /// Cuts large TCP segments over IPv6.
    pub tso6: bool,
    /// Most fragments behind the head of one packet.
    pub max_fragments: usize,
    /// Largest frame with segmentation, in bytes of payload.
    pub max_segmented_bytes: usize,
}

/// A network interface card. All methods may be called on any CPU at any time.
pub trait NetDevice: Send + Sync {
    /// Hardware address.
    fn mac(&self) -> [u8; 6];

    /// Largest IP packet in bytes, 1500 on Ethernet.
    fn mtu(&self) -> usize;

    /// Offloads.
    fn capabilities(&self) -> NetCapabilities;

    /// Queues a packet; the device is told with [`NetDevice::flush`]. Gives it back when the queue is full.
    fn transmit(&self, packet: TxPacket) -> Result<(), TxPacket>;

    /// Tells the device about queued packets, if it needs to be told.
    fn flush(&self);

    /// Hands at most `budget` received packets to `sink`, and returns whether more are waiting.
    fn receive(&self, budget: usize, sink: &mut dyn FnMut(RxPacket)) -> bool;

    /// Switches interrupts for received packets on or off. Switching on returns whether packets arrived meanwhile, in
    /// which case the caller polls again: no packet can be left waiting without an interrupt.
    fn set_receive_interrupts(&self, on: bool) -> bool;
}

/// A device that carries bytes both ways: console and control port.
pub trait CharDevice: Send + Sync {
    /// Takes as many bytes as there is room for and returns how many; `EAGAIN` for none.
    fn write(&self, bytes: &[u8]) -> Result<usize>;

    /// Fills `out` with what has arrived; `EAGAIN` for nothing yet, 0 for the end.
    fn read(&self, out: &mut [u8]) -> Result<usize>;

    /// Readiness.
    fn poll(&self) -> PollEvents;

    /// Notified when readiness changes.
    fn poll_source(&self) -> &PollSource;
}

/// A disk: an array of sectors of 512 bytes. All methods may be called on any CPU by several threads; they sleep until
/// the device has answered, and poll for the answer before threads run.
pub trait BlockDevice: Send + Sync {
    /// Length in sectors.
    fn sectors(&self) -> u64;

    /// Whether the device refuses to be written.
    fn is_read_only(&self) -> bool;

    /// Fills whole pages from `sector` on, which lies on any sector. `EIO` if the device fails or the range leaves it.
    fn read(&self, sector: u64, pages: &[Page]) -> Result<()>;

    /// Writes whole pages from `sector` on. They must not change meanwhile if the content matters. It is on stable
    /// storage after the next [`BlockDevice::flush`]. `EIO` as for reading, `EROFS` if it is read-only, `ENOSPC` if the
    /// host has no room.
    fn write(&self, sector: u64, pages: &[Page]) -> Result<()>;

    /// Returns when everything written before this call is on stable storage. `EIO`.
    fn flush(&self) -> Result<()>;
}

/// A message to a share and the room for its answer. Each piece is a chain of bytes first and pages behind them.
#[derive(Debug, Default)]
pub struct Message {
    /// What is sent.
    pub request: Vec<u8>,
    /// Data sent behind it: pages, filled from their first byte on, and how many bytes in all.
    pub sent: (Vec<Page>, usize),
    /// Room for the answer: as many bytes as the vector is long.
    pub answer: Vec<u8>,
    /// Room behind it, as for what is sent.
    pub received: (Vec<Page>, usize),
}

/// A way to files of the host, by messages. All methods may be called on any CPU by several threads.
pub trait ShareDevice: Send + Sync {
    /// The share's name.
    fn tag(&self) -> &str;

    /// Most pages in one message, sent and received together.
    fn most_pages(&self) -> usize;

    /// Sends a message and sleeps until it is answered: the message, and how many bytes of its room were filled. `EIO` if
    /// the device is broken.
    fn exchange(&self, message: Message) -> Result<(Message, usize)>;

    /// Sends a message whose answer does not matter. Does not sleep. Returns whether there was room to send it.
    fn post(&self, message: Message) -> bool;
}

/// A source of random bytes.
pub trait EntropyDevice: Send + Sync {
    /// Fills `out` and returns how many bytes arrived. Waits for the device at most `timeout_ns`.
    fn fill(&self, out: &mut [u8], timeout_ns: u64) -> usize;
}

/// Called when a device interrupts. Runs with interrupts off and must not sleep.
pub trait InterruptHandler: Send + Sync {
    /// Serves the device. Returns whether it had interrupted (lines can be shared).
    fn on_interrupt(&self) -> bool;
}
