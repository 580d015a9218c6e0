// SPDX-License-Identifier: Apache-2.0
//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;

use super::checksum::Sum;
use super::{be16, be32, len16, put16};

/// Length of a header without options.
pub(crate) const HEADER: usize = 20;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ipv4 {
    /// Length of the header with options, in bytes.
    pub(crate) header_len: usize,
    /// Length of header and payload; at most the number of bytes there are.
    pub(crate) total_len: usize,
    pub(crate) tos: u8,
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) more_fragments: bool,
    /// Where this fragment's payload belongs, in bytes.
    pub(crate) fragment_offset: usize,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
}

/// Completes a header that the application wrote (raw(7), `IP_HDRINCL`): the total length and the checksum always, the
/// source and the identification if they are zero. `None` if it is no header.
pub(crate) fn complete(packet: &mut [u8], source: Option<Ipv4Addr>, id: u16) -> Option<()> {
    let total = len16(packet.len());
    let header_len = usize::from(packet.first()? & 15) * 4;
    if packet[0] >> 4 != 4 || header_len < HEADER || header_len > packet.len() {
        return None;
    }
    let h = &mut packet[..header_len];
    put16(h, 2, total);
    if h[4..6] == [0, 0] {
        put16(h, 4, id);
    }
    if h[12..16] == [0; 4] {
        h[12..16].copy_from_slice(&source?.octets());
    }
    put16(h, 10, 0);
    let sum = Sum::default().add(h).finish();
    h[10..12].copy_from_slice(&sum);
    Some(())
}

impl Ipv4 {
    /// Parses a header and checks its checksum.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        let header_len = usize::from(h[0] & 15) * 4;
        let total_len = usize::from(be16(h, 2));
        let fragment = be16(h, 6);
        if h[0] >> 4 != 4
            || header_len < HEADER
            || total_len < header_len
            || total_len > bytes.len()
            || !Sum::default().add(&bytes[..header_len]).is_valid()
        {
            return None;
        }
        Some(Self {
            header_len,
            total_len,
            tos: h[1],
            id: be16(h, 4),
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: usize::from(fragment & 0x1fff) * 8,
            ttl: h[8],
            protocol: h[9],
            source: Ipv4Addr::from_bits(be32(h, 12)),
            destination: Ipv4Addr::from_bits(be32(h, 16)),
        })
    }

    /// Fills the 20 bytes of `h`; options are never sent.
    pub(crate) fn emit(&self, h: &mut [u8]) {
        let fragment = len16(self.fragment_offset / 8)
            | if self.dont_fragment { 0x4000 } else { 0 }
            | if self.more_fragments { 0x2000 } else { 0 };
        h[0] = 0x45;
        h[1] = self.tos;
        put16(h, 2, len16(self.total_len));
        put16(h, 4, self.id);
        put16(h, 6, fragment);
        h[8] = self.ttl;
        h[9] = self.protocol;
        put16(h, 10, 0);
        h[12..16].copy_from_slice(&self.source.octets());
        h[16..20].copy_from_slice(&self.destination.octets());
        let sum = Sum::default().add(&h[..HEADER]).finish();
        h[10..12].copy_from_slice(&sum);
    }
}
