// SPDX-License-Identifier: Apache-2.0
//! Bytes that arrived: in order and waiting for the application, or out of order and waiting for what is missing.
//!
//! Payload stays in the buffer it was received in. Small pieces are moved together, so that memory held stays within
//! about twice the payload, whatever sizes a peer chooses.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use coracle_core::Result;
use coracle_core::io::IoDst;
use coracle_core::packet::PacketBuf;

use super::seq::{after, before, distance, later, plus};
use crate::packet::{compact, memory_of};
use crate::wire::tcp::SackBlock;

/// Payload up to this size is moved into the free end of the buffer before it.
const MERGE: usize = 1024;
/// Pieces kept out of order.
const PIECES: usize = 1024;

struct Piece {
    seq: u32,
    buf: PacketBuf,
    fin: bool,
}

impl Piece {
    fn end(&self) -> u32 {
        plus(self.seq, self.buf.len())
    }
}

/// Received bytes.
#[derive(Default)]
pub(super) struct ReceiveQueue {
    ready: VecDeque<PacketBuf>,
    len: usize,
    /// Sorted, without overlap.
    early: VecDeque<Piece>,
    early_len: usize,
    /// Memory they hold.
    early_memory: usize,
    /// Where the last early piece was put, to report it first (RFC 2018, 4).
    latest: u32,
}

impl ReceiveQueue {
    /// Bytes ready for the application.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes held, those out of order included.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.len + self.early_len
    }

    /// Appends what follows what is there.
    #[inline]
    pub(super) fn push(&mut self, buf: PacketBuf) {
        let count = buf.len();
        self.len += count;
        if count <= MERGE
            && let Some(last) = self.ready.back_mut()
            && last.tailroom() >= count
        {
            last.append(count).copy_from_slice(buf.data());
            return;
        }
        self.ready.push_back(buf);
    }

    /// Whether pieces wait for something that is missing.
    #[inline]
    pub(super) fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Keeps a piece whose first byte is not next. Drops it if it is there already, or if all pieces together would
    /// hold more than `memory`.
    pub(super) fn push_early(&mut self, mut seq: u32, buf: PacketBuf, fin: bool, memory: usize) {
        let mut buf = compact(buf);
        let at = self.early.partition_point(|p| before(p.seq, seq));
        if let Some(previous) = at.checked_sub(1).map(|i| &self.early[i])
            && after(previous.end(), seq)
        {
            let overlap = distance(seq, previous.end()).min(buf.len());
            buf.trim_front(overlap);
            seq = plus(seq, overlap);
        }
        if let Some(next) = self.early.get(at)
            && after(plus(seq, buf.len()), next.seq)
        {
            // The part behind what is there will be sent again: rare, and simpler than splitting.
            buf.truncate(distance(seq, next.seq));
        }
        if buf.is_empty() && !fin {
            return;
        }
        if self.early.len() >= PIECES || self.early_memory + memory_of(&buf) > memory {
            return;
        }
        self.early_memory += memory_of(&buf);
        self.latest = seq;
        self.early_len += buf.len();
        self.early.insert(at, Piece { seq, buf, fin });
    }

    /// Moves pieces that have become next to the ready ones. Returns the new next sequence number and whether the end
    /// was reached.
    pub(super) fn close_gap(&mut self, mut next: u32) -> (u32, bool) {
        while let Some(piece) = self.early.pop_front() {
            if after(piece.seq, next) {
                self.early.push_front(piece);
                break;
            }
            let (end, fin, mut buf) = (piece.end(), piece.fin, piece.buf);
            self.early_len -= buf.len();
            self.early_memory -= memory_of(&buf);
            buf.trim_front(distance(piece.seq, next)); // what the last segment brought already
            if !buf.is_empty() {
                self.push(buf);
            }
            next = later(next, end);
            if fin && end == next {
                return (next, true);
            }
        }
        (next, false)
    }

    /// What to report as received out of order: merged runs, the most recent first.
    pub(super) fn sack_blocks(&self) -> impl Iterator<Item = SackBlock> {
        let mut runs: Vec<SackBlock> = Vec::new();
        for piece in &self.early {
            match runs.last_mut() {
                Some(run) if run.1 == piece.seq => run.1 = piece.end(),
                _ => runs.push((piece.seq, piece.end())),
            }
        }
        let recent = |run: &SackBlock| !before(self.latest, run.0) && before(self.latest, run.1);
        runs.sort_by_key(|run| !recent(run));
        runs.into_iter().filter(|(l, r)| l != r)
    }

    /// Copies ready bytes to `dst` and, unless `peek`, drops them. `EFAULT` if nothing could be copied.
    pub(super) fn read(&mut self, dst: &mut IoDst<'_>, peek: bool) -> Result<usize> {
        let mut done = 0;
        let mut at = 0;
        while dst.remaining() > 0 {
            let Some(buf) = self.ready.get_mut(at) else {
                break;
            };
            let want = buf.len().min(dst.remaining());
            let copied = match dst.write(buf.data()) {
                Ok(copied) => copied,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            done += copied;
            if peek {
                at += 1;
            } else if copied == buf.len() {
                self.ready.pop_front();
            } else {
                buf.trim_front(copied);
            }
            if copied < want {
                break;
            }
        }
        if !peek {
            self.len -= done;
            if self.len == 0 && self.ready.capacity() > 16 {
                self.ready = VecDeque::new();
            }
        }
        Ok(done)
    }

    /// Drops up to `count` ready bytes (`MSG_TRUNC` of a stream).
    pub(super) fn discard(&mut self, count: usize) -> usize {
        let mut left = count.min(self.len);
        let done = left;
        self.len -= left;
        while left > 0 {
            let Some(buf) = self.ready.front_mut() else {
                break;
            };
            if buf.len() <= left {
                left -= buf.len();
                self.ready.pop_front();
            } else {
                buf.trim_front(left);
                left = 0;
            }
        }
        done
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Strategy, any, proptest};
    use proptest::prop_assert_eq;

    /// Pieces of a stream in any order, with repetitions and overlaps.
    fn pieces() -> impl Strategy<Value = Vec<(usize, usize)>> {
        proptest::collection::vec((0..500usize, 1..60usize), 1..80)
    }

    proptest! {
        #[test]
        fn every_byte_arrives_once_and_in_order(list in pieces(), start in any::<u32>()) {
            let stream: Vec<u8> = (0..600usize).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let mut queue = ReceiveQueue::default();
            let mut next = start;
            // At the end each byte is offered once more, so that nothing is missing.
            let again = (0..560).step_by(40).map(|at| (at, 40));
            for (at, len) in list.into_iter().chain(again) {
                let mut seq = plus(start, at);
                let mut buf = PacketBuf::new(0, 2000);
                buf.append(len).copy_from_slice(&stream[at..at + len]);
                if before(seq, next) {
                    buf.trim_front(distance(seq, next));
                    seq = next;
                }
                if buf.is_empty() {
                    continue;
                }
                if seq == next {
                    next = plus(next, buf.len());
                    queue.push(buf);
                    next = queue.close_gap(next).0;
                } else {
                    queue.push_early(seq, buf, false, 1 << 20);
                }
                prop_assert_eq!(queue.len(), distance(start, next));
            }
            prop_assert_eq!((queue.early_len, queue.early_memory, queue.has_gap()), (0, 0, false));
            let mut out = vec![0; 600];
            let count = queue.read(&mut IoDst::kernel(&mut out), false).unwrap();
            prop_assert_eq!(&out[..count], &stream[..distance(start, next)]);
        }
    }
}
