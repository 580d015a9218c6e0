// SPDX-License-Identifier: Apache-2.0
//! Putting fragments together again (RFC 815 in spirit, RFC 8200 4.5), within bounds an attacker cannot move:
//! so many packets, so many bytes, so many seconds. Overlapping fragments end a packet (RFC 5722).

use alloc::vec::Vec;

use coracle_core::packet::{HEADROOM, PacketBuf};
use coracle_core::sync::SpinLock;

use super::IpMeta;
use crate::address::Address;
use crate::stack::NetStack;

/// Packets being put together at once.
const PACKETS: usize = 32;
/// Bytes of all fragments kept.
const BYTES: usize = 512 * 1024;
/// Pieces of one packet.
const PIECES: usize = 64;
/// How long the missing pieces may take.
const TIMEOUT_NS: u64 = 30_000_000_000;
/// Longest payload of an IP packet.
const LONGEST: usize = 65_535;

#[derive(PartialEq, Eq)]
struct Key {
    source: Address,
    destination: Address,
    protocol: u8,
    id: u32,
}

struct Partial {
    key: Key,
    started: u64,
    /// Offset and bytes, in order, without overlap.
    pieces: Vec<(usize, Vec<u8>)>,
    /// Length of the payload, known from the last fragment.
    total: Option<usize>,
}

/// Fragments that wait for their siblings.
#[derive(Default)]
pub(crate) struct Reassembly {
    partial: SpinLock<Vec<Partial>>,
}

enum Outcome {
    Waits,
    Refused,
    Complete,
}

impl Partial {
    fn bytes(&self) -> usize {
        self.pieces.iter().map(|(_, b)| b.len()).sum()
    }

    fn add(&mut self, offset: usize, more: bool, data: &[u8]) -> Outcome {
        let end = offset + data.len();
        let misfit = self.total.is_some_and(|t| end > t || !more && end != t)
            || !more && self.pieces.last().is_some_and(|(o, b)| o + b.len() > end);
        if end > LONGEST || data.is_empty() || more && !data.len().is_multiple_of(8) || misfit {
            return Outcome::Refused;
        }
        let at = self.pieces.partition_point(|(o, _)| *o < offset);
        if self
            .pieces
            .get(at)
            .is_some_and(|(o, b)| *o == offset && b.len() == data.len())
        {
            return Outcome::Waits; // a duplicate
        }
        let before = at.checked_sub(1).map(|i| &self.pieces[i]);
        let overlaps = before.is_some_and(|(o, b)| o + b.len() > offset)
            || self.pieces.get(at).is_some_and(|(o, _)| *o < end);
        if overlaps || self.pieces.len() >= PIECES {
            return Outcome::Refused;
        }
        self.pieces.insert(at, (offset, data.to_vec()));
        if !more {
            self.total = Some(end);
        }
        match self.total {
            Some(total) if self.bytes() == total => Outcome::Complete,
            _ => Outcome::Waits,
        }
    }
}

impl NetStack {
    /// Adds a fragment; returns the whole payload once it is complete.
    #[cold]
    pub(crate) fn reassemble(
        &self,
        meta: &IpMeta<'_>,
        id: u32,
        offset: usize,
        more: bool,
        data: &PacketBuf,
        now: u64,
    ) -> Option<PacketBuf> {
        let key = Key {
            source: meta.source,
            destination: meta.destination,
            protocol: meta.protocol,
            id,
        };
        let mut partial = self.reassembly.partial.lock();
        let before = partial.len();
        partial.retain(|p| now < p.started + TIMEOUT_NS);
        for _ in partial.len()..before {
            self.counters.drop_fragments.bump();
        }
        let at = match partial.iter().position(|p| p.key == key) {
            Some(at) => at,
            None => {
                let bytes: usize = partial.iter().map(Partial::bytes).sum();
                if partial.len() >= PACKETS || bytes + data.len() > BYTES {
                    self.counters.drop_fragments.bump();
                    partial.remove(0); // the oldest
                }
                partial.push(Partial {
                    key,
                    started: now,
                    pieces: Vec::new(),
                    total: None,
                });
                partial.len() - 1
            }
        };
        match partial[at].add(offset, more, data.data()) {
            Outcome::Waits => None,
            Outcome::Refused => {
                self.counters.drop_fragments.bump();
                partial.remove(at);
                None
            }
            Outcome::Complete => {
                let done = partial.remove(at);
                drop(partial);
                let mut whole = PacketBuf::new(HEADROOM, done.total.unwrap_or(0));
                for (_, bytes) in &done.pieces {
                    whole.append(bytes.len()).copy_from_slice(bytes);
                }
                Some(whole)
            }
        }
    }
}
