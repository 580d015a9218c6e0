// SPDX-License-Identifier: Apache-2.0
//! Frames from strangers: whatever arrives, the stack neither panics nor stops to serve.
//!
//! `corpus/` holds frames of all kinds the stack knows; each is replayed as it is and in many broken forms. A file is a
//! list of frames, each with its length in front (two bytes, least significant first), so that one input can be a
//! conversation. `CORACLE_WRITE_CORPUS=1 cargo test -p coracle-net --test frames` writes the files anew.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;
#[path = "common/peer.rs"]
mod peer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use common::*;
use coracle_core::file::File;
use coracle_net::{Address, InterfaceConfig, Prefix, SocketAddress, SocketFile};
use peer::*;
use proptest::prelude::{ProptestConfig, any, proptest};
use std::net::Ipv6Addr;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn sum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// Makes the checksums right that are looked at even if the device vouches for the transport's.
fn mend(frame: &mut [u8]) {
    if frame.len() >= 34 && frame[12..14] == [8, 0] {
        let header = usize::from(frame[14] & 15) * 4;
        if header >= 20 && 14 + header <= frame.len() {
            frame[24..26].fill(0);
            let value = sum(&frame[14..14 + header], 0);
            frame[24..26].copy_from_slice(&value.to_be_bytes());
            let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let body = 14 + header;
            if frame[23] == 1 && end <= frame.len() && body + 4 <= end {
                frame[body + 2..body + 4].fill(0);
                let value = sum(&frame[body..end], 0);
                frame[body + 2..body + 4].copy_from_slice(&value.to_be_bytes());
            }
        }
    }
    if frame.len() >= 58 && frame[12..14] == [0x86, 0xdd] && frame[20] == 58 {
        let len = u16::from_be_bytes([frame[18], frame[19]]);
        let end = 54 + usize::from(len);
        if end <= frame.len() && len >= 4 {
            frame[56..58].fill(0);
            let pseudo = u32::from(!sum(&frame[22..54], 0)) + 58 + u32::from(len);
            let value = sum(&frame[54..end], pseudo);
            frame[56..58].copy_from_slice(&value.to_be_bytes());
        }
    }
}

/// A stack with a bit of everything.
struct Target {
    world: PeerWorld,
    sockets: Vec<Arc<SocketFile>>,
}

impl Target {
    fn new() -> Self {
        let world = PeerWorld::new();
        let elsewhere = Arc::new(Mutex::new(Wire::default()));
        let second = FakeDevice::new(&elsewhere, 1, 1500, Default::default(), 16);
        let config = InterfaceConfig {
            dhcp: true,
            ipv6: Some(Prefix {
                address: Address::from_v6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9)),
                length: 64,
            }),
            ..InterfaceConfig::default()
        };
        world.stack.add_interface(second, config).unwrap();
        let listener = listen(&world.stack, 80);
        let echo = udp(&world.stack);
        echo.bind(&v4(std::net::Ipv4Addr::UNSPECIFIED, 7)).unwrap();
        let raw = SocketFile::new(&world.stack, 2, 3, 1).unwrap();
        let raw6 = SocketFile::new(&world.stack, 10, 3, 58).unwrap();
        let client = tcp(&world.stack);
        let _ = client.connect(&v4(B, 5000));
        world.take_all();
        Self {
            world,
            sockets: vec![listener, echo, raw, raw6, client],
        }
    }

    fn feed(&self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        mend(&mut frame);
        self.world.wire.lock().unwrap().send(1, frame, true);
        self.world.work();
    }

    /// Whether a well-behaved peer is still served.
    fn check(&self) {
        self.world.pass(300 * SECOND);
        self.world.answer_arp();
        self.world.work();
        self.world.take_all();
        let s = Seg {
            port: 80,
            peer_port: 65_000,
            seq: 1,
            flags: SYN,
            window: 1000,
            ..Seg::default()
        };
        self.world.send(&s);
        let served = self
            .world
            .take_all()
            .iter()
            .any(|s| s.flags == SYN | ACK && s.peer_port == 65_000);
        assert!(served, "still alive");
        for socket in &self.sockets {
            while let Ok(bytes) = receive(socket, 70_000) {
                if bytes.is_empty() {
                    break;
                }
            }
            socket.on_release();
        }
    }
}

fn frames_of(file: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = file;
    while let [low, high, tail @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        frames.push(&tail[..len]);
        rest = &tail[len..];
    }
    frames
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
fn the_corpus_is_survived() {
    if std::env::var_os("CORACLE_WRITE_CORPUS").is_some() {
        write_corpus();
    }
    for (name, bytes) in files() {
        println!("{name}");
        let target = Target::new();
        for frame in frames_of(&bytes) {
            target.feed(frame);
        }
        target.check();
    }
}

#[test]
fn every_shorter_frame_is_survived() {
    for (_, bytes) in files() {
        let target = Target::new();
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
        let frames: Vec<&[u8]> = files.iter().flat_map(|(_, f)| frames_of(f)).collect();
        let target = Target::new();
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
}
