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

/// The options of a message, each whole with its type and length. Ends at a malformed one (RFC 4861 4.6: length zero).
fn options(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let len = usize::from(*rest.get(1)?) * 8;
        if len == 0 || len > rest.len() {
            return None;
        }
        let (option, behind) = rest.split_at(len);
        rest = behind;
        Some(option)
    })
}

/// The link-layer address in option `wanted`.
fn link_option(rest: &[u8], wanted: u8) -> Option<[u8; 6]> {
    let found = options(rest).find(|o| o[0] == wanted && o.len() == 8)?;
    found[2..8].first_chunk().copied()
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

/// Options of a router advertisement: a prefix (RFC 4861 4.6.2), name servers (RFC 8106 5.1).
const PREFIX: u8 = 3;
const NAME_SERVERS: u8 = 25;

/// A router advertisement (RFC 4861 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouterAdvert<'a> {
    /// Seconds for which the sender is a default router.
    pub(crate) lifetime_s: u16,
    pub(crate) link: Option<[u8; 6]>,
    options: &'a [u8],
}

/// What it says of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixInfo {
    pub(crate) prefix: Ipv6Addr,
    pub(crate) length: u8,
    /// All of it can be reached without a router.
    pub(crate) on_link: bool,
    /// Hosts may make addresses from it.
    pub(crate) autonomous: bool,
    pub(crate) valid_s: u32,
    pub(crate) preferred_s: u32,
}

impl<'a> RouterAdvert<'a> {
    /// `message` is the whole ICMPv6 message.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Self> {
        let h: &[u8; 16] = message.first_chunk()?;
        Some(Self {
            lifetime_s: u16::from_be_bytes([h[6], h[7]]),
            link: link_option(&message[16..], SOURCE_LINK),
            options: &message[16..],
        })
    }

    /// The networks it announces.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = PrefixInfo> + 'a {
        options(self.options).filter_map(|option| {
            let o: &[u8; 32] = option
                .try_into()
                .ok()
                .filter(|o: &&[u8; 32]| o[0] == PREFIX)?;
            let mut prefix = [0; 16];
            prefix.copy_from_slice(&o[16..]);
            (o[2] <= 128).then(|| PrefixInfo {
                prefix: Ipv6Addr::from(prefix),
                length: o[2],
                on_link: o[3] & 0x80 != 0,
                autonomous: o[3] & 0x40 != 0,
                valid_s: super::be32(o, 4),
                preferred_s: super::be32(o, 8),
            })
        })
    }

    /// The name servers it announces, without those it takes back.
    pub(crate) fn name_servers(&self) -> impl Iterator<Item = Ipv6Addr> + 'a {
        options(self.options)
            .filter(|o| o[0] == NAME_SERVERS && o.len() >= 24 && super::be32(o, 4) > 0)
            .flat_map(|o| o[8..].as_chunks::<16>().0)
            .map(|octets| Ipv6Addr::from(*octets))
    }
}
