// SPDX-License-Identifier: Apache-2.0
//! Base address registers: where a function's memory lies (PCI 3.0, 6.2.5).

use core::ops::Range;

use coracle_abi::convert::low_u32;

use super::{PciFunction, PciHost};
use crate::error::{DriverError, Reason};

const IO: u32 = 1;
const TYPE_MASK: u32 = 0b110;
const TYPE_64: u32 = 0b100;
const FLAGS: u32 = 0xf;

impl PciFunction {
    /// The address and length of the memory behind BAR `index`, which is given an address if it has none.
    pub(crate) fn memory(
        &self,
        host: &PciHost,
        index: u8,
        name: &'static str,
    ) -> Result<Range<u64>, DriverError> {
        let missing = DriverError::new(name, Reason::MissingCapability("memory BAR"));
        if index > 5 {
            return Err(missing);
        }
        let config = &*host.config;
        let at = 0x10 + 4 * u16::from(index);
        let low = self.read(config, at);
        let wide = low & TYPE_MASK == TYPE_64;
        if low & IO != 0 || (wide && index == 5) {
            return Err(missing);
        }
        let command = self.pause(config);
        let high = if wide { self.read(config, at + 4) } else { 0 };
        self.write(config, at, u32::MAX);
        let mut size_mask = u64::from(self.read(config, at) & !FLAGS) | 0xffff_ffff << 32;
        if wide {
            self.write(config, at + 4, u32::MAX);
            size_mask = u64::from(low_u32(size_mask)) | u64::from(self.read(config, at + 4)) << 32;
        }
        // The lowest bit that can be set is the size.
        let size = size_mask & size_mask.wrapping_neg();
        let mut address = u64::from(low & !FLAGS) | u64::from(high) << 32;
        let exists = low_u32(size_mask) != 0 || (wide && size_mask != 0);
        let placed = if !exists {
            Err(missing)
        } else if address != 0 {
            Ok(())
        } else {
            take(&mut host.window.lock(), size)
                .map(|free| address = free)
                .ok_or(DriverError::new(name, Reason::NoRoomForBar(index)))
        };
        self.write(config, at, low_u32(address) | low & FLAGS);
        if wide {
            self.write(config, at + 4, low_u32(address >> 32));
        }
        self.resume(config, command);
        placed?;
        let end = address.checked_add(size).ok_or(missing)?;
        Ok(address..end)
    }
}

/// Cuts `size` bytes (a power of two), aligned to their size, off the front of the window.
fn take(window: &mut Range<u64>, size: u64) -> Option<u64> {
    let start = window.start.checked_next_multiple_of(size)?;
    let end = start.checked_add(size)?;
    // Address 0 means "none", so it is no place for a BAR.
    if end > window.end || start == 0 {
        return None;
    }
    window.start = end;
    Some(start)
}
