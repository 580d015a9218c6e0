// SPDX-License-Identifier: Apache-2.0
//! The neighbour cache: hardware addresses of IPv4 neighbours (RFC 826) and IPv6 neighbours (RFC 4861, 7.3).
//!
//! States are fewer than in RFC 4861: an entry is being resolved, or known until a time, or known and being confirmed.
//! Packets for an unresolved neighbour wait here, a few for each. The table is bounded.

use alloc::vec::Vec;

use coracle_core::packet::TxPacket;

use crate::address::Address;
use crate::map::{HashKey, HashMap};

/// How long an answer is believed.
const REACHABLE_NS: u64 = 60_000_000_000;
/// Time between two requests.
pub(crate) const RETRY_NS: u64 = 1_000_000_000;
/// Requests before a neighbour is given up.
const ATTEMPTS: u8 = 3;
/// Packets that wait for one neighbour.
const WAITING: usize = 16;
/// Neighbours remembered.
const CAPACITY: usize = 1024;

struct Neighbour {
    mac: Option<[u8; 6]>,
    /// Known: when it has to be confirmed. Otherwise: when to ask again.
    deadline: u64,
    /// Requests since it was last known.
    attempts: u8,
    waiting: Vec<TxPacket>,
}

/// What to do with a packet.
pub(crate) enum Resolution {
    /// Send it there. With `true`, also ask the neighbour to confirm.
    Known([u8; 6], TxPacket, bool),
    /// It waits. With `true`, ask the neighbour.
    Waiting(bool),
    /// Too many wait already.
    Full(TxPacket),
}

/// What is to be done about neighbours that do not answer.
#[derive(Default)]
pub(crate) struct Retry {
    /// Whom to ask again: everybody, or the one who had the address.
    pub(crate) ask: Vec<(Address, Option<[u8; 6]>)>,
    /// Packets that are given up.
    pub(crate) gone: Vec<TxPacket>,
    /// Come back after [`RETRY_NS`].
    pub(crate) pending: bool,
}

pub(crate) struct NeighbourTable {
    key: HashKey,
    map: HashMap<Address, Neighbour>,
}

impl NeighbourTable {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            map: HashMap::new(),
        }
    }

    /// Finds out where to send `packet` for `address`.
    pub(crate) fn resolve(&mut self, address: Address, packet: TxPacket, now: u64) -> Resolution {
        let hash = self.key.address(address);
        if self.map.get(hash, &address).is_none() {
            if self.map.len() >= CAPACITY {
                self.evict(now);
            }
            let entry = Neighbour {
                mac: None,
                deadline: 0,
                attempts: 0,
                waiting: Vec::new(),
            };
            self.map.insert(hash, address, entry);
        }
        let Some(entry) = self.map.get_mut(hash, &address) else {
            return Resolution::Full(packet);
        };
        let ask = now >= entry.deadline;
        if ask {
            entry.attempts += 1;
            entry.deadline = now + RETRY_NS;
        }
        match entry.mac {
            Some(mac) => Resolution::Known(mac, packet, ask),
            None if entry.waiting.len() < WAITING => {
                entry.waiting.push(packet);
                Resolution::Waiting(ask)
            }
            None => Resolution::Full(packet),
        }
    }

    /// Notes what `address` said about itself. Unless `create`, only for neighbours somebody asked about. Returns the
    /// packets that waited, and whether a known hardware address changed.
    pub(crate) fn learn(
        &mut self,
        address: Address,
        mac: [u8; 6],
        create: bool,
        now: u64,
    ) -> (Vec<TxPacket>, bool) {
        let hash = self.key.address(address);
        let deadline = now + REACHABLE_NS;
        if let Some(entry) = self.map.get_mut(hash, &address) {
            let changed = entry.mac.is_some_and(|old| old != mac);
            entry.mac = Some(mac);
            entry.attempts = 0;
            entry.deadline = deadline;
            return (core::mem::take(&mut entry.waiting), changed);
        }
        if create && self.map.len() < CAPACITY {
            let entry = Neighbour {
                mac: Some(mac),
                deadline,
                attempts: 0,
                waiting: Vec::new(),
            };
            self.map.insert(hash, address, entry);
        }
        (Vec::new(), false)
    }

    /// Goes over the neighbours that have not answered.
    pub(crate) fn retry(&mut self, now: u64) -> Retry {
        let mut found = Retry::default();
        let mut dead = Vec::new();
        for (address, entry) in self.map.iter_mut() {
            if entry.attempts == 0 {
                continue; // known, or not asked
            }
            if now < entry.deadline {
                found.pending = true;
            } else if entry.attempts < ATTEMPTS {
                entry.attempts += 1;
                entry.deadline = now + RETRY_NS;
                found.pending = true;
                found.ask.push((*address, entry.mac));
            } else {
                found.gone.append(&mut entry.waiting);
                dead.push(*address);
            }
        }
        for address in dead {
            self.map.remove(self.key.address(address), &address);
        }
        found
    }

    /// Makes room: drops entries that would need confirming, or else one that has nothing waiting.
    fn evict(&mut self, now: u64) {
        let old: Vec<Address> = self
            .map
            .iter()
            .filter(|(_, n)| n.waiting.is_empty() && now >= n.deadline)
            .map(|(a, _)| *a)
            .collect();
        let victims = if old.is_empty() {
            self.map.iter().take(1).map(|(a, _)| *a).collect()
        } else {
            old
        };
        for address in victims {
            self.map.remove(self.key.address(address), &address);
        }
    }
}
