// SPDX-License-Identifier: Apache-2.0
//! Memory is bounded, and a stack that is short of it still gets everything through.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use std::net::Ipv4Addr;
use std::sync::Arc;

use common::{advance_to, listen, now, pattern, receive, send, tcp, v4};
use coracle_core::Errno;
use coracle_core::file::File;
use coracle_net::{NetConfig, NetStack, SocketFile};

fn small_stack(memory_limit: usize) -> Arc<NetStack> {
    NetStack::new(NetConfig {
        clock: now,
        use_timer: false,
        memory_limit,
        ..NetConfig::default()
    })
}

fn pairs(stack: &Arc<NetStack>, count: usize) -> Vec<(Arc<SocketFile>, Arc<SocketFile>)> {
    let listener = listen(stack, 80);
    let open = |_| {
        let client = tcp(stack);
        let _ = client.connect(&v4(Ipv4Addr::LOCALHOST, 80));
        stack.flush();
        (client, listener.accept().unwrap().0)
    };
    let pairs = (0..count).map(open).collect();
    listener.on_release();
    pairs
}

/// Bytes that wait in both queues of a connection: `TIOCOUTQ` of the sender and `FIONREAD` of the receiver.
fn queued(from: &SocketFile, to: &SocketFile) -> usize {
    let (mut out, mut waiting) = (0u32, 0u32);
    from.ioctl(0x5411, &raw mut out as usize).unwrap();
    to.ioctl(0x541b, &raw mut waiting as usize).unwrap();
    out as usize + waiting as usize
}

#[test]
fn readers_that_do_not_read_cannot_take_all_memory() {
    const COUNT: usize = 60;
    let stack = small_stack(1 << 20);
    let pairs = pairs(&stack, COUNT);
    let data = pattern(400_000);
    let mut sent = [0; COUNT];
    let fill = |sent: &mut [usize; COUNT]| {
        for (n, (from, _)) in pairs.iter().enumerate() {
            while sent[n] < data.len() {
                match send(from, &data[sent[n]..]) {
                    Ok(count) => sent[n] += count,
                    Err(error) => {
                        assert_eq!(error, Errno::EAGAIN);
                        break;
                    }
                }
            }
            stack.flush();
        }
    };
    fill(&mut sent);
    let held: usize = pairs.iter().map(|(from, to)| queued(from, to)).sum();
    // The limit, and 16 KiB in each direction for every connection so that none stands still.
    let most = (1 << 20) + COUNT * 2 * 20 * 1024;
    assert!(held < most, "{held} bytes held");
    // Now they read, slowly at first; everything arrives.
    let mut got = vec![0; COUNT];
    for round in 0..100_000 {
        fill(&mut sent);
        for (n, (_, to)) in pairs.iter().enumerate() {
            while let Ok(bytes) = receive(to, 100 + round * 10) {
                assert!(bytes == data[got[n]..got[n] + bytes.len()]);
                got[n] += bytes.len();
                if round < 20 {
                    break;
                }
            }
        }
        stack.flush();
        if let Some(at) = stack.next_deadline() {
            advance_to(at.min(now() + 1_000_000));
            stack.run_timers();
        }
        if got.iter().all(|g| *g == data.len()) {
            return;
        }
    }
    panic!("stalled: {got:?}");
}

#[test]
fn time_wait_takes_a_bounded_share() {
    let stack = small_stack(1 << 20);
    for _ in 0..20 {
        for (client, server) in pairs(&stack, 100) {
            client.on_release();
            stack.flush();
            server.on_release();
            stack.flush();
        }
    }
    let left = stack.counters().tcp_time_wait.get();
    assert!((256..=64 * 9).contains(&left), "{left} entries");
    assert_eq!(stack.tcp_conversations(), left);
}
