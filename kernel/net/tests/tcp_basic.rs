// SPDX-License-Identifier: Apache-2.0
//! TCP between two of our stacks: the ordinary course of things.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use common::*;
use coracle_core::file::File;
use coracle_core::{Errno, PollEvents};
use coracle_net::Shutdown;

/// Sends `data` from one socket to the other while the world turns; returns what arrived.
fn transfer(
    world: &World,
    from: &coracle_net::SocketFile,
    to: &coracle_net::SocketFile,
    data: &[u8],
) -> Vec<u8> {
    let (mut sent, mut got) = (0, Vec::new());
    let ok = world.run_until(600 * SECOND, || {
        while sent < data.len() {
            match send(from, &data[sent..]) {
                Ok(n) => sent += n,
                Err(Errno::EAGAIN) => break,
                Err(e) => panic!("send: {e}"),
            }
        }
        loop {
            match receive(to, 10_000) {
                Ok(bytes) => got.extend(bytes),
                Err(Errno::EAGAIN) => break,
                Err(e) => panic!("receive: {e}"),
            }
        }
        got.len() >= data.len()
    });
    assert!(ok, "{} of {} bytes arrived", got.len(), data.len());
    got
}

#[test]
fn request_and_answer() {
    let world = World::plain();
    let (client, server) = world.connect(80);
    assert_eq!(send(&client, b"GET /"), Ok(5));
    assert!(world.run_until(SECOND, || server.poll().contains(PollEvents::IN)));
    assert_eq!(receive(&server, 100), Ok(b"GET /".to_vec()));
    assert_eq!(receive(&server, 100), Err(Errno::EAGAIN));
    assert_eq!(send(&server, b"hello"), Ok(5));
    assert!(world.run_until(SECOND, || client.poll().contains(PollEvents::IN)));
    assert_eq!(receive(&client, 100), Ok(b"hello".to_vec()));
    server
        .shutdown(Shutdown {
            read: false,
            write: true,
        })
        .unwrap();
    assert!(world.run_until(SECOND, || client.poll().contains(PollEvents::RDHUP)));
    assert_eq!(receive(&client, 100), Ok(vec![]));
    assert_eq!(send(&client, b"late"), Ok(4));
    assert!(world.run_until(SECOND, || server.poll().contains(PollEvents::IN)));
    assert_eq!(receive(&server, 100), Ok(b"late".to_vec()));
    client.on_release();
    assert!(world.run_until(SECOND, || server.poll().contains(PollEvents::HUP)));
    assert_eq!(receive(&server, 100), Ok(vec![]));
    server.on_release();
    world.run_for(SECOND);
    // The side that closed first keeps a TIME-WAIT entry for a minute.
    assert_eq!(
        (world.a.tcp_conversations(), world.b.tcp_conversations()),
        (0, 1)
    );
    world.run_for(70 * SECOND);
    assert_eq!(world.b.tcp_conversations(), 0);
}

#[test]
fn bulk_both_ways() {
    for capabilities in [coracle_core::device::NetCapabilities::default(), offloads()] {
        let world = World::new(Setup {
            capabilities,
            ..Setup::default()
        });
        let (client, server) = world.connect(80);
        let data = pattern(3_000_000);
        assert!(transfer(&world, &client, &server, &data) == data);
        assert!(transfer(&world, &server, &client, &data) == data);
        assert_eq!(world.a.counters().tcp_retransmits.get(), 0);
        assert_eq!(world.a.counters().drop_checksum.get(), 0);
    }
}

#[test]
fn bulk_over_a_bad_wire() {
    for seed in 1..9 {
        let rules = Rules {
            delay_ns: 5 * MS,
            lose: 30,
            double: 20,
            reorder: 50,
        };
        let capabilities = if seed % 2 == 0 {
            offloads()
        } else {
            Default::default()
        };
        let world = World::new(Setup {
            rules,
            seed,
            capabilities,
            ..Setup::default()
        });
        let (client, server) = world.connect(80);
        let data = pattern(400_000);
        assert!(transfer(&world, &client, &server, &data) == data);
        assert!(transfer(&world, &server, &client, &data[..100_000]) == data[..100_000]);
    }
}

#[test]
fn small_rings_lose_nothing() {
    let world = World::new(Setup {
        ring: 4,
        ..Setup::default()
    });
    let (client, server) = world.connect(80);
    let data = pattern(500_000);
    assert!(transfer(&world, &client, &server, &data) == data);
    assert_eq!(world.a.counters().tcp_retransmits.get(), 0);
}

#[test]
fn nobody_listens() {
    let world = World::plain();
    let client = tcp(&world.a);
    assert_eq!(client.connect(&v4(B, 81)), Err(Errno::EINPROGRESS));
    assert_eq!(client.connect(&v4(B, 81)), Err(Errno::EALREADY));
    assert!(world.run_until(SECOND, || client.poll().contains(PollEvents::ERR)));
    let all = PollEvents::ERR | PollEvents::HUP | PollEvents::OUT | PollEvents::IN;
    assert!(client.poll().contains(all));
    assert_eq!(get(&client, 1, 4), Errno::ECONNREFUSED.number());
    assert_eq!(get(&client, 1, 4), 0);
}

#[test]
fn loopback_works() {
    let world = World::plain();
    let listener = listen(&world.a, 5000);
    let client = tcp(&world.a);
    assert_eq!(
        client.connect(&v4(std::net::Ipv4Addr::LOCALHOST, 5000)),
        Err(Errno::EINPROGRESS)
    );
    world.a.flush();
    assert_eq!(
        client.connect(&v4(std::net::Ipv4Addr::LOCALHOST, 5000)),
        Ok(())
    );
    assert_eq!(
        client.connect(&v4(std::net::Ipv4Addr::LOCALHOST, 5000)),
        Err(Errno::EISCONN)
    );
    let (server, _) = listener.accept().unwrap();
    let data = pattern(2_000_000);
    assert!(transfer(&world, &client, &server, &data) == data);
    assert_eq!(world.a.counters().tcp_retransmits.get(), 0);
}

#[test]
fn udp_echo_and_unreachable_port() {
    let world = World::plain();
    let server = udp(&world.b);
    server.bind(&v4(B, 7)).unwrap();
    let client = udp(&world.a);
    client.connect(&v4(B, 7)).unwrap();
    let data = pattern(9000); // longer than a frame
    assert_eq!(send(&client, &data), Ok(9000));
    assert!(world.run_until(5 * SECOND, || server.poll().contains(PollEvents::IN)));
    let mut out = vec![0; 10_000];
    let got = server
        .receive(&mut coracle_core::io::IoDst::kernel(&mut out), 0)
        .unwrap();
    assert_eq!((got.count, &out[..9000]), (9000, &data[..]));
    assert_eq!(send_to(&server, b"short", &got.from.unwrap()), Ok(5));
    assert!(world.run_until(SECOND, || client.poll().contains(PollEvents::IN)));
    assert_eq!(receive(&client, 3), Ok(b"sho".to_vec()));
    server.on_release();
    assert_eq!(send(&client, b"anyone?"), Ok(7));
    assert!(world.run_until(SECOND, || client.poll().contains(PollEvents::ERR)));
    assert_eq!(receive(&client, 3), Err(Errno::ECONNREFUSED));
}

#[test]
fn windows_grow_to_fill_a_long_path() {
    let rules = Rules {
        delay_ns: 50 * MS,
        ..Rules::default()
    };
    let world = World::new(Setup {
        rules,
        capabilities: offloads(),
        ring: 4096,
        ..Setup::default()
    });
    let (client, server) = world.connect(80);
    let data = pattern(20_000_000);
    let begin = now();
    assert!(transfer(&world, &client, &server, &data) == data);
    let round_trips = (now() - begin) / (100 * MS);
    // With 128 KiB in a round trip it would take 152 of them.
    assert!(round_trips < 30, "{round_trips} round trips");
    // A size that was chosen stays.
    let (client, server) = world.connect(81);
    set(&server, 1, 8, 65_536);
    let begin = now();
    assert!(transfer(&world, &client, &server, &data[..2_000_000]) == data[..2_000_000]);
    assert!((now() - begin) / (100 * MS) >= 14);
}
