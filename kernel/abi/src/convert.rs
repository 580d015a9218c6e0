// SPDX-License-Identifier: Apache-2.0
//! Conversions that cannot lose anything on the 64-bit machines the kernel runs on.
//!
//! `as` hides truncation, and `TryFrom` makes a fallible path where none exists; these say which one is meant.

const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// `usize` to `u64`.
#[must_use]
pub const fn u64_from(value: usize) -> u64 {
    value as u64
}

/// `u64` to `usize`.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "both are 64 bits wide, asserted above"
)]
pub const fn usize_from(value: u64) -> usize {
    value as usize
}

/// `u32` to `usize`.
#[must_use]
pub const fn usize_from_u32(value: u32) -> usize {
    value as usize
}

/// The low 32 bits, on purpose.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the low half is the purpose"
)]
pub const fn low_u32(value: u64) -> u32 {
    value as u32
}

/// The low 16 bits, on purpose.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the low part is the purpose"
)]
pub const fn low_u16(value: u64) -> u16 {
    value as u16
}

/// The low 8 bits, on purpose.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the low part is the purpose"
)]
pub const fn low_u8(value: u64) -> u8 {
    value as u8
}

/// The same 32 bits read as a signed number, as the kernel reads an `int` argument.
#[must_use]
pub const fn signed(value: u32) -> i32 {
    value.cast_signed()
}
