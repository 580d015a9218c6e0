// SPDX-License-Identifier: Apache-2.0
//! IPv6 addresses from routers, objections against addresses, and reports of group membership: what is on the wire, and
//! what becomes of it. The other end of the wire is made of bytes here.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use common::{
    FakeDevice, MS, SECOND, Wire, advance_to, new_stack, now, restart_clock, udp, v4_config,
};
use coracle_core::file::File;
use coracle_net::{Address, InterfaceConfig, NetStack};

/// The router's addresses.
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const NETWORK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0);
const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0x53);

struct Net {
    wire: Arc<Mutex<Wire>>,
    stack: Arc<NetStack>,
}

impl Net {
    fn new(config: InterfaceConfig) -> Self {
        restart_clock();
        let wire = Arc::new(Mutex::new(Wire::default()));
        wire.lock().unwrap().log = Some(Vec::new());
        let stack = new_stack();
        let device = FakeDevice::new(&wire, 0, 1500, Default::default(), 256);
        stack.add_interface(device, config).unwrap();
        Self { wire, stack }
    }

    /// Lets time pass.
    fn pass(&self, ns: u64) {
        let end = now() + ns;
        loop {
            while self.stack.poll() {}
            self.stack.run_timers();
            let arrival = self.wire.lock().unwrap().next_arrival();
            let next = [arrival, self.stack.next_deadline()].into_iter().flatten();
            match next.min().filter(|at| *at <= end) {
                // What was sent to the other end stays there.
                Some(at) if at > now() => advance_to(at),
                Some(_) if self.wire.lock().unwrap().take(1).is_some() => {}
                Some(_) => advance_to(now() + 1000),
                None => break,
            }
        }
        advance_to(end);
    }

    /// The ICMPv6 and IGMP messages sent so far, with the destination of each.
    fn sent(&self) -> Vec<(IpAddr, Vec<u8>)> {
        let mut wire = self.wire.lock().unwrap();
        let frames = std::mem::take(wire.log.as_mut().unwrap());
        let message = |frame: Vec<u8>| match frame[12..14] {
            [0x86, 0xdd] => {
                let to: [u8; 16] = frame[38..54].try_into().unwrap();
                // Behind the hop-by-hop header, if there is one.
                let start = if frame[20] == 0 { 62 } else { 54 };
                Some((IpAddr::from(to), frame[start..].to_vec()))
            }
            [8, 0] if frame[23] == 2 => {
                let to: [u8; 4] = frame[30..34].try_into().unwrap();
                assert_eq!(frame[34..38], [148, 4, 0, 0], "router alert");
                Some((IpAddr::from(to), frame[38..].to_vec()))
            }
            _ => None,
        };
        let ours = frames.into_iter().filter(|(side, _)| *side == 0);
        ours.filter_map(|(_, frame)| message(frame)).collect()
    }

    /// Sends an ICMPv6 message from the other end.
    fn icmp6(&self, from: Ipv6Addr, to: Ipv6Addr, hop_limit: u8, mut message: Vec<u8>) {
        let mut sum: u32 = 58 + message.len() as u32;
        for bytes in [&from.octets()[..], &to.octets(), &message] {
            for pair in bytes.chunks(2) {
                sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            }
        }
        while sum >> 16 != 0 {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        let mut frame = vec![0x33, 0x33, 0, 0, 0, 1];
        frame.extend(ROUTER_MAC);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((message.len() as u16).to_be_bytes());
        frame.extend([58, hop_limit]);
        frame.extend(from.octets());
        frame.extend(to.octets());
        frame.extend(message);
        self.wire.lock().unwrap().send(1, frame, false);
        self.pass(MS);
    }

    fn advertise(&self, router_s: u16, valid_s: u32, flags: u8) {
        let mut message = vec![134, 0, 0, 0, 64, 0];
        message.extend(router_s.to_be_bytes());
        message.extend([0; 8]);
        message.extend([3, 4, 64, flags]);
        message.extend(valid_s.to_be_bytes());
        message.extend(valid_s.to_be_bytes());
        message.extend([0; 4]);
        message.extend(NETWORK.octets());
        message.extend([25, 3, 0, 0, 0, 0, 0x0e, 0x10]);
        message.extend(SERVER.octets());
        self.icmp6(ROUTER, ALL_NODES, 255, message);
    }

    fn addresses(&self) -> Vec<Address> {
        let all = self.stack.interface_reports();
        let eth = all.iter().find(|i| i.name == "eth0").unwrap();
        eth.addresses.iter().map(|p| p.address).collect()
    }

    fn has_default(&self) -> bool {
        let routes = self.stack.routes();
        let mut routes = routes.iter();
        routes.any(|r| r.destination.length == 0 && r.gateway == Some(Address::from_v6(ROUTER)))
    }
}

/// The address that side 0 makes from the network: its hardware address is 02:00:00:00:00:01.
fn formed() -> Address {
    Address::from_v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0xff, 0xfe00, 1))
}

fn link_local() -> Address {
    Address::from_v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1))
}

const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

#[test]
fn a_router_gives_address_route_and_name_server_for_a_time() {
    let net = Net::new(InterfaceConfig::default());
    net.pass(MS);
    assert!(net.sent().iter().any(|(_, m)| m[0] == 133), "solicitation");
    net.advertise(1800, 3 * 3600, ON_LINK | AUTONOMOUS);
    assert!(net.addresses().contains(&formed()));
    assert!(net.has_default());
    assert_eq!(net.stack.dns_servers(), [Address::from_v6(SERVER)]);
    // It asks no more, and checks its new address.
    let sent = net.sent();
    assert!(
        sent.iter()
            .any(|(_, m)| m[0] == 135 && m[8..24] == formed().v6().octets())
    );
    net.pass(20 * SECOND);
    assert!(!net.sent().iter().any(|(_, m)| m[0] == 133));
    // The router goes first, then the address.
    net.pass(1800 * SECOND);
    assert!(!net.has_default());
    assert!(net.addresses().contains(&formed()));
    net.pass(3 * 3600 * SECOND);
    assert_eq!(net.addresses(), [link_local()]);
    assert!(
        net.stack
            .routes()
            .iter()
            .all(|r| r.destination.address != Address::from_v6(NETWORK))
    );
}

#[test]
fn a_lifetime_is_not_cut_short_by_strangers() {
    let net = Net::new(InterfaceConfig::default());
    net.advertise(1800, 24 * 3600, AUTONOMOUS);
    net.advertise(0, 1, AUTONOMOUS);
    assert!(!net.has_default(), "the router withdrew");
    net.pass(7000 * SECOND);
    assert!(
        net.addresses().contains(&formed()),
        "two hours are left at least"
    );
    net.pass(300 * SECOND);
    assert!(!net.addresses().contains(&formed()));
}

#[test]
fn what_no_neighbour_can_have_sent_is_ignored() {
    let net = Net::new(InterfaceConfig::default());
    let mut message = vec![134, 0, 0, 0, 64, 0, 7, 8];
    message.extend([0; 8]);
    net.icmp6(ROUTER, ALL_NODES, 64, message.clone());
    assert!(!net.has_default(), "a router forwarded it");
    message.extend([3, 0, 64, 0xc0]); // an option of length zero
    net.icmp6(ROUTER, ALL_NODES, 255, message);
    assert_eq!(net.addresses(), [link_local()]);
}

#[test]
fn an_address_that_somebody_has_is_given_up_while_it_is_checked() {
    let claim = |net: &Net| {
        let mut message = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
        message.extend(link_local().v6().octets());
        message.extend([2, 1]);
        message.extend(ROUTER_MAC);
        net.icmp6(link_local().v6(), ALL_NODES, 255, message);
    };
    let net = Net::new(InterfaceConfig::default());
    claim(&net);
    assert_eq!(net.addresses(), []);
    // Later it is too late to object: nobody may take an address away.
    let net = Net::new(InterfaceConfig::default());
    net.pass(2 * SECOND);
    claim(&net);
    assert_eq!(net.addresses(), [link_local()]);
    // Another one that checks the same address at the same time.
    let net = Net::new(InterfaceConfig::default());
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(link_local().v6().octets());
    net.icmp6(Ipv6Addr::UNSPECIFIED, ALL_NODES, 255, message);
    assert_eq!(net.addresses(), []);
}

#[test]
fn membership_of_groups_is_reported() {
    let own = Ipv4Addr::new(10, 0, 0, 1);
    let net = Net::new(v4_config(own));
    net.pass(MS);
    // Solicited-node group of the link-local address.
    let mld: IpAddr = "ff02::16".parse().unwrap();
    let igmp: IpAddr = "224.0.0.22".parse().unwrap();
    let group: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
    let report = net.sent().into_iter().find(|(to, _)| *to == mld).unwrap().1;
    assert_eq!((report[0], report[7], report[8]), (143, 1, 4));
    assert_eq!(report[12..28], group.octets());

    let request = |group: [u8; 4]| [group, own.octets()].concat();
    let (first, second) = (udp(&net.stack), udp(&net.stack));
    for socket in [&first, &second] {
        socket.set_option(0, 35, &request([239, 1, 2, 3])).unwrap();
    }
    net.stack.flush();
    let reports: Vec<_> = net
        .sent()
        .into_iter()
        .filter(|(to, _)| *to == igmp)
        .collect();
    assert_eq!(reports.len(), 1, "two members, one report");
    assert_eq!(reports[0].1[..2], [0x22, 0]);
    assert_eq!(reports[0].1[8..], [4, 0, 0, 0, 239, 1, 2, 3]);

    // A general query is answered with all groups.
    let mut frame = vec![1, 0, 0x5e, 0, 0, 1];
    frame.extend(ROUTER_MAC);
    frame.extend([
        8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 9, 224, 0, 0, 1,
    ]);
    frame.extend([0x11, 0, 0xee, 0xff, 0, 0, 0, 0]);
    let sum: u32 = frame[14..34]
        .chunks(2)
        .map(|p| u32::from(p[0]) << 8 | u32::from(p[1]))
        .sum();
    let sum = !(((sum >> 16) + (sum & 0xffff)) as u16);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    net.wire.lock().unwrap().send(1, frame, false);
    net.pass(MS);
    let answer = net
        .sent()
        .into_iter()
        .find(|(to, _)| *to == igmp)
        .unwrap()
        .1;
    assert_eq!(answer[8..], [2, 0, 0, 0, 239, 1, 2, 3]);

    first.on_release();
    assert!(
        !net.sent().iter().any(|(to, _)| *to == igmp),
        "one member is left"
    );
    second.set_option(0, 36, &request([239, 1, 2, 3])).unwrap();
    net.stack.flush();
    let leave = net
        .sent()
        .into_iter()
        .find(|(to, _)| *to == igmp)
        .unwrap()
        .1;
    assert_eq!(leave[8..], [3, 0, 0, 0, 239, 1, 2, 3]);
}
