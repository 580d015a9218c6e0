// SPDX-License-Identifier: Apache-2.0
//! Where the application's output goes: the virtio console, or the serial port on machines without one.

use alloc::sync::Arc;

use coracle_core::device::CharDevice;
use coracle_core::poll::PollSource;
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
