// SPDX-License-Identifier: Apache-2.0
//! Split virtqueues (virtio 1.2, 2.7): how every virtio driver hands memory to its device and gets it back.
//!
//! Chains of memory go out with a token that owns the memory, and the token comes back when the device is done. The
//! rule that no compiler checks: *the token owns the memory its spans name*, so nobody else touches it meanwhile.
//!
//! Nothing the device writes is trusted. Descriptors are linked in a private copy, and an answer that cannot be true
//! (a chain that is not out, more bytes than there was room for, a jump of the index) makes the queue broken: one log
//! line, then it accepts and returns nothing. Its tokens stay where they are, because the device may still write there.
//!
//! Indirect descriptors are not used: the device would have to map another table for each chain, which costs more than
//! reading a few entries of a table it has mapped, and rings of 256 entries are long enough for our chains.

mod memory;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::{Ordering, fence};

use coracle_core::memory::{Page, physical_address};
use memory::RingMemory;

pub use memory::QueueAddresses;

/// A piece of memory as the device sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    address: u64,
    len: u32,
    writable: bool,
}

impl Span {
    /// Memory that the device reads.
    pub(crate) fn readable(bytes: &[u8]) -> Self {
        Self::new(physical_address(bytes.as_ptr()), bytes.len(), false)
    }

    /// Memory that the device fills.
    pub(crate) fn writable(bytes: &mut [u8]) -> Self {
        Self::new(physical_address(bytes.as_mut_ptr()), bytes.len(), true)
    }

    /// Part of a page that the device reads.
    pub(crate) fn page(page: &Page, offset: usize, len: usize) -> Self {
        Self::new(
            page.physical() + coracle_abi::convert::u64_from(offset),
            len,
            false,
        )
    }

    /// The first `len` bytes of a page, which the device fills.
    pub(crate) fn writable_page(page: &Page, len: usize) -> Self {
        Self::new(page.physical(), len, true)
    }

    fn new(address: u64, len: usize, writable: bool) -> Self {
        let len = u32::try_from(len).expect("spans are far below 4 GiB");
        Self {
            address,
            len,
            writable,
        }
    }
}

/// A chain that the device has.
struct Chain<T> {
    token: T,
    /// Number of descriptors.
    count: u16,
    /// Bytes the device may write.
    room: u32,
}

/// A queue shared with a device.
pub(crate) struct Virtqueue<T> {
    device: &'static str,
    index: u16,
    size: u16,
    /// Event indexes (`VIRTIO_F_EVENT_IDX`) were negotiated.
    events: bool,
    memory: RingMemory,
    /// For each descriptor the next one, of its chain or of the free list.
    next: Box<[u16]>,
    /// For each descriptor that begins a chain, the chain.
    chains: Box<[Option<Chain<T>>]>,
    free_head: u16,
    free: u16,
    in_flight: u16,
    /// The available index, as published.
    available: u16,
    /// The available index when the device was last told, or when that was last considered.
    announced: u16,
    /// The used index up to which chains were taken back.
    taken: u16,
    broken: bool,
}

impl<T> Virtqueue<T> {
    /// A queue of `size` entries, a power of two, with interrupts switched off. `device` and `index` name it in
    /// messages and notifications.
    pub(crate) fn new(device: &'static str, index: u16, size: u16, events: bool) -> Self {
        let queue = Self {
            device,
            index,
            size,
            events,
            memory: RingMemory::new(size),
            next: (1..=size).collect(),
            chains: (0..size).map(|_| None).collect(),
            free_head: 0,
            free: size,
            in_flight: 0,
            available: 0,
            announced: 0,
            taken: 0,
            broken: false,
        };
        queue.disable_interrupts();
        queue
    }

    /// Number of the queue within its device.
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Number of entries.
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Free descriptors.
    pub(crate) fn free(&self) -> u16 {
        self.free
    }

    /// Chains that the device has.
    pub(crate) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Whether the device broke the rules, and the queue is dead.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Where the device finds the queue.
    pub(crate) fn addresses(&self) -> QueueAddresses {
        self.memory.addresses()
    }

    /// Hands `spans` to the device: first those it reads, then those it writes, none of them empty. Gives the token
    /// back when there are not enough free descriptors.
    pub(crate) fn add(&mut self, spans: &[Span], token: T) -> Result<(), T> {
        debug_assert!(!spans.is_empty() && spans.iter().all(|span| span.len > 0));
        debug_assert!(spans.is_sorted_by_key(|span| span.writable));
        let count = match u16::try_from(spans.len()) {
            Ok(count) if count <= self.free && !self.broken => count,
            _ => return Err(token),
        };
        let head = self.free_head;
        let mut at = head;
        let mut room = 0u32;
        for (left, span) in (0..count).rev().zip(spans) {
            let next = self.next[usize::from(at)];
            let mut flags = 0;
            if span.writable {
                flags |= memory::WRITE;
                room = room.saturating_add(span.len);
            }
            if left > 0 {
                flags |= memory::NEXT;
            }
            let link = if left > 0 { next } else { 0 };
            self.memory
                .set_descriptor(at, span.address, span.len, flags, link);
            at = next;
        }
        self.free_head = at;
        self.free -= count;
        self.in_flight += 1;
        self.chains[usize::from(head)] = Some(Chain { token, count, room });
        self.memory.set_available(self.available, head);
        self.available = self.available.wrapping_add(1);
        self.memory.set_available_index(self.available);
        Ok(())
    }

    /// Takes back a chain the device is done with: its token, and how many bytes were written into it.
    pub(crate) fn pop_used(&mut self) -> Option<(T, u32)> {
        if self.broken {
            return None;
        }
        let done = self.memory.used_index().wrapping_sub(self.taken);
        if done == 0 {
            return None;
        }
        if done > self.in_flight {
            let out = self.in_flight;
            self.fail(format_args!("{done} chains returned of {out}"));
            return None;
        }
        let (id, len) = self.memory.used(self.taken);
        let head = u16::try_from(id).ok().filter(|head| *head < self.size);
        let chain = head.and_then(|head| Some((head, self.chains[usize::from(head)].take()?)));
        let Some((head, chain)) = chain else {
            self.fail(format_args!("returned chain {id}, which it does not have"));
            return None;
        };
        if len > chain.room && chain.room > 0 {
            let room = chain.room;
            self.chains[usize::from(head)] = Some(chain);
            self.fail(format_args!("wrote {len} bytes into {room}"));
            return None;
        }
        self.taken = self.taken.wrapping_add(1);
        self.in_flight -= 1;
        self.free += chain.count;
        let tail = (1..chain.count).fold(head, |at, _| self.next[usize::from(at)]);
        self.next[usize::from(tail)] = self.free_head;
        self.free_head = head;
        // Some devices report the length of chains they only read.
        Some((chain.token, len.min(chain.room)))
    }

    /// Whether the device must be told about the chains added since the last call (2.7.10).
    pub(crate) fn should_notify(&mut self) -> bool {
        let (old, new) = (self.announced, self.available);
        if old == new || self.broken {
            return false;
        }
        self.announced = new;
        // The index must be visible before the wish is read: the device does it in the opposite order.
        fence(Ordering::SeqCst);
        if self.events {
            let event = self.memory.available_event();
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            !self.memory.no_notify_flag()
        }
    }

    /// Asks for no interrupts. With event indexes one still comes about every 65536 chains, which is harmless.
    pub(crate) fn disable_interrupts(&self) {
        if self.events {
            self.memory.set_used_event(self.taken.wrapping_sub(1));
        } else {
            self.memory.set_interrupt_flag(false);
        }
    }

    /// Asks for an interrupt when the next chain is done. Returns whether one is done already, for which no interrupt
    /// may come: the caller must take it.
    pub(crate) fn enable_interrupts(&self) -> bool {
        self.enable_interrupts_after(1)
    }

    /// Asks for an interrupt when `count` more chains are done (without event indexes, when one is). Returns whether
    /// they are already.
    pub(crate) fn enable_interrupts_after(&self, count: u16) -> bool {
        let mut count = count.max(1);
        if self.events {
            self.memory
                .set_used_event(self.taken.wrapping_add(count - 1));
        } else {
            self.memory.set_interrupt_flag(true);
            count = 1;
        }
        // The wish must be visible before the index is read: the device does it in the opposite order.
        fence(Ordering::SeqCst);
        !self.broken && self.memory.used_index().wrapping_sub(self.taken) >= count
    }

    /// Whether a finished chain waits to be taken.
    pub(crate) fn has_used(&self) -> bool {
        !self.broken && self.memory.used_index() != self.taken
    }

    fn fail(&mut self, what: fmt::Arguments<'_>) {
        self.broken = true;
        log::error!(
            "{}: the device broke queue {}: {what}; the queue is shut",
            self.device,
            self.index
        );
    }
}
