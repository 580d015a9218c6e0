// SPDX-License-Identifier: Apache-2.0
//! UDP headers (RFC 768).

use super::{be16, len16, put16};

pub(crate) const HEADER: usize = 8;
/// Where the checksum field lies.
pub(crate) const CHECKSUM: usize = 6;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Udp {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    /// Length of header and payload; at most the number of bytes there are.
    pub(crate) len: usize,
    /// Whether the sender computed a checksum.
    pub(crate) has_checksum: bool,
}

impl Udp {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        let len = usize::from(be16(h, 4));
        (HEADER..=bytes.len()).contains(&len).then(|| Self {
            source: be16(h, 0),
            destination: be16(h, 2),
            len,
            has_checksum: be16(h, CHECKSUM) != 0,
        })
    }

    /// Fills the 8 bytes of `h`, with a checksum of zero.
    pub(crate) fn emit(&self, h: &mut [u8]) {
        put16(h, 0, self.source);
        put16(h, 2, self.destination);
        put16(h, 4, len16(self.len));
        put16(h, CHECKSUM, 0);
    }
}
