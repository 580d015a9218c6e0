// SPDX-License-Identifier: Apache-2.0
//! I/O ports.

use core::arch::asm;

macro_rules! port {
    ($read:ident, $write:ident, $t:ty, $name:literal, $reg:tt) => {
        /// Reads an I/O port.
        ///
        /// # Safety
        /// Reading some ports changes the state of their device; the caller owns the device.
        #[must_use]
        pub unsafe fn $read(port: u16) -> $t {
            let value: $t;
            // SAFETY: promised by the caller.
            unsafe { asm!(concat!("in ", $name, ", dx"), in("dx") port, out($reg) value, options(nomem, nostack, preserves_flags)) };
            value
        }

        /// Writes an I/O port.
        ///
        /// # Safety
        /// The caller owns the device.
        pub unsafe fn $write(port: u16, value: $t) {
            // SAFETY: promised by the caller.
            unsafe { asm!(concat!("out dx, ", $name), in("dx") port, in($reg) value, options(nomem, nostack, preserves_flags)) };
        }
    };
}
port!(read8, write8, u8, "al", "al");
port!(read16, write16, u16, "ax", "ax");
port!(read32, write32, u32, "eax", "eax");
