// SPDX-License-Identifier: Apache-2.0
//! Neighbour discovery messages (RFC 4861) behind the ICMPv6 header.

use core::net::Ipv6Addr;

pub(crate) const ROUTER_SOLICIT: u8 = 133;
pub(crate) const ROUTER_ADVERT: u8 = 134;
pub(crate) const NEIGHBOUR_SOLICIT: u8 = 135;
pub(crate) const NEIGHBOUR_ADVERT: u8 = 136;

/// Option: link-layer address of the sender.
pub(crate) const SOURCE_LINK: u8 = 1;
/// Option: link-layer address of the target.
pub(crate) const TARGET_LINK: u8 = 2;

/// A neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) target: Ipv6Addr,
    /// The link-layer address option, of the source or of the target.
    pub(crate) link: Option<[u8; 6]>,
}

/// The link-layer address in option `wanted`. `None` also for a malformed list (RFC 4861 4.6: length zero).
fn link_option(mut options: &[u8], wanted: u8) -> Option<[u8; 6]> {
    while let [kind, units, ..] = options {
        let len = usize::from(*units) * 8;
        if len == 0 || len > options.len() {
            return None;
        }
        if *kind == wanted && len == 8 {
            return options[2..8].first_chunk().copied();
        }
        options = &options[len..];
    }
    None
}

impl Neighbour {
    /// `message` is the whole ICMPv6 message; `option` the kind of link option it carries.
    pub(crate) fn parse(message: &[u8], option: u8) -> Option<Self> {
        let target: &[u8; 16] = message.get(8..)?.first_chunk()?;
        let target = Ipv6Addr::from(*target);
        (!target.is_multicast()).then(|| Self {
            target,
            link: link_option(&message[24..], option),
        })
    }

    /// The message's body behind the 8 bytes of ICMPv6 header.
    pub(crate) fn emit(target: Ipv6Addr, option: u8, link: [u8; 6]) -> [u8; 24] {
        let mut out = [0; 24];
        out[..16].copy_from_slice(&target.octets());
        out[16] = option;
        out[17] = 1;
        out[18..].copy_from_slice(&link);
        out
    }
}

/// What a router advertisement says that a host without SLAAC needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouterAdvert {
    /// Seconds for which the sender is a default router.
    pub(crate) lifetime_s: u16,
    pub(crate) link: Option<[u8; 6]>,
}

impl RouterAdvert {
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let h: &[u8; 16] = message.first_chunk()?;
        Some(Self {
            lifetime_s: u16::from_be_bytes([h[6], h[7]]),
            link: link_option(&message[16..], SOURCE_LINK),
        })
    }
}
