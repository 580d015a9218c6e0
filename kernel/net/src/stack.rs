// SPDX-License-Identifier: Apache-2.0
//! The stack as a whole: its interfaces, its tables, and the calls that make it move.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use coracle_abi::Errno;
use coracle_abi::convert::u64_from;
use coracle_core::Result;
use coracle_core::device::NetDevice;
use coracle_core::packet::RxPacket;
use coracle_core::sync::{Once, SpinLock};
use coracle_core::timer::TimerTarget;

use crate::address::{Address, Prefix};
use crate::counters::Counters;
use crate::dhcp::Dhcp;
use crate::inbox::Watchers;
use crate::ip::{Groups, Reassembly};
use crate::link::{Interface, PacketSocket};
use crate::loopback::Loopback;
use crate::map::HashKey;
use crate::raw::RawSocket;
use crate::route::{Route, RouteTable};
use crate::socket::Credentials;
use crate::tcp::TcpTables;
use crate::timers::{TimerKey, Timers};
use crate::udp::UdpTables;
use crate::unix::UnixNames;

/// Most interfaces of one stack, loopback included.
pub const MAX_INTERFACES: usize = 8;

/// Packets taken from a device in one go, and how often in one call.
const RECEIVE_BUDGET: usize = 64;
const RECEIVE_ROUNDS: usize = 16;

/// Names a transport in [`NetConfig::on_listen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What a stack is made with.
pub struct NetConfig {
    /// The monotonic clock in nanoseconds.
    pub clock: fn() -> u64,
    /// Whether to use a kernel timer. Without one the owner calls [`NetStack::run_timers`] (tests do).
    pub use_timer: bool,
    /// Called when a socket starts to listen on a port.
    pub on_listen: Option<fn(Transport, u16)>,
    /// Who the application is, for `SO_PEERCRED` and `SCM_CREDENTIALS`.
    pub credentials: fn() -> Credentials,
    /// Bytes that all sockets together may keep in receive and send queues.
    pub memory_limit: usize,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            clock: coracle_core::time::now,
            use_timer: true,
            on_listen: None,
            credentials: Credentials::default,
            memory_limit: 64 << 20,
        }
    }
}

/// What an interface is made with.
#[derive(Clone, Debug, Default)]
pub struct InterfaceConfig {
    /// Name; empty for `eth0`, `eth1` ... in order.
    pub name: String,
    /// IPv4 address and network.
    pub ipv4: Option<Prefix>,
    /// IPv4 default router.
    pub gateway: Option<Address>,
    /// IPv6 address and network, besides the link-local one.
    pub ipv6: Option<Prefix>,
    /// IPv6 default router.
    pub gateway6: Option<Address>,
    /// Ask for an IPv4 address, a router and name servers instead of using `ipv4` and `gateway`.
    pub dhcp: bool,
    /// Name servers.
    pub dns: Vec<Address>,
}

/// A TCP/IP stack. See the crate's documentation for how to drive it.
pub struct NetStack {
    pub(crate) config: NetConfig,
    pub(crate) key: HashKey,
    pub(crate) secret: [u64; 2],
    pub(crate) counters: Counters,
    interfaces: [Once<Arc<Interface>>; MAX_INTERFACES],
    interface_count: AtomicUsize,
    adding: SpinLock<()>,
    pub(crate) routes: SpinLock<RouteTable>,
    dns: SpinLock<Vec<Address>>,
    pub(crate) timers: Timers,
    pub(crate) loopback: Loopback,
    pub(crate) reassembly: Reassembly,
    /// Second and number of ICMP errors sent in it: `second << 16 | count`.
    pub(crate) icmp_errors: AtomicU64,
    pub(crate) next_ip_id: AtomicU64,
    pub(crate) tcp: TcpTables,
    pub(crate) udp: UdpTables,
    pub(crate) unix: UnixNames,
    pub(crate) dhcp: Dhcp,
    pub(crate) raw: Watchers<RawSocket>,
    pub(crate) packets: Watchers<PacketSocket>,
    pub(crate) groups: Groups,
}

impl NetStack {
    /// A stack with a loopback interface.
    #[must_use]
    pub fn new(config: NetConfig) -> Arc<Self> {
        let key = HashKey::random();
        let stack = Arc::new_cyclic(|me: &Weak<Self>| {
            let target = config
                .use_timer
                .then(|| me.clone() as Weak<dyn TimerTarget>);
            Self {
                config,
                key,
                secret: [coracle_core::random::u64(), coracle_core::random::u64()],
                counters: Counters::default(),
                interfaces: [const { Once::new() }; MAX_INTERFACES],
                interface_count: AtomicUsize::new(0),
                adding: SpinLock::new(()),
                routes: SpinLock::new(RouteTable::default()),
                dns: SpinLock::new(Vec::new()),
                timers: Timers::new(target),
                loopback: Loopback::new(),
                reassembly: Reassembly::default(),
                icmp_errors: AtomicU64::new(0),
                next_ip_id: AtomicU64::new(coracle_core::random::u64() >> 1),
                tcp: TcpTables::new(key),
                udp: UdpTables::new(key),
                unix: UnixNames::default(),
                dhcp: Dhcp::default(),
                raw: Watchers::default(),
                packets: Watchers::default(),
                groups: Groups::default(),
            }
        });
        let lo = Interface::new(0, "lo".to_owned(), None, key);
        {
            use core::net::{Ipv4Addr, Ipv6Addr};
            let mut addresses = lo.addresses.lock();
            addresses.push(Prefix {
                address: Address::from_v4(Ipv4Addr::LOCALHOST),
                length: 8,
            });
            addresses.push(Prefix {
                address: Address::from_v6(Ipv6Addr::LOCALHOST),
                length: 128,
            });
        }
        stack.publish(lo);
        stack
    }

    fn publish(&self, interface: Interface) {
        let index = interface.index;
        if self.interfaces[index].set(Arc::new(interface)).is_ok() {
            self.interface_count.store(index + 1, Ordering::Release);
        }
    }

    /// Adds an interface for `device`, configures it and announces its addresses. `ENOSPC` when there are
    /// [`MAX_INTERFACES`] already.
    #[cold]
    pub fn add_interface(&self, device: Arc<dyn NetDevice>, config: InterfaceConfig) -> Result<()> {
        let adding = self.adding.lock();
        let index = self.interface_count.load(Ordering::Acquire);
        if index >= MAX_INTERFACES {
            return Err(Errno::ENOSPC);
        }
        let name = if config.name.is_empty() {
            alloc::format!("eth{}", index - 1)
        } else {
            config.name
        };
        let interface = Interface::new(index, name, Some(device), self.key);
        self.publish(interface);
        drop(adding);
        let Some(interface) = self.interface(index) else {
            return Err(Errno::ENODEV);
        };
        self.dns.lock().extend_from_slice(&config.dns);
        if let Some(prefix) = config.ipv4.filter(|_| !config.dhcp) {
            self.add_address(interface, prefix);
            if let Some(gateway) = config.gateway {
                self.add_default_route(interface, gateway);
            }
        }
        if let Some(prefix) = config.ipv6 {
            self.add_address(interface, prefix);
        }
        if let Some(gateway) = config.gateway6 {
            self.add_default_route(interface, gateway);
        }
        let link_local = Address::link_local(interface.mac);
        self.add_address(
            interface,
            Prefix {
                address: link_local,
                length: 64,
            },
        );
        let now = self.now();
        self.start_autoconf(interface, config.gateway6.is_some(), now);
        self.announce(interface, now);
        if config.dhcp {
            self.start_dhcp(interface, now);
        }
        self.flush();
        Ok(())
    }

    /// Gives an interface an address and the route to its network.
    #[cold]
    pub(crate) fn add_address(&self, interface: &Arc<Interface>, prefix: Prefix) {
        {
            let mut addresses = interface.addresses.lock();
            if addresses.iter().any(|p| p.address == prefix.address) {
                return;
            }
            addresses.push(prefix);
        }
        if let Some(v4) = prefix.address.v4() {
            // Keeps the first: a later one is found in the list.
            let _ = interface.primary_v4.compare_exchange(
                0,
                v4.to_bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        self.routes.lock().add(Route {
            destination: prefix,
            gateway: None,
            interface: interface.index,
        });
    }

    /// Takes the IPv4 addresses and routes of an interface away. Connections that use them end by themselves.
    #[cold]
    pub(crate) fn remove_v4(&self, interface: &Interface) {
        interface.addresses.lock().retain(|p| !p.address.is_v4());
        interface.primary_v4.store(0, Ordering::Relaxed);
        self.routes.lock().remove_v4_of(interface.index);
    }

    pub(crate) fn add_dns(&self, servers: impl Iterator<Item = Address>) {
        let mut dns = self.dns.lock();
        for server in servers {
            if !dns.contains(&server) {
                dns.push(server);
            }
        }
    }

    pub(crate) fn add_default_route(&self, interface: &Arc<Interface>, gateway: Address) {
        self.routes.lock().add(Route {
            destination: Prefix {
                address: gateway.any_like(),
                length: 0,
            },
            gateway: Some(gateway),
            interface: interface.index,
        });
    }

    /// Time now.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        (self.config.clock)()
    }

    /// The interface at `index`; 0 is loopback.
    #[inline]
    pub(crate) fn interface(&self, index: usize) -> Option<&Arc<Interface>> {
        self.interfaces.get(index)?.get()
    }

    /// All interfaces in order.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &Arc<Interface>> {
        self.interfaces.iter().map_while(Once::get)
    }

    /// Whether `address` belongs to this machine.
    pub(crate) fn is_local(&self, address: Address) -> bool {
        self.interfaces().any(|i| i.has_address(address))
    }

    /// Whether `address` is a broadcast address of one of our networks.
    pub(crate) fn is_broadcast(&self, address: Address) -> bool {
        address.is_v4() && self.interfaces().any(|i| i.is_broadcast(address))
    }

    /// Name servers, in order of preference.
    #[must_use]
    pub fn dns_servers(&self) -> Vec<Address> {
        self.dns.lock().clone()
    }

    /// All routes.
    #[must_use]
    pub fn routes(&self) -> Vec<Route> {
        self.routes.lock().all().to_vec()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Receives what has arrived on all devices, delivers loopback packets, and tells the devices about everything
    /// queued. Returns whether more is waiting, so that the caller can do something else in between.
    ///
    /// Call it from the device interrupt and from the idle loop; it may be called on several CPUs at once (each device
    /// is served by one of them). With nothing to do it costs a few loads for each device.
    pub fn poll(&self) -> bool {
        let mut more = false;
        let mut now = None;
        for interface in self.interfaces() {
            if interface.drain_backlog() {
                self.arm_backlog_timer(interface);
            }
            more |= self.receive_from(interface, &mut now);
        }
        self.flush();
        more
    }

    /// Receives from one device, unless another CPU is doing that: then it is told to look once more, so that a packet
    /// that arrives while it is leaving is not forgotten.
    fn receive_from(&self, interface: &Arc<Interface>, now: &mut Option<u64>) -> bool {
        let Some(device) = &interface.device else {
            return false;
        };
        for _ in 0..RECEIVE_ROUNDS {
            interface.look_again.store(true, Ordering::Release);
            // Segments of one connection must not overtake each other, so one CPU serves a device from ring to socket.
            let Some(mut batch) = interface.received.try_lock() else {
                return false;
            };
            interface.look_again.store(false, Ordering::Relaxed);
            let more = device.receive(RECEIVE_BUDGET, &mut |packet| batch.push(packet));
            if !batch.is_empty() {
                self.input_batch(interface, &mut batch, now);
            }
            drop(batch);
            fence(Ordering::SeqCst);
            if !more && !interface.look_again.load(Ordering::Acquire) {
                return false;
            }
        }
        true
    }

    fn input_batch(
        &self,
        interface: &Arc<Interface>,
        batch: &mut Vec<RxPacket>,
        now: &mut Option<u64>,
    ) {
        let now = *now.get_or_insert_with(|| self.now());
        let bytes: usize = batch.iter().map(|p| p.buf.len()).sum();
        self.counters.rx_packets.add(u64_from(batch.len()));
        self.counters.rx_bytes.add(u64_from(bytes));
        for packet in batch.drain(..) {
            self.input_frame(interface, packet.buf, packet.checksum_valid, now);
        }
    }

    /// Whether a device has queued packets that it was not told of.
    #[inline]
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.interfaces()
            .any(|i| i.unflushed.load(Ordering::Relaxed))
    }

    /// Delivers packets from this machine to itself; costs a load when there are none.
    #[inline]
    pub fn flush_loopback(&self) {
        self.deliver_loopback();
    }

    /// Delivers loopback packets and tells the devices about queued packets. Call it when a system call that may have
    /// sent something returns, and before a CPU goes idle; until then sent packets may wait.
    #[inline]
    pub fn flush(&self) {
        self.deliver_loopback();
        for interface in self.interfaces() {
            interface.flush();
        }
    }

    /// Switches receive interrupts of all devices. Returns whether packets arrived meanwhile: then poll again.
    pub fn set_receive_interrupts(&self, on: bool) -> bool {
        let mut arrived = false;
        for device in self.interfaces().filter_map(|i| i.device.as_ref()) {
            arrived |= device.set_receive_interrupts(on);
        }
        arrived
    }

    /// Does what is due by now. Called by the kernel timer; to be called by the owner if
    /// [`NetConfig::use_timer`] is false.
    pub fn run_timers(&self) {
        let now = self.now();
        while let Some(key) = self.timers.pop(now) {
            match key {
                TimerKey::Tcp(socket) => {
                    if let Some(socket) = socket.upgrade() {
                        socket.on_timer(self, now);
                    }
                }
                TimerKey::HalfOpen(flow) => self.retransmit_syn_ack(&flow, now),
                TimerKey::TimeWait => self.expire_time_wait(now),
                TimerKey::Neighbours(index) => self.retry_neighbours(index, now),
                TimerKey::Announce(index) => {
                    if let Some(interface) = self.interface(index) {
                        self.announce_again(interface, now);
                    }
                }
                TimerKey::Dhcp(index) => self.run_dhcp(index, now),
                TimerKey::Autoconf(index) => self.run_autoconf(index, now),
                TimerKey::Backlog(index) => {
                    if let Some(interface) = self.interface(index) {
                        interface.backlog_timer_set.store(false, Ordering::Relaxed);
                        if interface.drain_backlog() {
                            self.arm_backlog_timer(interface);
                        }
                    }
                }
            }
        }
        self.timers.rearm();
        self.flush();
    }

    /// When [`run_timers`](Self::run_timers) has something to do next, in nanoseconds of the stack's clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.next_deadline()
    }

    pub(crate) fn announce_listen(&self, transport: Transport, port: u16) {
        if let Some(hook) = self.config.on_listen {
            hook(transport, port);
        }
    }
}

impl TimerTarget for NetStack {
    fn on_timer(&self) {
        self.run_timers();
    }
}
