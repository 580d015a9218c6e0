// SPDX-License-Identifier: Apache-2.0
//! What surrounds the transports: IPv6, neighbours, DHCP, ICMP sockets, netlink, multicast, fragments.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use common::*;
use coracle_core::file::File;
use coracle_core::io::IoDst;
use coracle_core::{Errno, PollEvents};
use coracle_net::{Address, InterfaceConfig, Prefix, SocketAddress, SocketFile};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::sync::{Arc, Mutex};

fn v6(ip: Ipv6Addr, port: u16) -> SocketAddress {
    SocketAddress::V6(SocketAddrV6::new(ip, port, 0, 0))
}

/// Two stacks with IPv6 addresses fd00::1 and fd00::2 besides the link-local ones.
fn v6_world() -> World {
    let wire = Arc::new(Mutex::new(Wire::default()));
    wire.lock().unwrap().rules = Rules::default();
    let (a, b) = (new_stack(), new_stack());
    let devices = [0, 1].map(|side| FakeDevice::new(&wire, side, 1500, Default::default(), 256));
    for (n, stack) in [&a, &b].into_iter().enumerate() {
        let config = InterfaceConfig {
            ipv6: Some(Prefix {
                address: Address::from_v6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n as u16 + 1)),
                length: 64,
            }),
            ..InterfaceConfig::default()
        };
        stack.add_interface(devices[n].clone(), config).unwrap();
    }
    World {
        wire,
        a,
        b,
        devices,
    }
}

#[test]
fn tcp_over_ipv6_static_and_link_local() {
    let world = v6_world();
    let fixed = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2);
    for ip in [fixed, local, Ipv6Addr::LOCALHOST] {
        let target = if ip == Ipv6Addr::LOCALHOST {
            &world.a
        } else {
            &world.b
        };
        let listener = SocketFile::new(target, 10, 1, 0).unwrap();
        listener.bind(&v6(Ipv6Addr::UNSPECIFIED, 80)).unwrap();
        listener.listen(5).unwrap();
        let client = SocketFile::new(&world.a, 10, 1, 0).unwrap();
        assert_eq!(client.connect(&v6(ip, 80)), Err(Errno::EINPROGRESS));
        assert!(
            world.run_until(SECOND, || listener.poll().contains(PollEvents::IN)),
            "{ip}"
        );
        let (server, from) = listener.accept().unwrap();
        assert!(matches!(from, SocketAddress::V6(_)));
        assert_eq!(send(&client, b"six"), Ok(3));
        assert!(world.run_until(SECOND, || server.poll().contains(PollEvents::IN)));
        assert_eq!(receive(&server, 9), Ok(b"six".to_vec()));
        listener.on_release();
    }
}

#[test]
fn dual_stack_sockets_take_ipv4() {
    let world = World::plain();
    let listener = SocketFile::new(&world.b, 10, 1, 0).unwrap();
    listener.bind(&v6(Ipv6Addr::UNSPECIFIED, 80)).unwrap();
    listener.listen(5).unwrap();
    let other = tcp(&world.b);
    assert_eq!(
        other.bind(&v4(Ipv4Addr::UNSPECIFIED, 80)),
        Err(Errno::EADDRINUSE)
    );
    let client = tcp(&world.a);
    assert_eq!(client.connect(&v4(B, 80)), Err(Errno::EINPROGRESS));
    assert!(world.run_until(SECOND, || listener.poll().contains(PollEvents::IN)));
    let (_server, from) = listener.accept().unwrap();
    let SocketAddress::V6(from) = from else {
        panic!("a v6 socket names v6 addresses")
    };
    assert_eq!(from.ip().to_ipv4_mapped(), Some(A));
    // With IPV6_V6ONLY both can have the port.
    let only = SocketFile::new(&world.b, 10, 1, 0).unwrap();
    set(&only, 41, 26, 1);
    only.bind(&v6(Ipv6Addr::UNSPECIFIED, 81)).unwrap();
    assert_eq!(other.bind(&v4(Ipv4Addr::UNSPECIFIED, 81)), Ok(()));
}

#[test]
fn ping_sockets_get_their_answers() {
    let world = World::plain();
    let ping = SocketFile::new(&world.a, 2, 2, 1).unwrap();
    let raw = SocketFile::new(&world.a, 2, 3, 1).unwrap();
    let echo = [8, 0, 0, 0, 0, 0, 0, 7, b'd', b'a', b't', b'a'];
    assert_eq!(send_to(&ping, &echo, &v4(B, 0)), Ok(12));
    assert!(world.run_until(SECOND, || ping.poll().contains(PollEvents::IN)));
    let answer = receive(&ping, 100).unwrap();
    assert_eq!((answer[0], &answer[6..]), (0, &echo[6..]));
    let with_header = receive(&raw, 100).unwrap();
    assert_eq!((with_header[0], with_header.len()), (0x45, 32));
    assert_eq!(receive(&raw, 100), Err(Errno::EAGAIN));
}

#[test]
fn an_unreachable_neighbour_fails_the_connection() {
    let world = World::plain();
    let client = tcp(&world.a);
    let nobody = Ipv4Addr::new(10, 0, 0, 77);
    assert_eq!(client.connect(&v4(nobody, 80)), Err(Errno::EINPROGRESS));
    assert!(world.run_until(10 * SECOND, || client.poll().contains(PollEvents::ERR)));
    assert_eq!(client.connect(&v4(nobody, 80)), Err(Errno::EHOSTUNREACH));
    let far = Ipv4Addr::new(192, 0, 2, 1);
    assert_eq!(client.connect(&v4(far, 80)), Err(Errno::ENETUNREACH));
}

#[test]
fn addresses_are_announced() {
    let world = World::plain();
    world.wire.lock().unwrap().log = Some(Vec::new());
    world.run_for(SECOND);
    let log = world.wire.lock().unwrap().log.take().unwrap();
    let is_announcement =
        |f: &[u8]| f[12..14] == [8, 6] && f[28..32] == f[38..42] && f[..6] == [0xff; 6];
    let count = log
        .iter()
        .filter(|(side, f)| *side == 0 && is_announcement(f))
        .count();
    assert!((2..=3).contains(&count), "{count} announcements");
}

/// Answers of a small DHCP server.
fn dhcp_answer(question: &[u8], give: Ipv4Addr) -> Vec<u8> {
    let kind = question[240..]
        .windows(3)
        .find(|w| w[..2] == [53, 1])
        .unwrap()[2];
    let mut out = question[..240].to_vec();
    out[0] = 2;
    out[16..20].copy_from_slice(&give.octets());
    out.extend([53, 1, if kind == 1 { 2 } else { 5 }]);
    out.extend([
        54, 4, 10, 0, 0, 2, 1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 0, 2,
    ]);
    out.extend([6, 8, 10, 0, 0, 3, 10, 0, 0, 4, 51, 4, 0, 0, 0, 120, 255]);
    out
}

#[test]
fn dhcp_gets_and_keeps_an_address() {
    let wire = Arc::new(Mutex::new(Wire::default()));
    wire.lock().unwrap().rules = Rules::default();
    let (a, b) = (new_stack(), new_stack());
    let devices = [0, 1].map(|side| FakeDevice::new(&wire, side, 1500, Default::default(), 256));
    b.add_interface(devices[1].clone(), v4_config(B)).unwrap();
    let config = InterfaceConfig {
        dhcp: true,
        ..InterfaceConfig::default()
    };
    a.add_interface(devices[0].clone(), config).unwrap();
    let world = World {
        wire,
        a,
        b,
        devices,
    };
    let server = udp(&world.b);
    server.bind(&v4(Ipv4Addr::UNSPECIFIED, 67)).unwrap();
    set(&server, 1, 6, 1);
    let answered = std::cell::Cell::new(0);
    let serve = || {
        let mut bytes = [0; 1000];
        while let Ok(got) = server.receive(&mut IoDst::kernel(&mut bytes), 0) {
            let answer = dhcp_answer(&bytes[..got.count], A);
            let renewing = bytes[12..16] == A.octets();
            let to = if renewing { A } else { Ipv4Addr::BROADCAST };
            send_to(&server, &answer, &v4(to, 68)).unwrap();
            answered.set(answered.get() + 1);
        }
        false
    };
    world.run_until(3 * SECOND, serve);
    assert_eq!(answered.get(), 2);
    assert_eq!(
        world.a.dns_servers(),
        [3, 4].map(|n| Address::from_v4(Ipv4Addr::new(10, 0, 0, n)))
    );
    assert!(
        world
            .a
            .routes()
            .iter()
            .any(|r| r.gateway == Some(Address::from_v4(B)))
    );
    let socket = tcp(&world.a);
    assert_eq!(socket.bind(&v4(A, 1234)), Ok(()));
    // Renewed at half of the two minutes, and again.
    world.run_until(150 * SECOND, serve);
    assert!(
        (4..=6).contains(&answered.get()),
        "{} answers",
        answered.get()
    );
    // Without a server the lease ends and the address goes.
    server.on_release();
    world.run_for(200 * SECOND);
    assert_eq!(tcp(&world.a).bind(&v4(A, 1235)), Err(Errno::EADDRNOTAVAIL));
}

#[test]
fn netlink_lists_interfaces_addresses_and_routes() {
    let world = World::plain();
    let socket = SocketFile::new(&world.a, 16, 3, 0).unwrap();
    socket
        .bind(&SocketAddress::Netlink { pid: 0, groups: 0 })
        .unwrap();
    let SocketAddress::Netlink { pid, .. } = socket.local_address().unwrap() else {
        panic!()
    };
    assert_ne!(pid, 0);
    for (ask, answer, least) in [(18u16, 16u16, 2), (22, 20, 4), (26, 24, 2)] {
        let mut request = 17u32.to_ne_bytes().to_vec();
        request.extend(ask.to_ne_bytes());
        request.extend(0x301u16.to_ne_bytes());
        request.extend(9u32.to_ne_bytes());
        request.extend(0u32.to_ne_bytes());
        request.push(0);
        assert_eq!(send(&socket, &request), Ok(17));
        let mut kinds = Vec::new();
        while let Ok(bytes) = receive(&socket, 8192) {
            let mut rest = &bytes[..];
            while rest.len() >= 16 {
                let len = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
                assert_eq!(rest[8..12], 9u32.to_ne_bytes());
                assert_eq!(rest[12..16], pid.to_ne_bytes());
                kinds.push(u16::from_ne_bytes([rest[4], rest[5]]));
                rest = &rest[len.next_multiple_of(4).min(rest.len())..];
            }
        }
        assert_eq!(kinds.pop(), Some(3));
        assert!(
            kinds.len() >= least && kinds.iter().all(|k| *k == answer),
            "{kinds:?}"
        );
    }
}

#[test]
fn multicast_reaches_members_only() {
    let world = World::plain();
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let [member, stranger] = [udp(&world.b), udp(&world.b)];
    for socket in [&member, &stranger] {
        set(socket, 1, 2, 1);
        socket.bind(&v4(Ipv4Addr::UNSPECIFIED, 9000)).unwrap();
    }
    let mut request = group.octets().to_vec();
    request.extend(B.octets());
    member.set_option(0, 35, &request).unwrap();
    let sender = udp(&world.a);
    send_to(&sender, b"all", &v4(group, 9000)).unwrap();
    assert!(world.run_until(SECOND, || member.poll().contains(PollEvents::IN)));
    assert_eq!(receive(&member, 9), Ok(b"all".to_vec()));
    assert_eq!(receive(&stranger, 9), Err(Errno::EAGAIN));
    assert_eq!(
        send_to(&sender, b"x", &v4(Ipv4Addr::BROADCAST, 9000)),
        Err(Errno::EACCES)
    );
    set(&sender, 1, 6, 1);
    send_to(&sender, b"hello", &v4(Ipv4Addr::new(10, 0, 0, 255), 9000)).unwrap();
    assert!(world.run_until(SECOND, || stranger.poll().contains(PollEvents::IN)));
    assert_eq!(receive(&member, 9), Ok(b"hello".to_vec()));
}

#[test]
fn fragments_in_any_order_make_the_datagram() {
    for seed in 1..20 {
        let rules = Rules {
            delay_ns: MS,
            reorder: 700,
            double: 200,
            ..Rules::default()
        };
        let world = World::new(Setup {
            rules,
            seed,
            ..Setup::default()
        });
        let server = udp(&world.b);
        server.bind(&v4(B, 7)).unwrap();
        let client = udp(&world.a);
        let data = pattern(20_000);
        send_to(&client, &data, &v4(B, 7)).unwrap();
        assert!(world.run_until(5 * SECOND, || server.poll().contains(PollEvents::IN)));
        assert!(receive(&server, 65_535) == Ok(data));
    }
}

#[test]
fn udp_queues_are_bounded_and_peek_keeps() {
    let world = World::plain();
    let server = udp(&world.b);
    server.bind(&v4(B, 7)).unwrap();
    set(&server, 1, 8, 6000);
    let client = udp(&world.a);
    for _ in 0..100 {
        send_to(&client, &[1; 500], &v4(B, 7)).unwrap();
        world.run_for(MS);
    }
    let mut out = [0; 600];
    let peeked = server.receive(&mut IoDst::kernel(&mut out), 2).unwrap();
    assert_eq!(peeked.count, 500);
    let mut count = 0;
    while receive(&server, 600).is_ok() {
        count += 1;
    }
    // Counted is the memory held, not the payload.
    assert_eq!(count, 12_000 / (2048 + 128));
    assert_eq!(world.b.counters().drop_receive_full.get(), 100 - count);
}
