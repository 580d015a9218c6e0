// SPDX-License-Identifier: Apache-2.0
//! The Internet checksum (RFC 1071).

use coracle_abi::convert::{low_u16, u64_from};

use crate::address::Address;

/// A ones' complement sum under way. Pieces are added in order; each but the last has an even length.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// The sum of the pseudo header of TCP, UDP and `ICMPv6` (RFC 9293 3.1, RFC 8200 8.1).
    pub(crate) fn pseudo(source: Address, destination: Address, protocol: u8, len: usize) -> Self {
        let words = |a: Address| {
            let (high, low) = a.halves();
            if a.is_v4() {
                low & 0xffff_ffff
            } else {
                // Words of any width may be added: the sum is taken modulo 2^16 - 1.
                (high >> 32) + (high & 0xffff_ffff) + (low >> 32) + (low & 0xffff_ffff)
            }
        };
        let big_endian =
            Self(words(source) + words(destination) + u64::from(protocol) + u64_from(len));
        // The rest is summed in the machine's byte order; a sum commutes with swapping bytes.
        Self(u64::from(big_endian.fold().to_be()))
    }

    /// Adds bytes.
    pub(crate) fn add(mut self, bytes: &[u8]) -> Self {
        let mut blocks = bytes.chunks_exact(32);
        for block in blocks.by_ref() {
            for word in 0..8 {
                let at = word * 4;
                self.0 += u64::from(u32::from_ne_bytes([
                    block[at],
                    block[at + 1],
                    block[at + 2],
                    block[at + 3],
                ]));
            }
        }
        let mut pairs = blocks.remainder().chunks_exact(2);
        for pair in pairs.by_ref() {
            self.0 += u64::from(u16::from_ne_bytes([pair[0], pair[1]]));
        }
        if let [last] = pairs.remainder() {
            self.0 += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        self
    }

    fn fold(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        for _ in 0..3 {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        low_u16(sum)
    }

    /// The bytes of the checksum field.
    pub(crate) fn finish(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    /// The bytes of the field when the device adds up the rest: the sum, not complemented.
    pub(crate) fn partial(self) -> [u8; 2] {
        self.fold().to_ne_bytes()
    }

    /// Whether the summed bytes, checksum field included, are intact.
    pub(crate) fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add(&bytes).partial(), [0xdd, 0xf2]);
    }

    #[test]
    fn long_and_odd_inputs_agree_with_the_definition() {
        let bytes: Vec<u8> = (0..1001u32).map(|n| (n * 37 % 251) as u8).collect();
        for len in [0, 1, 2, 31, 32, 33, 63, 64, 65, 1000, 1001] {
            let slow: u32 = bytes[..len]
                .chunks(2)
                .map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)))
                .sum();
            let mut slow = slow;
            while slow >> 16 != 0 {
                slow = (slow >> 16) + (slow & 0xffff);
            }
            let fast = u16::from_be_bytes(Sum::default().add(&bytes[..len]).partial());
            assert_eq!(u32::from(fast), slow, "length {len}");
        }
    }

    #[test]
    fn pseudo_header_counts() {
        let a = Address::from_v4(Ipv4Addr::new(10, 0, 0, 1));
        let b = Address::from_v4(Ipv4Addr::new(10, 0, 0, 2));
        let bytes = [10, 0, 0, 1, 10, 0, 0, 2, 0, 17, 0, 9];
        assert_eq!(
            Sum::pseudo(a, b, 17, 9).partial(),
            Sum::default().add(&bytes).partial()
        );
    }
}
