// SPDX-License-Identifier: Apache-2.0
//! The DHCP client (RFC 2131): asks for an address when an interface comes up, and keeps it.
//!
//! Answers are taken from the UDP input directly, since a socket cannot receive before there is an address.

use alloc::sync::Arc;
use core::net::Ipv4Addr;

use coracle_abi::convert::low_u32;
use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};
use coracle_core::sync::SpinLock;

use crate::address::{Address, Prefix};
use crate::ip::{IpHeader, IpMeta, checksum_in_place};
use crate::link::{Interface, Path};
use crate::stack::NetStack;
use crate::timers::TimerKey;
use crate::wire::dhcp::{CLIENT_PORT, Kind, Question, Reply, SERVER_PORT};
use crate::wire::protocol;
use crate::wire::udp::{self, Udp};

const SECOND_NS: u64 = 1_000_000_000;
/// First wait for an answer, and the longest (RFC 2131 4.1 begins with four seconds; a unikernel boots faster).
const FIRST_WAIT_NS: u64 = SECOND_NS / 2;
const LONGEST_WAIT_NS: u64 = 64 * SECOND_NS;
/// Lease if the server names none.
const DEFAULT_LEASE_S: u32 = 3600;

#[derive(Clone, Copy, Debug)]
enum State {
    /// Looking for a server.
    Selecting,
    /// Asked this server for this address.
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    /// Has a lease.
    Bound(Lease),
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    address: Ipv4Addr,
    server: Ipv4Addr,
    renew_at: u64,
    rebind_at: u64,
    ends_at: u64,
}

struct Client {
    interface: Arc<Interface>,
    state: State,
    transaction: u32,
    began: u64,
    wait_ns: u64,
    /// When the next message is due; an older timer is not.
    due: u64,
}

/// The clients of all interfaces that use DHCP.
#[derive(Default)]
pub(crate) struct Dhcp {
    clients: SpinLock<alloc::vec::Vec<Client>>,
}

/// A message to send once the lock is released.
struct Send {
    interface: Arc<Interface>,
    question: Question,
    /// The server, or everybody.
    to: Ipv4Addr,
}

impl Client {
    fn question(&self, kind: Kind, now: u64) -> Question {
        Question {
            kind,
            transaction: self.transaction,
            mac: self.interface.mac,
            elapsed_s: u16::try_from(now.saturating_sub(self.began) / SECOND_NS)
                .unwrap_or(u16::MAX),
            current: None,
            requested: None,
            server: None,
        }
    }

    /// What to say now, and how long to wait for the answer.
    fn next(&mut self, now: u64) -> Send {
        let everybody = Ipv4Addr::BROADCAST;
        let (question, to) = match self.state {
            State::Selecting => (self.question(Kind::Discover, now), everybody),
            State::Requesting { address, server } => {
                let mut question = self.question(Kind::Request, now);
                question.requested = Some(address);
                question.server = Some(server);
                (question, everybody)
            }
            State::Bound(lease) => {
                let mut question = self.question(Kind::Request, now);
                question.current = Some(lease.address);
                let rebind = now >= lease.rebind_at;
                (question, if rebind { everybody } else { lease.server })
            }
        };
        match self.state {
            State::Bound(lease) => {
                // Half of what is left until the next stage, at least a minute (RFC 2131, 4.4.5).
                let stage = if now < lease.rebind_at {
                    lease.rebind_at
                } else {
                    lease.ends_at
                };
                self.due = now + (stage.saturating_sub(now) / 2).max(60 * SECOND_NS);
            }
            _ => {
                self.due = now + self.wait_ns;
                self.wait_ns = (self.wait_ns * 2).min(LONGEST_WAIT_NS);
            }
        }
        Send {
            interface: self.interface.clone(),
            question,
            to,
        }
    }

    fn restart(&mut self, now: u64) {
        self.state = State::Selecting;
        self.transaction = low_u32(coracle_core::random::u64());
        self.began = now;
        self.wait_ns = FIRST_WAIT_NS;
    }
}

impl NetStack {
    /// Begins to ask for an address.
    #[cold]
    pub(crate) fn start_dhcp(&self, interface: &Arc<Interface>, now: u64) {
        let mut client = Client {
            interface: interface.clone(),
            state: State::Selecting,
            transaction: 0,
            began: now,
            wait_ns: FIRST_WAIT_NS,
            due: now,
        };
        client.restart(now);
        self.dhcp.clients.lock().push(client);
        self.run_dhcp(interface.index, now);
    }

    /// Whether an interface waits for its first address.
    #[must_use]
    pub fn has_pending_dhcp(&self) -> bool {
        let clients = self.dhcp.clients.lock();
        clients.iter().any(|c| !matches!(c.state, State::Bound(_)))
    }

    /// Timer: something may be due.
    #[cold]
    pub(crate) fn run_dhcp(&self, index: usize, now: u64) {
        let mut expired = None;
        let (send, due) = {
            let mut clients = self.dhcp.clients.lock();
            let Some(client) = clients.iter_mut().find(|c| c.interface.index == index) else {
                return;
            };
            if now < client.due {
                return; // an answer came meanwhile and set a later timer
            }
            if let State::Bound(lease) = client.state
                && now >= lease.ends_at
            {
                expired = Some((client.interface.clone(), lease.address));
                client.restart(now);
            }
            (client.next(now), client.due)
        };
        if let Some((interface, address)) = expired {
            log::warn!("{}: the lease of {address} has ended", interface.name);
            self.remove_v4(&interface);
        }
        self.timers.set(due, TimerKey::Dhcp(index));
        self.send_dhcp(&send, now);
    }

    #[cold]
    fn send_dhcp(&self, send: &Send, now: u64) {
        let bytes = send.question.emit();
        let source = send.question.current.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let destination = Address::from_v4(send.to);
        let mut path = match self.route(destination, None, Some(send.interface.index)) {
            Ok(path) if !send.to.is_broadcast() => path,
            _ => Path::new(
                send.interface.clone(),
                Address::from_v4(source),
                destination,
            ),
        };
        let mut head = PacketBuf::new(HEADROOM, bytes.len());
        head.append(bytes.len()).copy_from_slice(&bytes);
        Udp {
            source: CLIENT_PORT,
            destination: SERVER_PORT,
            len: udp::HEADER + bytes.len(),
            has_checksum: true,
        }
        .emit(head.prepend(udp::HEADER));
        let mut packet = TxPacket::new(head);
        checksum_in_place(
            &mut packet,
            &path,
            destination,
            protocol::UDP,
            udp::CHECKSUM,
        );
        let header = IpHeader {
            destination,
            protocol: protocol::UDP,
            ttl: 64,
            tos: 0,
            dont_fragment: false,
        };
        self.send_ip(&mut path, packet, header, now);
    }

    /// A UDP payload for the DHCP client's port. Returns whether a client of ours was waiting for it.
    #[cold]
    pub(crate) fn input_dhcp(&self, meta: &IpMeta<'_>, payload: &[u8], now: u64) -> bool {
        let interface = meta.interface;
        let mut clients = self.dhcp.clients.lock();
        let index = interface.index;
        let Some(client) = clients.iter_mut().find(|c| c.interface.index == index) else {
            return false;
        };
        let Some(reply) = Reply::parse(payload, interface.mac) else {
            return true;
        };
        if reply.transaction != client.transaction {
            return true;
        }
        match (reply.kind, client.state) {
            (Kind::Offer, State::Selecting) => {
                let Some(server) = reply.server else {
                    return true;
                };
                let address = reply.address;
                client.state = State::Requesting { address, server };
                client.wait_ns = FIRST_WAIT_NS;
                client.due = now;
                drop(clients);
                self.run_dhcp(index, now);
            }
            (Kind::Ack, State::Requesting { server, .. }) => {
                self.accept_lease(clients, index, &reply, server, now);
            }
            (Kind::Ack, State::Bound(lease)) => {
                self.accept_lease(clients, index, &reply, lease.server, now);
            }
            (Kind::Nak, State::Requesting { .. } | State::Bound(_)) => {
                client.restart(now);
                client.due = now;
                drop(clients);
                self.remove_v4(interface);
                self.run_dhcp(index, now);
            }
            _ => {}
        }
        true
    }

    #[cold]
    fn accept_lease(
        &self,
        mut clients: coracle_core::sync::SpinGuard<'_, alloc::vec::Vec<Client>>,
        index: usize,
        reply: &Reply,
        server: Ipv4Addr,
        now: u64,
    ) {
        let Some(client) = clients.iter_mut().find(|c| c.interface.index == index) else {
            return;
        };
        let lease_s = reply.lease_s.unwrap_or(DEFAULT_LEASE_S).max(60);
        let at = |seconds: u32| now + u64::from(seconds) * SECOND_NS;
        let lease = Lease {
            address: reply.address,
            server: reply.server.unwrap_or(server),
            renew_at: at(reply.renew_s.unwrap_or(lease_s / 2).min(lease_s)),
            rebind_at: at(reply.rebind_s.unwrap_or(lease_s / 8 * 7).min(lease_s)),
            ends_at: at(lease_s),
        };
        let renewed = matches!(client.state, State::Bound(old) if old.address == lease.address);
        client.state = State::Bound(lease);
        client.due = lease.renew_at;
        client.wait_ns = FIRST_WAIT_NS;
        let interface = client.interface.clone();
        drop(clients);
        self.timers.set(lease.renew_at, TimerKey::Dhcp(index));
        if renewed {
            return;
        }
        self.remove_v4(&interface);
        let mask = reply.netmask.unwrap_or(Ipv4Addr::new(255, 255, 255, 0));
        let length = u8::try_from(mask.to_bits().leading_ones()).unwrap_or(32);
        let address = Address::from_v4(reply.address);
        self.add_address(&interface, Prefix { address, length });
        if let Some(router) = reply.router {
            self.add_default_route(&interface, Address::from_v4(router));
        }
        self.add_dns(reply.dns.iter().map(|d| Address::from_v4(*d)));
        log::info!(
            "{}: {}/{length} by DHCP for {lease_s} s",
            interface.name,
            reply.address
        );
        self.announce(&interface, now);
    }
}
