// SPDX-License-Identifier: Apache-2.0
//! Vectors of device interrupts.

/// First vector for devices.
pub const FIRST_DEVICE_VECTOR: u8 = 0x30;
/// Number of vectors for devices.
pub const DEVICE_VECTORS: u8 = 0x80;

/// Address and data of a message-signalled interrupt that arrives on the first CPU as `vector`.
#[must_use]
pub fn message(vector: u8) -> (u64, u32) {
    (0xfee0_0000, u32::from(vector))
}
