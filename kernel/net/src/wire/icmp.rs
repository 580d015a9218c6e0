// SPDX-License-Identifier: Apache-2.0
//! ICMP (RFC 792) and `ICMPv6` (RFC 4443): one layout, two numberings.

use super::{be16, be32};

/// Length of the fixed part.
pub(crate) const HEADER: usize = 8;

/// Type numbers of `ICMP`.
pub(crate) mod v4 {
    pub(crate) const ECHO_REPLY: u8 = 0;
    pub(crate) const UNREACHABLE: u8 = 3;
    pub(crate) const ECHO: u8 = 8;
    pub(crate) const TIME_EXCEEDED: u8 = 11;
    pub(crate) const PARAMETER_PROBLEM: u8 = 12;
    pub(crate) const CODE_PROTOCOL: u8 = 2;
    pub(crate) const CODE_PORT: u8 = 3;
    pub(crate) const CODE_TOO_BIG: u8 = 4;
}

/// Type numbers of `ICMPv6`.
pub(crate) mod v6 {
    pub(crate) const UNREACHABLE: u8 = 1;
    pub(crate) const TOO_BIG: u8 = 2;
    pub(crate) const TIME_EXCEEDED: u8 = 3;
    pub(crate) const PARAMETER_PROBLEM: u8 = 4;
    pub(crate) const ECHO: u8 = 128;
    pub(crate) const ECHO_REPLY: u8 = 129;
    pub(crate) const CODE_PORT: u8 = 4;
    pub(crate) const CODE_NEXT_HEADER: u8 = 1;
}

/// The fixed part; the checksum is checked by the caller, who knows the pseudo header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Icmp {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// Identifier of an echo.
    pub(crate) id: u16,
    /// The second word: identifier and sequence number, or the next hop's MTU.
    pub(crate) rest: u32,
}

impl Icmp {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        Some(Self {
            kind: h[0],
            code: h[1],
            id: be16(h, 4),
            rest: be32(h, 4),
        })
    }

    /// The header with a checksum of zero.
    pub(crate) fn emit(&self) -> [u8; HEADER] {
        let r = self.rest.to_be_bytes();
        [self.kind, self.code, 0, 0, r[0], r[1], r[2], r[3]]
    }
}
