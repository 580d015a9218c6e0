// SPDX-License-Identifier: Apache-2.0
//! A world for tests: stacks joined by a wire that delays, loses, doubles and reorders, under a clock that jumps.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex};

use coracle_core::Errno;
use coracle_core::device::{NetCapabilities, NetDevice};
use coracle_core::file::File;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::packet::{Fragment, PacketBuf, RxPacket, TxPacket};
use coracle_net::{
    Address, InterfaceConfig, NetConfig, NetStack, Prefix, SendRequest, SocketAddress, SocketFile,
};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(SECOND) };
}

pub fn now() -> u64 {
    NOW.get()
}

pub fn advance_to(at: u64) {
    NOW.set(NOW.get().max(at));
}

/// Back to the start, so that a test does not depend on what ran before it. No stack may be older.
pub fn restart_clock() {
    NOW.set(SECOND);
}

/// What the wire does to frames.
#[derive(Clone)]
pub struct Rules {
    pub delay_ns: u64,
    /// Of 1000 frames.
    pub lose: u32,
    pub double: u32,
    pub reorder: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            delay_ns: 100_000,
            lose: 0,
            double: 0,
            reorder: 0,
        }
    }
}

/// Says of a frame from a side whether to drop it.
pub type Filter = Box<dyn FnMut(usize, &[u8]) -> bool + Send>;

#[derive(Default)]
pub struct Wire {
    pub rules: Rules,
    /// Frames on their way to each side, with the time of arrival.
    queues: [VecDeque<(u64, Vec<u8>, bool)>; 2],
    seed: u64,
    pub carried: usize,
    /// Drops frames for which it says `true`.
    pub filter: Option<Filter>,
    /// Copies of all frames, with the side that sent them.
    pub log: Option<Vec<(usize, Vec<u8>)>>,
}

impl Wire {
    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    fn hits(&mut self, of_1000: u32) -> bool {
        self.random() % 1000 < u64::from(of_1000)
    }

    pub fn send(&mut self, from: usize, frame: Vec<u8>, valid: bool) {
        if let Some(filter) = &mut self.filter
            && filter(from, &frame)
        {
            return;
        }
        if let Some(log) = &mut self.log {
            log.push((from, frame.clone()));
        }
        let rules = self.rules.clone();
        if self.hits(rules.lose) {
            return;
        }
        self.carried += 1;
        let mut at = now() + rules.delay_ns;
        if self.hits(rules.reorder) {
            at += self.random() % (5 * rules.delay_ns + 1);
        }
        let copies = if self.hits(rules.double) { 2 } else { 1 };
        for _ in 0..copies {
            let queue = &mut self.queues[1 - from];
            let place = queue.partition_point(|(t, ..)| *t <= at);
            queue.insert(place, (at, frame.clone(), valid));
        }
    }

    pub fn next_arrival(&self) -> Option<u64> {
        self.queues
            .iter()
            .filter_map(|q| q.front().map(|f| f.0))
            .min()
    }

    pub fn take(&mut self, side: usize) -> Option<(Vec<u8>, bool)> {
        let ready = self.queues[side].front().is_some_and(|f| f.0 <= now());
        ready
            .then(|| self.queues[side].pop_front())
            .flatten()
            .map(|f| (f.1, f.2))
    }
}

/// One end of the wire.
pub struct FakeDevice {
    wire: Arc<Mutex<Wire>>,
    side: usize,
    mtu: usize,
    capabilities: NetCapabilities,
    /// Frames queued and not flushed.
    pending: Mutex<VecDeque<(Vec<u8>, bool)>>,
    ring: usize,
    pub flushes: Mutex<usize>,
}

fn sum(mut sum: u32, bytes: &[u8]) -> u32 {
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum
}

impl FakeDevice {
    pub fn new(
        wire: &Arc<Mutex<Wire>>,
        side: usize,
        mtu: usize,
        capabilities: NetCapabilities,
        ring: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            wire: wire.clone(),
            side,
            mtu,
            capabilities,
            pending: Mutex::default(),
            ring,
            flushes: Mutex::default(),
        })
    }

    /// Does what the hardware does: puts the pieces together, cuts, and fills in checksums.
    fn frames(&self, packet: &TxPacket) -> Vec<Vec<u8>> {
        let mut frame = packet.head.data().to_vec();
        for fragment in &packet.fragments {
            let at = frame.len();
            frame.resize(at + fragment.len(), 0);
            match fragment {
                Fragment::Buffer {
                    buffer,
                    offset,
                    len,
                } => {
                    frame[at..].copy_from_slice(&buffer.data()[*offset..*offset + *len]);
                }
                Fragment::Page { page, offset, .. } => page.read(*offset, &mut frame[at..]),
            }
        }
        assert!(packet.fragments.len() <= self.capabilities.max_fragments);
        let Some(checksum) = packet.checksum else {
            assert!(packet.segmentation.is_none());
            assert!(
                frame.len() <= self.mtu + 14,
                "frame of {} bytes",
                frame.len()
            );
            return vec![frame];
        };
        assert!(self.capabilities.tx_checksum);
        let (start, field) = (
            usize::from(checksum.start),
            usize::from(checksum.start + checksum.offset),
        );
        let Some(cut) = packet.segmentation else {
            assert!(
                frame.len() <= self.mtu + 14,
                "frame of {} bytes",
                frame.len()
            );
            let value = !sum(0, &frame[start..]) as u16;
            frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
            return vec![frame];
        };
        assert!(self.capabilities.tso4 && !cut.ipv6);
        let header_len = usize::from(cut.header_len);
        let (header, payload) = frame.split_at(header_len);
        assert!(payload.len() > usize::from(cut.mss));
        let pieces: Vec<_> = payload.chunks(usize::from(cut.mss)).collect();
        let mut seq = u32::from_be_bytes(header[start + 4..start + 8].try_into().unwrap());
        let mut frames = Vec::new();
        for (n, piece) in pieces.iter().enumerate() {
            let mut out = header.to_vec();
            out.extend_from_slice(piece);
            let ip_len = (out.len() - 14) as u16;
            out[16..18].copy_from_slice(&ip_len.to_be_bytes());
            out[24..26].fill(0);
            let ip_sum = !sum(0, &out[14..34]) as u16;
            out[24..26].copy_from_slice(&ip_sum.to_be_bytes());
            out[start + 4..start + 8].copy_from_slice(&seq.to_be_bytes());
            if n + 1 < pieces.len() {
                out[start + 13] &= !0x09; // FIN and PSH only on the last
            }
            out[field..field + 2].fill(0);
            let mut s = sum(0, &out[26..34]);
            s += 6 + (out.len() - start) as u32;
            let value = !sum(s, &out[start..]) as u16;
            out[field..field + 2].copy_from_slice(&value.to_be_bytes());
            seq = seq.wrapping_add(piece.len() as u32);
            frames.push(out);
        }
        frames
    }
}

impl NetDevice for FakeDevice {
    fn mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.side as u8 + 1]
    }
    fn mtu(&self) -> usize {
        self.mtu
    }
    fn capabilities(&self) -> NetCapabilities {
        self.capabilities
    }
    fn transmit(&self, packet: TxPacket) -> Result<(), TxPacket> {
        let mut pending = self.pending.lock().unwrap();
        if pending.len() >= self.ring {
            return Err(packet);
        }
        for frame in self.frames(&packet) {
            pending.push_back((frame, false));
        }
        Ok(())
    }
    fn flush(&self) {
        *self.flushes.lock().unwrap() += 1;
        let frames = core::mem::take(&mut *self.pending.lock().unwrap());
        let mut wire = self.wire.lock().unwrap();
        for (frame, valid) in frames {
            wire.send(self.side, frame, valid);
        }
    }
    fn receive(&self, budget: usize, sink: &mut dyn FnMut(RxPacket)) -> bool {
        for _ in 0..budget {
            let Some((frame, checksum_valid)) = self.wire.lock().unwrap().take(self.side) else {
                return false;
            };
            let mut buf = PacketBuf::new(0, frame.len().max(1600));
            buf.append(frame.len()).copy_from_slice(&frame);
            sink(RxPacket {
                buf,
                checksum_valid,
            });
        }
        true
    }
    fn set_receive_interrupts(&self, _on: bool) -> bool {
        false
    }
}

pub struct World {
    pub wire: Arc<Mutex<Wire>>,
    pub a: Arc<NetStack>,
    pub b: Arc<NetStack>,
    pub devices: [Arc<FakeDevice>; 2],
}

pub const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

#[derive(Clone)]
pub struct Setup {
    pub mtu: usize,
    pub capabilities: NetCapabilities,
    pub ring: usize,
    pub rules: Rules,
    pub seed: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mtu: 1500,
            capabilities: NetCapabilities::default(),
            ring: 256,
            rules: Rules::default(),
            seed: 1,
        }
    }
}

/// All offloads.
pub fn offloads() -> NetCapabilities {
    NetCapabilities {
        tx_checksum: true,
        tso4: true,
        tso6: false,
        max_fragments: 16,
        max_segmented_bytes: 65_535,
    }
}

pub fn new_stack() -> Arc<NetStack> {
    NetStack::new(NetConfig {
        clock: now,
        use_timer: false,
        ..NetConfig::default()
    })
}

pub fn v4_config(address: Ipv4Addr) -> InterfaceConfig {
    InterfaceConfig {
        ipv4: Some(Prefix {
            address: Address::from_v4(address),
            length: 24,
        }),
        ..InterfaceConfig::default()
    }
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let wire = Arc::new(Mutex::new(Wire {
            rules: setup.rules.clone(),
            seed: setup.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            ..Wire::default()
        }));
        let (a, b) = (new_stack(), new_stack());
        let device = |side| FakeDevice::new(&wire, side, setup.mtu, setup.capabilities, setup.ring);
        let devices = [device(0), device(1)];
        a.add_interface(devices[0].clone(), v4_config(A)).unwrap();
        b.add_interface(devices[1].clone(), v4_config(B)).unwrap();
        Self {
            wire,
            a,
            b,
            devices,
        }
    }

    pub fn plain() -> Self {
        Self::new(Setup::default())
    }

    /// One round of work at the present time.
    pub fn step(&self) {
        for stack in [&self.a, &self.b] {
            while stack.poll() {}
            stack.run_timers();
        }
        for stack in [&self.a, &self.b] {
            stack.flush();
        }
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<u64> {
        let arrival = self.wire.lock().unwrap().next_arrival();
        [arrival, self.a.next_deadline(), self.b.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets time pass, event by event, until `done` or for at most `limit_ns`.
    pub fn run_until(&self, limit_ns: u64, mut done: impl FnMut() -> bool) -> bool {
        let end = now() + limit_ns;
        loop {
            self.step();
            if done() {
                return true;
            }
            match self.next_event() {
                Some(at) if at <= end => advance_to(at.max(now() + 1)),
                _ => {
                    advance_to(end);
                    self.step();
                    return done();
                }
            }
        }
    }

    pub fn run_for(&self, ns: u64) {
        self.run_until(ns, || false);
    }

    /// A listener at B and a connection from A to it.
    pub fn connect(&self, port: u16) -> (Arc<SocketFile>, Arc<SocketFile>) {
        let listener = listen(&self.b, port);
        let pair = self.connect_to(&listener, port);
        listener.on_release();
        pair
    }

    pub fn connect_to(
        &self,
        listener: &SocketFile,
        port: u16,
    ) -> (Arc<SocketFile>, Arc<SocketFile>) {
        let client = tcp(&self.a);
        assert_eq!(client.connect(&v4(B, port)), Err(Errno::EINPROGRESS));
        let mut server = None;
        let ok = self.run_until(60 * SECOND, || {
            if server.is_none() {
                server = listener.accept().ok();
            }
            server.is_some() && client.connect(&v4(B, port)) != Err(Errno::EALREADY)
        });
        assert!(ok, "connected");
        let (server, from) = server.unwrap();
        assert!(matches!(from, SocketAddress::V4(a) if *a.ip() == A));
        (client, server)
    }
}

pub fn v4(ip: Ipv4Addr, port: u16) -> SocketAddress {
    SocketAddress::V4(SocketAddrV4::new(ip, port))
}

pub fn tcp(stack: &Arc<NetStack>) -> Arc<SocketFile> {
    SocketFile::new(stack, 2, 1, 0).unwrap()
}

pub fn udp(stack: &Arc<NetStack>) -> Arc<SocketFile> {
    SocketFile::new(stack, 2, 2, 0).unwrap()
}

pub fn listen(stack: &Arc<NetStack>, port: u16) -> Arc<SocketFile> {
    let listener = tcp(stack);
    listener.bind(&v4(Ipv4Addr::UNSPECIFIED, port)).unwrap();
    listener.listen(128).unwrap();
    listener
}

pub fn send(socket: &SocketFile, bytes: &[u8]) -> Result<usize, Errno> {
    socket.send(&mut IoSrc::kernel(bytes), SendRequest::default())
}

pub fn send_flags(socket: &SocketFile, bytes: &[u8], flags: u32) -> Result<usize, Errno> {
    let request = SendRequest {
        flags,
        ..SendRequest::default()
    };
    socket.send(&mut IoSrc::kernel(bytes), request)
}

pub fn send_to(socket: &SocketFile, bytes: &[u8], to: &SocketAddress) -> Result<usize, Errno> {
    let request = SendRequest {
        to: Some(to),
        ..SendRequest::default()
    };
    socket.send(&mut IoSrc::kernel(bytes), request)
}

pub fn receive(socket: &SocketFile, most: usize) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; most];
    let got = socket.receive(&mut IoDst::kernel(&mut out), 0)?;
    out.truncate(got.count);
    Ok(out)
}

pub fn set(socket: &SocketFile, level: u32, name: u32, value: i32) {
    socket
        .set_option(level, name, &value.to_ne_bytes())
        .unwrap();
}

pub fn get(socket: &SocketFile, level: u32, name: u32) -> i32 {
    let mut out = [0; 4];
    assert_eq!(socket.get_option(level, name, &mut out), Ok(4));
    i32::from_ne_bytes(out)
}

/// Bytes that tell their own place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| (n ^ n >> 8 ^ n >> 16).wrapping_mul(31) as u8)
        .collect()
}
