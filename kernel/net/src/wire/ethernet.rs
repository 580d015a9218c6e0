// SPDX-License-Identifier: Apache-2.0
//! Ethernet II frames (IEEE 802.3).

use super::be16;

pub(crate) const HEADER: usize = 14;
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;

/// Type of the payload and the frame's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ethernet {
    pub(crate) destination: [u8; 6],
    pub(crate) source: [u8; 6],
    pub(crate) kind: u16,
}

impl Ethernet {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        Some(Self {
            destination: [h[0], h[1], h[2], h[3], h[4], h[5]],
            source: [h[6], h[7], h[8], h[9], h[10], h[11]],
            kind: be16(h, 12),
        })
    }

    pub(crate) fn emit(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..6].copy_from_slice(&self.destination);
        out[6..12].copy_from_slice(&self.source);
        out[12..].copy_from_slice(&self.kind.to_be_bytes());
        out
    }
}
