// SPDX-License-Identifier: Apache-2.0
//! UDP-Lite (RFC 3828, `udplite(7)`): what the checksum covers, and what is taken.
#![allow(clippy::unwrap_used, reason = "test data")]

mod common;

use common::*;
use coracle_core::Errno;
use coracle_core::file::File;
use coracle_net::SocketFile;
use std::sync::Arc;

const UDP_LITE: u32 = 136;
const SEND_COVERAGE: u32 = 10;
const RECEIVE_COVERAGE: u32 = 11;
const PORT: u16 = 7000;
/// Of the payload, after the headers of Ethernet, IPv4 and UDP-Lite.
const PAYLOAD: usize = 14 + 20 + 8;

fn lite(world: &World, side: usize) -> Arc<SocketFile> {
    let stack = [&world.a, &world.b][side];
    SocketFile::new(stack, 2, 2, UDP_LITE).unwrap()
}

/// A sender at A, a receiver at B.
fn pair() -> (World, Arc<SocketFile>, Arc<SocketFile>) {
    let world = World::plain();
    let (sender, receiver) = (lite(&world, 0), lite(&world, 1));
    receiver.bind(&v4(B, PORT)).unwrap();
    (world, sender, receiver)
}

/// Sends, and returns the frame that carried it.
fn frame_of(world: &World, sender: &SocketFile, payload: &[u8]) -> Vec<u8> {
    world.wire.lock().unwrap().log = Some(Vec::new());
    send_to(sender, payload, &v4(B, PORT)).unwrap();
    world.run_for(SECOND);
    let log = world.wire.lock().unwrap().log.take().unwrap();
    let mut frames = log.into_iter().map(|(_, frame)| frame);
    let frame = frames
        .find(|frame| frame.get(23) == Some(&136) && frame[12..14] == [8, 0])
        .unwrap();
    assert_eq!(&frame[PAYLOAD..PAYLOAD + payload.len()], payload);
    frame
}

/// The frame again, with one byte changed; what the receiver then has.
fn damaged(
    world: &World,
    receiver: &SocketFile,
    frame: &[u8],
    at: usize,
) -> Result<Vec<u8>, Errno> {
    let mut frame = frame.to_vec();
    frame[at] ^= 0x55;
    world.wire.lock().unwrap().send(0, frame, false);
    world.run_for(SECOND);
    receive(receiver, 100)
}

#[test]
fn what_is_not_covered_may_be_damaged() {
    let (world, sender, receiver) = pair();
    set(&sender, UDP_LITE, SEND_COVERAGE, 12);
    let frame = frame_of(&world, &sender, b"headpayload");
    assert_eq!(receive(&receiver, 100).unwrap(), b"headpayload");
    assert_eq!(&frame[PAYLOAD - 4..PAYLOAD - 2], [0, 12], "the coverage");
    assert_eq!(
        damaged(&world, &receiver, &frame, PAYLOAD + 4).unwrap(),
        [&b"head"[..], &[b'p' ^ 0x55], b"ayload"].concat()
    );
    for at in [PAYLOAD, PAYLOAD + 3, PAYLOAD - 1] {
        assert_eq!(damaged(&world, &receiver, &frame, at), Err(Errno::EAGAIN));
    }
}

#[test]
fn everything_is_covered_unless_said_otherwise() {
    let (world, sender, receiver) = pair();
    let frame = frame_of(&world, &sender, b"abc");
    assert_eq!(receive(&receiver, 100).unwrap(), b"abc");
    assert_eq!(&frame[PAYLOAD - 4..PAYLOAD - 2], [0, 11]);
    let last = PAYLOAD + 2;
    assert_eq!(damaged(&world, &receiver, &frame, last), Err(Errno::EAGAIN));
    // A coverage of 0 in the packet means all as well, one of 7 nothing that makes sense.
    set(&sender, UDP_LITE, SEND_COVERAGE, 0);
    let frame = frame_of(&world, &sender, b"abc");
    assert_eq!(&frame[PAYLOAD - 4..PAYLOAD - 2], [0, 0]);
    assert_eq!(receive(&receiver, 100).unwrap(), b"abc");
    assert_eq!(damaged(&world, &receiver, &frame, last), Err(Errno::EAGAIN));
}

#[test]
fn a_receiver_can_ask_for_coverage() {
    let (world, sender, receiver) = pair();
    let takes = |send: i32, receive_at_least: i32| {
        set(&sender, UDP_LITE, SEND_COVERAGE, send);
        set(&receiver, UDP_LITE, RECEIVE_COVERAGE, receive_at_least);
        frame_of(&world, &sender, b"0123456789");
        receive(&receiver, 100).is_ok()
    };
    assert!(takes(12, 12));
    assert!(takes(13, 12));
    assert!(!takes(11, 12));
    assert!(!takes(12, 0), "0 asks for all");
    assert!(takes(18, 0));
    assert!(takes(0, 17));
}

#[test]
fn options_are_those_of_linux() {
    let world = World::plain();
    let socket = lite(&world, 0);
    for name in [SEND_COVERAGE, RECEIVE_COVERAGE] {
        assert_eq!(get(&socket, UDP_LITE, name), 0);
        for (given, told) in [(3, 8), (-1, 8), (8, 8), (100, 100), (70_000, 65_535)] {
            set(&socket, UDP_LITE, name, given);
            assert_eq!(get(&socket, UDP_LITE, name), told, "{given}");
        }
    }
    let plain = udp(&world.a);
    let four = 4i32.to_ne_bytes();
    assert_eq!(
        plain.set_option(UDP_LITE, SEND_COVERAGE, &four),
        Err(Errno::ENOPROTOOPT)
    );
    // SO_PROTOCOL, and ports of its own.
    assert_eq!(get(&socket, 1, 38), 136);
    socket.bind(&v4(A, PORT)).unwrap();
    plain.bind(&v4(A, PORT)).unwrap();
    assert_eq!(
        lite(&world, 0).bind(&v4(A, PORT)).unwrap_err(),
        Errno::EADDRINUSE
    );
    plain.on_release();
    socket.on_release();
}

#[test]
fn nobody_there_is_told_to_a_connected_socket() {
    let world = World::plain();
    let socket = lite(&world, 0);
    socket.connect(&v4(B, PORT)).unwrap();
    send(&socket, b"x").unwrap();
    world.run_for(SECOND);
    assert_eq!(receive(&socket, 10), Err(Errno::ECONNREFUSED));
}
