// SPDX-License-Identifier: Apache-2.0
//! What every virtio device has, however it is attached (virtio 1.2, chapters 2 and 3).

mod mmio;
mod pci;

use alloc::sync::Arc;

use coracle_core::device::InterruptHandler;
use coracle_core::memory::Mmio;

use crate::error::{DriverError, Reason};
use crate::ring::Virtqueue;

pub use crate::ring::QueueAddresses;
pub use mmio::MmioTransport;
pub use pci::PciTransport;

/// Device status bits (2.1).
pub mod status {
    /// The guest has seen the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// The guest knows how to drive it.
    pub const DRIVER: u8 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// The features are agreed on.
    pub const FEATURES_OK: u8 = 8;
}

/// Feature bits of all devices (chapter 6).
pub mod feature {
    /// `VIRTIO_F_EVENT_IDX`: either side says at which index it wants to be told.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// `VIRTIO_F_VERSION_1`: not the legacy interface.
    pub const VERSION_1: u64 = 1 << 32;
}

/// The way to a virtio device. Registers cost a trap each, microseconds under software emulation: after start-up only
/// `notify` and `acknowledge` touch them.
pub trait Transport: Send + Sync {
    /// Number of the device's type (chapter 5); 0 for an empty slot.
    fn device_id(&self) -> u32;

    /// The features the device offers.
    fn features(&self) -> u64;

    /// Chooses features.
    fn choose_features(&self, features: u64);

    /// The device status.
    fn status(&self) -> u8;

    /// Sets the device status; 0 resets the device.
    fn set_status(&self, status: u8);

    /// The device's own configuration.
    fn config(&self) -> Mmio;

    /// A number that changes whenever the configuration does (2.5.1).
    fn config_generation(&self) -> u32;

    /// Most entries of a queue; 0 if there is no such queue.
    fn queue_limit(&self, queue: u16) -> u16;

    /// Switches a queue on. `handler` is called for its interrupts if the transport has an interrupt for each queue;
    /// it may also be called for other queues of the device.
    fn enable_queue(
        &self,
        queue: u16,
        size: u16,
        addresses: QueueAddresses,
        handler: &Arc<dyn InterruptHandler>,
    ) -> Result<(), DriverError>;

    /// Tells the device that a queue has new entries.
    fn notify(&self, queue: u16);

    /// Whether the device interrupts by a line, which its driver must acknowledge. Otherwise each queue has its own
    /// interrupt, already attached.
    fn has_line(&self) -> bool;

    /// Takes a line interrupt back. Returns whether the device had raised it.
    fn acknowledge(&self) -> bool;
}

/// Resets the device and agrees with it on those of the `wanted` features that it offers (3.1.1, steps 1 to 6).
/// `VERSION_1` is wanted always.
pub(crate) fn negotiate(
    transport: &dyn Transport,
    device: &'static str,
    wanted: impl FnOnce(u64) -> u64,
) -> Result<u64, DriverError> {
    transport.set_status(0);
    // A device may take a moment to reset (4.1.4.3.2); all known ones are done before the write returns.
    if !(0..1000).any(|_| transport.status() == 0) {
        return Err(DriverError::new(device, Reason::Reset));
    }
    transport.set_status(status::ACKNOWLEDGE);
    transport.set_status(status::ACKNOWLEDGE | status::DRIVER);
    let offered = transport.features();
    if offered & feature::VERSION_1 == 0 {
        return Err(DriverError::new(
            device,
            Reason::MissingFeature("VIRTIO_F_VERSION_1"),
        ));
    }
    let chosen = offered & (wanted(offered) | feature::VERSION_1);
    transport.choose_features(chosen);
    let agreed = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
    transport.set_status(agreed);
    if transport.status() & status::FEATURES_OK == 0 {
        return Err(DriverError::new(device, Reason::FeaturesRefused));
    }
    Ok(chosen)
}

/// Lets the device work (3.1.1, step 8).
pub(crate) fn start(transport: &dyn Transport) {
    transport
        .set_status(status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK);
}

/// Makes a queue of at most `size` entries (a power of two) and switches it on.
pub(crate) fn make_queue<T>(
    transport: &dyn Transport,
    device: &'static str,
    index: u16,
    size: u16,
    features: u64,
    handler: &Arc<dyn InterruptHandler>,
) -> Result<Virtqueue<T>, DriverError> {
    let limit = transport.queue_limit(index);
    if limit < 2 {
        return Err(DriverError::new(device, Reason::MissingQueue(index)));
    }
    // A limit that is no power of two is against 2.7; the power below it serves.
    let size = size.min(1 << limit.ilog2());
    let queue = Virtqueue::new(device, index, size, features & feature::EVENT_IDX != 0);
    transport.enable_queue(index, size, queue.addresses(), handler)?;
    Ok(queue)
}

/// Checks that the configuration has at least `len` bytes, so that reads from it cannot panic.
pub(crate) fn require_config(
    transport: &dyn Transport,
    device: &'static str,
    len: usize,
) -> Result<(), DriverError> {
    let there = transport.config().len();
    if there < len {
        return Err(DriverError::new(device, Reason::ShortConfiguration(there)));
    }
    Ok(())
}

/// Reads fields that belong together: again, if the device changed them meanwhile (2.5.1). A device that never stops
/// changing them gets what was read last.
pub(crate) fn read_config<R>(transport: &dyn Transport, mut read: impl FnMut(Mmio) -> R) -> R {
    let config = transport.config();
    let mut before = transport.config_generation();
    let mut value = read(config);
    for _ in 0..8 {
        let after = transport.config_generation();
        if after == before {
            break;
        }
        before = after;
        value = read(config);
    }
    value
}
