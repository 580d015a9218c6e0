// SPDX-License-Identifier: Apache-2.0
//! An interrupt on its way from a queue to whoever serves the device.

use alloc::sync::Arc;

use coracle_core::device::InterruptHandler;
use coracle_core::sync::Once;

/// What to do on an interrupt. Runs with interrupts off and must not sleep.
pub type Callback = Arc<dyn Fn() + Send + Sync>;

/// Calls a function that becomes known later than the queues, which need their handler at start.
#[derive(Default)]
pub(crate) struct Signal {
    callback: Once<Callback>,
}

impl Signal {
    /// Sets the function; the first one stays.
    pub(crate) fn set(&self, callback: Callback) {
        if self.callback.set(callback).is_err() {
            log::warn!("an interrupt callback was set twice; the first one stays");
        }
    }

    /// Lets `serve` look after a device on each interrupt, as long as the device is there.
    pub(crate) fn serve<D: Send + Sync + 'static>(&self, device: &Arc<D>, serve: fn(&D)) {
        let device = Arc::downgrade(device);
        self.set(Arc::new(move || {
            if let Some(device) = device.upgrade() {
                serve(&device);
            }
        }));
    }

    /// Calls the function, if there is one.
    pub(crate) fn raise(&self) {
        if let Some(callback) = self.callback.get() {
            callback();
        }
    }
}

impl InterruptHandler for Signal {
    fn on_interrupt(&self) -> bool {
        self.raise();
        true
    }
}
