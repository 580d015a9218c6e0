// SPDX-License-Identifier: Apache-2.0
//! What others say about packets we sent: to which socket it goes, and as which error (`icmp(7)`, RFC 5927).

use coracle_abi::Errno;
use coracle_abi::convert::usize_from_u32;
use coracle_core::packet::{PacketBuf, TxPacket};

use crate::address::{Address, Endpoint, Flow};
use crate::stack::NetStack;
use crate::wire::icmp::{self, Icmp, v4, v6};
use crate::wire::ipv4;
use crate::wire::ipv6;
use crate::wire::protocol;

/// Why a packet was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryError {
    /// It never will be: nobody there.
    Hard(Errno),
    /// It may be later.
    Soft(Errno),
    /// A link on the way carries at most this many bytes.
    TooBig(usize),
}

/// The errors of Linux's `icmp_err_convert`, by code of a destination-unreachable message; see icmp(7).
fn unreachable_v4(code: u8) -> DeliveryError {
    use DeliveryError::{Hard, Soft};
    match code {
        2 => Hard(Errno::ENOPROTOOPT),
        3 => Hard(Errno::ECONNREFUSED),
        0 | 5 | 6 | 9 | 11 => Soft(Errno::ENETUNREACH),
        _ => Soft(Errno::EHOSTUNREACH),
    }
}

fn unreachable_v6(code: u8) -> DeliveryError {
    use DeliveryError::{Hard, Soft};
    match code {
        0 => Soft(Errno::ENETUNREACH),
        1 | 5 | 6 => Hard(Errno::EACCES),
        4 => Hard(Errno::ECONNREFUSED),
        _ => Soft(Errno::EHOSTUNREACH),
    }
}

/// Conversation, protocol and sequence number of an IP packet of which only the first bytes may be there.
fn quoted(bytes: &[u8]) -> Option<(u8, Flow, u32)> {
    let (protocol, source, destination, transport) = match bytes.first()? >> 4 {
        4 => {
            // The quoted packet is cut, so its total length is not compared with what is there.
            let h: &[u8; ipv4::HEADER] = bytes.first_chunk()?;
            let address =
                |at: usize| Address::from_v4([h[at], h[at + 1], h[at + 2], h[at + 3]].into());
            let len = usize::from(h[0] & 15) * 4;
            (h[9], address(12), address(16), bytes.get(len..)?)
        }
        6 => {
            let h: &[u8; ipv6::HEADER] = bytes.first_chunk()?;
            let address = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&h[at..at + 16]);
                Address::from_v6(octets.into())
            };
            let payload = &bytes[ipv6::HEADER..];
            let upper = ipv6::upper(h[6], payload)?;
            (
                upper.protocol,
                address(8),
                address(24),
                &payload[upper.offset..],
            )
        }
        _ => return None,
    };
    let t: &[u8; 8] = transport.first_chunk()?;
    let flow = Flow {
        local: Endpoint::new(source, u16::from_be_bytes([t[0], t[1]])),
        remote: Endpoint::new(destination, u16::from_be_bytes([t[2], t[3]])),
    };
    Some((protocol, flow, u32::from_be_bytes([t[4], t[5], t[6], t[7]])))
}

impl NetStack {
    /// An ICMP message that quotes a packet of ours.
    #[cold]
    pub(super) fn input_icmp_error(&self, message: &Icmp, buf: &PacketBuf, now: u64) {
        let body = &buf.data()[icmp::HEADER..];
        let is_v4 = body.first().is_some_and(|b| b >> 4 == 4);
        let error = if is_v4 {
            match (message.kind, message.code) {
                (v4::UNREACHABLE, v4::CODE_TOO_BIG) => {
                    DeliveryError::TooBig(usize_from_u32(message.rest & 0xffff))
                }
                (v4::UNREACHABLE, code) => unreachable_v4(code),
                (v4::TIME_EXCEEDED, _) => DeliveryError::Soft(Errno::EHOSTUNREACH),
                _ => DeliveryError::Soft(Errno::EPROTO),
            }
        } else {
            match message.kind {
                v6::UNREACHABLE => unreachable_v6(message.code),
                v6::TOO_BIG => DeliveryError::TooBig(usize_from_u32(message.rest)),
                v6::TIME_EXCEEDED => DeliveryError::Soft(Errno::EHOSTUNREACH),
                _ => DeliveryError::Soft(Errno::EPROTO),
            }
        };
        if let Some((protocol, flow, seq)) = quoted(body) {
            self.deliver_error(protocol, &flow, seq, error, now);
        }
    }

    /// A packet of ours that waited for its neighbour in vain.
    #[cold]
    pub(crate) fn report_unreachable(&self, packet: &TxPacket, now: u64) {
        if let Some((protocol, flow, seq)) = quoted(packet.head.data()) {
            let error = DeliveryError::Soft(Errno::EHOSTUNREACH);
            self.deliver_error(protocol, &flow, seq, error, now);
        }
    }

    #[cold]
    fn deliver_error(&self, protocol: u8, flow: &Flow, seq: u32, error: DeliveryError, now: u64) {
        match protocol {
            protocol::TCP => self.tcp_error(flow, seq, error, now),
            protocol::UDP | protocol::UDP_LITE => self.udp_error(protocol, flow, error),
            _ => {}
        }
    }
}
