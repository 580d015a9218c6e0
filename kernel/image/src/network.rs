// SPDX-License-Identifier: Apache-2.0
//! The network: stack and interfaces, and when they are looked after.

use alloc::sync::Arc;

use coracle_core::sync::Once;
use coracle_core::thread::{IdleHooks, set_idle_hooks};
use coracle_drivers::VirtioNet;
use coracle_loader::config::{BootConfig, NetworkConfig};
use coracle_net::{Address, InterfaceConfig, NetConfig, NetStack, Prefix, Transport};
use coracle_syscall::socket;

use crate::control;

static STACK: Once<Arc<NetStack>> = Once::new();

/// The stack. Set before the application runs.
pub(crate) fn stack() -> Option<&'static Arc<NetStack>> {
    STACK.get()
}

fn on_listen(transport: Transport, port: u16) {
    let name = match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    control::send_listening(name, port);
}

/// Makes the stack and an interface for each card.
pub(crate) fn init(config: &BootConfig, cards: alloc::vec::Vec<Arc<VirtioNet>>) {
    let stack = NetStack::new(NetConfig {
        on_listen: Some(on_listen),
        credentials: socket::credentials,
        ..NetConfig::default()
    });
    for (index, card) in cards.into_iter().enumerate() {
        use coracle_core::device::NetDevice;
        let settings = config
            .network
            .iter()
            .find(|n| n.mac == Some(card.mac()))
            .or_else(|| config.network.get(index).filter(|n| n.mac.is_none()))
            .cloned()
            .unwrap_or_default();
        let poll = stack.clone();
        card.set_on_receive(Arc::new(move || {
            poll.poll();
        }));
        if let Err(error) = stack.add_interface(card.clone(), interface(&settings)) {
            log::error!("network interface {index}: {error}");
        }
        card.set_receive_interrupts(true);
    }
    socket::install(stack.clone());
    coracle_syscall::socket::install(stack.clone());
    let _ = STACK.set(stack);
    set_idle_hooks(IdleHooks { flush: after_system_call, poll, arm, disarm });
}

fn interface(settings: &NetworkConfig) -> InterfaceConfig {
    InterfaceConfig {
        ipv4: settings.ipv4.map(|(address, length)| Prefix { address: Address::from_v4(address), length }),
        gateway: settings.gateway.map(Address::from_v4),
        ipv6: settings.ipv6.map(|(address, length)| Prefix { address: Address::from_v6(address), length }),
        gateway6: settings.gateway6.map(Address::from_v6),
        dhcp: settings.dhcp,
        dns: settings.dns.iter().copied().map(Address::from).collect(),
        ..InterfaceConfig::default()
    }
}

/// Tells the cards about what a system call has queued.
#[inline]
pub(crate) fn after_system_call() {
    if let Some(stack) = STACK.get() {
        stack.flush();
    }
}

fn poll() -> bool {
    STACK.get().is_some_and(|stack| stack.poll())
}

fn arm() -> bool {
    STACK.get().is_some_and(|stack| stack.set_receive_interrupts(true))
}

fn disarm() {}
