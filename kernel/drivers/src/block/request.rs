// SPDX-License-Identifier: Apache-2.0
//! One request to a disk (virtio 1.2, 5.2.6), and how its end is told.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use coracle_abi::convert::{u64_from, usize_from_u32};
use coracle_abi::{Errno, PAGE_SIZE, PollEvents};
use coracle_core::Result;
use coracle_core::memory::Page;
use coracle_core::poll::PollSource;

use crate::ring::{Span, Virtqueue};

/// What a request does; the value is its type on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `VIRTIO_BLK_T_IN`
    Read = 0,
    /// `VIRTIO_BLK_T_OUT`
    Write = 1,
    /// `VIRTIO_BLK_T_FLUSH`
    Flush = 4,
}

/// Bytes of the header; the outcome follows it in the same piece of memory.
const HEADER: usize = 16;
/// `VIRTIO_BLK_S_OK`
const OK: u8 = 0;
/// No answer yet: a value that no device gives.
const NONE: u8 = 0xff;

/// Where the one who made a request waits for its end.
#[derive(Default)]
pub(super) struct Completion {
    done: AtomicBool,
    outcome: AtomicU8,
    source: PollSource,
}

impl Completion {
    /// Says that the request is done. Called without locks: it wakes a thread.
    pub(super) fn tell(&self) {
        self.done.store(true, Ordering::Release);
        self.source.notify(PollEvents::IN);
    }

    /// Sleeps until the request is done, or `give_up` says that it never will be. `give_up` is asked at each look and
    /// serves the device. `EIO` if the device failed.
    pub(super) fn wait(&self, give_up: impl Fn() -> bool) -> Result<()> {
        let done = || self.done.load(Ordering::Acquire);
        self.source.wait(|| done() || give_up() || done());
        if done() && self.outcome.load(Ordering::Relaxed) == OK {
            Ok(())
        } else {
            Err(Errno::EIO)
        }
    }
}

/// A request with all memory that the device uses for it.
pub(super) struct Request {
    kind: Kind,
    /// The header, and the outcome behind it.
    frame: Box<[u8; HEADER + 1]>,
    pages: Vec<Page>,
    /// Bytes to be moved; less than the pages hold at the end of a disk.
    len: usize,
    completion: Arc<Completion>,
}

impl Request {
    /// A request that moves `len` bytes between the disk from `sector` on and the pages.
    pub(super) fn new(kind: Kind, sector: u64, pages: Vec<Page>, len: usize) -> Self {
        let mut frame = Box::new([0; HEADER + 1]);
        frame[0] = kind as u8; // `type`, 32 bits; `reserved` stays zero
        frame[8..HEADER].copy_from_slice(&sector.to_le_bytes());
        frame[HEADER] = NONE;
        Self {
            kind,
            frame,
            pages,
            len,
            completion: Arc::default(),
        }
    }

    pub(super) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }

    /// Puts it into the queue, or gives it back when the queue is full.
    pub(super) fn add_to(mut self, queue: &mut Virtqueue<Self>) -> Result<(), Self> {
        let (header, outcome) = self.frame.split_at_mut(HEADER);
        let mut spans = Vec::with_capacity(self.pages.len() + 2);
        spans.push(Span::readable(header));
        let mut left = self.len;
        for page in &self.pages {
            let step = left.min(PAGE_SIZE);
            left -= step;
            spans.push(match self.kind {
                Kind::Read => Span::writable_page(page, step),
                Kind::Write | Kind::Flush => Span::page(page, 0, step),
            });
        }
        spans.push(Span::writable(outcome));
        queue.add(&spans, self)
    }

    /// Notes the outcome after the device wrote `written` bytes; the caller tells it once it holds no lock.
    pub(super) fn finish(self, written: u32) -> Arc<Completion> {
        let expected = match self.kind {
            Kind::Read => self.len + 1,
            Kind::Write | Kind::Flush => 1,
        };
        // A device that says it wrote less than it should have has not done its work, whatever the outcome says.
        let whole = u64_from(usize_from_u32(written)) >= u64_from(expected);
        let outcome = if whole { self.frame[HEADER] } else { NONE };
        self.completion.outcome.store(outcome, Ordering::Relaxed);
        self.completion
    }
}
