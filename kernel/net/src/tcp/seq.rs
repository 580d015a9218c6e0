// SPDX-License-Identifier: Apache-2.0
//! Comparing sequence numbers, which wrap (RFC 9293, 3.4).

/// Whether `a` lies before `b`.
#[inline]
pub(super) const fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// Whether `a` lies behind `b`.
#[inline]
pub(super) const fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

/// Distance from `from` to `to`, which is not before it.
#[inline]
pub(super) const fn distance(from: u32, to: u32) -> usize {
    coracle_abi::convert::usize_from_u32(to.wrapping_sub(from))
}

/// `seq` moved on by `len` bytes.
#[inline]
pub(super) fn plus(seq: u32, len: usize) -> u32 {
    seq.wrapping_add(coracle_abi::convert::low_u32(
        coracle_abi::convert::u64_from(len),
    ))
}

#[inline]
pub(super) const fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}
