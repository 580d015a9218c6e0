// SPDX-License-Identifier: Apache-2.0
//! Devices on the PCI bus (virtio 1.2, 4.1), through the modern interface; transitional devices have it as well.

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::{low_u8, low_u32, u64_from, usize_from_u32};
use coracle_core::device::InterruptHandler;
use coracle_core::memory::Mmio;
use coracle_core::sync::SpinLock;

use super::Transport;
use crate::error::{DriverError, Reason};
use crate::pci::{Msix, PciConfig, PciFunction, PciHost};
use crate::ring::QueueAddresses;

const NAME: &str = "virtio-pci";

const VENDOR: u16 = 0x1af4;

/// Number of the vendor capability, which tells where the parts of the interface lie (4.1.4).
const CAPABILITY: u8 = 0x09;

/// `cfg_type` of the parts.
mod part {
    pub(super) const COMMON: u8 = 1;
    pub(super) const NOTIFY: u8 = 2;
    pub(super) const ISR: u8 = 3;
    pub(super) const DEVICE: u8 = 4;
}

/// `struct virtio_pci_common_cfg` (4.1.4.3), by offset.
mod common {
    pub(super) const DEVICE_FEATURE_SELECT: usize = 0;
    pub(super) const DEVICE_FEATURE: usize = 4;
    pub(super) const DRIVER_FEATURE_SELECT: usize = 8;
    pub(super) const DRIVER_FEATURE: usize = 12;
    pub(super) const STATUS: usize = 20;
    pub(super) const GENERATION: usize = 21;
    pub(super) const QUEUE_SELECT: usize = 22;
    pub(super) const QUEUE_SIZE: usize = 24;
    pub(super) const QUEUE_VECTOR: usize = 26;
    pub(super) const QUEUE_ENABLE: usize = 28;
    pub(super) const QUEUE_NOTIFY_OFFSET: usize = 30;
    pub(super) const QUEUE_DESCRIPTORS: usize = 32;
    pub(super) const QUEUE_DRIVER: usize = 40;
    pub(super) const QUEUE_DEVICE: usize = 48;
    pub(super) const LEN: usize = 56;
}

/// Registers mapped of each part at most; known devices need a few pages.
const MAX_PART_BYTES: u32 = 1 << 20;

/// `VIRTIO_MSI_NO_VECTOR`.
const NO_VECTOR: u16 = 0xffff;

/// A virtio device on the PCI bus.
pub struct PciTransport {
    config: Arc<dyn PciConfig>,
    function: PciFunction,
    device_id: u32,
    common: Mmio,
    notify: Mmio,
    isr: Mmio,
    device: Mmio,
    /// Bytes between the notification registers of queues.
    notify_multiplier: usize,
    /// Offset of each enabled queue's register within `notify`; 0 for the others.
    notify_offsets: SpinLock<Vec<usize>>,
    /// `None` when the device uses its line.
    msix: SpinLock<Option<Msix>>,
}

impl PciTransport {
    /// Whether the function is a virtio device.
    #[must_use]
    pub fn recognises(function: &PciFunction) -> bool {
        function.vendor == VENDOR && (0x1000..0x1080).contains(&function.id)
    }

    /// Finds the parts of the interface and switches the function on.
    pub fn new(host: &PciHost, function: PciFunction) -> Result<Self, DriverError> {
        let config = &*host.config;
        let device_id = match function.id.checked_sub(0x1040) {
            Some(modern) => modern,
            None => function.subsystem(config),
        };
        let common = find(host, function, part::COMMON, "common configuration")?
            .filter(|(memory, _)| memory.len() >= common::LEN);
        let notify = find(host, function, part::NOTIFY, "notification")?;
        let isr = find(host, function, part::ISR, "interrupt status")?;
        let device = find(host, function, part::DEVICE, "device configuration")?;
        let missing = |name| DriverError::new(NAME, Reason::MissingCapability(name));
        let (common, _) = common.ok_or(missing("common configuration"))?;
        let (notify, notify_at) = notify.ok_or(missing("notification"))?;
        let (isr, _) = isr.ok_or(missing("interrupt status"))?;
        // A device without configuration of its own need not have this part.
        let device = device.map_or(common.slice(0, 0), |(memory, _)| memory);
        let multiplier = function.read(config, notify_at + 16);
        let msix = Msix::new(host, function, NAME)?;
        function.enable(config, msix.is_none());
        Ok(Self {
            config: host.config.clone(),
            function,
            device_id: u32::from(device_id),
            common,
            notify,
            isr,
            device,
            notify_multiplier: usize_from_u32(multiplier),
            notify_offsets: SpinLock::new(Vec::new()),
            msix: SpinLock::new(msix),
        })
    }

    fn write_address(&self, at: usize, address: u64) {
        self.common.write32(at, low_u32(address));
        self.common.write32(at + 4, low_u32(address >> 32));
    }

    /// Gives the selected queue a vector, or falls back to the line for the whole device.
    fn attach(&self, handler: &Arc<dyn InterruptHandler>) {
        let mut msix = self.msix.lock();
        let Some(messages) = &mut *msix else {
            return;
        };
        if let Some(vector) = messages.vector(handler) {
            self.common.write16(common::QUEUE_VECTOR, vector);
            // The device may be out of resources; it says so by not taking the vector (4.1.5.1.2).
            if self.common.read16(common::QUEUE_VECTOR) == vector {
                return;
            }
        }
        self.common.write16(common::QUEUE_VECTOR, NO_VECTOR);
        if let Some(messages) = msix.take() {
            log::warn!("{NAME}: no message interrupt to be had; using the interrupt line");
            messages.disable(&*self.config);
            self.function.enable(&*self.config, true);
        }
    }
}

/// The memory of the first usable part of this kind, and the offset of its capability. A driver must pass over parts
/// in places it does not understand (4.1.4.1).
fn find(
    host: &PciHost,
    function: PciFunction,
    kind: u8,
    name: &'static str,
) -> Result<Option<(Mmio, u16)>, DriverError> {
    let config = &*host.config;
    for at in function.capabilities(config, CAPABILITY) {
        if low_u8(u64::from(function.read(config, at) >> 24)) != kind {
            continue;
        }
        let bar = low_u8(u64::from(function.read(config, at + 4)));
        let offset = u64::from(function.read(config, at + 8));
        let len = function.read(config, at + 12);
        let memory = match function.memory(host, bar, NAME) {
            Ok(memory) => memory,
            Err(error) if matches!(error.reason, Reason::NoRoomForBar(_)) => return Err(error),
            Err(_) => continue,
        };
        let within = offset + u64::from(len) <= memory.end - memory.start;
        if len == 0 || !within || !offset.is_multiple_of(4) {
            log::warn!("{NAME}: the {name} lies outside its BAR");
            continue;
        }
        let len = usize_from_u32(len.min(MAX_PART_BYTES));
        return Ok(Some(((host.map)(memory.start + offset, len), at)));
    }
    Ok(None)
}

impl Transport for PciTransport {
    fn device_id(&self) -> u32 {
        self.device_id
    }

    fn features(&self) -> u64 {
        let half = |select| {
            self.common.write32(common::DEVICE_FEATURE_SELECT, select);
            u64::from(self.common.read32(common::DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn choose_features(&self, features: u64) {
        for (select, half) in [(0, features), (1, features >> 32)] {
            self.common.write32(common::DRIVER_FEATURE_SELECT, select);
            self.common.write32(common::DRIVER_FEATURE, low_u32(half));
        }
    }

    fn status(&self) -> u8 {
        self.common.read8(common::STATUS)
    }

    fn set_status(&self, status: u8) {
        self.common.write8(common::STATUS, status);
    }

    fn config(&self) -> Mmio {
        self.device
    }

    fn config_generation(&self) -> u32 {
        u32::from(self.common.read8(common::GENERATION))
    }

    fn queue_limit(&self, queue: u16) -> u16 {
        self.common.write16(common::QUEUE_SELECT, queue);
        self.common.read16(common::QUEUE_SIZE)
    }

    fn enable_queue(
        &self,
        queue: u16,
        size: u16,
        addresses: QueueAddresses,
        handler: &Arc<dyn InterruptHandler>,
    ) -> Result<(), DriverError> {
        self.common.write16(common::QUEUE_SELECT, queue);
        let offset = usize::from(self.common.read16(common::QUEUE_NOTIFY_OFFSET));
        let offset = offset.saturating_mul(self.notify_multiplier);
        if u64_from(offset).saturating_add(2) > u64_from(self.notify.len()) || offset % 2 != 0 {
            return Err(DriverError::new(
                NAME,
                Reason::MissingCapability("notification"),
            ));
        }
        {
            let mut offsets = self.notify_offsets.lock();
            let queues = offsets.len().max(usize::from(queue) + 1);
            offsets.resize(queues, 0);
            offsets[usize::from(queue)] = offset;
        }
        self.common.write16(common::QUEUE_SIZE, size);
        self.write_address(common::QUEUE_DESCRIPTORS, addresses.descriptors);
        self.write_address(common::QUEUE_DRIVER, addresses.available);
        self.write_address(common::QUEUE_DEVICE, addresses.used);
        self.attach(handler);
        self.common.write16(common::QUEUE_ENABLE, 1);
        Ok(())
    }

    fn notify(&self, queue: u16) {
        let offset = self.notify_offsets.lock()[usize::from(queue)];
        self.notify.write16(offset, queue);
    }

    fn has_line(&self) -> bool {
        self.msix.lock().is_none()
    }

    fn acknowledge(&self) -> bool {
        // Reading clears it (4.1.4.5).
        self.isr.read8(0) != 0
    }
}
