// SPDX-License-Identifier: Apache-2.0
//! The memory of a split virtqueue, shared with the device (virtio 1.2, 2.7).
//!
//! The device reads and writes it at any time, so every field is an atomic: loads are never torn or repeated by the
//! compiler, and no reference to plain memory exists that somebody else changes. This keeps the crate free of `unsafe`.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use coracle_abi::convert::low_u16;
use coracle_core::memory::physical_address;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "fields are little-endian and used as they are"
);

/// `VIRTQ_DESC_F_NEXT`: the chain goes on.
pub(super) const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes the memory.
pub(super) const WRITE: u16 = 2;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`, used without event indexes only.
const NO_INTERRUPT: u16 = 1;
/// `VIRTQ_USED_F_NO_NOTIFY`, used without event indexes only.
const NO_NOTIFY: u16 = 1;

/// `struct virtq_desc` (2.7.5).
#[derive(Default)]
#[repr(C, align(16))]
struct Descriptor {
    address: AtomicU64,
    len: AtomicU32,
    flags: AtomicU16,
    next: AtomicU16,
}

/// Where the three parts of a queue lie, as the device sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddresses {
    /// Descriptor table.
    pub descriptors: u64,
    /// Available ring, the "driver area".
    pub available: u64,
    /// Used ring, the "device area".
    pub used: u64,
}

/// The three parts of a queue.
pub(super) struct RingMemory {
    size: u16,
    descriptors: Box<[Descriptor]>,
    /// `flags`, `idx`, `ring[size]`, `used_event` (2.7.6).
    available: Box<[AtomicU16]>,
    /// `flags` (low half) and `idx` (high half), then `size` pairs of `id` and `len`, then `avail_event` (2.7.8).
    used: Box<[AtomicU32]>,
}

impl RingMemory {
    /// Zeroed memory for a queue of `size` entries, a power of two.
    pub(super) fn new(size: u16) -> Self {
        assert!(size.is_power_of_two(), "queue sizes are powers of two");
        let entries = usize::from(size);
        Self {
            size,
            descriptors: (0..entries).map(|_| Descriptor::default()).collect(),
            available: (0..entries + 3).map(|_| AtomicU16::new(0)).collect(),
            used: (0..2 * entries + 2).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(super) fn addresses(&self) -> QueueAddresses {
        QueueAddresses {
            descriptors: physical_address(self.descriptors.as_ptr().cast()),
            available: physical_address(self.available.as_ptr().cast()),
            used: physical_address(self.used.as_ptr().cast()),
        }
    }

    pub(super) fn set_descriptor(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let descriptor = &self.descriptors[usize::from(index)];
        descriptor.address.store(address, Ordering::Relaxed);
        descriptor.len.store(len, Ordering::Relaxed);
        descriptor.flags.store(flags, Ordering::Relaxed);
        descriptor.next.store(next, Ordering::Relaxed);
    }

    /// Puts the chain that begins with `head` at position `at` of the available ring.
    pub(super) fn set_available(&self, at: u16, head: u16) {
        self.available[2 + usize::from(at & (self.size - 1))].store(head, Ordering::Relaxed);
    }

    /// Publishes all entries before `index`. Everything written earlier is visible to a device that sees it.
    pub(super) fn set_available_index(&self, index: u16) {
        self.available[1].store(index, Ordering::Release);
    }

    /// Asks the device for interrupts, or not to send any (2.7.7). Without event indexes only.
    pub(super) fn set_interrupt_flag(&self, wanted: bool) {
        let flags = if wanted { 0 } else { NO_INTERRUPT };
        self.available[0].store(flags, Ordering::Relaxed);
    }

    /// Asks for an interrupt when the used index passes `index` (2.7.7). With event indexes only.
    pub(super) fn set_used_event(&self, index: u16) {
        self.available[2 + usize::from(self.size)].store(index, Ordering::Relaxed);
    }

    /// How many entries the device has put into the used ring, modulo 2^16. Whatever the device wrote before is
    /// visible after this.
    pub(super) fn used_index(&self) -> u16 {
        let word = self.used[0].load(Ordering::Acquire);
        // The acquire load orders the ring's own entries; the fence extends that to the buffers, which are plain memory.
        fence(Ordering::Acquire);
        low_u16(u64::from(word >> 16))
    }

    /// The `id` and `len` at position `at` of the used ring: anything, for a hostile device.
    pub(super) fn used(&self, at: u16) -> (u32, u32) {
        let entry = 1 + 2 * usize::from(at & (self.size - 1));
        (
            self.used[entry].load(Ordering::Relaxed),
            self.used[entry + 1].load(Ordering::Relaxed),
        )
    }

    /// Whether the device wants no notifications (2.7.10). Without event indexes only.
    pub(super) fn no_notify_flag(&self) -> bool {
        let word = self.used[0].load(Ordering::Relaxed);
        low_u16(u64::from(word)) & NO_NOTIFY != 0
    }

    /// The available index whose passing the device wants to hear of (2.7.10). With event indexes only.
    pub(super) fn available_event(&self) -> u16 {
        let word = self.used[1 + 2 * usize::from(self.size)].load(Ordering::Relaxed);
        low_u16(u64::from(word))
    }
}
