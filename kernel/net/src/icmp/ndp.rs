// SPDX-License-Identifier: Apache-2.0
//! IPv6 neighbour discovery (RFC 4861): asking for neighbours, being found, and learning the default router.

use alloc::sync::Arc;

use coracle_core::packet::{HEADROOM, PacketBuf};

use crate::address::Address;
use crate::ip::IpMeta;
use crate::link::{Interface, Path};
use crate::stack::NetStack;
use crate::wire::icmp::{self, Icmp};
use crate::wire::ndp::{
    NEIGHBOUR_ADVERT, NEIGHBOUR_SOLICIT, Neighbour, ROUTER_ADVERT, ROUTER_SOLICIT, RouterAdvert,
    SOURCE_LINK, TARGET_LINK,
};

/// Flags of an advertisement: it answers a solicitation; it overrides what was known.
const SOLICITED: u32 = 1 << 30;
const OVERRIDE: u32 = 1 << 29;

impl NetStack {
    #[cold]
    pub(super) fn input_ndp(&self, meta: &IpMeta<'_>, message: &Icmp, bytes: &[u8], now: u64) {
        let interface = meta.interface;
        match message.kind {
            NEIGHBOUR_SOLICIT => {
                let Some(ask) = Neighbour::parse(bytes, SOURCE_LINK) else {
                    return;
                };
                let target = Address::from_v6(ask.target);
                if !interface.has_address(target) {
                    return;
                }
                let tentative = interface.autoconf.lock().is_tentative(target);
                if tentative && meta.source.is_unspecified() {
                    self.address_in_use(interface, target, now); // both check the same address
                    return;
                }
                if let Some(mac) = ask.link.filter(|_| meta.source.is_unicast()) {
                    self.neighbour_learned(interface, meta.source, mac, true, now);
                }
                let to = Some(meta.source).filter(|s| s.is_unicast());
                self.advertise_neighbour(interface, target, to, !tentative, now);
            }
            NEIGHBOUR_ADVERT => {
                let Some(answer) = Neighbour::parse(bytes, TARGET_LINK) else {
                    return;
                };
                let target = Address::from_v6(answer.target);
                if interface.autoconf.lock().is_tentative(target) {
                    self.address_in_use(interface, target, now);
                    return;
                }
                if let Some(mac) = answer.link {
                    self.neighbour_learned(interface, target, mac, false, now);
                }
            }
            ROUTER_ADVERT if meta.source.is_v6_link_local() => {
                let Some(advert) = RouterAdvert::parse(bytes) else {
                    return;
                };
                if let Some(mac) = advert.link {
                    self.neighbour_learned(interface, meta.source, mac, true, now);
                }
                self.input_router_advert(interface, meta.source, &advert, now);
            }
            _ => {}
        }
    }

    /// Asks who has the IPv6 address `target`. The question always goes to its group: one to the address itself would
    /// go through the neighbour cache and ask again.
    #[cold]
    pub(crate) fn solicit_neighbour(&self, interface: &Arc<Interface>, target: Address, now: u64) {
        let body = Neighbour::emit(target.v6(), SOURCE_LINK, interface.mac);
        let to = target.solicited_node();
        self.send_ndp(interface, to, None, NEIGHBOUR_SOLICIT, 0, &body, now);
    }

    /// Asks whether anybody has `address` already: from nobody, so that nobody notes it as ours (RFC 4862 5.4.2).
    #[cold]
    pub(super) fn send_probe(&self, interface: &Arc<Interface>, address: Address, now: u64) {
        let header = Icmp {
            kind: NEIGHBOUR_SOLICIT,
            code: 0,
            id: 0,
            rest: 0,
        };
        let target = address.v6().octets();
        let mut message = PacketBuf::new(HEADROOM, icmp::HEADER + target.len());
        message.append(icmp::HEADER).copy_from_slice(&header.emit());
        message.append(target.len()).copy_from_slice(&target);
        let to = address.solicited_node();
        let path = Path::new(interface.clone(), Address::ANY_V6, to);
        self.send_icmp_on(path, to, message, 255, now);
    }

    /// Tells `to`, or all hosts, our hardware address; with `replace` also those who know another.
    #[cold]
    pub(crate) fn advertise_neighbour(
        &self,
        interface: &Arc<Interface>,
        address: Address,
        to: Option<Address>,
        replace: bool,
        now: u64,
    ) {
        let body = Neighbour::emit(address.v6(), TARGET_LINK, interface.mac);
        let flags = if replace { OVERRIDE } else { 0 } | if to.is_some() { SOLICITED } else { 0 };
        let to = to.unwrap_or(all_nodes());
        self.send_ndp(
            interface,
            to,
            Some(address),
            NEIGHBOUR_ADVERT,
            flags,
            &body,
            now,
        );
    }

    /// Asks for routers.
    #[cold]
    pub(crate) fn solicit_router(&self, interface: &Arc<Interface>, now: u64) {
        let mut body = [0; 8];
        body[0] = SOURCE_LINK;
        body[1] = 1;
        body[2..].copy_from_slice(&interface.mac);
        let from = interface.link_local();
        self.send_ndp(
            interface,
            all_routers(),
            from,
            ROUTER_SOLICIT,
            0,
            &body,
            now,
        );
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    #[cold]
    fn send_ndp(
        &self,
        interface: &Interface,
        to: Address,
        from: Option<Address>,
        kind: u8,
        flags: u32,
        body: &[u8],
        now: u64,
    ) {
        let header = Icmp {
            kind,
            code: 0,
            id: 0,
            rest: flags,
        };
        let mut message = PacketBuf::new(HEADROOM, icmp::HEADER + body.len());
        message.append(icmp::HEADER).copy_from_slice(&header.emit());
        message.append(body.len()).copy_from_slice(body);
        self.send_icmp(to, from, Some(interface.index), message, 255, now);
    }
}

fn all_nodes() -> Address {
    Address::from_v6(core::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1))
}

fn all_routers() -> Address {
    Address::from_v6(core::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2))
}
