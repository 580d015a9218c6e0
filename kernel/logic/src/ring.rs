// SPDX-License-Identifier: Apache-2.0
//! A first-in, first-out queue of bytes for pipes and sockets.
//!
//! It starts without memory, doubles as it fills up to a limit, and gives its memory back when asked while empty, so
//! thousands of idle connections cost little. Contents and free space are each at most two slices, so data is copied
//! once, straight from or to where the caller has it.

use alloc::vec;
use alloc::vec::Vec;

/// The first allocation, in bytes, unless the limit is smaller.
const FIRST_CAPACITY: usize = 4096;

/// Bytes in order of arrival, at most `limit` of them.
#[derive(Debug, Default)]
pub struct ByteRing {
    /// The whole length is usable; not only what is filled.
    storage: Vec<u8>,
    start: usize,
    len: usize,
    limit: usize,
}

impl ByteRing {
    /// An empty ring that will hold at most `limit` bytes; does not allocate.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            storage: Vec::new(),
            start: 0,
            len: 0,
            limit,
        }
    }

    /// Bytes waiting.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes fit at most.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// How many more bytes fit before the limit.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.limit.saturating_sub(self.len)
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Changes the limit. What already waits stays, even if it is more.
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Appends as much of `data` as fits and returns how much that was.
    pub fn push(&mut self, data: &[u8]) -> usize {
        let (first, second) = self.spare(data.len());
        let (n, m) = (first.len(), second.len());
        first.copy_from_slice(&data[..n]);
        second.copy_from_slice(&data[n..n + m]);
        self.commit(n + m);
        n + m
    }

    /// Room for up to `want` more bytes as two slices to be filled in order, followed by [`commit`](Self::commit).
    /// Together they are shorter than `want` only if the limit is near. Their contents are unspecified.
    pub fn spare(&mut self, want: usize) -> (&mut [u8], &mut [u8]) {
        let want = want.min(self.free());
        self.reserve(want);
        let end = self.start + self.len;
        let capacity = self.storage.len();
        let (head, tail) = if end < capacity {
            let (head, tail) = self.storage.split_at_mut(end);
            (tail, head)
        } else {
            let (_, gap) = self.storage.split_at_mut(end - capacity);
            (gap, Default::default())
        };
        let first = want.min(head.len());
        (&mut head[..first], &mut tail[..want - first])
    }

    /// Makes the first `count` bytes of the last [`spare`](Self::spare) part of the contents.
    ///
    /// # Panics
    /// If `count` is more than the memory there is.
    pub fn commit(&mut self, count: usize) {
        assert!(
            count <= self.storage.len() - self.len,
            "more bytes committed than there was room for"
        );
        self.len += count;
    }

    /// The contents as two slices, oldest bytes first.
    #[must_use]
    pub fn peek(&self) -> (&[u8], &[u8]) {
        self.peek_range(0, self.len)
    }

    /// Up to `len` bytes of the contents, from `offset` on, as two slices.
    #[must_use]
    pub fn peek_range(&self, offset: usize, len: usize) -> (&[u8], &[u8]) {
        let offset = offset.min(self.len);
        let len = len.min(self.len - offset);
        let capacity = self.storage.len();
        let begin = self.start + offset;
        if begin >= capacity {
            // Also the ring without memory: all of these are zero then.
            let begin = begin - capacity;
            return (&self.storage[begin..begin + len], &[]);
        }
        let first = len.min(capacity - begin);
        (
            &self.storage[begin..begin + first],
            &self.storage[..len - first],
        )
    }

    /// Drops the oldest `count` bytes, or all if there are fewer.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.len);
        self.len -= count;
        self.start += count;
        if self.start >= self.storage.len() {
            self.start -= self.storage.len();
        }
        if self.len == 0 {
            self.start = 0;
        }
    }

    /// Copies the oldest bytes to `out`, drops them, and returns how many there were.
    pub fn pop(&mut self, out: &mut [u8]) -> usize {
        let (first, second) = self.peek_range(0, out.len());
        let (n, m) = (first.len(), second.len());
        out[..n].copy_from_slice(first);
        out[n..n + m].copy_from_slice(second);
        self.consume(n + m);
        n + m
    }

    /// Gives the memory back if the ring is empty.
    pub fn release_if_empty(&mut self) {
        if self.len == 0 {
            self.storage = Vec::new();
            self.start = 0;
        }
    }

    /// Makes room for `more` bytes.
    fn reserve(&mut self, more: usize) {
        let need = self.len + more;
        if need <= self.storage.len() {
            return;
        }
        let capacity = need
            .max(2 * self.storage.len())
            .max(FIRST_CAPACITY)
            .min(self.limit.max(need));
        let mut grown = vec![0; capacity];
        let (first, second) = self.peek();
        grown[..first.len()].copy_from_slice(first);
        grown[first.len()..self.len].copy_from_slice(second);
        self.storage = grown;
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::ByteRing;
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};
    use proptest::{prop_assert, prop_assert_eq};
    use std::collections::VecDeque;

    #[test]
    fn memory_follows_use() {
        let mut ring = ByteRing::new(65536);
        assert_eq!((ring.capacity(), ring.peek()), (0, (&[][..], &[][..])));
        ring.consume(5);
        assert_eq!(ring.push(&[7; 100]), 100);
        assert_eq!(ring.capacity(), 4096);
        assert_eq!(ring.push(&[7; 100_000]), 65436);
        assert_eq!((ring.capacity(), ring.free()), (65536, 0));
        ring.release_if_empty();
        assert_eq!(ring.capacity(), 65536);
        ring.consume(usize::MAX);
        ring.release_if_empty();
        assert_eq!(ring.capacity(), 0);
    }

    #[test]
    fn a_lowered_limit_keeps_what_is_there() {
        let mut ring = ByteRing::new(16);
        assert_eq!(ring.push(b"0123456789"), 10);
        ring.set_limit(4);
        assert_eq!((ring.free(), ring.push(b"x")), (0, 0));
        let mut out = [0; 8];
        assert_eq!(ring.pop(&mut out), 8);
        assert_eq!((&out, ring.push(b"abc")), (b"01234567", 2));
        assert_eq!(ring.len(), 4);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Push(Vec<u8>),
        Pop(usize),
        Consume(usize),
        Release,
        Limit(usize),
    }

    proptest! {
        #[test]
        fn behaves_like_a_deque(ops in proptest::collection::vec(prop_oneof![
            5 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Op::Push),
            3 => (0..50usize).prop_map(Op::Pop),
            2 => (0..50usize).prop_map(Op::Consume),
            1 => (0..1usize).prop_map(|_| Op::Release),
            1 => (0..100usize).prop_map(Op::Limit),
        ], 1..100), peek in (0..80usize, 0..80usize)) {
            let mut limit = 64;
            let mut ring = ByteRing::new(limit);
            let mut model: VecDeque<u8> = VecDeque::new();
            for op in ops {
                match op {
                    Op::Push(data) => {
                        let n = data.len().min(limit.saturating_sub(model.len()));
                        prop_assert_eq!(ring.push(&data), n);
                        model.extend(&data[..n]);
                    }
                    Op::Pop(n) => {
                        let mut out = vec![0; n];
                        let got = ring.pop(&mut out);
                        let expected: Vec<u8> = model.drain(..n.min(model.len())).collect();
                        prop_assert_eq!(&out[..got], &expected[..]);
                    }
                    Op::Consume(n) => {
                        ring.consume(n);
                        model.drain(..n.min(model.len()));
                    }
                    Op::Release => ring.release_if_empty(),
                    Op::Limit(new) => {
                        limit = new;
                        ring.set_limit(new);
                    }
                }
                let (a, b) = ring.peek();
                prop_assert_eq!([a, b].concat(), model.iter().copied().collect::<Vec<_>>());
                prop_assert!(ring.capacity() <= 100);
                let (a, b) = ring.peek_range(peek.0, peek.1);
                prop_assert_eq!([a, b].concat(), model.iter().copied().skip(peek.0).take(peek.1).collect::<Vec<_>>());
            }
        }
    }
}
