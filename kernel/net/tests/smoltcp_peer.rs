// SPDX-License-Identifier: Apache-2.0
//! An independent peer: smoltcp at the other end of the wire, with and without losses.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use std::sync::{Arc, Mutex};

use common::{
    A, B, MS, Rules, SECOND, Setup, Wire, World, advance_to, listen, now, pattern, receive, send,
    v4,
};
use coracle_core::Errno;
use coracle_core::file::File;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpCidr};

struct Phy(Arc<Mutex<Wire>>);
struct Rx(Vec<u8>);
struct Tx(Arc<Mutex<Wire>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.lock().unwrap().send(1, frame, false);
        result
    }
}

impl Device for Phy {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx;
    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx)> {
        let (frame, _) = self.0.lock().unwrap().take(1)?;
        Some((Rx(frame), Tx(self.0.clone())))
    }
    fn transmit(&mut self, _: Instant) -> Option<Tx> {
        Some(Tx(self.0.clone()))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 1514;
        capabilities.medium = Medium::Ethernet;
        capabilities
    }
}

fn time() -> Instant {
    Instant::from_micros(i64::try_from(now() / 1000).unwrap())
}

struct Peer {
    phy: Phy,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Peer {
    fn new(wire: &Arc<Mutex<Wire>>) -> Self {
        let mut phy = Phy(wire.clone());
        let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 2]).into());
        let mut interface = Interface::new(config, &mut phy, time());
        let address = IpCidr::new(B.into(), 24);
        interface.update_ip_addrs(|a| a.push(address).unwrap());
        let mut sockets = SocketSet::new(vec![]);
        let buffer = || tcp::SocketBuffer::new(vec![0; 50_000]);
        let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
        Self {
            phy,
            interface,
            sockets,
            handle,
        }
    }

    fn poll(&mut self) {
        self.interface
            .poll(time(), &mut self.phy, &mut self.sockets);
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }
}

/// Sends `data` to the peer, which sends it back; the peer calls or is called.
fn echo(rules: Rules, seed: u64, peer_calls: bool, len: usize) {
    let wire = Arc::new(Mutex::new(Wire::default()));
    wire.lock().unwrap().rules = rules.clone();
    let world = World::new(Setup {
        rules,
        seed,
        ..Setup::default()
    });
    // Only side A of the world is used; the peer takes the place of B.
    let mut peer = Peer::new(&world.wire);
    let step = |peer: &mut Peer| {
        while world.a.poll() {}
        world.a.run_timers();
        world.a.flush();
        peer.poll();
        let wire = world.wire.lock().unwrap().next_arrival();
        let mine = world.a.next_deadline();
        let theirs = peer
            .interface
            .poll_delay(time(), &peer.sockets)
            .map(|d| now() + d.total_micros() * 1000);
        let next = [wire, mine, theirs].into_iter().flatten().min();
        advance_to(next.unwrap_or(0).max(now() + 1000));
    };
    let listener = listen(&world.a, 80);
    let socket = if peer_calls {
        let handle = peer.handle;
        let context = peer.interface.context();
        let socket = peer.sockets.get_mut::<tcp::Socket>(handle);
        socket.connect(context, (A, 80), 4000).unwrap();
        loop {
            step(&mut peer);
            if let Ok((socket, _)) = listener.accept() {
                break socket;
            }
        }
    } else {
        peer.socket().listen(90).unwrap();
        let socket = common::tcp(&world.a);
        loop {
            match socket.connect(&v4(B, 90)) {
                Ok(()) => break socket,
                Err(Errno::EINPROGRESS | Errno::EALREADY) => step(&mut peer),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let data = pattern(len);
    let (mut sent, mut got) = (0, Vec::new());
    let end = now() + 3600 * SECOND;
    while got.len() < len {
        assert!(now() < end, "{sent} sent, {} back", got.len());
        if sent < len {
            match send(&socket, &data[sent..]) {
                Ok(n) => sent += n,
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
        }
        let other = peer.socket();
        while other.can_recv() && other.can_send() {
            let room = other.send_capacity() - other.send_queue();
            let bytes = other
                .recv(|b| {
                    let n = b.len().min(room);
                    (n, b[..n].to_vec())
                })
                .unwrap();
            other.send_slice(&bytes).unwrap();
        }
        step(&mut peer);
        while let Ok(bytes) = receive(&socket, 65_536) {
            got.extend(bytes);
        }
    }
    assert!(got == data);
    // When both close at once and smoltcp's FIN is lost, smoltcp never sends it again: no more losses from here.
    world.wire.lock().unwrap().rules = Rules::default();
    socket.on_release();
    peer.socket().close();
    let is_done = |peer: &mut Peer| {
        let socket = peer.socket();
        !socket.is_open() || socket.state() == tcp::State::TimeWait
    };
    for _ in 0..5000 {
        if is_done(&mut peer) {
            return;
        }
        step(&mut peer);
    }
    panic!("{} for ever", peer.socket().state());
}

#[test]
fn echo_both_ways_of_calling() {
    for peer_calls in [false, true] {
        echo(Rules::default(), 1, peer_calls, 500_000);
    }
}

#[test]
fn echo_over_a_bad_wire() {
    for seed in 1..5 {
        let rules = Rules {
            delay_ns: 2 * MS,
            lose: 20,
            double: 20,
            reorder: 30,
        };
        echo(rules, seed, seed % 2 == 0, 100_000);
    }
}
