// SPDX-License-Identifier: Apache-2.0
//! Looking at the stack from outside, for `/proc/net`.

use alloc::string::String;
use alloc::vec::Vec;

use coracle_abi::convert::u64_from;

use crate::address::Prefix;
use crate::stack::NetStack;

/// An interface as `/proc/net/dev` and its kind show it.
#[derive(Clone, Debug)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// Linux's index, from 1.
    pub index: u64,
    /// Addresses and networks.
    pub addresses: Vec<Prefix>,
    /// Bytes and packets received. The stack counts them for all its cards together: they are told of the first.
    pub received: (u64, u64),
    /// Bytes and packets sent, likewise.
    pub sent: (u64, u64),
}

impl NetStack {
    /// All interfaces in order of their indices.
    #[must_use]
    pub fn interface_reports(&self) -> Vec<InterfaceReport> {
        let c = &self.counters;
        self.interfaces()
            .map(|interface| {
                let counted = interface.index == 1;
                let pair =
                    |bytes: u64, packets: u64| if counted { (bytes, packets) } else { (0, 0) };
                InterfaceReport {
                    name: interface.name.clone(),
                    index: u64_from(interface.index) + 1,
                    addresses: interface.addresses.lock().clone(),
                    received: pair(c.rx_bytes.get(), c.rx_packets.get()),
                    sent: pair(c.tx_bytes.get(), c.tx_packets.get()),
                }
            })
            .collect()
    }
}
