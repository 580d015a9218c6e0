// SPDX-License-Identifier: Apache-2.0
//! The network: stack and interfaces, and when they are looked after.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use coracle_abi::convert::usize_from;
use coracle_arch::cpu;
use coracle_core::sync::{Once, SpinLock};
use coracle_core::thread::{self, IdleHooks, set_idle_hooks};
use coracle_core::time;
use coracle_core::timer::{Timer, TimerTarget};
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

/// What sockets may hold: a quarter of the memory, so that no peer can use up a small guest.
fn memory_limit(memory_bytes: u64) -> usize {
    usize_from(memory_bytes / 4).clamp(1 << 20, 64 << 20)
}

/// Makes the stack and an interface for each card.
pub(crate) fn init(memory_bytes: u64, config: &BootConfig, cards: Vec<Arc<VirtioNet>>) {
    let stack = NetStack::new(NetConfig {
        on_listen: Some(on_listen),
        memory_limit: memory_limit(memory_bytes),
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
        card.set_on_receive(Arc::new(move || on_receive(&poll)));
        if let Err(error) = stack.add_interface(card.clone(), interface(&settings)) {
            log::error!("network interface {index}: {error}");
        }
        card.set_receive_interrupts(true);
    }
    socket::install(stack.clone());
    coracle_syscall::socket::install(stack.clone());
    let _ = STACK.set(stack);
    init_tick();
    set_idle_hooks(IdleHooks {
        flush,
        poll,
        arm,
        begin,
        end,
    });
}

/// Longest wait for DHCP servers. Some look for three seconds whether an address is free before they offer it.
const LEASE_TIMEOUT_NS: u64 = 10_000_000_000;

/// Waits until every interface that asks for its address has one, so that a program finds the network ready. Threads do
/// not run yet, so the cards are looked after here.
pub(crate) fn wait_for_leases() {
    let Some(stack) = STACK.get() else { return };
    let give_up_at = time::now() + LEASE_TIMEOUT_NS;
    while stack.has_pending_dhcp() {
        stack.poll();
        stack.run_timers();
        if time::now() > give_up_at {
            log::warn!("no DHCP server has answered yet; going on without an address");
            return;
        }
        cpu::relax();
    }
}

/// Addresses of the interfaces without loopback and link-local ones, and name servers.
pub(crate) fn known_addresses() -> (Vec<IpAddr>, Vec<IpAddr>) {
    let Some(stack) = STACK.get() else {
        return (Vec::new(), Vec::new());
    };
    let own = stack
        .interface_reports()
        .into_iter()
        .flat_map(|interface| interface.addresses)
        .map(|prefix| prefix.address)
        .filter(|address| !address.is_loopback() && !address.is_v6_link_local());
    let servers = stack.dns_servers();
    (
        own.map(IpAddr::from).collect(),
        servers.into_iter().map(IpAddr::from).collect(),
    )
}

fn interface(settings: &NetworkConfig) -> InterfaceConfig {
    InterfaceConfig {
        ipv4: settings.ipv4.map(|(address, length)| Prefix {
            address: Address::from_v4(address),
            length,
        }),
        gateway: settings.gateway.map(Address::from_v4),
        ipv6: settings.ipv6.map(|(address, length)| Prefix {
            address: Address::from_v6(address),
            length,
        }),
        gateway6: settings.gateway6.map(Address::from_v6),
        dhcp: settings.dhcp,
        dns: settings.dns.iter().copied().map(Address::from).collect(),
        ..InterfaceConfig::default()
    }
}

/// While CPUs are busy, neither each received nor each sent packet may cost a trap to the VMM: receive interrupts are
/// off, and cards are told about queued packets late. Both are made up for whenever a thread is about to wait, and at
/// the latest after this time.
const TICK_NS: u64 = 1_000_000;

/// Looks after the cards while their interrupts are off.
struct Tick {
    timer: Once<Timer>,
    /// The timer is set. It stays set when it is not needed any more: letting it pass once costs less than cancelling
    /// and setting it for each packet.
    armed: AtomicBool,
    /// Receive interrupts are off: a CPU polls, or the timer is set. While they are on, the next packet interrupts.
    quiet: AtomicBool,
    /// Held while interrupts and `quiet` are switched together.
    switching: SpinLock<()>,
}

static TICK: Once<Arc<Tick>> = Once::new();

impl TimerTarget for Tick {
    fn on_timer(&self) {
        self.armed.store(false, Ordering::SeqCst);
        let Some(stack) = STACK.get() else { return };
        if self.quiet.load(Ordering::Relaxed) {
            stack.poll();
            self.arm();
        } else {
            stack.flush();
        }
    }
}

impl Tick {
    fn arm(&self) {
        if !self.armed.swap(true, Ordering::SeqCst)
            && let Some(timer) = self.timer.get()
        {
            timer.arm(time::now() + TICK_NS);
        }
    }

    /// Switches receive interrupts on; the caller is about to sleep, or knows a CPU that does. Returns whether packets
    /// are there already, for which no interrupt may come: the caller must poll.
    fn listen(&self, stack: &NetStack) -> bool {
        let _one_at_a_time = self.switching.lock();
        self.quiet.store(false, Ordering::SeqCst);
        stack.set_receive_interrupts(true)
    }

    /// Switches receive interrupts off; the caller polls, or sets the timer.
    fn silence(&self, stack: &NetStack) {
        let _one_at_a_time = self.switching.lock();
        if !self.quiet.swap(true, Ordering::SeqCst) {
            stack.set_receive_interrupts(false);
        }
    }

    /// After packets were looked for by a CPU that does something else next: while another CPU sleeps, the next packet
    /// must interrupt, so that it can be woken; otherwise packets are found at the next wait or tick.
    fn settle(&self, stack: &NetStack) {
        /// Packets may keep coming; then they are left to the tick.
        const ROUNDS: usize = 4;
        for _ in 0..ROUNDS {
            if !thread::is_any_halted() {
                break;
            }
            if !self.listen(stack) {
                return;
            }
            stack.poll();
        }
        self.silence(stack);
        self.arm();
    }
}

fn init_tick() {
    let tick = Arc::new(Tick {
        timer: Once::new(),
        armed: AtomicBool::new(false),
        quiet: AtomicBool::new(false),
        switching: SpinLock::new(()),
    });
    let target: Weak<Tick> = Arc::downgrade(&tick);
    let _ = tick.timer.set(Timer::new(target));
    let _ = TICK.set(tick);
}

/// Packets have arrived, or a full transmit queue has room. Called by the interrupt.
fn on_receive(stack: &NetStack) {
    stack.poll();
    if let Some(tick) = TICK.get() {
        tick.settle(stack);
    }
}

/// Packets sent until the last system call that may wait.
static SENT: AtomicU64 = AtomicU64::new(0);
/// Several packets were sent between the last two such calls: waiting for the next call lets them share a notification.
/// A lone packet goes out at once, since somebody waits for it.
static SHARE: AtomicBool = AtomicBool::new(false);

/// Before a system call that may wait: what it waits for may be in the card already, and what was sent must go out.
#[inline]
pub(crate) fn before_wait() {
    if let Some(stack) = STACK.get() {
        let sent = stack.counters().tx_packets.get();
        let before = SENT.swap(sent, Ordering::Relaxed);
        SHARE.store(sent.wrapping_sub(before) > 1, Ordering::Relaxed);
        if TICK
            .get()
            .is_some_and(|tick| tick.quiet.load(Ordering::Relaxed))
        {
            stack.poll();
        } else {
            stack.flush();
        }
    }
}

/// After any system call: what it sent to this machine is delivered, what it sent to others goes out soon.
#[inline]
pub(crate) fn after_system_call() {
    if let Some(stack) = STACK.get() {
        stack.flush_loopback();
        if stack.has_unsent() {
            match TICK.get() {
                Some(tick) if SHARE.load(Ordering::Relaxed) => tick.arm(),
                _ => stack.flush(),
            }
        }
    }
}

/// Tells the cards about everything that is queued.
pub(crate) fn flush() {
    if let Some(stack) = STACK.get() {
        stack.flush();
    }
}

fn poll() -> bool {
    STACK.get().is_some_and(|stack| stack.poll())
}

/// A CPU goes to sleep: packets must interrupt again.
fn arm() -> bool {
    let (Some(stack), Some(tick)) = (STACK.get(), TICK.get()) else {
        return false;
    };
    tick.listen(stack)
}

/// A CPU begins to poll: packets need not interrupt.
fn begin() {
    if let (Some(stack), Some(tick)) = (STACK.get(), TICK.get()) {
        tick.silence(stack);
    }
}

/// A CPU that was idle runs a thread.
fn end() {
    if let (Some(stack), Some(tick)) = (STACK.get(), TICK.get()) {
        tick.settle(stack);
    }
}
