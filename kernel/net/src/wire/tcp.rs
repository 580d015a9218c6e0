// SPDX-License-Identifier: Apache-2.0
//! TCP headers and options (RFC 9293 3.1, RFC 7323, RFC 2018).

use super::{be16, be32, put16, put32};

/// Length of a header without options.
pub(crate) const HEADER: usize = 20;
/// Longest header.
pub(crate) const MAX_HEADER: usize = 60;
/// Where the checksum field lies.
pub(crate) const CHECKSUM: usize = 16;

bitflags::bitflags! {
    /// Control bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Flags: u8 {
        const FIN = 1;
        const SYN = 2;
        const RST = 4;
        const PSH = 8;
        const ACK = 16;
    }
}

/// One block of a selective acknowledgement: `[left, right)`.
pub(crate) type SackBlock = (u32, u32);

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    /// Length of header and options in bytes.
    pub(crate) header_len: usize,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
}

impl Tcp {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let h: &[u8; HEADER] = bytes.first_chunk()?;
        let header_len = usize::from(h[12] >> 4) * 4;
        if header_len < HEADER || header_len > bytes.len() {
            return None;
        }
        Some(Self {
            source: be16(h, 0),
            destination: be16(h, 2),
            seq: be32(h, 4),
            ack: be32(h, 8),
            header_len,
            flags: Flags::from_bits_truncate(h[13]),
            window: be16(h, 14),
        })
    }

    /// Fills `h`, which is as long as the header with `options`; the checksum is zero.
    #[inline]
    pub(crate) fn emit(&self, h: &mut [u8], options: &[u8]) {
        put16(h, 0, self.source);
        put16(h, 2, self.destination);
        put32(h, 4, self.seq);
        put32(h, 8, self.ack);
        h[12] = coracle_abi::convert::low_u8(coracle_abi::convert::u64_from(
            (HEADER + options.len()) / 4,
        )) << 4;
        h[13] = self.flags.bits();
        put16(h, 14, self.window);
        put32(h, CHECKSUM, 0); // and the urgent pointer
        h[HEADER..].copy_from_slice(options);
    }
}

/// The options this stack understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) sack: [SackBlock; 4],
    pub(crate) sack_count: usize,
}

impl Options {
    /// Reads the option bytes. Malformed ones end the list; unknown ones are passed over (RFC 9293, MUST-6).
    pub(crate) fn parse(mut bytes: &[u8]) -> Self {
        let mut found = Self::default();
        loop {
            match bytes {
                [] | [0, ..] => return found,
                [1, rest @ ..] => bytes = rest,
                [kind, len, ..] => {
                    let len = usize::from(*len);
                    let Some(data) = bytes.get(2..len) else {
                        return found;
                    };
                    found.take(*kind, data);
                    bytes = &bytes[len..];
                }
                [_] => return found,
            }
        }
    }

    fn take(&mut self, kind: u8, data: &[u8]) {
        match (kind, data) {
            (2, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (3, &[shift]) => self.window_scale = Some(shift.min(14)),
            (4, &[]) => self.sack_permitted = true,
            (5, blocks) if blocks.len().is_multiple_of(8) => {
                for (block, slot) in blocks.chunks_exact(8).zip(&mut self.sack) {
                    *slot = (be32(block, 0), be32(block, 4));
                    self.sack_count += 1;
                }
            }
            _ => {}
        }
    }
}

/// Option bytes to send, always a multiple of four.
#[derive(Clone, Copy)]
pub(crate) struct OptionBytes {
    bytes: [u8; MAX_HEADER - HEADER],
    len: usize,
}

impl OptionBytes {
    pub(crate) const fn none() -> Self {
        Self {
            bytes: [0; MAX_HEADER - HEADER],
            len: 0,
        }
    }

    /// For a SYN.
    pub(crate) fn syn(mss: u16, window_scale: Option<u8>, sack: bool) -> Self {
        let mut out = Self::none();
        let m = mss.to_be_bytes();
        out.push(&[2, 4, m[0], m[1]]);
        if sack {
            out.push(&[1, 1, 4, 2]);
        }
        if let Some(shift) = window_scale {
            out.push(&[1, 3, 3, shift]);
        }
        out
    }

    /// At most four blocks of what arrived out of order.
    pub(crate) fn sack(blocks: impl Iterator<Item = SackBlock>) -> Self {
        let mut out = Self::none();
        out.push(&[1, 1, 5, 2]);
        for (left, right) in blocks.take(4) {
            out.push(&left.to_be_bytes());
            out.push(&right.to_be_bytes());
            out.bytes[3] += 8;
        }
        if out.len == 4 { Self::none() } else { out }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
