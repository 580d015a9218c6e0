// SPDX-License-Identifier: Apache-2.0
//! Unix sockets: streams, packets, datagrams, attachments, readiness.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "test data"
)]

mod common;

use common::*;
use coracle_core::file::{File, OpenFile};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::{Errno, PollEvents};
use coracle_net::{ControlMessage, SendRequest, Shutdown, SocketAddress, SocketFile, UnixAddress};
use std::sync::Arc;

const UNIX: u32 = 1;
const STREAM: u32 = 1;
const DGRAM: u32 = 2;
const SEQPACKET: u32 = 5;

fn name(text: &str) -> SocketAddress {
    SocketAddress::Unix(UnixAddress::Abstract(text.into()))
}

#[test]
fn a_stream_pair_carries_bytes_and_ends() {
    let stack = new_stack();
    let [a, b] = SocketFile::pair(&stack, UNIX, STREAM, 0).unwrap();
    assert_eq!(receive(&b, 10), Err(Errno::EAGAIN));
    assert_eq!(send(&a, b"hello "), Ok(6));
    assert_eq!(send(&a, b"world"), Ok(5));
    assert_eq!(receive(&b, 8), Ok(b"hello wo".to_vec()));
    assert_eq!(receive(&b, 80), Ok(b"rld".to_vec()));
    a.shutdown(Shutdown {
        read: false,
        write: true,
    })
    .unwrap();
    assert_eq!(receive(&b, 80), Ok(vec![]));
    assert!(b.poll().contains(PollEvents::IN | PollEvents::RDHUP));
    assert!(!b.poll().contains(PollEvents::HUP));
    assert_eq!(send(&a, b"x"), Err(Errno::EPIPE));
    assert_eq!(send(&b, b"back"), Ok(4));
    b.on_release();
    assert_eq!(receive(&a, 80), Ok(b"back".to_vec()));
    assert_eq!(receive(&a, 80), Ok(vec![]));
    assert!(a.poll().contains(PollEvents::HUP));
}

#[test]
fn closing_with_unread_data_resets() {
    let stack = new_stack();
    let [a, b] = SocketFile::pair(&stack, UNIX, STREAM, 0).unwrap();
    assert_eq!(send(&a, b"never read"), Ok(10));
    b.on_release();
    assert!(a.poll().contains(PollEvents::ERR | PollEvents::HUP));
    assert_eq!(receive(&a, 1), Err(Errno::ECONNRESET));
    assert_eq!(receive(&a, 1), Ok(vec![]));
    assert_eq!(send(&a, b"x"), Err(Errno::EPIPE));
}

#[test]
fn a_full_stream_becomes_writable_again() {
    let stack = new_stack();
    let [a, b] = SocketFile::pair(&stack, UNIX, STREAM, 0).unwrap();
    let data = pattern(1_000_000);
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < data.len() {
        while sent < data.len() {
            match send(&a, &data[sent..]) {
                Ok(n) => sent += n,
                Err(error) => {
                    assert_eq!(error, Errno::EAGAIN);
                    assert!(!a.poll().contains(PollEvents::OUT));
                    break;
                }
            }
        }
        while let Ok(bytes) = receive(&b, 7_777) {
            got.extend(bytes);
        }
        assert!(a.poll().contains(PollEvents::OUT));
    }
    assert!(got == data);
}

#[test]
fn connect_accept_and_names() {
    let stack = new_stack();
    let client = SocketFile::new(&stack, UNIX, STREAM, 0).unwrap();
    assert_eq!(
        client.poll(),
        PollEvents::OUT | PollEvents::WRNORM | PollEvents::HUP
    );
    assert_eq!(client.connect(&name("srv")), Err(Errno::ECONNREFUSED));
    let listener = SocketFile::new(&stack, UNIX, STREAM, 0).unwrap();
    assert_eq!(listener.listen(5), Err(Errno::EINVAL));
    listener.bind(&name("srv")).unwrap();
    assert_eq!(client.connect(&name("srv")), Err(Errno::ECONNREFUSED));
    listener.listen(0).unwrap();
    assert_eq!(listener.accept().err(), Some(Errno::EAGAIN));
    client.connect(&name("srv")).unwrap();
    assert_eq!(client.connect(&name("srv")), Err(Errno::EISCONN));
    let second = SocketFile::new(&stack, UNIX, STREAM, 0).unwrap();
    assert_eq!(second.connect(&name("srv")), Err(Errno::EAGAIN));
    assert!(listener.poll().contains(PollEvents::IN));
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, SocketAddress::Unix(UnixAddress::Unnamed));
    assert_eq!(server.local_address(), Ok(name("srv")));
    assert_eq!(client.peer_address(), Ok(name("srv")));
    assert_eq!(send(&client, b"hi"), Ok(2));
    assert_eq!(receive(&server, 9), Ok(b"hi".to_vec()));
    let other = SocketFile::new(&stack, UNIX, STREAM, 0).unwrap();
    assert_eq!(other.bind(&name("srv")), Err(Errno::EADDRINUSE));
    listener.on_release();
    assert_eq!(other.bind(&name("srv")), Ok(()));
    let wrong = SocketFile::new(&stack, UNIX, DGRAM, 0).unwrap();
    assert_eq!(wrong.connect(&name("srv")), Err(Errno::EPROTOTYPE));
}

#[test]
fn messages_keep_their_boundaries() {
    let stack = new_stack();
    for kind in [DGRAM, SEQPACKET] {
        let [a, b] = SocketFile::pair(&stack, UNIX, kind, 0).unwrap();
        send(&a, b"one").unwrap();
        send(&a, b"").unwrap();
        send(&a, b"three").unwrap();
        let mut out = [0; 2];
        let got = b.receive(&mut IoDst::kernel(&mut out), 0).unwrap();
        assert_eq!((got.count, got.flags), (2, 0x20));
        assert_eq!(receive(&b, 9), Ok(vec![]));
        let got = b.receive(&mut IoDst::kernel(&mut out), 0x20).unwrap();
        assert_eq!((got.count, &out), (5, b"th"));
    }
}

#[test]
fn datagrams_have_senders_and_wait_for_room() {
    let stack = new_stack();
    let server = SocketFile::new(&stack, UNIX, DGRAM, 0).unwrap();
    server.bind(&name("log")).unwrap();
    let client = SocketFile::new(&stack, UNIX, DGRAM, 0).unwrap();
    client
        .bind(&SocketAddress::Unix(UnixAddress::Unnamed))
        .unwrap();
    client.connect(&name("log")).unwrap();
    let mut count = 0;
    while send(&client, &[7; 1000]).is_ok() {
        count += 1;
    }
    assert!(count > 50);
    assert!(!client.poll().contains(PollEvents::OUT));
    let mut out = [0; 2000];
    let got = server.receive(&mut IoDst::kernel(&mut out), 0).unwrap();
    assert_eq!(got.from, Some(client.local_address().unwrap()));
    while receive(&server, 2000).is_ok() {}
    assert!(client.poll().contains(PollEvents::OUT));
    server.on_release();
    assert_eq!(send(&client, b"x"), Err(Errno::ECONNREFUSED));
}

#[test]
fn files_travel_with_the_first_byte() {
    let stack = new_stack();
    let [a, b] = SocketFile::pair(&stack, UNIX, STREAM, 0).unwrap();
    let file: Arc<dyn File> = udp(&stack);
    let open = OpenFile::new(file, 2);
    send(&a, b"plain").unwrap();
    let request = SendRequest {
        control: vec![ControlMessage::Rights(vec![open.clone()])],
        ..SendRequest::default()
    };
    assert_eq!(a.send(&mut IoSrc::kernel(b"with"), request), Ok(4));
    send(&a, b"after").unwrap();
    let mut out = [0; 100];
    let first = b.receive(&mut IoDst::kernel(&mut out), 0).unwrap();
    assert_eq!((first.count, first.control.len()), (5, 0));
    let second = b.receive(&mut IoDst::kernel(&mut out), 0).unwrap();
    // What was written after it may follow in the same read, what was before may not.
    assert!(second.count >= 4 && out.starts_with(b"with"));
    let [ControlMessage::Rights(files)] = &second.control[..] else {
        panic!("one control message");
    };
    assert!(Arc::ptr_eq(&files[0], &open));
}

#[test]
fn credentials_are_those_of_the_application() {
    let stack = new_stack();
    let [a, b] = SocketFile::pair(&stack, UNIX, STREAM, 0).unwrap();
    set(&b, 1, 16, 1);
    send(&a, b"me").unwrap();
    let mut out = [0; 10];
    let got = b.receive(&mut IoDst::kernel(&mut out), 0).unwrap();
    assert!(
        matches!(&got.control[..], [ControlMessage::Other { level: 1, kind: 2, data }] if data.len() == 12)
    );
    let mut who = [1; 12];
    assert_eq!(a.get_option(1, 17, &mut who), Ok(12));
    assert_eq!(who, [0; 12]);
}
