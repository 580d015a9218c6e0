// SPDX-License-Identifier: Apache-2.0
//! DHCP messages (RFC 2131) and the options a client needs (RFC 2132).

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use super::{be32, put32};

pub(crate) const CLIENT_PORT: u16 = 68;
pub(crate) const SERVER_PORT: u16 = 67;

/// Length of the fixed part with the magic cookie.
const FIXED: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];

/// Message types (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Ack = 5,
    Nak = 6,
}

mod option {
    pub(super) const NETMASK: u8 = 1;
    pub(super) const ROUTER: u8 = 3;
    pub(super) const DNS: u8 = 6;
    pub(super) const REQUESTED: u8 = 50;
    pub(super) const LEASE: u8 = 51;
    pub(super) const KIND: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const WANTED: u8 = 55;
    pub(super) const RENEW: u8 = 58;
    pub(super) const REBIND: u8 = 59;
    pub(super) const CLIENT: u8 = 61;
    pub(super) const PAD: u8 = 0;
    pub(super) const END: u8 = 255;
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) kind: Kind,
    pub(crate) transaction: u32,
    /// The address offered or given.
    pub(crate) address: Ipv4Addr,
    pub(crate) netmask: Option<Ipv4Addr>,
    pub(crate) router: Option<Ipv4Addr>,
    pub(crate) dns: Vec<Ipv4Addr>,
    pub(crate) server: Option<Ipv4Addr>,
    pub(crate) lease_s: Option<u32>,
    pub(crate) renew_s: Option<u32>,
    pub(crate) rebind_s: Option<u32>,
}

fn address(bytes: &[u8]) -> Option<Ipv4Addr> {
    bytes.first_chunk::<4>().map(|b| Ipv4Addr::from(*b))
}

fn seconds(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|b| u32::from_be_bytes(*b))
}

impl Reply {
    /// Parses a server's message to the client with hardware address `mac`. `None` for anything else.
    pub(crate) fn parse(bytes: &[u8], mac: [u8; 6]) -> Option<Self> {
        let fixed: &[u8; FIXED] = bytes.first_chunk()?;
        let is_reply = fixed[0] == 2 && fixed[1] == 1 && fixed[2] == 6;
        if !is_reply || fixed[28..34] != mac || fixed[236..] != COOKIE {
            return None;
        }
        let mut reply = Self {
            kind: Kind::Nak,
            transaction: be32(fixed, 4),
            address: Ipv4Addr::from_bits(be32(fixed, 16)),
            netmask: None,
            router: None,
            dns: Vec::new(),
            server: None,
            lease_s: None,
            renew_s: None,
            rebind_s: None,
        };
        let mut kind = None;
        let mut options = &bytes[FIXED..];
        loop {
            match options {
                [] | [option::END, ..] => break,
                [option::PAD, rest @ ..] => options = rest,
                [code, len, rest @ ..] => {
                    let (value, rest) = rest.split_at_checked(usize::from(*len))?;
                    options = rest;
                    match *code {
                        option::KIND => kind = value.first().copied(),
                        option::NETMASK => reply.netmask = address(value),
                        option::ROUTER => reply.router = address(value),
                        option::DNS => reply.dns = value.chunks(4).filter_map(address).collect(),
                        option::SERVER => reply.server = address(value),
                        option::LEASE => reply.lease_s = seconds(value),
                        option::RENEW => reply.renew_s = seconds(value),
                        option::REBIND => reply.rebind_s = seconds(value),
                        _ => {}
                    }
                }
                [_] => return None,
            }
        }
        reply.kind = match kind? {
            2 => Kind::Offer,
            5 => Kind::Ack,
            6 => Kind::Nak,
            _ => return None,
        };
        Some(reply)
    }
}

/// What a client says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) kind: Kind,
    pub(crate) transaction: u32,
    pub(crate) mac: [u8; 6],
    /// Seconds since the client began.
    pub(crate) elapsed_s: u16,
    /// The client's address, if it has one and can be reached by it.
    pub(crate) current: Option<Ipv4Addr>,
    /// The address it asks for (option 50).
    pub(crate) requested: Option<Ipv4Addr>,
    /// The server it accepts (option 54).
    pub(crate) server: Option<Ipv4Addr>,
}

impl Question {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = alloc::vec![0; FIXED];
        out[0] = 1; // request
        out[1] = 1; // Ethernet
        out[2] = 6;
        put32(&mut out, 4, self.transaction);
        out[8..10].copy_from_slice(&self.elapsed_s.to_be_bytes());
        if let Some(current) = self.current {
            out[12..16].copy_from_slice(&current.octets());
        } else {
            out[10] = 0x80; // answer by broadcast: we have no address yet
        }
        out[28..34].copy_from_slice(&self.mac);
        out[236..].copy_from_slice(&COOKIE);
        out.extend([option::KIND, 1, self.kind as u8, option::CLIENT, 7, 1]);
        out.extend(self.mac);
        for (code, value) in [
            (option::REQUESTED, self.requested),
            (option::SERVER, self.server),
        ] {
            if let Some(value) = value {
                out.extend([code, 4]);
                out.extend(value.octets());
            }
        }
        out.extend([
            option::WANTED,
            6,
            option::NETMASK,
            option::ROUTER,
            option::DNS,
        ]);
        out.extend([option::LEASE, option::RENEW, option::REBIND, option::END]);
        out.resize(out.len().max(300), option::PAD); // the least a BOOTP relay passes on
        out
    }
}
