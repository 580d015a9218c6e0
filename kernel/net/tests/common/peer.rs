// SPDX-License-Identifier: Apache-2.0
//! A peer made by hand: it sends exactly the segments a test wants and sees exactly what the stack answers.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

use std::sync::{Arc, Mutex};

use coracle_net::NetStack;

use super::{A, B, FakeDevice, MS, Rules, Wire, advance_to, new_stack, now, v4_config};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seg {
    /// Port of the stack.
    pub port: u16,
    /// Port of the peer.
    pub peer_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub data: Vec<u8>,
}

/// A stack with address A whose only neighbour is the test, as B.
pub struct PeerWorld {
    pub wire: Arc<Mutex<Wire>>,
    pub stack: Arc<NetStack>,
    pub device: Arc<FakeDevice>,
}

fn fold(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

impl PeerWorld {
    pub fn new() -> Self {
        let wire = Arc::new(Mutex::new(Wire::default()));
        wire.lock().unwrap().rules = Rules {
            delay_ns: 0,
            ..Rules::default()
        };
        let stack = new_stack();
        let device = FakeDevice::new(&wire, 0, 1500, Default::default(), 4096);
        stack.add_interface(device.clone(), v4_config(A)).unwrap();
        let world = Self {
            wire,
            stack,
            device,
        };
        let mut arp = vec![0xff; 6];
        arp.extend([
            2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2,
        ]);
        arp.extend(B.octets());
        arp.extend([0; 6]);
        arp.extend(A.octets());
        world.wire.lock().unwrap().send(1, arp, false);
        world.work();
        // The announcements are not what the tests look at.
        world.pass(500 * MS);
        world.take_all();
        world
    }

    /// Tells the stack our hardware address, in the form of a question for its own.
    pub fn answer_arp(&self) {
        let mut arp = vec![0xff; 6];
        arp.extend([
            2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2,
        ]);
        arp.extend(B.octets());
        arp.extend([0; 6]);
        arp.extend(A.octets());
        self.wire.lock().unwrap().send(1, arp, false);
    }

    pub fn work(&self) {
        while self.stack.poll() {}
        self.stack.run_timers();
        self.stack.flush();
    }

    /// Lets time pass in small steps.
    pub fn pass(&self, ns: u64) {
        let end = now() + ns;
        while let Some(at) = self.stack.next_deadline().filter(|at| *at <= end) {
            advance_to(at.max(now()));
            self.work();
        }
        advance_to(end);
        self.work();
    }

    pub fn frame(&self, s: &Seg) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(s.peer_port.to_be_bytes());
        tcp.extend(s.port.to_be_bytes());
        tcp.extend(s.seq.to_be_bytes());
        tcp.extend(s.ack.to_be_bytes());
        tcp.push(((5 + s.options.len() / 4) << 4) as u8);
        tcp.push(s.flags);
        tcp.extend(s.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&s.options);
        tcp.extend(&s.data);
        let mut pseudo = B.octets().to_vec();
        pseudo.extend(A.octets());
        pseudo.extend([0, 6]);
        pseudo.extend((tcp.len() as u16).to_be_bytes());
        let partial = !fold(&pseudo, 0);
        let sum = fold(&tcp, u32::from(partial));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let mut ip = vec![0x45, 0];
        ip.extend((20 + tcp.len() as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend(B.octets());
        ip.extend(A.octets());
        let sum = fold(&ip, 0);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(ip);
        frame.extend(tcp);
        frame
    }

    /// Sends a segment to the stack and lets it work.
    pub fn send(&self, s: &Seg) {
        let frame = self.frame(s);
        self.wire.lock().unwrap().send(1, frame, false);
        self.work();
    }

    /// All segments the stack has sent.
    pub fn take_all(&self) -> Vec<Seg> {
        let mut out = Vec::new();
        loop {
            let Some((f, _)) = self.wire.lock().unwrap().take(1) else {
                break;
            };
            if f[12..14] == [8, 6] && f[38..42] == B.octets() {
                self.answer_arp();
            }
            if f[12..14] != [8, 0] || f[23] != 6 {
                continue;
            }
            let total = usize::from(u16::from_be_bytes([f[16], f[17]]));
            let t = &f[34..14 + total];
            let be16 = |at: usize| u16::from_be_bytes([t[at], t[at + 1]]);
            let be32 = |at: usize| u32::from_be_bytes([t[at], t[at + 1], t[at + 2], t[at + 3]]);
            let header = usize::from(t[12] >> 4) * 4;
            out.push(Seg {
                port: be16(0),
                peer_port: be16(2),
                seq: be32(4),
                ack: be32(8),
                flags: t[13],
                window: be16(14),
                options: t[20..header].to_vec(),
                data: t[header..].to_vec(),
            });
        }
        out
    }

    /// The one segment the stack has sent.
    #[track_caller]
    pub fn take(&self) -> Seg {
        let mut all = self.take_all();
        assert_eq!(all.len(), 1, "one segment: {all:?}");
        all.remove(0)
    }

    #[track_caller]
    pub fn silent(&self) {
        let all = self.take_all();
        assert!(all.is_empty(), "no segment: {all:?}");
    }
}
