// SPDX-License-Identifier: Apache-2.0
//! Devices whose registers lie at a fixed address (virtio 1.2, 4.2). Version 2 only.

use alloc::sync::Arc;

use coracle_abi::convert::{low_u8, low_u16, low_u32};
use coracle_core::device::InterruptHandler;
use coracle_core::memory::Mmio;

use super::Transport;
use crate::error::{DriverError, Reason};
use crate::ring::QueueAddresses;

/// Registers (4.2.2), by their offset.
mod register {
    pub(super) const MAGIC: usize = 0x000;
    pub(super) const VERSION: usize = 0x004;
    pub(super) const DEVICE_ID: usize = 0x008;
    pub(super) const DEVICE_FEATURES: usize = 0x010;
    pub(super) const DEVICE_FEATURES_SELECT: usize = 0x014;
    pub(super) const DRIVER_FEATURES: usize = 0x020;
    pub(super) const DRIVER_FEATURES_SELECT: usize = 0x024;
    pub(super) const QUEUE_SELECT: usize = 0x030;
    pub(super) const QUEUE_SIZE_MAX: usize = 0x034;
    pub(super) const QUEUE_SIZE: usize = 0x038;
    pub(super) const QUEUE_READY: usize = 0x044;
    pub(super) const QUEUE_NOTIFY: usize = 0x050;
    pub(super) const INTERRUPT_STATUS: usize = 0x060;
    pub(super) const INTERRUPT_ACKNOWLEDGE: usize = 0x064;
    pub(super) const STATUS: usize = 0x070;
    pub(super) const QUEUE_DESCRIPTORS: usize = 0x080;
    pub(super) const QUEUE_DRIVER: usize = 0x090;
    pub(super) const QUEUE_DEVICE: usize = 0x0a0;
    pub(super) const CONFIG_GENERATION: usize = 0x0fc;
    pub(super) const CONFIG: usize = 0x100;
}

/// "virt", little-endian.
const MAGIC: u32 = 0x7472_6976;

/// A virtio-mmio device.
pub struct MmioTransport {
    registers: Mmio,
    device_id: u32,
}

impl MmioTransport {
    /// Recognises the device at `registers`. A slot without a device is one with device number 0.
    pub fn new(registers: Mmio) -> Result<Self, DriverError> {
        let error = |reason| DriverError::new("virtio-mmio", reason);
        if registers.len() < register::CONFIG {
            return Err(error(Reason::ShortConfiguration(registers.len())));
        }
        let magic = registers.read32(register::MAGIC);
        if magic != MAGIC {
            return Err(error(Reason::NotVirtio(magic)));
        }
        // Empty slots of a legacy machine have version 1 as well, so the device number goes first.
        let device_id = registers.read32(register::DEVICE_ID);
        let version = registers.read32(register::VERSION);
        if device_id != 0 && version != 2 {
            return Err(error(Reason::Version(version)));
        }
        Ok(Self {
            registers,
            device_id,
        })
    }

    fn write_address(&self, at: usize, address: u64) {
        self.registers.write32(at, low_u32(address));
        self.registers.write32(at + 4, low_u32(address >> 32));
    }
}

impl Transport for MmioTransport {
    fn device_id(&self) -> u32 {
        self.device_id
    }

    fn features(&self) -> u64 {
        let half = |select| {
            self.registers
                .write32(register::DEVICE_FEATURES_SELECT, select);
            u64::from(self.registers.read32(register::DEVICE_FEATURES))
        };
        half(0) | half(1) << 32
    }

    fn choose_features(&self, features: u64) {
        for (select, half) in [(0, features), (1, features >> 32)] {
            self.registers
                .write32(register::DRIVER_FEATURES_SELECT, select);
            self.registers
                .write32(register::DRIVER_FEATURES, low_u32(half));
        }
    }

    fn status(&self) -> u8 {
        low_u8(u64::from(self.registers.read32(register::STATUS)))
    }

    fn set_status(&self, status: u8) {
        self.registers.write32(register::STATUS, u32::from(status));
    }

    fn config(&self) -> Mmio {
        let len = self.registers.len() - register::CONFIG;
        self.registers.slice(register::CONFIG, len)
    }

    fn config_generation(&self) -> u32 {
        self.registers.read32(register::CONFIG_GENERATION)
    }

    fn queue_limit(&self, queue: u16) -> u16 {
        self.registers
            .write32(register::QUEUE_SELECT, u32::from(queue));
        let limit = self.registers.read32(register::QUEUE_SIZE_MAX);
        low_u16(u64::from(limit.min(0x8000)))
    }

    fn enable_queue(
        &self,
        queue: u16,
        size: u16,
        addresses: QueueAddresses,
        _handler: &Arc<dyn InterruptHandler>,
    ) -> Result<(), DriverError> {
        self.registers
            .write32(register::QUEUE_SELECT, u32::from(queue));
        self.registers
            .write32(register::QUEUE_SIZE, u32::from(size));
        self.write_address(register::QUEUE_DESCRIPTORS, addresses.descriptors);
        self.write_address(register::QUEUE_DRIVER, addresses.available);
        self.write_address(register::QUEUE_DEVICE, addresses.used);
        self.registers.write32(register::QUEUE_READY, 1);
        Ok(())
    }

    fn notify(&self, queue: u16) {
        self.registers
            .write32(register::QUEUE_NOTIFY, u32::from(queue));
    }

    fn has_line(&self) -> bool {
        true
    }

    fn acknowledge(&self) -> bool {
        let pending = self.registers.read32(register::INTERRUPT_STATUS);
        if pending == 0 {
            return false;
        }
        self.registers
            .write32(register::INTERRUPT_ACKNOWLEDGE, pending);
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use coracle_core::device::EntropyDevice;

    use super::*;
    use crate::{Device, NetOptions, probe_mmio};

    /// Registers that keep what is written and do nothing.
    fn registers(version: u32, device_id: u32) -> Mmio {
        let words: &'static mut [u64] = vec![0u64; 0x40].leak();
        // SAFETY: the memory is leaked and used for nothing else.
        let registers = unsafe { Mmio::new(words.as_mut_ptr().cast(), 0x200) };
        registers.write32(0x000, 0x7472_6976);
        registers.write32(0x004, version);
        registers.write32(0x008, device_id);
        registers.write32(0x010, 1); // either half of the features: VERSION_1
        registers.write32(0x034, 1024);
        registers
    }

    fn probe(registers: Mmio) -> Result<Device, DriverError> {
        probe_mmio(registers, NetOptions::default())
    }

    #[test]
    fn a_device_is_set_up_by_the_register_map() {
        let registers = registers(2, 4);
        let device = probe(registers).unwrap();
        let handler = device.line_handler().expect("a line");
        let Device::Entropy(rng) = device else {
            panic!("an entropy device");
        };
        assert_eq!(registers.read32(0x070), 15, "DRIVER_OK");
        assert_eq!((registers.read32(0x024), registers.read32(0x020)), (1, 1));
        assert_eq!((registers.read32(0x038), registers.read32(0x044)), (2, 1));
        let address =
            |at| u64::from(registers.read32(at)) | u64::from(registers.read32(at + 4)) << 32;
        assert!(address(0x080) % 16 == 0 && address(0x090) != 0 && address(0x0a0) % 4 == 0);
        registers.write32(0x050, 77);
        assert_eq!(rng.fill(&mut [0; 4], 0), 0);
        assert_eq!(registers.read32(0x050), 0, "queue 0 is notified");
        assert!(!handler.on_interrupt());
        registers.write32(0x060, 3);
        assert!(handler.on_interrupt());
        assert_eq!(registers.read32(0x064), 3, "acknowledged");
        drop(handler);
        drop(rng);
        assert_eq!(registers.read32(0x070), 0, "reset before the memory goes");
    }

    #[test]
    fn what_is_not_a_device_is_named() {
        let reason = |registers| probe(registers).err().expect("must fail").reason;
        assert_eq!(reason(registers(1, 4)), Reason::Version(1));
        let other = registers(2, 4);
        other.write32(0, 5);
        assert_eq!(reason(other), Reason::NotVirtio(5));
        assert_eq!(reason(other.slice(0, 16)), Reason::ShortConfiguration(16));
        assert!(matches!(probe(registers(1, 0)), Ok(Device::Absent)));
        assert!(matches!(probe(registers(2, 99)), Ok(Device::Unknown(99))));
    }
}
