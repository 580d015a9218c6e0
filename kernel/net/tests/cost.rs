// SPDX-License-Identifier: Apache-2.0
//! What a packet and a connection cost: allocations, bytes held, and time with many connections.
//!
//! One test, since the counters are of the whole process.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::*;
use coracle_core::file::File;
use coracle_net::{NetStack, SocketFile};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Pair = (Arc<SocketFile>, Arc<SocketFile>);

fn open(stack: &Arc<NetStack>, listener: &SocketFile, count: usize, pairs: &mut Vec<Pair>) {
    let local = std::net::Ipv4Addr::LOCALHOST;
    for _ in 0..count {
        let client = tcp(stack);
        let _ = client.connect(&v4(local, 80));
        stack.flush();
        pairs.push((client, listener.accept().unwrap().0));
    }
}

/// One request and its answer on each of the pairs.
fn exchange(stack: &NetStack, pairs: &[Pair], buffer: &mut [u8]) {
    use coracle_core::io::IoDst;
    for (client, server) in pairs {
        for (from, to, bytes) in [
            (client, server, &[1u8; 120][..]),
            (server, client, &[2; 350]),
        ] {
            assert_eq!(send(from, bytes), Ok(bytes.len()));
            stack.flush();
            let got = to.read(&mut IoDst::kernel(buffer));
            assert_eq!(got, Ok(bytes.len()));
        }
    }
}

fn fastest(stack: &NetStack, pairs: &[Pair], buffer: &mut [u8]) -> u128 {
    let run = |_| {
        let begin = Instant::now();
        exchange(stack, pairs, buffer);
        begin.elapsed().as_nanos()
    };
    (0..30).map(run).min().unwrap()
}

#[test]
fn connections_are_cheap_and_many_cost_no_more_than_few() {
    let stack = new_stack();
    let listener = listen(&stack, 80);
    listener.listen(4096).unwrap();
    let mut buffer = vec![0; 4096];
    let mut pairs = Vec::with_capacity(10_000);
    open(&stack, &listener, 100, &mut pairs);
    for _ in 0..20 {
        exchange(&stack, &pairs, &mut buffer); // fills pools and queues
    }
    let calls = CALLS.load(Ordering::Relaxed);
    for _ in 0..10 {
        exchange(&stack, &pairs, &mut buffer);
    }
    assert_eq!(
        CALLS.load(Ordering::Relaxed) - calls,
        0,
        "allocations in 1000 exchanges"
    );

    let few = fastest(&stack, &pairs, &mut buffer);
    let held = HELD.load(Ordering::Relaxed);
    open(&stack, &listener, 9_900, &mut pairs);
    let each = (HELD.load(Ordering::Relaxed) - held) / (2 * 9_900);
    assert!(each < 1536, "{each} bytes for an idle connection");
    let many = fastest(&stack, &pairs[..100], &mut buffer);
    println!(
        "{each} bytes each; 100 exchanges: {few} ns with 100 connections, {many} ns with 10 000"
    );
    assert!(
        many < 2 * few + 100_000,
        "{few} ns with 100 connections, {many} ns with 10 000"
    );
    assert_eq!(stack.tcp_conversations(), 20_000);
}
