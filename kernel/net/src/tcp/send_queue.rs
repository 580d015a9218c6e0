// SPDX-License-Identifier: Apache-2.0
//! Bytes on their way out: written by the application, kept until acknowledged, sent from where they lie.
//!
//! The queue is a list of chunks. A chunk that was lent to the device (as a fragment) is counted and never changed
//! again; small payloads are copied into the packet's head instead, so their chunk stays ours and further small writes
//! fill it up.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_core::Result;
use coracle_core::io::IoSrc;
use coracle_core::memory::Page;
use coracle_core::packet::{Fragment, PacketBuf};

/// Chunk sizes: one for a short answer, one for a stream (both fill a size class of the packet pool).
const SMALL_CHUNK: usize = 2048;
const LARGE_CHUNK: usize = 4096;

enum Storage {
    Owned(PacketBuf),
    Shared(Arc<PacketBuf>),
    Page {
        page: Page,
        offset: usize,
        len: usize,
    },
    /// Taken out for a moment; never seen outside `fragment`.
    Moving,
}

impl Storage {
    fn len(&self) -> usize {
        match self {
            Self::Owned(buf) => buf.len(),
            Self::Shared(buf) => buf.len(),
            Self::Page { len, .. } => *len,
            Self::Moving => 0,
        }
    }

    fn copy(&self, from: usize, out: &mut [u8]) {
        match self {
            Self::Owned(buf) => out.copy_from_slice(&buf.data()[from..from + out.len()]),
            Self::Shared(buf) => out.copy_from_slice(&buf.data()[from..from + out.len()]),
            Self::Page { page, offset, .. } => page.read(offset + from, out),
            Self::Moving => {}
        }
    }

    fn fragment(&mut self, from: usize, len: usize) -> Fragment {
        if let Self::Owned(_) = self
            && let Self::Owned(buf) = core::mem::replace(self, Self::Moving)
        {
            *self = Self::Shared(Arc::new(buf));
        }
        match self {
            Self::Shared(buf) => Fragment::Buffer {
                buffer: buf.clone(),
                offset: from,
                len,
            },
            Self::Page { page, offset, .. } => Fragment::Page {
                page: page.clone(),
                offset: *offset + from,
                len,
            },
            Self::Owned(_) | Self::Moving => unreachable!("an owned chunk was shared above"),
        }
    }
}

/// Where in the list an offset was found, to go on from there.
#[derive(Clone, Copy, Default)]
struct Place {
    chunk: usize,
    /// Offset of the chunk's first byte, counted from the first byte of the first chunk.
    base: usize,
}

/// Unacknowledged and unsent bytes.
#[derive(Default)]
pub(super) struct SendQueue {
    chunks: VecDeque<Storage>,
    /// Bytes of the first chunk that are acknowledged already.
    skip: usize,
    len: usize,
    last: Place,
}

impl SendQueue {
    /// Bytes from the first unacknowledged one on.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends at most `limit` bytes of `src`; returns how many. Errors as [`IoSrc::read`], if nothing was copied.
    pub(super) fn push(&mut self, src: &mut IoSrc<'_>, limit: usize) -> Result<usize> {
        let mut done = 0;
        while done < limit && src.remaining() > 0 {
            let want = (limit - done).min(src.remaining());
            let room = match self.chunks.back_mut() {
                Some(Storage::Owned(buf)) if buf.tailroom() > 0 => buf,
                _ => {
                    let size = if want > SMALL_CHUNK {
                        LARGE_CHUNK
                    } else {
                        SMALL_CHUNK
                    };
                    self.chunks
                        .push_back(Storage::Owned(PacketBuf::new(0, size)));
                    continue;
                }
            };
            let step = want.min(room.tailroom());
            let before = room.len();
            let copied = src.read(room.append(step));
            let count = *copied.as_ref().unwrap_or(&0);
            room.truncate(before + count);
            self.len += count;
            done += count;
            if count < step {
                if before + count == 0 {
                    self.chunks.pop_back();
                }
                if done == 0 {
                    return copied;
                }
                break;
            }
        }
        Ok(done)
    }

    /// Appends part of a page without copying it.
    pub(super) fn push_page(&mut self, page: Page, offset: usize, len: usize) {
        if len > 0 {
            self.chunks.push_back(Storage::Page { page, offset, len });
            self.len += len;
        }
    }

    /// Forgets the first `count` bytes.
    pub(super) fn acknowledge(&mut self, count: usize) {
        self.len -= count;
        self.skip += count;
        while let Some(first) = self.chunks.front() {
            let len = first.len();
            if self.skip < len {
                break;
            }
            self.skip -= len;
            self.chunks.pop_front();
            if self.last.chunk > 0 {
                self.last.chunk -= 1;
                self.last.base -= len;
            } else {
                self.last = Place::default();
            }
        }
    }

    /// The chunk with the byte at `offset`, and where in it.
    fn find(&mut self, offset: usize) -> (usize, usize) {
        let target = self.skip + offset;
        if target < self.last.base {
            self.last = Place::default();
        }
        while let Some(chunk) = self.chunks.get(self.last.chunk) {
            if target < self.last.base + chunk.len() {
                break;
            }
            self.last.base += chunk.len();
            self.last.chunk += 1;
        }
        (self.last.chunk, target - self.last.base)
    }

    /// Copies the bytes at `offset` to `out`; they are in the queue.
    pub(super) fn copy(&mut self, offset: usize, out: &mut [u8]) {
        let (mut chunk, mut from) = self.find(offset);
        let mut done = 0;
        while done < out.len() {
            let storage = &self.chunks[chunk];
            let step = (storage.len() - from).min(out.len() - done);
            storage.copy(from, &mut out[done..done + step]);
            done += step;
            chunk += 1;
            from = 0;
        }
    }

    /// Lends the `len` bytes at `offset` as at most `most` fragments; returns how many bytes that covered.
    pub(super) fn lend(
        &mut self,
        offset: usize,
        len: usize,
        most: usize,
        out: &mut Vec<Fragment>,
    ) -> usize {
        let (mut chunk, mut from) = self.find(offset);
        let mut done = 0;
        while done < len && out.len() < most {
            let storage = &mut self.chunks[chunk];
            let step = (storage.len() - from).min(len - done);
            out.push(storage.fragment(from, step));
            done += step;
            chunk += 1;
            from = 0;
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
    use crate::packet::copy_fragment;
    use proptest::prelude::{any, proptest};
    use proptest::prop_assert_eq;

    proptest! {
        #[test]
        fn is_a_queue_of_bytes(ops in proptest::collection::vec((0..4u8, any::<u16>(), any::<u16>()), 1..60)) {
            let mut queue = SendQueue::default();
            let mut model: Vec<u8> = Vec::new();
            let mut next = 0u8;
            for (op, a, b) in ops {
                let (a, b) = (usize::from(a), usize::from(b));
                match op {
                    0 => {
                        let data: Vec<u8> = (0..a % 9000).map(|_| { next = next.wrapping_add(7); next }).collect();
                        let pushed = queue.push(&mut IoSrc::kernel(&data), data.len()).unwrap();
                        prop_assert_eq!(pushed, data.len());
                        model.extend(data);
                    }
                    1 => {
                        let count = a % (model.len() + 1);
                        queue.acknowledge(count);
                        model.drain(..count);
                    }
                    _ if model.is_empty() => {}
                    2 => {
                        let at = a % model.len();
                        let mut out = vec![0; b % (model.len() - at + 1)];
                        if !out.is_empty() {
                            queue.copy(at, &mut out);
                            prop_assert_eq!(&out[..], &model[at..at + out.len()]);
                        }
                    }
                    _ => {
                        let at = a % model.len();
                        let len = b % (model.len() - at) + 1;
                        let mut fragments = Vec::new();
                        let lent = queue.lend(at, len, 5, &mut fragments);
                        let mut bytes = vec![0; lent];
                        let mut done = 0;
                        for f in &fragments {
                            copy_fragment(f, &mut bytes[done..done + f.len()]);
                            done += f.len();
                        }
                        prop_assert_eq!(&bytes[..], &model[at..at + lent]);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
        }
    }
}
