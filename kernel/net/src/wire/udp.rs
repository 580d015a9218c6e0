// SPDX-License-Identifier: Apache-2.0
//! UDP headers (RFC 768), and those of UDP-Lite (RFC 3828).

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

/// What a UDP-Lite header says. The payload reaches to the end of the packet; where UDP has its length stands how much of
/// the datagram the checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpLite {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    /// Bytes that the checksum covers, from the first of the header on; at most the number of bytes there are.
    pub(crate) coverage: usize,
}

impl UdpLite {
    /// `bytes` is the whole datagram. A coverage that is shorter than the header or longer than the datagram, and a
    /// missing checksum, are malformed (RFC 3828, section 3.1); one of 0 means all.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        let coverage = match usize::from(be16(h, 4)) {
            0 => bytes.len(),
            part => part,
        };
        (HEADER..=bytes.len()).contains(&coverage).then(|| Self {
            source: be16(h, 0),
            destination: be16(h, 2),
            coverage,
        })
    }

    /// Fills the 8 bytes of `h`, with a checksum of zero.
    pub(crate) fn emit(&self, h: &mut [u8]) {
        put16(h, 0, self.source);
        put16(h, 2, self.destination);
        put16(h, 4, len16(self.coverage));
        put16(h, CHECKSUM, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_of_udp_lite_is_within_the_datagram() {
        let datagram = |coverage: u16| {
            let mut bytes = [0; 12];
            put16(&mut bytes, 0, 5);
            put16(&mut bytes, 2, 6);
            put16(&mut bytes, 4, coverage);
            UdpLite::parse(&bytes).map(|header| header.coverage)
        };
        assert_eq!(datagram(0), Some(12), "all");
        assert_eq!(datagram(8), Some(8));
        assert_eq!(datagram(12), Some(12));
        assert_eq!(datagram(7), None);
        assert_eq!(datagram(13), None);
        assert_eq!(UdpLite::parse(&[0; 7]), None);
    }
}
