// SPDX-License-Identifier: Apache-2.0
//! Network packets on their way between a driver and the protocols.
//!
//! Buffers come from the kernel heap, which is physically contiguous, so a device can read and write them in place.
//! They are pooled by size class: a packet costs no allocation in steady state.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::memory::Page;
use crate::sync::SpinLock;

/// Room kept in front of a packet for the headers of all layers and of the device: Ethernet 14 (+4), IPv6 40, TCP 60,
/// virtio-net 12.
pub const HEADROOM: usize = 136;

/// Size classes of the pool, in bytes, and how many free buffers of each are kept.
const CLASSES: [(usize, usize); 3] = [(256, 1024), (2048, 1024), (4096, 256)];

static POOL: [SpinLock<Vec<Box<[u8]>>>; 3] = [const { SpinLock::new(Vec::new()) }; 3];

/// An owned, contiguous buffer with the packet's bytes somewhere inside it.
#[derive(Debug)]
pub struct PacketBuf {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl PacketBuf {
    /// An empty buffer that begins after `headroom` bytes and can hold at least `capacity` bytes. What it held before
    /// is not cleared.
    #[must_use]
    pub fn new(headroom: usize, capacity: usize) -> Self {
        let size = headroom + capacity;
        let memory = match CLASSES.iter().position(|(class, _)| *class >= size) {
            Some(index) => {
                let pooled = POOL[index].lock().pop();
                pooled.unwrap_or_else(|| vec![0; CLASSES[index].0].into_boxed_slice())
            }
            None => vec![0; size].into_boxed_slice(),
        };
        Self {
            memory,
            start: headroom,
            end: headroom,
        }
    }

    /// The packet's bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// The packet's bytes, to be changed.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes in front.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Free bytes behind.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.memory.len() - self.end
    }

    /// Adds `len` bytes in front and returns them, to be filled. Panics if there is no room.
    pub fn prepend(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.start, "room for the header");
        self.start -= len;
        let start = self.start;
        &mut self.memory[start..start + len]
    }

    /// Adds `len` bytes behind and returns them, to be filled. Panics if there is no room.
    pub fn append(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.tailroom(), "room for the data");
        let at = self.end;
        self.end += len;
        &mut self.memory[at..at + len]
    }

    /// Drops bytes from the front (at most all).
    pub fn trim_front(&mut self, len: usize) {
        self.start += len.min(self.len());
    }

    /// Keeps only the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.end = self.start + len.min(self.len());
    }
}

impl Drop for PacketBuf {
    fn drop(&mut self) {
        if let Some(index) = CLASSES
            .iter()
            .position(|(class, _)| *class == self.memory.len())
        {
            let mut pool = POOL[index].lock();
            if pool.len() < CLASSES[index].1 {
                pool.push(core::mem::take(&mut self.memory));
            }
        }
    }
}

/// Gives pooled buffers back to the heap, when memory is short. Returns the number of bytes.
pub fn shrink_pool() -> usize {
    let mut bytes = 0;
    for (pool, (class, _)) in POOL.iter().zip(CLASSES) {
        let freed = core::mem::take(&mut *pool.lock());
        bytes += freed.len() * class;
    }
    bytes
}

/// A piece of payload that is sent from where it lies, and stays alive until the device is done with it.
#[derive(Clone, Debug)]
pub enum Fragment {
    /// Part of a frozen buffer; `offset` counts from the start of its data.
    Buffer {
        buffer: Arc<PacketBuf>,
        offset: usize,
        len: usize,
    },
    /// Part of a page, for example of a file.
    Page {
        page: Page,
        offset: usize,
        len: usize,
    },
}

impl Fragment {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Buffer { len, .. } | Self::Page { len, .. } => *len,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A checksum for the device to fill in: the ones' complement sum from `start` to the end, stored at `start + offset`.
/// The field already holds the sum of the pseudo header (virtio 1.2, 5.1.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumOffload {
    /// Where summing begins, in bytes from the start of the frame.
    pub start: u16,
    /// Where the field lies, in bytes from `start`.
    pub offset: u16,
}

/// A large TCP segment for the device to cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Payload bytes of each piece.
    pub mss: u16,
    /// Length of all headers in bytes.
    pub header_len: u16,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
}

/// A frame to send: the headers (and perhaps payload) in `head`, then the fragments.
#[derive(Debug)]
pub struct TxPacket {
    /// Ethernet frame from its first byte.
    pub head: PacketBuf,
    /// What follows `head`.
    pub fragments: Vec<Fragment>,
    /// Checksum left to the device; only if it offers that.
    pub checksum: Option<ChecksumOffload>,
    /// Segmentation left to the device; only if it offers that. Needs `checksum`.
    pub segmentation: Option<Segmentation>,
}

impl TxPacket {
    /// A packet without fragments and without offloads.
    #[must_use]
    pub fn new(head: PacketBuf) -> Self {
        Self {
            head,
            fragments: Vec::new(),
            checksum: None,
            segmentation: None,
        }
    }

    /// Length of the frame in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.fragments.iter().map(Fragment::len).sum::<usize>()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A received frame.
#[derive(Debug)]
pub struct RxPacket {
    /// Ethernet frame from its first byte.
    pub buf: PacketBuf,
    /// The device vouches for the transport checksum, or the packet never left this machine.
    pub checksum_valid: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_in_front() {
        let mut packet = PacketBuf::new(HEADROOM, 100);
        packet.append(3).copy_from_slice(b"abc");
        packet.prepend(2).copy_from_slice(b"hd");
        assert_eq!(packet.data(), b"hdabc");
        packet.trim_front(1);
        packet.truncate(2);
        assert_eq!(packet.data(), b"da");
        assert_eq!(packet.headroom(), HEADROOM - 1);
    }

    #[test]
    fn large_buffers_work_and_are_not_pooled() {
        let mut packet = PacketBuf::new(0, 70_000);
        assert_eq!(packet.append(70_000).len(), 70_000);
        assert_eq!(packet.tailroom(), 0);
    }
}
