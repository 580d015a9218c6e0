// SPDX-License-Identifier: Apache-2.0
//! Shares of the host's files (virtio 1.2, device 9; what goes through it is 9P, see `coracle_fs::ninep`).
//!
//! A request is a chain: the message, pages with the data of a write, room for the answer, pages for the data of a read.
//! Several are in flight, of any number of threads; the token of each owns its memory, so a device that never answers
//! keeps it and nothing else can get hurt. Threads sleep until the interrupt; before threads run, the one waiter looks at
//! the ring.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::usize_from_u32;
use coracle_abi::{Errno, PAGE_SIZE, PollEvents};
use coracle_core::Result;
use coracle_core::device::{InterruptHandler, Message, ShareDevice};
use coracle_core::memory::Page;
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;

use crate::error::{DriverError, Reason};
use crate::ring::{Span, Virtqueue};
use crate::signal::Signal;
use crate::transport::{self, Transport, feature};

pub(crate) const NAME: &str = "virtio-9p";

/// `VIRTIO_9P_MOUNT_TAG`: the configuration holds the name of the share.
const MOUNT_TAG: u64 = 1;
/// Entries of the queue; QEMU has 128.
const QUEUE_SIZE: u16 = 128;
/// Most pages of one message, so that several fit into the queue.
const MAX_PAGES: usize = 32;

/// A request on its way.
struct Request {
    message: Message,
    /// Where the answer goes; nobody waits for that of a message that was posted.
    answer: Option<Arc<Answer>>,
}

/// Where the sender of a message waits.
#[derive(Default)]
struct Answer {
    /// The message and the bytes that were written into it.
    done: SpinLock<Option<(Message, usize)>>,
    source: PollSource,
}

/// A virtio share.
pub struct VirtioShare {
    transport: Arc<dyn Transport>,
    queue: SpinLock<Virtqueue<Request>>,
    /// Notified when the full queue has room again.
    room: PollSource,
    tag: String,
    most_pages: usize,
}

impl VirtioShare {
    /// Starts the device. Must be a 9P transport.
    pub fn new(transport: Arc<dyn Transport>) -> Result<Arc<Self>, DriverError> {
        let features = transport::negotiate(&*transport, NAME, |_| MOUNT_TAG | feature::EVENT_IDX)?;
        if features & MOUNT_TAG == 0 {
            return Err(DriverError::new(
                NAME,
                Reason::MissingFeature("VIRTIO_9P_MOUNT_TAG"),
            ));
        }
        transport::require_config(&*transport, NAME, 2)?;
        let config = transport.config();
        let len = usize::from(config.read16(0));
        transport::require_config(&*transport, NAME, 2 + len)?;
        let tag: Vec<u8> = (0..len).map(|at| config.read8(2 + at)).collect();
        let signal = Arc::new(Signal::default());
        let handler: Arc<dyn InterruptHandler> = signal.clone();
        let queue =
            transport::make_queue::<Request>(&*transport, NAME, 0, QUEUE_SIZE, features, &handler)?;
        let size = usize::from(queue.size());
        if size < 4 {
            return Err(DriverError::new(NAME, Reason::MissingQueue(0)));
        }
        transport::start(&*transport);
        let this = Arc::new(Self {
            transport,
            queue: SpinLock::new(queue),
            room: PollSource::new(),
            tag: String::from_utf8_lossy(&tag).into_owned(),
            // The message and the answer take a place each.
            most_pages: (size - 2).min(MAX_PAGES),
        });
        signal.serve(&this, Self::serve);
        this.serve(); // asks for interrupts
        Ok(this)
    }

    /// Whether interrupts come over a line, to be attached by the caller to this device's [`InterruptHandler`].
    pub fn has_line(&self) -> bool {
        self.transport.has_line()
    }

    /// Takes back what the device has finished, and wakes those who wait for it.
    fn serve(&self) {
        let mut any = false;
        loop {
            let mut queue = self.queue.lock();
            let Some((request, written)) = queue.pop_used() else {
                if queue.enable_interrupts() {
                    continue;
                }
                break;
            };
            drop(queue);
            any = true;
            if let Some(answer) = request.answer {
                *answer.done.lock() = Some((request.message, usize_from_u32(written)));
                answer.source.notify(PollEvents::IN);
            }
        }
        if any {
            self.room.notify(PollEvents::OUT);
        }
    }

    /// Puts the request into the queue and tells the device. Leaves it where it is if there is no room now, or never will
    /// be.
    fn submit(&self, waiting: &mut Option<Request>) -> Submitted {
        let Some(request) = waiting.take() else {
            return Submitted::Sent;
        };
        let mut queue = self.queue.lock();
        if queue.is_broken() {
            return Submitted::Never;
        }
        let (spans, request) = spans(request);
        if let Err(request) = queue.add(&spans, request) {
            *waiting = Some(request);
            return Submitted::NotNow;
        }
        let notify = queue.should_notify();
        let index = queue.index();
        drop(queue);
        if notify {
            self.transport.notify(index);
        }
        Submitted::Sent
    }
}

#[derive(PartialEq, Eq)]
enum Submitted {
    Sent,
    NotNow,
    Never,
}

/// The memory of a request as the device sees it.
fn spans(mut request: Request) -> (Vec<Span>, Request) {
    let message = &mut request.message;
    let mut spans = Vec::with_capacity(2 + message.sent.0.len() + message.received.0.len());
    let part = |left: &mut usize| {
        let step = (*left).min(PAGE_SIZE);
        *left -= step;
        step
    };
    spans.push(Span::readable(&message.request));
    let (pages, mut left) = (&message.sent.0, message.sent.1);
    spans.extend(
        pages
            .iter()
            .map(|page| Span::page(page, 0, part(&mut left))),
    );
    spans.push(Span::writable(&mut message.answer));
    let (pages, mut left) = (&message.received.0, message.received.1);
    spans.extend(
        pages
            .iter()
            .map(|page| Span::writable_page(page, part(&mut left))),
    );
    (spans, request)
}

/// Whether the message has the form that a chain can carry: no piece is empty, and its pages hold what they are said to.
fn is_sound(message: &Message, most_pages: usize) -> bool {
    let fits = |(pages, len): &(Vec<Page>, usize)| len.div_ceil(PAGE_SIZE) == pages.len();
    !message.request.is_empty()
        && !message.answer.is_empty()
        && fits(&message.sent)
        && fits(&message.received)
        && message.sent.0.len() + message.received.0.len() <= most_pages
}

impl ShareDevice for VirtioShare {
    fn tag(&self) -> &str {
        &self.tag
    }

    fn most_pages(&self) -> usize {
        self.most_pages
    }

    fn exchange(&self, message: Message) -> Result<(Message, usize)> {
        if !is_sound(&message, self.most_pages) {
            return Err(Errno::EINVAL);
        }
        let answer = Arc::new(Answer::default());
        let mut waiting = Some(Request {
            message,
            answer: Some(answer.clone()),
        });
        let mut outcome = Submitted::NotNow;
        self.room.wait(|| {
            outcome = self.submit(&mut waiting);
            if outcome == Submitted::NotNow {
                self.serve();
            }
            outcome != Submitted::NotNow
        });
        if outcome == Submitted::Never {
            return Err(Errno::EIO);
        }
        let is_done = || answer.done.lock().is_some();
        answer.source.wait(|| {
            if is_done() {
                return true;
            }
            self.serve();
            is_done() || self.queue.lock().is_broken()
        });
        answer.done.lock().take().ok_or(Errno::EIO)
    }

    fn post(&self, message: Message) -> bool {
        if !is_sound(&message, self.most_pages) {
            return false;
        }
        let request = Request {
            message,
            answer: None,
        };
        self.submit(&mut Some(request)) == Submitted::Sent
    }
}

impl InterruptHandler for VirtioShare {
    fn on_interrupt(&self) -> bool {
        let ours = self.transport.acknowledge();
        if ours {
            self.serve();
        }
        ours
    }
}

impl Drop for VirtioShare {
    fn drop(&mut self) {
        // The device must not touch the memory once it is freed.
        self.transport.set_status(0);
    }
}
