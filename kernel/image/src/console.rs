// SPDX-License-Identifier: Apache-2.0
//! Where the application's output goes and its input comes from: the virtio console, or the serial port on machines
//! without one.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::device::CharDevice;
use coracle_core::poll::PollSource;
use coracle_core::sync::Once;
use coracle_core::{Errno, PollEvents, Result};
use coracle_platform::serial;

/// The serial port as a console: slow, and without input.
pub(crate) struct SerialConsole {
    source: PollSource,
}

impl SerialConsole {
    pub(crate) fn shared() -> Arc<dyn CharDevice> {
        Arc::new(Self {
            source: PollSource::new(),
        })
    }
}

impl CharDevice for SerialConsole {
    fn write(&self, bytes: &[u8]) -> Result<usize> {
        serial::write(bytes);
        Ok(bytes.len())
    }

    fn read(&self, _out: &mut [u8]) -> Result<usize> {
        Err(Errno::EAGAIN)
    }

    fn poll(&self) -> PollEvents {
        PollEvents::OUT | PollEvents::WRNORM
    }

    fn poll_source(&self) -> &PollSource {
        &self.source
    }
}

/// Bytes of input after which there will be no more. A console has no end of its own: the host says over the control
/// channel how many bytes it sent before its own input ended (decision 0002).
static INPUT_END: AtomicU64 = AtomicU64::new(u64::MAX);

static CONSOLE: Once<Arc<Console>> = Once::new();

/// A console whose input can end.
struct Console {
    device: Arc<dyn CharDevice>,
    /// Bytes of input handed out so far.
    taken: AtomicU64,
}

/// The console for the application. Called once.
pub(crate) fn with_end_of_input(device: Arc<dyn CharDevice>) -> Arc<dyn CharDevice> {
    let console = Arc::new(Console {
        device,
        taken: AtomicU64::new(0),
    });
    let _ = CONSOLE.set(console.clone());
    console
}

/// Input ends after `bytes`, counted from the start of the machine.
pub(crate) fn end_input(bytes: u64) {
    INPUT_END.store(bytes, Ordering::Release);
    if let Some(console) = CONSOLE.get() {
        console
            .poll_source()
            .notify(PollEvents::IN | PollEvents::HUP);
    }
}

impl Console {
    /// Bytes that can still be read.
    fn left(&self) -> u64 {
        let taken = self.taken.load(Ordering::Relaxed);
        INPUT_END.load(Ordering::Acquire).saturating_sub(taken)
    }
}

impl CharDevice for Console {
    fn write(&self, bytes: &[u8]) -> Result<usize> {
        self.device.write(bytes)
    }

    /// The caller reads one at a time, as `/dev/console` does.
    fn read(&self, out: &mut [u8]) -> Result<usize> {
        let left = self.left();
        if left == 0 {
            return Ok(0);
        }
        let len = out.len().min(usize_from(left));
        let count = self.device.read(&mut out[..len])?;
        self.taken.fetch_add(u64_from(count), Ordering::Relaxed);
        Ok(count)
    }

    /// As a terminal or socket whose other end is gone, once everything is read.
    fn poll(&self) -> PollEvents {
        let events = self.device.poll();
        if self.left() > 0 {
            return events;
        }
        events | PollEvents::IN | PollEvents::RDNORM | PollEvents::HUP
    }

    fn poll_source(&self) -> &PollSource {
        self.device.poll_source()
    }
}
