// SPDX-License-Identifier: Apache-2.0
//! The disk against a device in memory.

use std::sync::Mutex;

use super::*;
use crate::error::Reason;
use crate::testing::{FakeDevice, FakeTransport, Numbers};

/// 100 sectors, at most 4 segments.
fn configuration() -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = 100;
    bytes[12] = 4;
    bytes
}

const ALL: u64 = bit::SEG_MAX | bit::FLUSH | feature::EVENT_IDX;

/// Answers every request: a read with the number of its sector in each byte, in order.
fn obey(device: &mut FakeDevice, log: &Mutex<Vec<(u8, u64, usize)>>) {
    while let Some(chain) = device.queue(0).pop() {
        let kind = chain.readable[0];
        let sector = u64::from_le_bytes(chain.readable[8..16].try_into().unwrap());
        let room = chain.room() - 1;
        let mut bytes: Vec<u8> = (0..room)
            .map(|at| coracle_abi::convert::low_u8(sector + u64_from(at / 512)))
            .collect();
        log.lock()
            .unwrap()
            .push((kind, sector, room.max(chain.readable.len() - HEADER)));
        bytes.push(0);
        device.queue(0).fill(&chain, &bytes);
    }
}

const HEADER: usize = 16;

type Log = Arc<Mutex<Vec<(u8, u64, usize)>>>;

fn obedient(features: u64) -> (Log, Arc<VirtioBlock>) {
    let log: Log = Arc::default();
    let told = log.clone();
    let transport = FakeTransport::new(2, features, &configuration(), &[64])
        .on_notify(move |device, _| obey(device, &told));
    (log, VirtioBlock::new(Arc::new(transport)).unwrap())
}

fn pages(count: usize) -> Vec<Page> {
    (0..count).map(|_| Page::zeroed().unwrap()).collect()
}

fn byte(page: &Page, offset: usize) -> u8 {
    let mut out = [0];
    page.read(offset, &mut out);
    out[0]
}

#[test]
fn long_transfers_are_cut_to_what_the_device_takes() {
    let (log, disk) = obedient(ALL);
    assert_eq!((disk.sectors(), disk.is_read_only()), (100, false));
    let six = pages(6);
    disk.read(8, &six).unwrap();
    assert_eq!(*log.lock().unwrap(), [(0, 8, 16384), (0, 40, 8192)]);
    assert_eq!((byte(&six[0], 0), byte(&six[5], 4095)), (8, 55));
    log.lock().unwrap().clear();
    disk.write(16, &six[..1]).unwrap();
    disk.flush().unwrap();
    assert_eq!(*log.lock().unwrap(), [(1, 16, 4096), (4, 0, 0)]);
}

#[test]
fn without_a_number_of_segments_a_request_has_one() {
    let (log, disk) = obedient(feature::EVENT_IDX);
    disk.read(0, &pages(2)).unwrap();
    assert_eq!(*log.lock().unwrap(), [(0, 0, 4096), (0, 8, 4096)]);
    // No cache to flush was offered.
    disk.flush().unwrap();
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[test]
fn the_end_of_the_disk_holds() {
    let (log, disk) = obedient(ALL);
    let two = pages(2);
    // 100 sectors are twelve pages and a half: the last one is read in part.
    disk.read(96, &two[..1]).unwrap();
    assert_eq!(*log.lock().unwrap(), [(0, 96, 2048)]);
    assert_eq!((byte(&two[0], 2047), byte(&two[0], 2048)), (99, 0));
    for (sector, count) in [(96, 2), (100, 1), (u64::MAX, 1), (u64::MAX / 512 + 1, 1)] {
        assert_eq!(disk.read(sector, &two[..count]), Err(Errno::EIO));
    }
}

#[test]
fn what_the_device_says_is_told() {
    for (status, len) in [(1, 4097), (2, 4097), (0xff, 4097), (0, 4096), (0, 0)] {
        let transport =
            FakeTransport::new(2, ALL, &configuration(), &[8]).on_notify(move |device, _| {
                while let Some(chain) = device.queue(0).pop() {
                    let mut bytes = alloc::vec![0; 4096];
                    bytes.push(status);
                    device.queue(0).write(&chain, &bytes);
                    device.queue(0).push(&chain, len);
                }
            });
        let disk = VirtioBlock::new(Arc::new(transport)).unwrap();
        assert_eq!(disk.read(0, &pages(1)), Err(Errno::EIO), "{status} {len}");
    }
    let read_only = FakeTransport::new(2, bit::RO, &configuration(), &[8]);
    let disk = VirtioBlock::new(Arc::new(read_only)).unwrap();
    assert!(disk.is_read_only());
    assert_eq!(disk.write(0, &pages(1)), Err(Errno::EROFS));
}

#[test]
fn unfit_devices_are_refused() {
    let refused = |transport: FakeTransport| VirtioBlock::new(Arc::new(transport)).err().unwrap();
    let short = refused(FakeTransport::new(2, ALL, &[0; 8], &[8]));
    assert_eq!(short.reason, Reason::ShortConfiguration(8));
    let small = refused(FakeTransport::new(2, ALL, &configuration(), &[2]));
    assert_eq!(small.reason, Reason::MissingQueue(0));
}

#[test]
fn threads_share_the_queue() {
    let (log, disk) = obedient(ALL);
    std::thread::scope(|s| {
        for first in 0..4u64 {
            let disk = &disk;
            s.spawn(move || {
                for round in 0..50 {
                    let sector = (first * 7 + round) % 90;
                    let one = pages(1);
                    disk.read(sector, &one).unwrap();
                    assert_eq!(u64::from(byte(&one[0], 512)), sector + 1);
                }
            });
        }
    });
    assert_eq!(log.lock().unwrap().len(), 200);
}

#[test]
fn a_device_that_lies_is_shut_and_harms_nobody() {
    for seed in 1..200 {
        let mut numbers = Numbers(seed);
        let transport =
            FakeTransport::new(2, ALL, &configuration(), &[8]).on_notify(move |device, _| {
                let queue = device.queue(0);
                while let Some(chain) = queue.pop() {
                    match numbers.below(4) {
                        0 => queue.set_used_index(0x4000 | numbers.u16()),
                        1 => {
                            queue.push_raw(u32::from(numbers.u16() % 16), u32::from(numbers.u16()))
                        }
                        _ => {
                            let byte = numbers.byte() % 2;
                            let bytes = alloc::vec![byte; chain.room()];
                            queue.fill(&chain, &bytes);
                        }
                    }
                }
            });
        let disk = VirtioBlock::new(Arc::new(transport)).unwrap();
        for _ in 0..8 {
            if disk.is_broken() {
                assert_eq!(disk.read(0, &pages(1)), Err(Errno::EIO));
                break;
            }
            let _ = disk.read(0, &pages(1));
        }
    }
}
