// SPDX-License-Identifier: Apache-2.0
//! The PCI bus: which functions there are, where their memory lies, and how they interrupt (PCI Local Bus 3.0).
//!
//! The machine hands in how to reach configuration space, how to map device memory and how to get a message interrupt
//! ([`PciHost`]); nothing here knows of ports, page tables or interrupt controllers.

mod bar;
mod msix;
#[cfg(test)]
pub(crate) mod tests;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use coracle_abi::convert::{low_u8, low_u16};
use coracle_core::device::InterruptHandler;
use coracle_core::memory::Mmio;
use coracle_core::sync::SpinLock;

pub(crate) use msix::Msix;

/// Access to configuration space.
pub trait PciConfig: Send + Sync {
    /// Reads the register at `offset`, a multiple of 4. All ones where there is no function.
    fn read32(&self, bus: u8, device: u8, function: u8, offset: u16) -> u32;

    /// Writes the register at `offset`, a multiple of 4.
    fn write32(&self, bus: u8, device: u8, function: u8, offset: u16, value: u32);
}

/// What a device writes, and where, to interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiMessage {
    /// Address in the device's view.
    pub address: u64,
    /// Value written there.
    pub data: u32,
}

/// Attaches a handler to a message interrupt. `None` when there are none left.
pub type AllocateMsi = dyn Fn(Arc<dyn InterruptHandler>) -> Option<MsiMessage> + Send + Sync;

/// What the machine does for PCI devices.
pub struct PciHost {
    /// Access to configuration space.
    pub config: Arc<dyn PciConfig>,
    /// Maps a range of device memory for ever.
    pub map: fn(address: u64, len: usize) -> Mmio,
    /// Message interrupts. `None` if the machine has none: devices then use their lines.
    pub allocate_msi: Option<Arc<AllocateMsi>>,
    /// Free address space for memory that the firmware gave no address. Below 4 GiB; may be empty.
    pub window: SpinLock<Range<u64>>,
}

/// Registers of all functions (6.1).
mod register {
    pub(super) const ID: u16 = 0x00;
    pub(super) const COMMAND: u16 = 0x04;
    pub(super) const HEADER_TYPE: u16 = 0x0c;
    pub(super) const BUS_NUMBERS: u16 = 0x18;
    pub(super) const SUBSYSTEM: u16 = 0x2c;
    pub(super) const CAPABILITIES: u16 = 0x34;
    pub(super) const INTERRUPT: u16 = 0x3c;
}

/// Bits of the command register; the upper half of the word is the status.
mod command {
    pub(super) const MEMORY: u32 = 1 << 1;
    pub(super) const BUS_MASTER: u32 = 1 << 2;
    pub(super) const NO_LINE: u32 = 1 << 10;
    /// Status: there is a list of capabilities.
    pub(super) const HAS_CAPABILITIES: u32 = 1 << 20;
    /// The status bits are cleared by writing ones, so writes keep the command only.
    pub(super) const MASK: u32 = 0xffff;
}

/// A function on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Bus number.
    pub bus: u8,
    /// Device number, below 32.
    pub device: u8,
    /// Function number, below 8.
    pub function: u8,
    /// Vendor number.
    pub vendor: u16,
    /// The vendor's number of the device.
    pub id: u16,
}

/// All functions that answer, on bus 0 and behind the bridges that the firmware has set up.
pub fn devices(config: &dyn PciConfig) -> Vec<PciFunction> {
    let mut found = Vec::new();
    let mut buses: Vec<u8> = alloc::vec![0];
    let mut next = 0;
    while let Some(bus) = buses.get(next).copied() {
        next += 1;
        for device in 0..32 {
            let mut functions = 1;
            for function in 0..8 {
                if function >= functions {
                    break;
                }
                let id = config.read32(bus, device, function, register::ID);
                let vendor = low_u16(u64::from(id));
                if vendor == 0xffff {
                    continue;
                }
                let kind = config.read32(bus, device, function, register::HEADER_TYPE) >> 16;
                if kind & 0x80 != 0 {
                    functions = 8;
                }
                if kind & 0x7f == 1 {
                    let numbers = config.read32(bus, device, function, register::BUS_NUMBERS);
                    let secondary = low_u8(u64::from(numbers >> 8));
                    if !buses.contains(&secondary) {
                        buses.push(secondary);
                    }
                }
                found.push(PciFunction {
                    bus,
                    device,
                    function,
                    vendor,
                    id: low_u16(u64::from(id >> 16)),
                });
            }
        }
    }
    found
}

impl PciFunction {
    pub(crate) fn read(&self, config: &dyn PciConfig, offset: u16) -> u32 {
        config.read32(self.bus, self.device, self.function, offset)
    }

    pub(crate) fn write(&self, config: &dyn PciConfig, offset: u16, value: u32) {
        config.write32(self.bus, self.device, self.function, offset, value);
    }

    /// Subsystem device number.
    pub(crate) fn subsystem(&self, config: &dyn PciConfig) -> u16 {
        low_u16(u64::from(self.read(config, register::SUBSYSTEM) >> 16))
    }

    /// The interrupt line that the firmware chose, and the pin (1 for INTA#, 0 for none).
    #[must_use]
    pub fn interrupt_line(&self, config: &dyn PciConfig) -> (u8, u8) {
        let word = u64::from(self.read(config, register::INTERRUPT));
        (low_u8(word), low_u8(word >> 8))
    }

    /// The offsets of all capabilities with this number (6.7), in order.
    pub(crate) fn capabilities(&self, config: &dyn PciConfig, wanted: u8) -> Vec<u16> {
        let mut found = Vec::new();
        if self.read(config, register::COMMAND) & command::HAS_CAPABILITIES == 0 {
            return found;
        }
        let pointer = |word: u32| low_u16(u64::from(word)) & 0xfc;
        let mut at = pointer(self.read(config, register::CAPABILITIES));
        // The list may be a loop; there is room for 48 capabilities.
        for _ in 0..48 {
            if at < 0x40 {
                break;
            }
            let header = self.read(config, at);
            if low_u8(u64::from(header)) == wanted {
                found.push(at);
            }
            at = pointer(header >> 8);
        }
        found
    }

    /// Lets the function answer to accesses of its memory, and access ours. `line` says whether it may use its
    /// interrupt line.
    pub(crate) fn enable(&self, config: &dyn PciConfig, line: bool) {
        let mut value = self.read(config, register::COMMAND) & command::MASK;
        value |= command::MEMORY | command::BUS_MASTER;
        value &= !command::NO_LINE;
        if !line {
            value |= command::NO_LINE;
        }
        self.write(config, register::COMMAND, value);
    }

    /// Keeps the function from answering while its addresses change. Returns the earlier command.
    fn pause(&self, config: &dyn PciConfig) -> u32 {
        let value = self.read(config, register::COMMAND) & command::MASK;
        self.write(config, register::COMMAND, value & !command::MEMORY);
        value
    }

    fn resume(&self, config: &dyn PciConfig, value: u32) {
        self.write(config, register::COMMAND, value);
    }
}
