// SPDX-License-Identifier: Apache-2.0
//! TCP segment by segment: what RFC 9293, 5961, 6298, 2018 and tcp(7) say about the less ordinary cases.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;
#[path = "common/peer.rs"]
mod peer;

use common::*;
use coracle_core::file::File;
use coracle_core::{Errno, PollEvents};
use coracle_net::{Shutdown, SocketFile};
use peer::*;
use std::net::Ipv4Addr;
use std::sync::Arc;

const MSS: usize = 1460;
/// First sequence number of the hand-made peer.
const ISS: u32 = 0xffff_ff00; // wraps soon

struct Conn {
    world: PeerWorld,
    socket: Arc<SocketFile>,
    listener: Arc<SocketFile>,
    /// Next number each side sends.
    mine: u32,
    theirs: u32,
}

impl Conn {
    /// A connection from the peer to port 80, with the options of Linux, and a window of 64 KiB.
    fn open() -> Self {
        Self::open_with(vec![2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 0], 65_535)
    }

    fn open_with(options: Vec<u8>, window: u16) -> Self {
        let world = PeerWorld::new();
        let listener = listen(&world.stack, 80);
        world.send(&Seg {
            port: 80,
            peer_port: 5000,
            seq: ISS,
            flags: SYN,
            window,
            options,
            ..Seg::default()
        });
        let answer = world.take();
        assert_eq!((answer.flags, answer.ack), (SYN | ACK, ISS + 1));
        let mut conn = Self {
            world,
            socket: listener.clone(),
            listener,
            mine: ISS + 1,
            theirs: answer.seq + 1,
        };
        conn.send(ACK, b"", window);
        conn.socket = conn.listener.accept().unwrap().0;
        conn.world.silent();
        conn
    }

    fn seg(&self, flags: u8, data: &[u8], window: u16) -> Seg {
        let (seq, ack) = (self.mine, self.theirs);
        Seg {
            port: 80,
            peer_port: 5000,
            seq,
            ack,
            flags,
            window,
            data: data.to_vec(),
            ..Seg::default()
        }
    }

    fn send(&mut self, flags: u8, data: &[u8], window: u16) {
        self.world.send(&self.seg(flags, data, window));
        self.mine = self
            .mine
            .wrapping_add(data.len() as u32 + u32::from(flags & FIN));
    }

    /// Spends the quick acknowledgements of a young connection.
    fn calm(&mut self) {
        for _ in 0..8 {
            self.send(ACK | PSH, b"q", 65_535);
            receive(&self.socket, 10).unwrap();
        }
        self.world.take_all();
    }
}

#[test]
fn data_is_acknowledged_late_or_with_the_answer() {
    let mut c = Conn::open();
    c.send(ACK | PSH, b"one", 65_535);
    assert_eq!(c.world.take().ack, c.mine); // a young connection is quick
    c.calm();
    c.send(ACK | PSH, b"two", 65_535);
    c.world.silent();
    assert_eq!(send(&c.socket, b"answer"), Ok(6));
    c.world.work();
    let answer = c.world.take();
    assert_eq!(
        (answer.ack, &answer.data[..], answer.flags),
        (c.mine, &b"answer"[..], ACK | PSH)
    );
    c.theirs += 6;
    c.send(ACK | PSH, b"three", 65_535);
    c.world.pass(39 * MS);
    c.world.silent();
    c.world.pass(6 * MS);
    assert_eq!(c.world.take().ack, c.mine);
    // Every second full segment is acknowledged at once, whoever waits.
    c.calm();
    c.world.pass(SECOND);
    c.world.take_all();
    c.send(ACK, &[0; MSS], 65_535);
    c.send(ACK, &[0; MSS], 65_535);
    assert!(c.world.take_all().iter().any(|s| s.ack == c.mine));
}

#[test]
fn nagle_cork_and_more_hold_small_segments_only() {
    let mut c = Conn::open();
    assert_eq!(send(&c.socket, b"first"), Ok(5));
    c.world.work();
    assert_eq!(c.world.take().data, b"first");
    // A small segment is under way: the next small one waits, a full one does not.
    assert_eq!(send(&c.socket, b"second"), Ok(6));
    c.world.work();
    c.world.silent();
    assert_eq!(send(&c.socket, &[7; MSS]), Ok(MSS));
    c.world.work();
    assert_eq!(c.world.take().data.len(), MSS);
    c.theirs += 5 + MSS as u32;
    c.send(ACK, b"", 65_535);
    assert_eq!(c.world.take().data.len(), 6);
    c.theirs += 6;
    c.send(ACK, b"", 65_535);
    // TCP_NODELAY ends it, also for what waits.
    set(&c.socket, 6, 1, 1);
    for n in 0..3 {
        assert_eq!(send(&c.socket, &[n; 10]), Ok(10));
        c.world.work();
        assert_eq!(c.world.take().data, [n; 10]);
    }
    c.theirs += 30;
    c.send(ACK, b"", 65_535);
    // Corked data waits in spite of TCP_NODELAY, until uncorked.
    set(&c.socket, 6, 3, 1);
    assert_eq!(send(&c.socket, b"head"), Ok(4));
    c.world.work();
    c.world.silent();
    assert_eq!(send(&c.socket, b"body"), Ok(4));
    c.world.work();
    c.world.silent();
    set(&c.socket, 6, 3, 0);
    c.world.work();
    assert_eq!(c.world.take().data, b"headbody");
    c.theirs += 8;
    c.send(ACK, b"", 65_535);
    // MSG_MORE holds until a write without it.
    assert_eq!(send_flags(&c.socket, b"abc", 0x8000), Ok(3));
    c.world.work();
    c.world.silent();
    assert_eq!(send(&c.socket, b"def"), Ok(3));
    c.world.work();
    assert_eq!(c.world.take().data, b"abcdef");
    c.theirs += 6;
    c.send(ACK, b"", 65_535);
    // Nobody holds data for longer than 200 ms.
    set(&c.socket, 6, 3, 1);
    assert_eq!(send(&c.socket, b"late"), Ok(4));
    c.world.pass(190 * MS);
    c.world.silent();
    c.world.pass(20 * MS);
    assert_eq!(c.world.take().data, b"late");
}

#[test]
fn a_corked_close_sends_the_rest_at_once() {
    let c = Conn::open();
    set(&c.socket, 6, 3, 1);
    assert_eq!(send(&c.socket, b"rest"), Ok(4));
    c.socket.on_release();
    c.world.work();
    let last = c.world.take();
    assert_eq!(
        (&last.data[..], last.flags),
        (&b"rest"[..], ACK | PSH | FIN)
    );
}

#[test]
fn resets_need_the_exact_number() {
    let mut c = Conn::open();
    // In the window, but not exact: a challenge (RFC 5961, 3.2), and no more than one in half a second.
    for n in [1, 100, 60_000] {
        let mut s = c.seg(RST, b"", 0);
        s.seq = s.seq.wrapping_add(n);
        c.world.send(&s);
    }
    let challenge = c.world.take();
    assert_eq!((challenge.flags, challenge.ack), (ACK, c.mine));
    // Outside of the window: nothing.
    let mut s = c.seg(RST, b"", 0);
    s.seq = s.seq.wrapping_sub(1);
    c.world.send(&s);
    c.world.silent();
    assert!(!c.socket.poll().contains(PollEvents::ERR));
    c.send(RST, b"", 0);
    assert!(
        c.socket
            .poll()
            .contains(PollEvents::ERR | PollEvents::HUP | PollEvents::IN | PollEvents::RDHUP)
    );
    assert_eq!(receive(&c.socket, 10), Err(Errno::ECONNRESET));
    assert_eq!(receive(&c.socket, 10), Ok(vec![]));
    assert_eq!(send(&c.socket, b"x"), Err(Errno::EPIPE));
    c.world.silent();
}

#[test]
fn a_syn_in_a_connection_is_challenged() {
    let c = Conn::open();
    c.world.send(&c.seg(SYN, b"", 1000));
    let challenge = c.world.take();
    assert_eq!(
        (challenge.flags, challenge.ack, challenge.seq),
        (ACK, c.mine, c.theirs)
    );
    assert!(!c.socket.poll().contains(PollEvents::HUP));
}

#[test]
fn acknowledgements_of_the_future_and_the_far_past_change_nothing() {
    let mut c = Conn::open();
    assert_eq!(send(&c.socket, b"data"), Ok(4));
    c.world.work();
    c.world.take();
    let mut s = c.seg(ACK, b"", 65_535);
    s.ack = c.theirs.wrapping_add(5);
    c.world.send(&s);
    assert_eq!(c.world.take().ack, c.mine);
    s.ack = c.theirs.wrapping_sub(200_000);
    s.data = b"forged".to_vec();
    c.world.send(&s);
    c.world.take_all();
    c.theirs += 4;
    c.send(ACK, b"", 65_535);
    c.world.pass(SECOND);
    assert!(
        c.world.take_all().iter().all(|s| s.data.is_empty()),
        "nothing is sent again"
    );
}

#[test]
fn gaps_are_reported_and_filled() {
    let mut c = Conn::open();
    let part = |c: &Conn, from: u32, len: usize| {
        let mut s = c.seg(ACK, &[from as u8; 4000][..len], 65_535);
        s.seq = c.mine.wrapping_add(from);
        s
    };
    c.world.send(&part(&c, 100, 100));
    let answer = c.world.take();
    assert_eq!(answer.ack, c.mine);
    let block = |l: u32, r: u32| {
        let mut bytes = c.mine.wrapping_add(l).to_be_bytes().to_vec();
        bytes.extend(c.mine.wrapping_add(r).to_be_bytes());
        bytes
    };
    assert_eq!(
        answer.options,
        [&[1, 1, 5, 10][..], &block(100, 200)].concat()
    );
    c.world.send(&part(&c, 300, 100));
    // The most recent block first (RFC 2018, 4).
    assert_eq!(
        c.world.take().options,
        [&[1, 1, 5, 18][..], &block(300, 400), &block(100, 200)].concat()
    );
    c.world.send(&part(&c, 150, 200)); // overlaps both
    assert_eq!(
        c.world.take().options,
        [&[1, 1, 5, 10][..], &block(100, 400)].concat()
    );
    assert!(!c.socket.poll().contains(PollEvents::IN));
    c.world.send(&part(&c, 0, 120));
    let answer = c.world.take();
    assert_eq!(
        (answer.ack, answer.options.len()),
        (c.mine.wrapping_add(400), 0)
    );
    c.mine = c.mine.wrapping_add(400);
    let bytes = receive(&c.socket, 1000).unwrap();
    assert_eq!(bytes.len(), 400);
    assert_eq!(
        (bytes[0], bytes[110], bytes[130], bytes[350]),
        (0, 0, 100, 44)
    );
}

#[test]
fn losses_are_repaired_by_selective_acknowledgements() {
    let mut c = Conn::open();
    assert_eq!(send(&c.socket, &pattern(8 * MSS)), Ok(8 * MSS));
    c.world.work();
    let sent = c.world.take_all();
    assert_eq!(sent.len(), 8);
    // Segments 0 and 2 are lost.
    let mut s = c.seg(ACK, b"", 65_535);
    let edge = |n: usize| c.theirs.wrapping_add((n * MSS) as u32).to_be_bytes();
    let sack = |blocks: &[(usize, usize)]| {
        let mut options = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
        for (l, r) in blocks {
            options.extend(edge(*l));
            options.extend(edge(*r));
        }
        options
    };
    s.options = sack(&[(1, 2)]);
    c.world.send(&s);
    c.world.silent();
    s.options = sack(&[(3, 4), (1, 2)]);
    c.world.send(&s);
    c.world.silent();
    s.options = sack(&[(3, 5), (1, 2)]);
    c.world.send(&s);
    let again = c.world.take_all();
    assert_eq!(again[0].seq, c.theirs);
    s.options = sack(&[(3, 8), (1, 2)]);
    c.world.send(&s);
    let numbers: Vec<u32> = again
        .iter()
        .chain(&c.world.take_all())
        .map(|s| s.seq)
        .collect();
    assert!(numbers.contains(&c.theirs.wrapping_add(2 * MSS as u32)));
    assert_eq!(numbers.len(), 2, "only what was lost");
    c.theirs = c.theirs.wrapping_add(8 * MSS as u32);
    c.send(ACK, b"", 65_535);
    c.world.pass(2 * SECOND);
    c.world.silent();
}

#[test]
fn three_duplicates_trigger_fast_retransmit() {
    let mut c = Conn::open_with(vec![2, 4, 5, 0xb4], 65_535);
    assert_eq!(send(&c.socket, &pattern(8 * MSS)), Ok(8 * MSS));
    c.world.work();
    c.world.take_all();
    for n in 0..3 {
        c.world.silent();
        c.send(ACK, b"", 65_535);
        assert_eq!(
            c.socket.stack().counters().tcp_retransmits.get(),
            u64::from(n == 2)
        );
    }
    assert_eq!(c.world.take().seq, c.theirs);
    // A partial acknowledgement: the next hole at once (RFC 6582).
    c.theirs = c.theirs.wrapping_add(4 * MSS as u32);
    c.send(ACK, b"", 65_535);
    assert_eq!(c.world.take_all()[0].seq, c.theirs);
}

#[test]
fn time_outs_double_and_end_after_a_quarter_of_an_hour() {
    let c = Conn::open();
    assert_eq!(send(&c.socket, b"anyone?"), Ok(7));
    c.world.work();
    c.world.take();
    let begin = now();
    let mut times = Vec::new();
    while !c.socket.poll().contains(PollEvents::ERR) {
        c.world.pass(100 * MS);
        for s in c.world.take_all() {
            assert_eq!((s.seq, &s.data[..]), (c.theirs, &b"anyone?"[..]));
            times.push((now() - begin) / MS);
        }
        assert!(now() - begin < 2000 * SECOND);
    }
    assert_eq!(times.len(), 15);
    for (n, pair) in times.windows(2).take(8).enumerate() {
        let expected = 400 << n;
        assert!((pair[1] - pair[0]).abs_diff(expected) <= 200, "{times:?}");
    }
    assert_eq!(receive(&c.socket, 1), Err(Errno::ETIMEDOUT));
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut c = Conn::open();
    c.send(ACK, b"", 0);
    c.world.take_all();
    assert_eq!(send(&c.socket, b"waiting"), Ok(7));
    c.world.work();
    c.world.silent();
    c.world.pass(300 * MS);
    let probe = c.world.take();
    assert_eq!((probe.seq, &probe.data[..]), (c.theirs, &b"w"[..]));
    // A peer that answers may keep its window closed as long as it likes.
    let mut probes = 0;
    for _ in 0..60 {
        c.world.pass(60 * SECOND);
        probes += c.world.take_all().len();
        c.send(ACK, b"", 0);
    }
    assert!((25..=60).contains(&probes), "{probes} probes in an hour");
    assert!(!c.socket.poll().contains(PollEvents::ERR));
    c.send(ACK, b"", 1000);
    assert_eq!(c.world.take_all().last().unwrap().data, b"waiting");
}

#[test]
fn our_window_closes_and_reopens_in_large_steps() {
    let mut c = Conn::open();
    set(&c.socket, 1, 8, 10_000); // 20 000 bytes
    let mut sent = 0;
    loop {
        let window = c
            .world
            .take_all()
            .last()
            .map_or(65_535, |s| u32::from(s.window) * 128);
        if window < MSS as u32 || sent > 200_000 {
            break;
        }
        c.send(ACK, &[1; MSS], 65_535);
        sent += MSS;
    }
    assert!((15_000..140_000).contains(&sent), "{sent}");
    // More than the window: refused, and said so.
    c.send(ACK, &[2; MSS], 65_535);
    c.mine = c.mine.wrapping_sub(MSS as u32);
    assert_eq!(c.world.take_all().last().unwrap().flags, ACK);
    // Small reads open nothing (silly window); a large one is told.
    receive(&c.socket, 100).unwrap();
    c.world.work();
    c.world.silent();
    while receive(&c.socket, 10_000).is_ok() {}
    c.world.work();
    let update = c.world.take_all().pop().unwrap();
    assert!(update.window >= 64, "scaled by 128: {}", update.window);
}

#[test]
fn keepalive_probes_and_gives_up() {
    let mut c = Conn::open();
    for (name, value) in [(4, 10), (5, 2), (6, 3)] {
        set(&c.socket, 6, name, value);
    }
    set(&c.socket, 1, 9, 1);
    c.world.pass(9 * SECOND);
    c.world.silent();
    c.world.pass(2 * SECOND);
    let probe = c.world.take();
    assert_eq!((probe.seq, probe.data.len()), (c.theirs.wrapping_sub(1), 0));
    c.send(ACK, b"", 65_535);
    c.world.pass(9 * SECOND);
    c.world.silent();
    c.world.pass(10 * SECOND);
    let all = c.world.take_all();
    assert_eq!(all.len(), 4);
    assert_eq!(all[3].flags & RST, RST);
    assert_eq!(receive(&c.socket, 1), Err(Errno::ETIMEDOUT));
}

#[test]
fn both_sides_close_at_once() {
    let mut c = Conn::open();
    c.socket
        .shutdown(Shutdown {
            read: false,
            write: true,
        })
        .unwrap();
    c.world.work();
    let fin = c.world.take();
    assert_eq!(fin.flags, FIN | ACK);
    c.send(FIN | ACK, b"", 65_535); // does not acknowledge our FIN: CLOSING
    assert_eq!(c.world.take().ack, c.mine);
    assert_eq!(c.world.stack.counters().tcp_time_wait.get(), 0);
    c.theirs = c.theirs.wrapping_add(1);
    c.send(ACK, b"", 65_535);
    assert_eq!(c.world.stack.counters().tcp_time_wait.get(), 1);
    assert_eq!(receive(&c.socket, 1), Ok(vec![]));
    // The peer's FIN again: acknowledged again.
    c.mine = c.mine.wrapping_sub(1);
    c.send(FIN | ACK, b"", 65_535);
    assert_eq!(c.world.take().ack, c.mine);
    // A reset does not end TIME-WAIT (RFC 1337), a new SYN does.
    c.send(RST, b"", 0);
    assert_eq!(c.world.stack.counters().tcp_time_wait.get(), 1);
    c.mine = c.mine.wrapping_add(1000);
    c.send(SYN, b"", 1000);
    let answer = c.world.take();
    assert_eq!(
        (answer.flags, answer.ack),
        (SYN | ACK, c.mine.wrapping_add(1))
    );
    assert_eq!(c.world.stack.counters().tcp_time_wait.get(), 0);
}

#[test]
fn both_sides_call_at_once() {
    let world = PeerWorld::new();
    let client = tcp(&world.stack);
    client.bind(&v4(Ipv4Addr::UNSPECIFIED, 4000)).unwrap();
    assert_eq!(client.connect(&v4(B, 5000)), Err(Errno::EINPROGRESS));
    world.work();
    let syn = world.take();
    let mut s = Seg {
        port: 4000,
        peer_port: 5000,
        seq: 77,
        flags: SYN,
        window: 1000,
        ..Seg::default()
    };
    world.send(&s);
    let both = world.take();
    assert_eq!((both.flags, both.seq, both.ack), (SYN | ACK, syn.seq, 78));
    s.flags = SYN | ACK;
    s.ack = syn.seq + 1;
    world.send(&s);
    s.flags = ACK;
    s.seq = 78;
    world.send(&s);
    assert_eq!(client.connect(&v4(B, 5000)), Ok(()));
}

#[test]
fn a_lingering_reset_and_unread_data() {
    let mut c = Conn::open();
    c.socket
        .set_option(1, 13, &[1, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    c.socket.on_release();
    c.world.work();
    assert_eq!(c.world.take().flags, RST | ACK);
    assert_eq!(c.world.stack.tcp_conversations(), 0);
    c = Conn::open();
    c.send(ACK | PSH, b"never read", 65_535);
    c.world.take_all();
    c.socket.on_release();
    c.world.work();
    assert_eq!(c.world.take().flags, RST | ACK);
    // Data for a socket that nobody has any more.
    c = Conn::open();
    c.socket.on_release();
    c.world.work();
    assert_eq!(c.world.take().flags, FIN | ACK);
    c.theirs = c.theirs.wrapping_add(1);
    c.send(ACK | PSH, b"too late", 65_535);
    assert_eq!(c.world.take().flags & RST, RST);
    assert_eq!(c.world.stack.tcp_conversations(), 0);
}

#[test]
fn orphans_in_fin_wait_2_end_after_a_minute() {
    let mut c = Conn::open();
    c.socket.on_release();
    c.world.work();
    c.world.take();
    c.theirs = c.theirs.wrapping_add(1);
    c.send(ACK, b"", 65_535);
    c.world.pass(55 * SECOND);
    assert_eq!(c.world.stack.tcp_conversations(), 1);
    c.world.pass(6 * SECOND);
    assert_eq!(c.world.stack.tcp_conversations(), 0);
}

#[test]
fn a_flood_of_syns_is_bounded_and_the_willing_get_in() {
    let world = PeerWorld::new();
    let listener = listen(&world.stack, 80);
    for port in 1000..6000 {
        world.send(&Seg {
            port: 80,
            peer_port: port,
            seq: 1,
            flags: SYN,
            window: 1000,
            ..Seg::default()
        });
    }
    assert!(world.stack.tcp_conversations() <= 128);
    world.take_all();
    world.send(&Seg {
        port: 80,
        peer_port: 999,
        seq: 5,
        flags: SYN,
        window: 1000,
        ..Seg::default()
    });
    let answer = world.take();
    world.send(&Seg {
        port: 80,
        peer_port: 999,
        seq: 6,
        ack: answer.seq + 1,
        flags: ACK,
        window: 1000,
        ..Seg::default()
    });
    assert!(listener.accept().is_ok());
    // The others time out.
    world.pass(200 * SECOND);
    assert_eq!(world.stack.tcp_conversations(), 1);
    assert!(world.stack.next_deadline().is_none_or(|at| at > now()));
}

#[test]
fn a_full_accept_queue_makes_the_peer_wait() {
    let world = PeerWorld::new();
    let listener = tcp(&world.stack);
    listener.bind(&v4(A, 80)).unwrap();
    listener.listen(1).unwrap();
    for port in 0..2 {
        let mut s = Seg {
            port: 80,
            peer_port: 5000 + port,
            seq: 1,
            flags: SYN,
            window: 1000,
            ..Seg::default()
        };
        world.send(&s);
        s.ack = world.take().seq + 1;
        (s.flags, s.seq) = (ACK, 2);
        world.send(&s);
    }
    let mut s = Seg {
        port: 80,
        peer_port: 6000,
        seq: 1,
        flags: SYN,
        window: 1000,
        ..Seg::default()
    };
    world.send(&s);
    world.silent();
    assert_eq!(world.stack.counters().tcp_listen_overflows.get(), 1);
    listener.accept().unwrap();
    world.send(&s);
    s.ack = world.take().seq + 1;
    (s.flags, s.seq) = (ACK, 2);
    world.send(&s);
    assert!(listener.accept().is_ok() && listener.accept().is_ok());
}

#[test]
fn segments_for_nobody_are_reset() {
    let world = PeerWorld::new();
    world.send(&Seg {
        port: 9,
        peer_port: 5000,
        seq: 7,
        flags: SYN,
        window: 1,
        ..Seg::default()
    });
    let reset = world.take();
    assert_eq!((reset.flags, reset.seq, reset.ack), (RST | ACK, 0, 8));
    world.send(&Seg {
        port: 9,
        peer_port: 5000,
        seq: 7,
        ack: 99,
        flags: ACK,
        window: 1,
        ..Seg::default()
    });
    let reset = world.take();
    assert_eq!((reset.flags, reset.seq), (RST, 99));
    world.send(&Seg {
        port: 9,
        peer_port: 5000,
        seq: 7,
        flags: RST,
        window: 1,
        ..Seg::default()
    });
    world.silent();
}

#[test]
fn a_listener_that_closes_resets_what_waits() {
    let c = Conn::open();
    c.world.send(&Seg {
        port: 80,
        peer_port: 5001,
        seq: 1,
        flags: SYN,
        window: 9,
        ..Seg::default()
    });
    let s = c.world.take();
    c.world.send(&Seg {
        port: 80,
        peer_port: 5001,
        seq: 2,
        ack: s.seq + 1,
        flags: ACK,
        window: 9,
        ..Seg::default()
    });
    c.world.send(&Seg {
        port: 80,
        peer_port: 5002,
        seq: 1,
        flags: SYN,
        window: 9,
        ..Seg::default()
    });
    c.world.take();
    c.listener.on_release();
    c.world.work();
    let reset = c.world.take();
    assert_eq!((reset.peer_port, reset.flags & RST), (5001, RST));
    assert_eq!(c.world.stack.tcp_conversations(), 1); // the accepted one lives on
}
