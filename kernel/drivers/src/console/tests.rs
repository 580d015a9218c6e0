// SPDX-License-Identifier: Apache-2.0
//! The console against a device in memory.

use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_core::device::CharDevice;
use coracle_core::poll::Waiter;
use coracle_core::{Errno, PollEvents};

use super::*;
use crate::testing::{FakeDevice, FakeTransport, Numbers};

const CONTROL: &str = "org.coracle.control";

const WAIT_NS: u64 = 10_000_000_000;

/// Size 80 x 25, two ports.
const CONFIG: [u8; 8] = [80, 0, 25, 0, 2, 0, 0, 0];

fn message(port: u8, event: u8, value: u8, name: &str) -> Vec<u8> {
    [&[port, 0, 0, 0, event, 0, value, 0][..], name.as_bytes()].concat()
}

/// Answers control messages as QEMU does: port 0 is a console, port 1 has a name.
fn announce(device: &mut FakeDevice, queue: u16) {
    if queue != 3 {
        return;
    }
    while let Some(chain) = device.queue(3).pop() {
        let answers = match chain.readable[..] {
            [_, _, _, _, 0, _, 1, _] => vec![message(0, 1, 1, ""), message(1, 1, 1, "")],
            [0, _, _, _, 3, _, 1, _] => vec![message(0, 4, 1, "")],
            [1, _, _, _, 3, _, 1, _] => vec![message(1, 7, 1, CONTROL), message(1, 6, 1, "")],
            [_, _, _, _, 6, _, 1, _] | [_, _, _, _, 3, _, 0, _] => vec![],
            _ => panic!("no such message: {:?}", chain.readable),
        };
        device.queue(3).push(&chain, 0);
        for answer in answers {
            if let Some(buffer) = device.queue(2).pop() {
                device.queue(2).fill(&buffer, &answer);
            }
        }
    }
}

fn two_ports() -> (Arc<FakeTransport>, Arc<VirtioConsole>) {
    let features = feature::EVENT_IDX | MULTIPORT;
    let transport = FakeTransport::new(3, features, &CONFIG, &[64; 6]).on_notify(announce);
    let transport = Arc::new(transport);
    let console = VirtioConsole::new(transport.clone()).expect("the device starts");
    (transport, console)
}

fn single() -> (Arc<FakeTransport>, Arc<VirtioConsole>, Arc<Port>) {
    let transport = Arc::new(FakeTransport::new(3, feature::EVENT_IDX, &[], &[64; 2]));
    let console = VirtioConsole::new(transport.clone()).expect("the device starts");
    let port = console.console(WAIT_NS).unwrap();
    (transport, console, port)
}

/// Takes all output that the device has been given.
fn taken(transport: &FakeTransport, queue: u16) -> Vec<u8> {
    let mut device = transport.device();
    let mut out = Vec::new();
    while let Some(chain) = device.queue(queue).pop() {
        out.extend(&chain.readable);
        device.queue(queue).push(&chain, 0);
    }
    out
}

struct Count(AtomicUsize);
impl Waiter for Count {
    fn notify(&self, _: PollEvents) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[test]
fn ports_are_found_by_what_they_are() {
    let (transport, console) = two_ports();
    let stdio = console.console(WAIT_NS).unwrap();
    let control = console.port(CONTROL, WAIT_NS).unwrap();
    assert!(!Arc::ptr_eq(&stdio, &control));
    assert!(console.port("other", 0).is_none());
    assert_eq!(stdio.write(b"out"), Ok(3));
    assert_eq!(control.write(b"{}\n"), Ok(3));
    assert_eq!(taken(&transport, 1), b"out");
    assert_eq!(taken(&transport, 5), b"{}\n");
    transport.device().queue(4).answer(b"{\"op\":1}\n");
    let mut out = [0; 64];
    assert_eq!(control.read(&mut out), Ok(9));
    assert_eq!(stdio.read(&mut out), Err(Errno::EAGAIN));
}

#[test]
fn output_waits_for_the_host_and_ends_with_it() {
    let (transport, console) = two_ports();
    let control = console.port(CONTROL, WAIT_NS).unwrap();
    transport.device().queue(2).answer(&message(1, 6, 0, ""));
    transport.device().raised = true;
    assert!(console.on_interrupt());
    assert!(control.poll().contains(PollEvents::HUP));
    assert_eq!(control.read(&mut [0; 8]), Ok(0));
    assert_eq!(control.write(b"late"), Ok(4));
    assert_eq!(taken(&transport, 5), b"");
    assert!(console.drain(0), "nobody is there to wait for");
    transport.device().queue(2).answer(&message(1, 6, 1, ""));
    transport.device().raised = true;
    console.on_interrupt();
    assert_eq!(taken(&transport, 5), b"late");
    assert!(!control.poll().contains(PollEvents::HUP));
}

#[test]
fn output_gathers_while_the_device_works() {
    let (transport, console, port) = single();
    for text in ["a", "bc", "def"] {
        assert_eq!(port.write(text.as_bytes()), Ok(text.len()));
    }
    assert_eq!(transport.device().notified, [0, 1], "told once");
    assert_eq!(taken(&transport, 1), b"a");
    assert!(transport.device().queue(1).wants_interrupt(), "more waits");
    transport.device().raised = true;
    console.on_interrupt();
    assert_eq!(taken(&transport, 1), b"bcdef");
    assert!(
        !transport.device().queue(1).wants_interrupt(),
        "nothing waits"
    );
    assert!(console.drain(0));
}

#[test]
fn a_full_port_says_so_and_wakes_the_writer() {
    let (transport, console, port) = single();
    let mut written = Vec::new();
    let mut numbers = Numbers(7);
    loop {
        let piece: Vec<u8> = (0..1000).map(|_| numbers.byte()).collect();
        match port.write(&piece) {
            Ok(len) => written.extend(&piece[..len]),
            Err(error) => {
                assert_eq!(error, Errno::EAGAIN);
                break;
            }
        }
    }
    assert!(!port.poll().contains(PollEvents::OUT));
    assert!(!console.drain(0), "the device takes nothing");
    let waiter = Arc::new(Count(AtomicUsize::new(0)));
    port.poll_source()
        .attach(waiter.clone(), PollEvents::OUT, false);
    let mut out = taken(&transport, 1);
    transport.device().raised = true;
    console.on_interrupt();
    assert_eq!(waiter.0.load(Ordering::Relaxed), 1);
    assert_eq!(port.write(b"!"), Ok(1));
    written.push(b'!');
    for _ in 0..3 {
        out.extend(taken(&transport, 1));
        assert!(out.len() <= written.len());
        console.drain(0);
    }
    assert!(out == written, "all bytes, in order");
}

#[test]
fn a_line_is_written_whole_or_not_at_all() {
    let (transport, console, port) = single();
    assert!(port.write_whole(b"first", 4096));
    assert_eq!(taken(&transport, 1), b"first");
    let long = [b'x'; 6000];
    assert!(port.write_whole(&long, 4096));
    assert!(!port.write_whole(&long, 6000), "room for others stays free");
    assert!(port.write_whole(b"last", 4096));
    assert_eq!(taken(&transport, 1).len(), 6000);
    transport.device().raised = true;
    console.on_interrupt();
    assert_eq!(taken(&transport, 1), b"last");
    let held = port.hold();
    assert!(!port.write_whole(b"x", 0), "nobody waits for the port");
    drop(held);
}

#[test]
fn a_crash_report_does_not_wait_for_ever() {
    let (transport, console, port) = single();
    let held = port.hold();
    assert_eq!(port.write_in_crash(b"lost", 1000), 0);
    assert!(!console.drain(1000));
    drop(held);
    assert_eq!(port.write_in_crash(b"crash", WAIT_NS), 5);
    assert_eq!(taken(&transport, 1), b"crash");
    assert!(console.drain(0));
}

#[test]
fn input_wakes_the_reader_and_is_held_back_while_nobody_reads() {
    let (transport, console, port) = single();
    let waiter = Arc::new(Count(AtomicUsize::new(0)));
    port.poll_source()
        .attach(waiter.clone(), PollEvents::IN, false);
    assert_eq!(port.read(&mut [0; 4]), Err(Errno::EAGAIN));
    for _ in 0..4 {
        transport.device().queue(0).answer(b"hello");
    }
    assert!(
        transport.device().queue(0).pop().is_none(),
        "no more buffers"
    );
    assert!(transport.device().queue(0).wants_interrupt());
    transport.device().raised = true;
    console.on_interrupt();
    assert_eq!(waiter.0.load(Ordering::Relaxed), 1);
    assert!(port.poll().contains(PollEvents::IN));
    let mut out = [0; 7];
    assert_eq!(port.read(&mut out), Ok(7));
    assert_eq!(&out, b"hellohe");
    transport.device().queue(0).answer(b"x");
    let mut rest = [0; 100];
    assert_eq!(port.read(&mut rest), Ok(14));
    assert_eq!(&rest[..14], b"llohellohellox");
}

#[test]
fn a_device_without_ports_or_with_many_is_handled() {
    let with_ports = |count: u8| {
        let config = [80, 0, 25, 0, count, 0, 0, 0];
        VirtioConsole::new(Arc::new(FakeTransport::new(
            3, MULTIPORT, &config, &[64; 66],
        )))
    };
    assert!(with_ports(0).is_err());
    assert_eq!(with_ports(31).unwrap().ports.len(), 4);
    let short = FakeTransport::new(3, MULTIPORT, &CONFIG[..4], &[64; 6]);
    assert_eq!(
        VirtioConsole::new(Arc::new(short)).err().unwrap().reason,
        Reason::ShortConfiguration(4)
    );
}

/// Control messages and answers of any bytes: no panic, no endless loop.
#[test]
fn a_hostile_device_is_survived() {
    for seed in 1..500 {
        let mut numbers = Numbers(seed);
        let (transport, console) = two_ports();
        let stdio = console.console(WAIT_NS).unwrap();
        for _ in 0..40 {
            let _ = stdio.write(b"text");
            let _ = stdio.read(&mut [0; 16]);
            {
                let mut device = transport.device();
                let queue = coracle_abi::convert::low_u16(numbers.below(6));
                let bytes: Vec<u8> = (0..numbers.below(100))
                    .map(|_| numbers.byte() & 7)
                    .collect();
                match (numbers.below(12), device.queue(queue).pop()) {
                    (0, _) => {
                        let id = u32::from(numbers.byte() & 15);
                        device.queue(queue).push_raw(id, u32::from(numbers.byte()));
                    }
                    (_, Some(chain)) if queue.is_multiple_of(2) => {
                        device.queue(queue).fill(&chain, &bytes)
                    }
                    (_, Some(chain)) => device.queue(queue).push(&chain, 0),
                    _ => {}
                }
                device.raised = true;
            }
            console.on_interrupt();
            stdio.poll();
        }
        console.drain(0);
    }
}
