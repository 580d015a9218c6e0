// SPDX-License-Identifier: Apache-2.0
//! Readiness: what poll(2) reports in every state (the truth table of Linux's `tcp_poll`), that each change is told to
//! who waits, and that nobody is woken for nothing.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use common::*;
use coracle_core::file::File;
use coracle_core::poll::Waiter;
use coracle_core::{Errno, PollEvents};
use coracle_net::{NetConfig, NetStack, Shutdown, SocketFile};

const IN: PollEvents = PollEvents::IN.union(PollEvents::RDNORM);
const OUT: PollEvents = PollEvents::OUT.union(PollEvents::WRNORM);
const RDHUP: PollEvents = PollEvents::RDHUP;
const HUP: PollEvents = PollEvents::HUP;
const ERR: PollEvents = PollEvents::ERR;
const NONE: PollEvents = PollEvents::empty();
const WRITE: Shutdown = Shutdown {
    read: false,
    write: true,
};
const READ: Shutdown = Shutdown {
    read: true,
    write: false,
};

/// Collects what it was told.
#[derive(Default)]
struct Told {
    events: AtomicU32,
    calls: AtomicUsize,
}

impl Waiter for Told {
    fn notify(&self, events: PollEvents) -> bool {
        self.events.fetch_or(events.bits(), Ordering::SeqCst);
        self.calls.fetch_add(1, Ordering::SeqCst);
        true
    }
}

impl Told {
    fn at(socket: &SocketFile) -> Arc<Self> {
        let told = Arc::new(Self::default());
        let all = IN | OUT | RDHUP;
        socket
            .poll_source()
            .unwrap()
            .attach(told.clone(), all, false);
        told
    }

    fn take(&self) -> PollEvents {
        self.calls.store(0, Ordering::SeqCst);
        PollEvents::from_bits_truncate(self.events.swap(0, Ordering::SeqCst))
    }
}

#[test]
fn the_truth_table_of_a_stream() {
    let world = World::plain();
    let fresh = tcp(&world.a);
    assert_eq!(fresh.poll(), OUT | HUP, "never connected");
    let listener = listen(&world.b, 80);
    assert_eq!(listener.poll(), NONE, "nobody to accept");
    assert_eq!(fresh.connect(&v4(B, 80)), Err(Errno::EINPROGRESS));
    assert_eq!(fresh.poll(), NONE, "connecting");
    world.run_for(10 * MS);
    assert_eq!(fresh.poll(), OUT, "connected");
    assert_eq!(listener.poll(), IN, "somebody to accept");
    let (server, _) = listener.accept().unwrap();
    assert_eq!(server.poll(), OUT);
    send(&fresh, b"x").unwrap();
    world.run_for(10 * MS);
    assert_eq!(server.poll(), IN | OUT, "data");
    server.shutdown(WRITE).unwrap();
    world.run_for(10 * MS);
    assert_eq!(server.poll(), IN | OUT, "FIN-WAIT-2 with data");
    receive(&server, 1).unwrap();
    assert_eq!(server.poll(), OUT, "FIN-WAIT-2");
    assert_eq!(fresh.poll(), IN | OUT | RDHUP, "CLOSE-WAIT");
    fresh.shutdown(WRITE).unwrap();
    assert_eq!(fresh.poll(), IN | OUT | RDHUP | HUP, "LAST-ACK");
    world.run_for(10 * MS);
    assert_eq!(fresh.poll(), IN | OUT | RDHUP | HUP, "closed");
    assert_eq!(server.poll(), IN | OUT | RDHUP | HUP, "TIME-WAIT");
    let (client, server) = world.connect(81);
    client.shutdown(READ).unwrap();
    assert_eq!(client.poll(), IN | OUT | RDHUP, "SHUT_RD");
    assert_eq!(receive(&client, 1), Ok(vec![]));
    server.set_option(1, 13, &[1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    server.on_release();
    world.run_for(10 * MS);
    assert_eq!(client.poll(), IN | OUT | RDHUP | HUP | ERR, "reset");
    assert_eq!(get(&client, 1, 4), Errno::ECONNRESET.number());
    assert_eq!(client.poll(), IN | OUT | RDHUP | HUP, "error taken");
    let refused = tcp(&world.a);
    assert_eq!(refused.connect(&v4(B, 99)), Err(Errno::EINPROGRESS));
    world.run_for(10 * MS);
    assert_eq!(refused.poll(), IN | OUT | RDHUP | HUP | ERR, "refused");
}

#[test]
fn every_change_is_told() {
    let world = World::plain();
    let listener = listen(&world.b, 80);
    let (told_listener, client) = (Told::at(&listener), tcp(&world.a));
    let told = Told::at(&client);
    let _ = client.connect(&v4(B, 80));
    world.run_for(10 * MS);
    assert!(told.take().contains(OUT), "connected");
    assert!(told_listener.take().contains(IN), "to accept");
    let (server, _) = listener.accept().unwrap();
    let told_server = Told::at(&server);
    send(&client, b"x").unwrap();
    world.run_for(100 * MS);
    assert_eq!(told_server.take(), IN, "data");
    assert_eq!(
        told.take(),
        NONE,
        "an acknowledgement wakes nobody who has room"
    );
    // Fill the pipe; the writer is told when a third is free, once.
    let data = vec![1; 1 << 20];
    while send(&client, &data) != Err(Errno::EAGAIN) {
        world.run_for(10 * MS);
    }
    assert!(!client.poll().contains(OUT));
    told.take();
    while receive(&server, 1 << 20).is_ok() {
        world.run_for(10 * MS);
    }
    assert!(client.poll().contains(OUT));
    assert_eq!(told.calls.load(Ordering::SeqCst), 1);
    assert_eq!(told.take(), OUT);
    told_server.take();
    client.shutdown(WRITE).unwrap();
    world.run_for(10 * MS);
    assert!(told_server.take().contains(IN | RDHUP), "end of data");
    told.take();
    server.on_release();
    world.run_for(10 * MS);
    assert!(told.take().contains(IN | RDHUP | HUP), "closed");
}

#[test]
fn a_failed_connection_is_told() {
    let world = World::plain();
    let client = tcp(&world.a);
    let told = Told::at(&client);
    let _ = client.connect(&v4(B, 99));
    world.run_for(10 * MS);
    assert!(told.take().contains(OUT | ERR | HUP));
}

/// A thread that sleeps until it is told.
struct Sleeper {
    thread: std::thread::Thread,
    woken: AtomicUsize,
}

impl Waiter for Sleeper {
    fn notify(&self, _: PollEvents) -> bool {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
        true
    }
}

/// Waits as the system-call layer does: attach, try again, sleep. Fails if nothing comes in ten seconds.
fn blocking<T>(
    socket: &SocketFile,
    interest: PollEvents,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> T {
    let begin = std::time::Instant::now();
    loop {
        let waiter = Arc::new(Sleeper {
            thread: std::thread::current(),
            woken: AtomicUsize::new(0),
        });
        let source = socket.poll_source().unwrap();
        let token = source.attach(waiter.clone(), interest, false);
        let result = attempt();
        socket.stack().flush();
        if let Err(Errno::EAGAIN | Errno::EALREADY | Errno::EINPROGRESS) = result {
            while waiter.woken.load(Ordering::SeqCst) == 0 {
                std::thread::park_timeout(std::time::Duration::from_millis(100));
                assert!(begin.elapsed().as_secs() < 10, "a wake-up was lost");
            }
        }
        source.detach(token);
        match result {
            Ok(value) => return value,
            Err(Errno::EAGAIN | Errno::EALREADY | Errno::EINPROGRESS) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Several threads talk over loopback with real time and no timer but one thread's; each wait must end.
#[test]
fn threads_lose_no_wake_up() {
    let stack = NetStack::new(NetConfig {
        use_timer: false,
        ..NetConfig::default()
    });
    let listener = listen(&stack, 80);
    let local = std::net::Ipv4Addr::LOCALHOST;
    let done = AtomicUsize::new(0);
    const PAIRS: usize = 4;
    const ROUNDS: usize = 300;
    std::thread::scope(|scope| {
        let done = &done;
        for pair in 0..PAIRS {
            let stack = &stack;
            scope.spawn(move || {
                let client = tcp(stack);
                blocking(&client, OUT, || client.connect(&v4(local, 80)));
                for round in 0..ROUNDS {
                    let data = vec![pair as u8; 1 + round * 37 % 5000];
                    let mut sent = 0;
                    while sent < data.len() {
                        sent += blocking(&client, OUT, || send(&client, &data[sent..]));
                    }
                    let mut got = 0;
                    while got < data.len() {
                        let bytes = blocking(&client, IN, || receive(&client, 9000));
                        assert!(bytes.iter().all(|b| *b == pair as u8) && !bytes.is_empty());
                        got += bytes.len();
                    }
                }
                client.on_release();
                stack.flush();
                done.fetch_add(1, Ordering::SeqCst);
            });
            let listener = &listener;
            scope.spawn(move || {
                let (server, _) = blocking(listener, IN, || listener.accept());
                loop {
                    let bytes = blocking(&server, IN, || receive(&server, 9000));
                    if bytes.is_empty() {
                        break;
                    }
                    let mut sent = 0;
                    while sent < bytes.len() {
                        sent += blocking(&server, OUT, || send(&server, &bytes[sent..]));
                    }
                }
                server.on_release();
                stack.flush();
            });
        }
        scope.spawn(|| {
            while done.load(Ordering::SeqCst) < PAIRS {
                stack.run_timers();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
    });
    assert_eq!(done.load(Ordering::SeqCst), PAIRS);
}
