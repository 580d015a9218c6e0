// SPDX-License-Identifier: Apache-2.0
//! Which way a packet goes: the longest matching prefix. A handful of routes, looked up once per connection.

use alloc::vec::Vec;

use crate::address::{Address, Prefix};

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations it is for.
    pub destination: Prefix,
    /// The router; `None` if the destinations are neighbours.
    pub gateway: Option<Address>,
    /// Index of the interface in the stack, from 0.
    pub interface: usize,
}

#[derive(Default)]
pub(crate) struct RouteTable {
    routes: Vec<Route>,
}

impl RouteTable {
    /// Adds a route, replacing one for the same destination on the same interface.
    pub(crate) fn add(&mut self, route: Route) {
        self.routes
            .retain(|r| (r.destination, r.interface) != (route.destination, route.interface));
        self.routes.push(route);
        // Longest prefix first; the sort is stable, so the older route wins among equals.
        self.routes
            .sort_by_key(|r| core::cmp::Reverse(r.destination.length));
    }

    /// Drops the routes of one version on an interface.
    pub(crate) fn remove_v4_of(&mut self, interface: usize) {
        self.routes
            .retain(|r| r.interface != interface || !r.destination.address.is_v4());
    }

    /// Drops the IPv6 route to a network on an interface.
    pub(crate) fn remove_v6(&mut self, interface: usize, network: Address, length: u8) {
        let is_it = |r: &Route| {
            r.interface == interface
                && !r.destination.address.is_v4()
                && r.destination.length == length
                && r.destination.contains(network)
        };
        self.routes.retain(|r| !is_it(r));
    }

    pub(crate) fn find(&self, destination: Address) -> Option<Route> {
        self.routes
            .iter()
            .find(|r| r.destination.contains(destination))
            .copied()
    }

    pub(crate) fn all(&self) -> &[Route] {
        &self.routes
    }
}
