// SPDX-License-Identifier: Apache-2.0
//! A network interface: a device with addresses, or the loopback interface, which has no device.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use coracle_abi::convert::u64_from;
use coracle_core::device::{NetCapabilities, NetDevice};
use coracle_core::packet::{RxPacket, TxPacket};
use coracle_core::sync::SpinLock;

use super::NeighbourTable;
use crate::address::{Address, Prefix};
use crate::counters::Counters;
use crate::icmp::Autoconf;
use crate::map::HashKey;
use crate::wire::ethernet::{Ethernet, HEADER};
use crate::wire::protocol;

/// Packets that wait behind a full transmit ring: of protocols that may lose some, and of TCP, which bounds itself by
/// its windows and would wait for a time-out.
const BACKLOG: usize = 512;
const BACKLOG_TCP: usize = 32_768;

/// How long a connection uses a hardware address before it asks the neighbour cache again.
const PATH_FRESH_NS: u64 = 5_000_000_000;

pub(crate) struct Interface {
    /// Place in the stack's list; Linux's interface index is one more.
    pub(crate) index: usize,
    pub(crate) name: String,
    /// `None` for loopback.
    pub(crate) device: Option<Arc<dyn NetDevice>>,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: usize,
    pub(crate) capabilities: NetCapabilities,
    pub(crate) addresses: SpinLock<Vec<Prefix>>,
    /// The first IPv4 address as bits, for a quick look; 0 for none.
    pub(crate) primary_v4: AtomicU32,
    pub(crate) neighbours: SpinLock<NeighbourTable>,
    /// Grows when a known hardware address changes, so that connections look again.
    pub(crate) generation: AtomicU32,
    /// Frames between the device and the protocols. Whoever holds the lock is the one who receives.
    pub(crate) received: SpinLock<Vec<RxPacket>>,
    /// Somebody wanted to receive while another CPU did.
    pub(crate) look_again: AtomicBool,
    backlog: SpinLock<VecDeque<TxPacket>>,
    backlog_len: AtomicUsize,
    /// Packets were queued at the device since it was last told.
    pub(crate) unflushed: AtomicBool,
    pub(crate) neighbour_timer_set: AtomicBool,
    pub(crate) backlog_timer_set: AtomicBool,
    /// Gratuitous announcements still to send.
    pub(crate) announcements: AtomicUsize,
    /// IPv6: what routers said, and which addresses are being checked.
    pub(crate) autoconf: SpinLock<Autoconf>,
}

impl Interface {
    pub(crate) fn new(
        index: usize,
        name: String,
        device: Option<Arc<dyn NetDevice>>,
        key: HashKey,
    ) -> Self {
        let (mac, mtu, capabilities) = match &device {
            Some(device) => (device.mac(), device.mtu(), device.capabilities()),
            None => ([0; 6], 65_535, NetCapabilities::default()),
        };
        Self {
            index,
            name,
            device,
            mac,
            mtu,
            capabilities,
            addresses: SpinLock::new(Vec::new()),
            primary_v4: AtomicU32::new(0),
            neighbours: SpinLock::new(NeighbourTable::new(key)),
            generation: AtomicU32::new(0),
            received: SpinLock::new(Vec::new()),
            look_again: AtomicBool::new(false),
            backlog: SpinLock::new(VecDeque::new()),
            backlog_len: AtomicUsize::new(0),
            unflushed: AtomicBool::new(false),
            neighbour_timer_set: AtomicBool::new(false),
            backlog_timer_set: AtomicBool::new(false),
            announcements: AtomicUsize::new(0),
            autoconf: SpinLock::new(Autoconf::default()),
        }
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.device.is_none()
    }

    /// Whether packets to `address` are for this interface.
    pub(crate) fn has_address(&self, address: Address) -> bool {
        let primary = self.primary_v4.load(Ordering::Relaxed);
        if address.v4().is_some_and(|v4| v4.to_bits() == primary) && primary != 0 {
            return true;
        }
        if self.is_loopback() {
            return address.is_loopback();
        }
        self.addresses.lock().iter().any(|p| p.address == address)
    }

    /// Whether `address` means all hosts of this interface's network.
    pub(crate) fn is_broadcast(&self, address: Address) -> bool {
        address == Address::BROADCAST
            || self
                .addresses
                .lock()
                .iter()
                .any(|p| p.broadcast() == Some(address))
    }

    /// The address to send from to `destination`: one of the same network, else the first of the same version (for
    /// IPv6 of the same scope).
    pub(crate) fn source_for(&self, destination: Address) -> Option<Address> {
        let addresses = self.addresses.lock();
        let same_kind = |p: &&Prefix| {
            p.address.is_v4() == destination.is_v4()
                && p.address.is_v6_link_local() == destination.is_v6_link_local()
        };
        addresses
            .iter()
            .find(|p| p.contains(destination))
            .or_else(|| addresses.iter().find(same_kind))
            .or_else(|| {
                let same_version = |p: &&Prefix| p.address.is_v4() == destination.is_v4();
                addresses.iter().find(same_version)
            })
            .map(|p| p.address)
    }

    /// The IPv6 link-local address.
    pub(crate) fn link_local(&self) -> Option<Address> {
        self.addresses
            .lock()
            .iter()
            .map(|p| p.address)
            .find(|a| a.is_v6_link_local())
    }

    /// Queues a complete frame at the device, or behind those that wait already. Returns whether it waits.
    pub(crate) fn transmit(&self, packet: TxPacket, counters: &Counters) -> bool {
        let Some(device) = &self.device else {
            return false;
        };
        counters.tx_packets.bump();
        counters.tx_bytes.add(u64_from(packet.len()));
        let mut packet = packet;
        if self.backlog_len.load(Ordering::Acquire) == 0 {
            match device.transmit(packet) {
                Ok(()) => {
                    self.unflushed.store(true, Ordering::Release);
                    return false;
                }
                Err(back) => packet = back,
            }
        }
        let mut backlog = self.backlog.lock();
        let limit = if carries_tcp(packet.head.data()) {
            BACKLOG_TCP
        } else {
            BACKLOG
        };
        if backlog.len() < limit {
            backlog.push_back(packet);
            self.backlog_len.store(backlog.len(), Ordering::Release);
        } else {
            counters.drop_transmit_full.bump();
        }
        true
    }

    /// Moves waiting packets to the device while it has room. Returns whether some still wait.
    pub(crate) fn drain_backlog(&self) -> bool {
        if self.backlog_len.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(device) = &self.device else {
            return false;
        };
        let mut backlog = self.backlog.lock();
        while let Some(packet) = backlog.pop_front() {
            match device.transmit(packet) {
                Ok(()) => self.unflushed.store(true, Ordering::Release),
                Err(packet) => {
                    backlog.push_front(packet);
                    break;
                }
            }
        }
        // Only now: a sender that sees 0 may overtake nothing.
        self.backlog_len.store(backlog.len(), Ordering::Release);
        !backlog.is_empty()
    }

    /// Tells the device about queued packets, if there are any it has not been told of.
    #[inline]
    pub(crate) fn flush(&self) {
        if self.unflushed.load(Ordering::Acquire)
            && self.unflushed.swap(false, Ordering::AcqRel)
            && let Some(device) = &self.device
        {
            device.flush();
        }
    }

    /// The link header of a frame to `mac`.
    pub(crate) fn header(&self, mac: [u8; 6], kind: u16) -> [u8; HEADER] {
        Ethernet {
            destination: mac,
            source: self.mac,
            kind,
        }
        .emit()
    }
}

/// Whether a frame carries TCP, seen from its first headers.
fn carries_tcp(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&protocol::TCP),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&protocol::TCP),
        _ => false,
    }
}

/// How to reach a peer, remembered by a connection so that a packet in steady state needs no look-up.
#[derive(Clone)]
pub(crate) struct Path {
    pub(crate) interface: Arc<Interface>,
    /// Our address on that way.
    pub(crate) source: Address,
    /// The peer itself or a router.
    pub(crate) next_hop: Address,
    header: Option<[u8; HEADER]>,
    generation: u32,
    fresh_until: u64,
}

impl Path {
    pub(crate) fn new(interface: Arc<Interface>, source: Address, next_hop: Address) -> Self {
        Self {
            interface,
            source,
            next_hop,
            header: None,
            generation: 0,
            fresh_until: 0,
        }
    }

    /// The link header, if it is known and fresh.
    #[inline]
    pub(crate) fn header(&self, now: u64) -> Option<&[u8; HEADER]> {
        let fresh = now < self.fresh_until
            && self.generation == self.interface.generation.load(Ordering::Relaxed);
        self.header.as_ref().filter(|_| fresh)
    }

    pub(crate) fn remember(&mut self, header: [u8; HEADER], generation: u32, now: u64) {
        self.header = Some(header);
        self.generation = generation;
        self.fresh_until = now + PATH_FRESH_NS;
    }
}
