// SPDX-License-Identifier: Apache-2.0
//! The control queue: one command at start-up, to use several queue pairs (virtio 1.2, 5.1.6.5).

use alloc::boxed::Box;

use coracle_arch::cpu;
use coracle_core::time;

use crate::error::{DriverError, Reason};
use crate::ring::{Span, Virtqueue};
use crate::transport::Transport;

const CLASS_MULTIQUEUE: u8 = 4;
const VQ_PAIRS_SET: u8 = 0;
const ACK_OK: u8 = 0;

const TIMEOUT_NS: u64 = 1_000_000_000;

/// A command with its answer: what the device reads, then one byte it writes.
pub(super) type Command = ([u8; 4], [u8; 1]);

/// Asks the device to use the first `pairs` queue pairs (5.1.6.5.5).
pub(super) fn set_queue_pairs(
    transport: &dyn Transport,
    queue: &mut Virtqueue<Box<Command>>,
    pairs: u16,
) -> Result<(), DriverError> {
    let [low, high] = pairs.to_le_bytes();
    // The answer is not 0 until the device writes it.
    let mut command = Box::new(([CLASS_MULTIQUEUE, VQ_PAIRS_SET, low, high], [!ACK_OK]));
    let spans = [Span::readable(&command.0), Span::writable(&mut command.1)];
    let no_answer = DriverError::new(super::NAME, Reason::NoAnswer("VIRTIO_NET_CTRL_MQ"));
    queue.add(&spans, command).map_err(|_| no_answer)?;
    if queue.should_notify() {
        transport.notify(queue.index());
    }
    let deadline = time::now() + TIMEOUT_NS;
    loop {
        if let Some((command, _)) = queue.pop_used() {
            return if command.1 == [ACK_OK] {
                Ok(())
            } else {
                Err(no_answer)
            };
        }
        if queue.is_broken() || time::now() > deadline {
            return Err(no_answer);
        }
        cpu::relax();
    }
}
