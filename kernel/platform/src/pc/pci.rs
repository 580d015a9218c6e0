// SPDX-License-Identifier: Apache-2.0
//! PCI configuration space through ports 0xcf8 and 0xcfc (PCI local bus 3.0, 3.2.2.3.2).
//!
//! The two-step access is not atomic; the caller holds a lock.

use coracle_arch::port;

fn address(bus: u8, device: u8, function: u8, offset: u8) -> u32 {
    1 << 31
        | u32::from(bus) << 16
        | u32::from(device & 31) << 11
        | u32::from(function & 7) << 8
        | u32::from(offset & 0xfc)
}

/// Reads an aligned 32-bit word; all ones where no device answers.
#[must_use]
pub fn read32(bus: u8, device: u8, function: u8, offset: u8) -> u32 {
    // SAFETY: the configuration ports; reading configuration space has no effect on memory.
    unsafe {
        port::write32(0xcf8, address(bus, device, function, offset));
        port::read32(0xcfc)
    }
}

/// Writes an aligned 32-bit word.
pub fn write32(bus: u8, device: u8, function: u8, offset: u8, value: u32) {
    // SAFETY: the configuration ports; what is written is the driver's responsibility.
    unsafe {
        port::write32(0xcf8, address(bus, device, function, offset));
        port::write32(0xcfc, value);
    }
}
