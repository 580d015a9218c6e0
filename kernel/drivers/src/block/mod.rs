// SPDX-License-Identifier: Apache-2.0
//! Disks (virtio 1.2, 5.2).
//!
//! A request is a chain: a header, the pages, a byte for the outcome. Several are in flight, of any number of threads; the
//! token of each owns its memory, so a device that never answers keeps it and nothing else can get hurt. Threads sleep
//! until the interrupt; before threads run, the one waiter looks at the ring.

mod request;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::{u64_from, usize_from, usize_from_u32};
use coracle_abi::{Errno, PAGE_SIZE, PollEvents};
use coracle_core::Result;
use coracle_core::device::{BlockDevice, InterruptHandler};
use coracle_core::memory::Page;
use coracle_core::poll::PollSource;
use coracle_core::sync::SpinLock;

use crate::error::DriverError;
use crate::ring::Virtqueue;
use crate::signal::Signal;
use crate::transport::{self, Transport, feature};
use request::{Completion, Kind, Request};

pub(crate) const NAME: &str = "virtio-blk";

/// Feature bits (5.2.3).
mod bit {
    pub(super) const SEG_MAX: u64 = 1 << 2;
    pub(super) const RO: u64 = 1 << 5;
    pub(super) const FLUSH: u64 = 1 << 9;
}

/// Configuration (5.2.4), by offset.
mod config {
    pub(super) const CAPACITY: usize = 0;
    pub(super) const SEG_MAX: usize = 12;
    pub(super) const LEN: usize = 16;
}

/// Entries of the queue: seven requests of 128 KiB, or 85 of one page.
const QUEUE_SIZE: u16 = 256;
/// Most pages of one request; longer transfers are cut.
const MAX_PAGES: usize = 64;
/// Bytes of a sector, whatever the device's block size (5.2.4).
const SECTOR: u64 = 512;

/// A virtio disk.
pub struct VirtioBlock {
    transport: Arc<dyn Transport>,
    queue: SpinLock<Virtqueue<Request>>,
    /// Notified when the full queue has room again.
    room: PollSource,
    sectors: u64,
    read_only: bool,
    /// The device has a cache that must be flushed.
    has_flush: bool,
    /// Most pages of one request.
    most_pages: usize,
}

impl VirtioBlock {
    /// Starts the device. Must be a disk.
    pub fn new(transport: Arc<dyn Transport>) -> Result<Arc<Self>, DriverError> {
        let features = transport::negotiate(&*transport, NAME, |_| {
            bit::SEG_MAX | bit::RO | bit::FLUSH | feature::EVENT_IDX
        })?;
        transport::require_config(&*transport, NAME, config::LEN)?;
        let has = |bit| features & bit != 0;
        let (low, high, segments) = transport::read_config(&*transport, |config| {
            let capacity = |offset| u64::from(config.read32(config::CAPACITY + offset));
            (
                capacity(0),
                capacity(4),
                has(bit::SEG_MAX).then(|| config.read32(config::SEG_MAX)),
            )
        });
        let signal = Arc::new(Signal::default());
        let handler: Arc<dyn InterruptHandler> = signal.clone();
        let queue =
            transport::make_queue::<Request>(&*transport, NAME, 0, QUEUE_SIZE, features, &handler)?;
        // A header and the outcome take a place each.
        let places = usize::from(queue.size()).saturating_sub(2);
        if places == 0 {
            return Err(DriverError::new(
                NAME,
                crate::error::Reason::MissingQueue(0),
            ));
        }
        let segments = segments.map_or(1, usize_from_u32);
        transport::start(&*transport);
        let this = Arc::new(Self {
            transport,
            queue: SpinLock::new(queue),
            room: PollSource::new(),
            sectors: high << 32 | low,
            read_only: has(bit::RO),
            has_flush: has(bit::FLUSH),
            most_pages: segments.clamp(1, places.min(MAX_PAGES)),
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
        let mut done: [Option<Arc<Completion>>; 16] = [const { None }; 16];
        loop {
            let mut count = 0;
            {
                let mut queue = self.queue.lock();
                while count < done.len() {
                    match queue.pop_used() {
                        Some((request, written)) => {
                            done[count] = Some(request.finish(written));
                            count += 1;
                        }
                        None if queue.enable_interrupts() => {}
                        None => break,
                    }
                }
            }
            for completion in done.iter_mut().filter_map(Option::take) {
                completion.tell();
            }
            if count > 0 {
                self.room.notify(PollEvents::OUT);
            }
            if count < done.len() {
                return;
            }
        }
    }

    fn is_broken(&self) -> bool {
        self.queue.lock().is_broken()
    }

    /// Hands a request to the device, when there is room for it.
    fn submit(&self, request: Request) -> Result<Arc<Completion>> {
        let completion = request.completion().clone();
        let mut waiting = Some(request);
        let mut broken = false;
        let mut attempt = || {
            let Some(request) = waiting.take() else {
                return true;
            };
            let mut queue = self.queue.lock();
            if queue.is_broken() {
                broken = true;
                return true;
            }
            match request.add_to(&mut queue) {
                Ok(()) => {
                    let notify = queue.should_notify();
                    let index = queue.index();
                    drop(queue);
                    if notify {
                        self.transport.notify(index);
                    }
                    true
                }
                Err(request) => {
                    waiting = Some(request);
                    false
                }
            }
        };
        if !attempt() {
            self.room.wait(|| {
                self.serve();
                attempt()
            });
        }
        if broken {
            return Err(Errno::EIO);
        }
        Ok(completion)
    }

    fn finish(&self, completion: &Completion) -> Result<()> {
        completion.wait(|| {
            self.serve();
            self.is_broken()
        })
    }

    /// Moves whole pages, in as many requests as it takes, all in flight together.
    fn transfer(&self, kind: Kind, sector: u64, pages: &[Page]) -> Result<()> {
        let bytes = sector
            .checked_mul(SECTOR)
            .and_then(|at| (self.sectors.saturating_mul(SECTOR)).checked_sub(at))
            .ok_or(Errno::EIO)?;
        let wanted = u64_from(pages.len() * PAGE_SIZE);
        // The last page may reach beyond the end of a device whose length is no multiple of a page.
        if wanted >= bytes + u64_from(PAGE_SIZE) {
            return Err(Errno::EIO);
        }
        let mut left = usize_from(wanted.min(bytes));
        let mut result = Ok(());
        let mut flying: Vec<Arc<Completion>> = Vec::new();
        for (n, part) in pages.chunks(self.most_pages).enumerate() {
            let len = left.min(part.len() * PAGE_SIZE);
            left -= len;
            let at = sector + u64_from(n * self.most_pages * PAGE_SIZE) / SECTOR;
            match self.submit(Request::new(kind, at, part.to_vec(), len)) {
                Ok(completion) => flying.push(completion),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        for completion in flying {
            result = result.and(self.finish(&completion));
        }
        result
    }
}

impl BlockDevice for VirtioBlock {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, sector: u64, pages: &[Page]) -> Result<()> {
        self.transfer(Kind::Read, sector, pages)
    }

    fn write(&self, sector: u64, pages: &[Page]) -> Result<()> {
        if self.read_only {
            return Err(Errno::EROFS);
        }
        self.transfer(Kind::Write, sector, pages)
    }

    fn flush(&self) -> Result<()> {
        if !self.has_flush {
            return Ok(()); // the device writes through (5.2.5)
        }
        let completion = self.submit(Request::new(Kind::Flush, 0, Vec::new(), 0))?;
        self.finish(&completion)
    }
}

impl InterruptHandler for VirtioBlock {
    fn on_interrupt(&self) -> bool {
        let ours = self.transport.acknowledge();
        if ours {
            self.serve();
        }
        ours
    }
}

impl Drop for VirtioBlock {
    fn drop(&mut self) {
        // The device must not touch the pages once they are freed.
        self.transport.set_status(0);
    }
}
