// SPDX-License-Identifier: Apache-2.0
//! IPv6 addresses without a server: taken from what routers announce (SLAAC, RFC 4862; name servers, RFC 8106), and
//! checked for being free (duplicate address detection, RFC 4862 5.4).
//!
//! Addresses are used while they are being checked ("optimistic", RFC 4429): a guest that boots in milliseconds cannot
//! wait a second for its address.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::address::{Address, Prefix};
use crate::link::Interface;
use crate::route::Route;
use crate::stack::NetStack;
use crate::timers::TimerKey;
use crate::wire::ndp::{PrefixInfo, RouterAdvert};

const SECOND_NS: u64 = 1_000_000_000;
/// How long others may object to an address (RFC 4862 5.1, `RetransTimer`).
const TENTATIVE_NS: u64 = SECOND_NS;
/// Solicitations of routers, and the time between them (RFC 4861 10).
const SOLICITATIONS: u8 = 3;
const SOLICIT_INTERVAL_NS: u64 = 4 * SECOND_NS;
/// Nobody without authentication may shorten a lifetime below this (RFC 4862 5.5.3).
const LEAST_LIFETIME_NS: u64 = 7200 * SECOND_NS;
/// A lifetime of all ones is for ever.
const FOR_EVER_S: u32 = u32::MAX;
/// Addresses that routers may give us; an announcement can name many.
const MOST_ADDRESSES: usize = 16;

/// Something a router said, which holds until a time.
#[derive(Clone, Copy)]
struct Learned {
    prefix: Prefix,
    until: u64,
}

/// What an interface found out about itself.
#[derive(Default)]
pub(crate) struct Autoconf {
    /// Addresses that others may still object to, and until when.
    tentative: Vec<(Address, u64)>,
    addresses: Vec<Learned>,
    on_link: Vec<Learned>,
    router: Option<(Address, u64)>,
    /// Solicitations left, and when the next is due.
    solicitations: u8,
    solicit_at: u64,
}

impl Autoconf {
    /// When something is to be done next.
    fn next(&self) -> Option<u64> {
        let lists = self.addresses.iter().chain(&self.on_link);
        let solicit = (self.solicitations > 0).then_some(self.solicit_at);
        lists
            .map(|l| l.until)
            .chain(self.tentative.iter().map(|t| t.1))
            .chain(self.router.map(|r| r.1))
            .chain(solicit)
            .filter(|at| *at != u64::MAX)
            .min()
    }

    /// Whether `address` is still being checked.
    pub(crate) fn is_tentative(&self, address: Address) -> bool {
        self.tentative.iter().any(|t| t.0 == address)
    }
}

fn lifetime(now: u64, seconds: u32) -> u64 {
    match seconds {
        FOR_EVER_S => u64::MAX,
        _ => now + u64::from(seconds) * SECOND_NS,
    }
}

impl NetStack {
    /// The interface has come up: checks its addresses and looks for routers, unless `has_router`.
    #[cold]
    pub(crate) fn start_autoconf(&self, interface: &Arc<Interface>, has_router: bool, now: u64) {
        let addresses = interface.addresses.lock().clone();
        for prefix in addresses.iter().filter(|p| !p.address.is_v4()) {
            self.probe_address(interface, prefix.address, now);
        }
        if !has_router {
            let mut state = interface.autoconf.lock();
            state.solicitations = SOLICITATIONS - 1;
            state.solicit_at = now + SOLICIT_INTERVAL_NS;
            drop(state);
            self.solicit_router(interface, now);
        }
        self.arm_autoconf(interface);
    }

    /// Asks whether anybody else has `address`, and joins the group in which such questions are asked.
    fn probe_address(&self, interface: &Arc<Interface>, address: Address, now: u64) {
        self.join_group(address.solicited_node(), interface.index, now);
        let mut state = interface.autoconf.lock();
        state.tentative.push((address, now + TENTATIVE_NS));
        drop(state);
        self.send_probe(interface, address, now);
    }

    /// Somebody else asks for, or claims, the address that we are about to use: we must not.
    #[cold]
    pub(super) fn address_in_use(&self, interface: &Arc<Interface>, address: Address, now: u64) {
        log::warn!(
            "{}: another machine has the address {address}; it is not used here",
            interface.name
        );
        let mut state = interface.autoconf.lock();
        state.tentative.retain(|t| t.0 != address);
        state.addresses.retain(|l| l.prefix.address != address);
        drop(state);
        self.remove_address(interface, address, now);
    }

    fn remove_address(&self, interface: &Interface, address: Address, now: u64) {
        interface.addresses.lock().retain(|p| p.address != address);
        self.leave_group(address.solicited_node(), interface.index, now);
    }

    /// A router speaks.
    #[cold]
    pub(super) fn input_router_advert(
        &self,
        interface: &Arc<Interface>,
        router: Address,
        advert: &RouterAdvert<'_>,
        now: u64,
    ) {
        interface.autoconf.lock().solicitations = 0;
        self.learn_router(interface, router, advert.lifetime_s, now);
        for prefix in advert.prefixes() {
            self.learn_prefix(interface, &prefix, now);
        }
        self.add_dns(advert.name_servers().map(Address::from_v6));
        self.arm_autoconf(interface);
    }

    /// The first router that offers itself is ours until it withdraws, unless one was configured.
    fn learn_router(&self, interface: &Arc<Interface>, router: Address, lifetime_s: u16, now: u64) {
        let mut state = interface.autoconf.lock();
        let is_ours = state.router.is_some_and(|(ours, _)| ours == router);
        if lifetime_s == 0 {
            if is_ours {
                state.router = None;
                drop(state);
                self.remove_v6_route(interface, Address::ANY_V6, 0);
            }
            return;
        }
        let until = now + u64::from(lifetime_s) * SECOND_NS;
        if is_ours {
            state.router = Some((router, until));
        } else if state.router.is_none() && !self.has_default_v6() {
            state.router = Some((router, until));
            drop(state);
            self.add_default_route(interface, router);
        }
    }

    fn learn_prefix(&self, interface: &Arc<Interface>, info: &PrefixInfo, now: u64) {
        let network = Address::from_v6(info.prefix);
        if network.is_v6_link_local() || network.is_multicast() || info.preferred_s > info.valid_s {
            return;
        }
        let until = lifetime(now, info.valid_s);
        if info.on_link {
            let prefix = Prefix {
                address: network,
                length: info.length,
            };
            let mut state = interface.autoconf.lock();
            state.on_link.retain(|l| l.prefix != prefix);
            if info.valid_s > 0 && state.on_link.len() < MOST_ADDRESSES {
                state.on_link.push(Learned { prefix, until });
                drop(state);
                self.routes.lock().add(Route {
                    destination: prefix,
                    gateway: None,
                    interface: interface.index,
                });
            } else {
                drop(state);
                self.remove_v6_route(interface, network, info.length);
            }
        }
        // The other half of the address is made from the hardware address (RFC 4291, appendix A).
        if !info.autonomous || info.length != 64 {
            return;
        }
        let address = network.with_interface_id(Address::link_local(interface.mac));
        let mut state = interface.autoconf.lock();
        if let Some(known) = state
            .addresses
            .iter_mut()
            .find(|l| l.prefix.address == address)
        {
            if until > known.until || until > now + LEAST_LIFETIME_NS {
                known.until = until;
            } else {
                known.until = known.until.min(now + LEAST_LIFETIME_NS);
            }
            return;
        }
        if info.valid_s == 0
            || state.addresses.len() >= MOST_ADDRESSES
            || interface.has_address(address)
        {
            return;
        }
        let prefix = Prefix {
            address,
            length: 64,
        };
        state.addresses.push(Learned { prefix, until });
        drop(state);
        interface.addresses.lock().push(prefix);
        log::info!("{}: {address} by a router's announcement", interface.name);
        self.probe_address(interface, address, now);
    }

    fn has_default_v6(&self) -> bool {
        let routes = self.routes.lock();
        let mut all = routes.all().iter();
        all.any(|r| !r.destination.address.is_v4() && r.destination.length == 0)
    }

    fn remove_v6_route(&self, interface: &Interface, network: Address, length: u8) {
        self.routes
            .lock()
            .remove_v6(interface.index, network, length);
    }

    fn arm_autoconf(&self, interface: &Interface) {
        let next = interface.autoconf.lock().next();
        if let Some(at) = next {
            self.timers.set(at, TimerKey::Autoconf(interface.index));
        }
    }

    /// Timer: something has expired, or routers are to be asked again.
    #[cold]
    pub(crate) fn run_autoconf(&self, index: usize, now: u64) {
        let Some(interface) = self.interface(index) else {
            return;
        };
        let (mut gone, mut routes) = (Vec::new(), Vec::new());
        let mut solicit = false;
        {
            let mut state = interface.autoconf.lock();
            state.tentative.retain(|t| t.1 > now);
            state.addresses.retain(|l| {
                if l.until <= now {
                    gone.push(l.prefix.address);
                }
                l.until > now
            });
            state.on_link.retain(|l| {
                if l.until <= now {
                    routes.push(l.prefix);
                }
                l.until > now
            });
            if state.router.is_some_and(|(_, until)| until <= now) {
                state.router = None;
                routes.push(Prefix {
                    address: Address::ANY_V6,
                    length: 0,
                });
            }
            if state.solicitations > 0 && state.solicit_at <= now {
                state.solicitations -= 1;
                state.solicit_at = now + SOLICIT_INTERVAL_NS;
                solicit = true;
            }
        }
        for address in gone {
            log::warn!("{}: {address} has expired", interface.name);
            self.remove_address(interface, address, now);
        }
        for prefix in routes {
            self.remove_v6_route(interface, prefix.address, prefix.length);
        }
        if solicit {
            self.solicit_router(interface, now);
        }
        self.arm_autoconf(interface);
    }
}
