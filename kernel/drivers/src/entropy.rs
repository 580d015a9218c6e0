// SPDX-License-Identifier: Apache-2.0
//! Random bytes from the host (virtio 1.2, 5.4). Used rarely and for few bytes, so the device is polled.

use alloc::boxed::Box;
use alloc::sync::Arc;

use coracle_abi::convert::usize_from_u32;
use coracle_arch::cpu;
use coracle_core::device::{EntropyDevice, InterruptHandler};
use coracle_core::sync::SpinLock;
use coracle_core::time;

use crate::error::DriverError;
use crate::ring::{Span, Virtqueue};
use crate::signal::Signal;
use crate::transport::{self, Transport, feature};

pub(crate) const NAME: &str = "virtio-rng";

/// Bytes asked for at a time.
const CHUNK: usize = 64;

type Buffer = Box<[u8; CHUNK]>;

/// A virtio entropy device.
pub struct VirtioEntropy {
    transport: Arc<dyn Transport>,
    queue: SpinLock<Virtqueue<Buffer>>,
}

impl VirtioEntropy {
    /// Starts the device. Must be an entropy device.
    pub fn new(transport: Arc<dyn Transport>) -> Result<Self, DriverError> {
        let features = transport::negotiate(&*transport, NAME, |_| feature::EVENT_IDX)?;
        let handler: Arc<dyn InterruptHandler> = Arc::new(Signal::default());
        let queue = transport::make_queue(&*transport, NAME, 0, 2, features, &handler)?;
        transport::start(&*transport);
        Ok(Self {
            transport,
            queue: SpinLock::new(queue),
        })
    }

    /// Whether interrupts come over a line, to be attached by the caller to this device's [`InterruptHandler`].
    pub fn has_line(&self) -> bool {
        self.transport.has_line()
    }

    /// Bytes of one request: a new one, or an earlier one that was too late for its caller.
    fn fetch(&self, queue: &mut Virtqueue<Buffer>, deadline_ns: u64) -> Option<(Buffer, usize)> {
        if queue.in_flight() == 0 {
            let mut buffer = Box::new([0; CHUNK]);
            let span = Span::writable(&mut buffer[..]);
            queue.add(&[span], buffer).ok()?;
            if queue.should_notify() {
                self.transport.notify(queue.index());
            }
        }
        loop {
            if let Some((buffer, len)) = queue.pop_used() {
                return Some((buffer, usize_from_u32(len)));
            }
            if queue.is_broken() || time::now() > deadline_ns {
                return None;
            }
            cpu::relax();
        }
    }
}

impl EntropyDevice for VirtioEntropy {
    fn fill(&self, out: &mut [u8], timeout_ns: u64) -> usize {
        let deadline_ns = time::now().saturating_add(timeout_ns);
        let mut queue = self.queue.lock();
        let mut filled = 0;
        while filled < out.len() {
            // An answer of no bytes is against 5.4.6.2; asking again could go on for ever.
            let Some((buffer, len @ 1..)) = self.fetch(&mut queue, deadline_ns) else {
                break;
            };
            let step = len.min(out.len() - filled);
            out[filled..filled + step].copy_from_slice(&buffer[..step]);
            filled += step;
        }
        filled
    }
}

impl InterruptHandler for VirtioEntropy {
    fn on_interrupt(&self) -> bool {
        self.transport.acknowledge()
    }
}

impl Drop for VirtioEntropy {
    fn drop(&mut self) {
        // The device must not touch the buffer once it is freed.
        self.transport.set_status(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeTransport;

    fn device(answer: &'static [u8]) -> FakeTransport {
        FakeTransport::new(4, feature::EVENT_IDX, &[], &[8]).on_notify(move |device, _| {
            if !answer.is_empty() {
                device.queue(0).answer(answer);
            }
        })
    }

    #[test]
    fn bytes_are_gathered_from_several_answers() {
        let rng = VirtioEntropy::new(Arc::new(device(b"abc"))).unwrap();
        let mut out = [0; 7];
        assert_eq!(rng.fill(&mut out, 1_000_000_000), 7);
        assert_eq!(&out, b"abcabca");
    }

    #[test]
    fn a_late_answer_serves_the_next_caller() {
        let transport = Arc::new(device(b""));
        let rng = VirtioEntropy::new(transport.clone()).unwrap();
        let mut out = [0; 2];
        assert_eq!(rng.fill(&mut out, 1000), 0);
        transport.device().queue(0).answer(b"xy");
        assert_eq!(rng.fill(&mut out, 1000), 2);
        assert_eq!(&out, b"xy");
    }

    #[test]
    fn lies_give_no_bytes() {
        let transport = Arc::new(device(b""));
        let rng = VirtioEntropy::new(transport.clone()).unwrap();
        let mut out = [0; 2];
        assert_eq!(rng.fill(&mut out, 1000), 0);
        transport.device().queue(0).push_raw(0, 65);
        assert_eq!(rng.fill(&mut out, 1_000_000_000), 0);
    }
}
