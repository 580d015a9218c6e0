// SPDX-License-Identifier: Apache-2.0
//! Frames from strangers: whatever arrives, the stack neither panics nor stops to serve.
//!
//! The input is a list of frames, each with its length in front (two bytes, least significant first), so that one input
//! can be a conversation. An empty frame lets a second pass and the application read and answer. Checksums are mended
//! first, and acknowledgments in TCP over IPv4 count from the sequence number the stack chose: a fuzzer would hardly get
//! past either.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

#[path = "../../kernel/net/tests/common/mod.rs"]
pub(crate) mod common;
#[path = "../../kernel/net/tests/common/peer.rs"]
pub(crate) mod peer;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use common::*;
use coracle_core::file::File;
use coracle_net::{Address, InterfaceConfig, Prefix, SocketFile};
use peer::*;

/// More frames of one input are not looked at, for the fuzzer's speed.
const MOST_FRAMES: usize = 256;

/// Feeds the frames of `data` to a new stack and asserts that it still serves afterwards.
pub(crate) fn run(data: &[u8]) {
    let mut target = Target::new();
    for frame in frames_of(data).into_iter().take(MOST_FRAMES) {
        if frame.is_empty() {
            target.world.pass(SECOND);
            target.serve();
        } else {
            target.feed(frame);
        }
    }
    target.check();
}

/// The frames of an input.
pub(crate) fn frames_of(file: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = file;
    while let [low, high, tail @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        frames.push(&tail[..len]);
        rest = &tail[len..];
    }
    frames
}

/// A stack with a bit of everything.
pub(crate) struct Target {
    world: PeerWorld,
    listener: Arc<SocketFile>,
    accepted: Vec<Arc<SocketFile>>,
    others: Vec<Arc<SocketFile>>,
    /// The first sequence numbers of the stack, by its port and the peer's.
    first: BTreeMap<(u16, u16), u32>,
}

impl Target {
    pub(crate) fn new() -> Self {
        restart_clock();
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
        echo.bind(&v4(Ipv4Addr::UNSPECIFIED, 7)).unwrap();
        let raw = SocketFile::new(&world.stack, 2, 3, 1).unwrap();
        let raw6 = SocketFile::new(&world.stack, 10, 3, 58).unwrap();
        let client = tcp(&world.stack);
        let _ = client.connect(&v4(B, 5000));
        let first = first_numbers(&world).collect();
        Self {
            world,
            first,
            listener,
            accepted: Vec::new(),
            others: vec![echo, raw, raw6, client],
        }
    }

    /// Lets a frame arrive, with right checksums, and the stack work on it.
    pub(crate) fn feed(&mut self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        mend(&mut frame);
        self.mend_acknowledgment(&mut frame);
        self.world.wire.lock().unwrap().send(1, frame, true);
        self.world.work();
        self.first.extend(first_numbers(&self.world));
    }

    /// Adds the stack's first number to the acknowledgment, as it cannot be guessed.
    fn mend_acknowledgment(&self, frame: &mut [u8]) {
        let [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, 0x45, rest @ ..] = frame else {
            return;
        };
        // `rest` begins with the second byte of the IP header.
        if rest.len() < 31 || rest[8] != 6 {
            return;
        }
        let tcp = &mut rest[19..];
        let ports = (
            u16::from_be_bytes([tcp[2], tcp[3]]),
            u16::from_be_bytes([tcp[0], tcp[1]]),
        );
        if let Some(first) = self.first.get(&ports) {
            let ack = u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]);
            tcp[8..12].copy_from_slice(&ack.wrapping_add(*first).to_be_bytes());
        }
    }

    /// The application's turn: accepts, and sends back what it reads.
    fn serve(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            self.accepted.push(socket);
        }
        for socket in &self.accepted {
            while let Ok(bytes) = receive(socket, 4096) {
                if bytes.is_empty() {
                    break;
                }
                let _ = send(socket, &bytes);
            }
        }
        self.world.work();
    }

    /// Asserts that a well-behaved peer is still served, once the application has closed what strangers opened and they
    /// have been silent for a while.
    pub(crate) fn check(mut self) {
        self.serve();
        for socket in &self.accepted {
            socket.on_release();
        }
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
        for socket in &self.others {
            while let Ok(bytes) = receive(socket, 70_000) {
                if bytes.is_empty() {
                    break;
                }
            }
            socket.on_release();
        }
        self.listener.on_release();
    }
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

/// The first sequence numbers of the connections the stack began or accepted since it was last asked.
fn first_numbers(world: &PeerWorld) -> impl Iterator<Item = ((u16, u16), u32)> {
    let sent = world.take_all().into_iter();
    sent.filter(|s| s.flags & SYN != 0)
        .map(|s| ((s.port, s.peer_port), s.seq))
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
