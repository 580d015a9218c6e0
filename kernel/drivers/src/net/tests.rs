// SPDX-License-Identifier: Apache-2.0
//! The network card against a device in memory.

use alloc::vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use coracle_core::memory::Page;
use coracle_core::packet::{ChecksumOffload, Fragment, HEADROOM, PacketBuf, Segmentation};

use super::*;
use crate::error::Reason;
use crate::testing::{FakeTransport, Numbers};

const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

/// MAC, link up, three pairs, MTU 1400.
const CONFIG: [u8; 12] = [0x52, 0x54, 0, 1, 2, 3, 1, 0, 3, 0, 0x78, 5];

const ALL: u64 = feature::EVENT_IDX
    | bit::CSUM
    | bit::GUEST_CSUM
    | bit::MTU
    | bit::MAC
    | bit::HOST_TSO4
    | bit::HOST_TSO6
    | bit::STATUS
    | bit::CTRL_VQ
    | bit::MQ
    | 1 << 15; // VIRTIO_NET_F_MRG_RXBUF, which is left

fn start(transport: FakeTransport, options: NetOptions) -> (Arc<FakeTransport>, VirtioNet) {
    let transport = Arc::new(transport);
    let net = VirtioNet::new(transport.clone(), options).expect("the device starts");
    (transport, net)
}

fn one_pair(features: u64) -> (Arc<FakeTransport>, VirtioNet) {
    let options = NetOptions {
        rx_buffers: 8,
        queue_pairs: 1,
    };
    start(
        FakeTransport::new(1, features, &CONFIG, &[256, 8, 64]),
        options,
    )
}

fn frame(len: usize) -> PacketBuf {
    let mut buf = PacketBuf::new(HEADROOM, len);
    buf.append(len).fill(b'f');
    buf
}

fn receive(net: &VirtioNet, budget: usize) -> (Vec<RxPacket>, bool) {
    let mut packets = Vec::new();
    let more = net.receive(budget, &mut |packet| packets.push(packet));
    (packets, more)
}

#[test]
fn features_and_configuration_are_read() {
    let (transport, net) = one_pair(ALL);
    assert_eq!((net.mac(), net.mtu(), net.link_up()), (MAC, 1400, true));
    let capabilities = net.capabilities();
    assert!(capabilities.tx_checksum && capabilities.tso4 && capabilities.tso6);
    assert_eq!(
        transport.device().chosen & (1 << 15 | bit::MQ | bit::CTRL_VQ),
        0
    );

    let (_, net) = one_pair(bit::HOST_TSO4);
    assert!(!net.capabilities().tso4, "needs the checksum");
    assert_eq!((net.mtu(), net.link_up()), (1500, true));
    assert_eq!(net.mac()[0] & 3, 2, "locally administered, not multicast");
}

#[test]
fn unusable_devices_are_named() {
    let error = |transport: FakeTransport| {
        let result = VirtioNet::new(Arc::new(transport), NetOptions::default());
        result.err().expect("must fail").reason
    };
    assert_eq!(
        error(FakeTransport::new(1, ALL, &CONFIG[..8], &[8, 8])),
        Reason::ShortConfiguration(8)
    );
    assert_eq!(
        error(FakeTransport::new(1, ALL, &CONFIG, &[8])),
        Reason::MissingQueue(1)
    );
    let mut refusing = FakeTransport::new(1, ALL, &CONFIG, &[8, 8]);
    refusing.refuses = true;
    assert_eq!(error(refusing), Reason::FeaturesRefused);
}

#[test]
fn frames_arrive_and_buffers_are_replaced() {
    let (transport, net) = one_pair(ALL);
    for round in 0..100u16 {
        let long = [&[2u8; 12][..], &[b'l'; 1300]].concat();
        let short = [&[0u8; 12][..], &[b's'; 60]].concat();
        {
            let mut device = transport.device();
            device.queue(0).answer(&long);
            device.queue(0).answer(&short);
            device.queue(0).answer(&[0; 5]); // no whole header
        }
        let (packets, more) = receive(&net, 2);
        assert!(more, "round {round}");
        assert_eq!(packets[0].buf.data(), &[b'l'; 1300]);
        assert_eq!(packets[1].buf.data(), &[b's'; 60]);
        assert!(packets[0].checksum_valid && !packets[1].checksum_valid);
        let (packets, more) = receive(&net, 8);
        assert!(packets.is_empty() && !more);
    }
    let mut device = transport.device();
    assert_eq!(core::iter::from_fn(|| device.queue(0).pop()).count(), 8);
}

#[test]
fn a_frame_goes_out_with_its_header_and_fragments() {
    let (transport, net) = one_pair(ALL);
    let page = Page::zeroed().unwrap();
    page.write(100, b"page");
    let buffer = Arc::new(frame(10));
    let mut packet = TxPacket::new(frame(20));
    packet.checksum = Some(ChecksumOffload {
        start: 34,
        offset: 16,
    });
    packet.segmentation = Some(Segmentation {
        mss: 1000,
        header_len: 54,
        ipv6: false,
    });
    packet.fragments = vec![
        Fragment::Buffer {
            buffer: buffer.clone(),
            offset: 4,
            len: 6,
        },
        Fragment::Buffer {
            buffer: buffer.clone(),
            offset: 0,
            len: 0,
        },
        Fragment::Page {
            page: page.clone(),
            offset: 100,
            len: 4,
        },
    ];
    net.transmit(packet).unwrap();
    net.transmit(TxPacket::new({
        let mut tight = PacketBuf::new(0, 3);
        tight.append(3).copy_from_slice(b"abc");
        tight
    }))
    .unwrap();
    assert_eq!(transport.device().notified, [0], "the receive queue only");
    net.flush();
    net.flush();
    assert_eq!(transport.device().notified, [0, 1]);
    let mut device = transport.device();
    let first = device.queue(1).pop().unwrap();
    let expected = [
        &[1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0, 0, 0][..],
        &[b'f'; 26],
        b"page",
    ];
    assert_eq!(first.readable, expected.concat());
    let second = device.queue(1).pop().unwrap();
    assert_eq!(second.readable, [&[0; 12][..], b"abc"].concat());
    device.queue(1).push(&first, 0);
    drop(device);
    assert!(page.is_shared() && Arc::strong_count(&buffer) == 3);
    receive(&net, 1);
    assert!(
        !page.is_shared() && Arc::strong_count(&buffer) == 1,
        "freed"
    );
}

#[test]
fn a_full_queue_gives_packets_back_and_interrupts_for_room() {
    let (transport, net) = one_pair(ALL);
    for _ in 0..8 {
        net.transmit(TxPacket::new(frame(60))).unwrap();
    }
    let back = net.transmit(TxPacket::new(frame(61))).unwrap_err();
    assert_eq!((back.len(), back.head.headroom()), (61, HEADROOM));
    assert_eq!(transport.device().notified, [0, 1], "told without a flush");
    let mut back = Some(back);
    let mut interrupts = 0;
    {
        let mut device = transport.device();
        while let Some(chain) = device.queue(1).pop() {
            device.queue(1).push(&chain, 0);
            interrupts += usize::from(device.queue(1).wants_interrupt());
        }
    }
    assert_eq!(interrupts, 1, "one for several places");
    receive(&net, 1);
    net.transmit(back.take().unwrap()).unwrap();
    let mut device = transport.device();
    let chain = device.queue(1).pop().unwrap();
    device.queue(1).push(&chain, 0);
    assert!(!device.queue(1).wants_interrupt(), "off again");
}

#[test]
fn interrupts_reach_the_callback_and_none_is_lost() {
    let (transport, net) = one_pair(ALL);
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    net.set_on_receive(Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    assert!(!net.on_interrupt(), "not ours");
    transport.device().raised = true;
    assert!(net.on_interrupt() && !net.on_interrupt());
    assert_eq!(count.load(Ordering::Relaxed), 1);

    transport.device().queue(0).answer(&[0; 100]);
    assert!(
        !transport.device().queue(0).wants_interrupt(),
        "off at start"
    );
    assert!(net.set_receive_interrupts(true), "poll again");
    receive(&net, 8);
    assert!(!net.set_receive_interrupts(true));
    transport.device().queue(0).answer(&[0; 100]);
    assert!(transport.device().queue(0).wants_interrupt());
}

#[test]
fn several_pairs_are_switched_on() {
    for (answer, pairs) in [(0, 2), (1, 1)] {
        let transport = FakeTransport::new(1, ALL, &CONFIG, &[8, 8, 8, 8, 0, 0, 8]).on_notify(
            move |device, queue| {
                if queue == 6 {
                    let chain = device.queue(6).pop().unwrap();
                    assert_eq!(chain.readable, [4, 0, 2, 0]);
                    device.queue(6).fill(&chain, &[answer]);
                }
            },
        );
        let options = NetOptions {
            rx_buffers: 8,
            queue_pairs: 2,
        };
        let (transport, net) = start(transport, options);
        assert_eq!(net.queue_pairs(), pairs);
        if pairs == 2 {
            transport.device().queue(2).answer(&[0; 80]);
            let (packets, more) = receive(&net, 8);
            assert!(packets.len() == 1 && !more);
        }
    }
}

/// A device that answers anything: no panic, and the frames handed on lie within their buffers.
#[test]
fn a_hostile_device_is_survived() {
    for seed in 1..500 {
        let mut numbers = Numbers(seed);
        let (transport, net) = one_pair(ALL);
        for _ in 0..50 {
            let _ = net.transmit(TxPacket::new(frame(60)));
            net.flush();
            {
                let mut device = transport.device();
                let queue = u16::from(numbers.byte() & 1);
                let len = coracle_abi::convert::low_u32(numbers.below(2100));
                match (numbers.below(8), device.queue(queue).pop()) {
                    (0, _) => device.queue(queue).push_raw(u32::from(numbers.byte()), len),
                    (_, Some(chain)) => device.queue(queue).push(&chain, len),
                    _ => {}
                }
            }
            for packet in receive(&net, 4).0 {
                assert!(packet.buf.len() <= 2048);
            }
            net.set_receive_interrupts(true);
        }
    }
}
