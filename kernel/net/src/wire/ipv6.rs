// SPDX-License-Identifier: Apache-2.0
//! IPv6 headers and the walk over extension headers (RFC 8200).

use core::net::Ipv6Addr;

use super::{be16, len16, put16};

/// Length of the fixed header.
pub(crate) const HEADER: usize = 40;

/// What the fixed header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ipv6 {
    pub(crate) traffic_class: u8,
    /// Bytes behind the fixed header; at most the number there are.
    pub(crate) payload_len: usize,
    pub(crate) next_header: u8,
    pub(crate) hop_limit: u8,
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
}

fn address(bytes: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[..16]);
    Ipv6Addr::from(octets)
}

impl Ipv6 {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        let payload_len = usize::from(be16(h, 4));
        if h[0] >> 4 != 6 || HEADER + payload_len > bytes.len() {
            return None;
        }
        Some(Self {
            traffic_class: h[0] << 4 | h[1] >> 4,
            payload_len,
            next_header: h[6],
            hop_limit: h[7],
            source: address(&h[8..24]),
            destination: address(&h[24..40]),
        })
    }

    /// Fills the 40 bytes of `h`.
    pub(crate) fn emit(&self, h: &mut [u8]) {
        h[0] = 0x60 | self.traffic_class >> 4;
        h[1] = self.traffic_class << 4;
        put16(h, 2, 0);
        put16(h, 4, len16(self.payload_len));
        h[6] = self.next_header;
        h[7] = self.hop_limit;
        h[8..24].copy_from_slice(&self.source.octets());
        h[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// The fragment header (RFC 8200, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Where the payload belongs, in bytes.
    pub(crate) offset: usize,
    pub(crate) more: bool,
    pub(crate) id: u32,
}

impl Fragment {
    pub(crate) const LEN: usize = 8;

    pub(crate) fn emit(&self, next_header: u8, h: &mut [u8]) {
        h[0] = next_header;
        h[1] = 0;
        put16(h, 2, len16(self.offset & !7) | u16::from(self.more));
        h[4..8].copy_from_slice(&self.id.to_be_bytes());
    }
}

/// Where the upper-layer payload begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upper {
    pub(crate) protocol: u8,
    /// Bytes of extension headers in front of it.
    pub(crate) offset: usize,
    /// Set if the payload is a part of a packet.
    pub(crate) fragment: Option<Fragment>,
}

/// Walks over the extension headers in `payload`. `None` for malformed, unknown or too many of them; routing headers
/// with segments left are refused too, since this is no router.
pub(crate) fn upper(next_header: u8, payload: &[u8]) -> Option<Upper> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const NO_NEXT: u8 = 59;
    const DESTINATION: u8 = 60;
    let (mut protocol, mut offset, mut fragment) = (next_header, 0, None);
    for _ in 0..8 {
        match protocol {
            HOP_BY_HOP | DESTINATION | ROUTING => {
                let h = payload.get(offset..)?.first_chunk::<8>()?;
                if protocol == ROUTING && h[3] != 0 {
                    return None;
                }
                protocol = h[0];
                offset += (usize::from(h[1]) + 1) * 8;
            }
            FRAGMENT => {
                let h = payload.get(offset..)?.first_chunk::<8>()?;
                let field = be16(h, 2);
                protocol = h[0];
                offset += Fragment::LEN;
                let found = Fragment {
                    offset: usize::from(field & !7),
                    more: field & 1 != 0,
                    id: u32::from_be_bytes([h[4], h[5], h[6], h[7]]),
                };
                if found.offset != 0 || found.more {
                    fragment = Some(found);
                    break; // what follows is not at its place yet
                }
            }
            NO_NEXT => return None,
            _ => break,
        }
    }
    (offset <= payload.len()).then_some(Upper {
        protocol,
        offset,
        fragment,
    })
}
