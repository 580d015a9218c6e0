// SPDX-License-Identifier: Apache-2.0
//! Replays the fuzzer's corpus on the stable compiler, as it is and in many broken forms. See fuzz/README.md.
//!
//! The files with a name were collected from conversations of two stacks;
//! `cargo test -p coracle-net --test corpus -- --ignored` writes them anew.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

#[path = "../../../fuzz/targets/frames.rs"]
mod frames;
#[path = "../../../fuzz/targets/replay.rs"]
mod replay;

use std::net::Ipv6Addr;
use std::path::PathBuf;

use coracle_core::file::File;
use coracle_net::{SocketAddress, SocketFile};
use frames::common::*;
use frames::peer::*;
use frames::{Target, frames_of};
use proptest::prelude::{ProptestConfig, any, proptest};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/frames")
}

fn files() -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(corpus())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    found.sort();
    assert!(found.len() >= 5, "the corpus is there");
    found
}

#[test]
fn frames() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "frames", frames::run);
}

#[test]
fn every_shorter_frame_is_survived() {
    for (_, bytes) in files() {
        let mut target = Target::new();
        for frame in frames_of(&bytes).into_iter().take(12) {
            for len in 0..frame.len().min(120) {
                target.feed(&frame[..len]);
            }
        }
        target.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn broken_frames_are_survived(
        changes in proptest::collection::vec((any::<usize>(), any::<usize>(), any::<u8>(), any::<bool>()), 1..400)
    ) {
        let files = files();
        let frames: Vec<&[u8]> = files.iter().flat_map(|(_, f)| frames_of(f)).filter(|f| !f.is_empty()).collect();
        let mut target = Target::new();
        for (which, place, value, cut) in changes {
            let mut frame = frames[which % frames.len()].to_vec();
            let at = place % frame.len();
            frame[at] = value;
            if cut {
                frame.truncate(place / 7 % frame.len());
            }
            target.feed(&frame);
        }
        target.check();
    }
}

/// Collects frames of real conversations.
#[test]
#[ignore = "changes files of the repository"]
fn write_corpus() {
    let save = |name: &str, frames: &[Vec<u8>]| {
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend((frame.len() as u16).to_le_bytes());
            bytes.extend(frame);
        }
        std::fs::create_dir_all(corpus()).unwrap();
        std::fs::write(corpus().join(name), bytes).unwrap();
    };
    // Between two stacks; those for A (from B) are what the target gets.
    let sent_by_b = |world: &World| -> Vec<Vec<u8>> {
        let log = world.wire.lock().unwrap().log.take().unwrap();
        log.into_iter()
            .filter(|(side, _)| *side == 1)
            .map(|(_, f)| f)
            .collect()
    };
    let rules = Rules {
        lose: 50,
        reorder: 50,
        ..Rules::default()
    };
    let world = World::new(Setup {
        rules,
        seed: 3,
        ..Setup::default()
    });
    world.wire.lock().unwrap().log = Some(Vec::new());
    let listener = listen(&world.a, 80);
    let client = tcp(&world.b);
    let _ = client.connect(&v4(A, 80));
    world.run_for(5 * SECOND);
    let (server, _) = listener.accept().unwrap();
    send(&server, &pattern(20_000)).unwrap();
    send(&client, &pattern(20_000)).unwrap();
    world.run_for(5 * SECOND);
    client.on_release();
    world.run_for(5 * SECOND);
    let frames = sent_by_b(&world);
    save("tcp", &frames[..frames.len().min(40)]);

    let world = World::plain();
    world.wire.lock().unwrap().log = Some(Vec::new());
    let sender = udp(&world.b);
    send_to(&sender, b"hello", &v4(A, 7)).unwrap();
    send_to(&sender, &pattern(5000), &v4(A, 7)).unwrap();
    send_to(&sender, b"nobody", &v4(A, 9)).unwrap();
    let other = udp(&world.a);
    send_to(&other, b"nobody", &v4(B, 9)).unwrap(); // B answers with an ICMP error
    let ping = SocketFile::new(&world.b, 2, 3, 1).unwrap();
    send_to(&ping, &[8, 0, 0, 0, 1, 2, 3, 4, 5], &v4(A, 0)).unwrap();
    world.run_for(SECOND);
    save("udp_icmp_arp", &sent_by_b(&world));

    let world = World::plain();
    world.wire.lock().unwrap().log = Some(Vec::new());
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);
    let v6 = |port| SocketAddress::V6(std::net::SocketAddrV6::new(local, port, 0, 0));
    let sender = SocketFile::new(&world.b, 10, 2, 0).unwrap();
    send_to(&sender, &pattern(4000), &v6(7)).unwrap();
    let client = SocketFile::new(&world.b, 10, 1, 0).unwrap();
    let _ = client.connect(&v6(80));
    let ping = SocketFile::new(&world.b, 10, 3, 58).unwrap();
    send_to(&ping, &[128, 0, 0, 0, 1, 2, 3, 4, 5], &v6(0)).unwrap();
    world.run_for(SECOND);
    save("ipv6", &sent_by_b(&world));

    // A DHCP offer, and option lists that lie about their lengths.
    let mut dhcp = vec![0xff; 6];
    dhcp.extend([
        2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 1, 0x2c, 0, 0, 0, 0, 64, 17, 0, 0,
    ]);
    dhcp.extend([10, 0, 0, 2, 255, 255, 255, 255, 0, 67, 0, 68, 1, 0x18, 0, 0]);
    dhcp.extend([2, 1, 6, 0]);
    dhcp.resize(42 + 240, 0);
    dhcp[42 + 28..42 + 34].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    dhcp[42 + 236..].copy_from_slice(&[99, 130, 83, 99]);
    dhcp.extend([53, 1, 2, 54, 4, 10, 0, 0, 2, 6, 200, 1, 255]);
    dhcp.resize(14 + 300, 0);
    save("dhcp", &[dhcp]);

    let world = PeerWorld::new();
    let options = [
        vec![2, 4, 5, 0xb4, 3, 3, 200, 1],
        vec![5, 34, 0, 0, 0, 0, 0, 0],
        vec![2, 0, 0, 0],
        vec![254, 255, 1, 1],
        vec![5, 10, 0, 0, 0, 1, 255, 255, 255, 255, 1, 1],
    ];
    let frames: Vec<Vec<u8>> = options
        .into_iter()
        .flat_map(|options| {
            [SYN, ACK, SYN | ACK, RST, FIN | ACK].map(|flags| {
                world.frame(&Seg {
                    port: 80,
                    peer_port: 5000,
                    seq: 1,
                    ack: 1,
                    flags,
                    window: 1,
                    options: options.clone(),
                    data: vec![1; 9],
                })
            })
        })
        .collect();
    save("tcp_options", &frames);

    // A conversation with the listener: connect, ask, be answered, lose some, close.
    let asked = |seq, ack, flags, data: &[u8]| {
        world.frame(&Seg {
            port: 80,
            peer_port: 6000,
            seq,
            ack,
            flags,
            window: 4000,
            options: Vec::new(),
            data: data.to_vec(),
        })
    };
    let conversation = [
        asked(0, 0, SYN, b""),
        asked(1, 1, ACK, b""),
        asked(1, 1, ACK | PSH, b"hello"),
        Vec::new(),
        asked(6, 6, ACK, b""),
        asked(16, 6, ACK | PSH, b"later"),
        asked(6, 6, ACK | PSH, &[7; 10]),
        Vec::new(),
        asked(21, 8, ACK, b""),
        asked(21, 8, ACK, b""),
        asked(21, 8, ACK, b""),
        asked(21, 8, ACK, b""),
        Vec::new(),
        asked(21, 21, ACK | FIN, b""),
        Vec::new(),
        asked(22, 22, ACK, b""),
    ];
    save("tcp_conversation", &conversation);
}
