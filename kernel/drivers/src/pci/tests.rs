// SPDX-License-Identifier: Apache-2.0
//! Configuration space in memory, with a virtio device in it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::device::EntropyDevice;

use super::*;
use crate::error::Reason;
use crate::testing::Numbers;
use crate::{Device, NetOptions, probe_pci};

/// Configuration words by (bus, device, function, offset), and the sizes of BARs.
#[derive(Default)]
struct Space {
    words: Mutex<BTreeMap<(u8, u8, u8, u16), u32>>,
    bar_sizes: BTreeMap<u16, u32>,
}

impl Space {
    fn set(&self, device: u8, offset: u16, value: u32) {
        self.words
            .lock()
            .unwrap()
            .insert((0, device, 0, offset), value);
    }
}

impl PciConfig for Space {
    fn read32(&self, bus: u8, device: u8, function: u8, offset: u16) -> u32 {
        assert!(offset.is_multiple_of(4) && offset < 0x100);
        let words = self.words.lock().unwrap();
        let exists = words.contains_key(&(bus, device, function, 0));
        let word = words.get(&(bus, device, function, offset)).copied();
        word.unwrap_or(if exists { 0 } else { u32::MAX })
    }

    fn write32(&self, bus: u8, device: u8, function: u8, offset: u16, value: u32) {
        assert!(offset.is_multiple_of(4));
        let old = self.read32(bus, device, function, offset);
        let value = match self.bar_sizes.get(&offset) {
            Some(0) => 0,
            Some(size) => value & !(size - 1) | old & 0xf,
            None if offset == 4 => value & 0xffff | old & 0xffff_0000, // the status does not take ones
            None => value,
        };
        let key = (bus, device, function, offset);
        self.words.lock().unwrap().insert(key, value);
    }
}

/// Memory behind BAR 1 (MSI-X table) and BAR 4 (the interface) in addresses of their own; `map` adds the real place.
static MEMORY: AtomicUsize = AtomicUsize::new(0);
const WINDOW: Range<u64> = 0x1000..0xc000;

fn memory() -> usize {
    let known = MEMORY.load(Ordering::SeqCst);
    if known != 0 {
        return known;
    }
    let words: &'static mut [u64] = alloc::vec![0u64; 0x2000].leak();
    let at = words.as_mut_ptr() as usize;
    match MEMORY.compare_exchange(0, at, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => at,
        Err(other) => other,
    }
}

/// Memory at `address`; other memory, if a device claims a place that is not in the window.
fn map(address: u64, len: usize) -> Mmio {
    let end = address.saturating_add(u64_from(len));
    if address < WINDOW.start || end > WINDOW.end {
        let words: &'static mut [u64] = alloc::vec![0u64; len.div_ceil(8)].leak();
        // SAFETY: leaked, and used for nothing else.
        return unsafe { Mmio::new(words.as_mut_ptr().cast(), len) };
    }
    // SAFETY: `memory` is 64 KiB, leaked, and used by tests that hold `ONE_AT_A_TIME`.
    unsafe { Mmio::new((memory() + usize_from(address)) as *mut u8, len) }
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn exclusive() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entropy device at 0:3.0 with its BARs unassigned.
fn space() -> Space {
    let space = Space {
        words: Mutex::default(),
        // BAR 0 is not there; the upper half of BAR 4 takes any value.
        bar_sizes: [(0x10, 0), (0x14, 0x1000), (0x20, 0x4000)].into(),
    };
    let set = |offset, value| space.set(3, offset, value);
    set(0x00, 0x1044_1af4);
    set(0x04, 0x0010_0000); // has capabilities
    set(0x20, 0x0000_000c); // 64 bits, prefetchable
    set(0x34, 0x40);
    // Vendor capabilities: number, next, length, kind; BAR; offset; length.
    for (at, next, kind, offset, len) in [
        (0x40, 0x54, 1, 0, 0x38),
        (0x54, 0x68, 3, 0x1000, 4),
        (0x68, 0x7c, 2, 0x3000, 0x100),
        (0x7c, 0x98, 5, 0, 0), // configuration access, which we do not use
    ] {
        set(at, 0x09 | next << 8 | 16 << 16 | kind << 24);
        set(at + 4, 4);
        set(at + 8, offset);
        set(at + 12, len);
    }
    set(0x78, 4); // notification multiplier
    set(0x98, 0x0001_0011); // MSI-X, two vectors, end of the list
    set(0x9c, 0x0000_0001); // table at the start of BAR 1
    space
}

fn host(space: Space, messages: usize) -> PciHost {
    // Registers as the device would show them: VERSION_1 in either half, one queue of 8 entries whose notification
    // register is number 2.
    let _ = memory();
    let interface = map(0x4000, 0x4000);
    for at in (0..0x4000).step_by(4) {
        interface.write32(at, 0);
    }
    interface.write32(4, 1);
    interface.write16(24, 8);
    interface.write16(30, 2);
    let left = AtomicUsize::new(messages);
    PciHost {
        config: Arc::new(space),
        map,
        allocate_msi: Some(Arc::new(move |_| {
            let before = left.load(Ordering::SeqCst);
            left.store(before.saturating_sub(1), Ordering::SeqCst);
            (before > 0).then_some(MsiMessage {
                address: 0xfee0_1000,
                data: 0x41,
            })
        })),
        window: SpinLock::new(WINDOW),
    }
}

fn probe(host: &PciHost) -> Result<Device, crate::DriverError> {
    let functions = devices(&*host.config);
    assert_eq!(functions.len(), 1);
    probe_pci(host, functions[0], NetOptions::default())
}

#[test]
fn a_device_is_given_memory_and_a_message() {
    let _guard = exclusive();
    let host = host(space(), 1);
    let device = probe(&host).unwrap();
    assert!(device.line_handler().is_none(), "messages, not a line");
    let Device::Entropy(rng) = &device else {
        panic!("an entropy device");
    };
    let read = |offset| host.config.read32(0, 3, 0, offset);
    assert_eq!(read(0x20), 0x400c, "BAR 4, aligned to its size");
    assert_eq!(read(0x14), 0x8000, "BAR 1, behind it");
    assert_eq!(read(0x04) & 0x406, 0x406, "memory, bus master, no line");
    assert_eq!(read(0x98) >> 30, 0b10, "MSI-X on, not masked");
    let interface = map(0x4000, 0x4000);
    assert_eq!(interface.read8(20), 15, "DRIVER_OK");
    assert_eq!(interface.read16(26), 0, "the first vector");
    assert_eq!(interface.read16(28), 1, "the queue is on");
    assert!(interface.read32(32) != 0 && interface.read32(40) != 0);
    let table = map(u64::from(read(0x14)), 0x20);
    let entry: Vec<u32> = (0..8).map(|i| table.read32(4 * i)).collect();
    assert_eq!(entry[..4], [0xfee0_1000, 0, 0x41, 0]);
    assert_eq!(entry[7] & 1, 1, "the other vector is masked");
    interface.write16(0x3008, 0xffff);
    rng.fill(&mut [0; 8], 0);
    assert_eq!(interface.read16(0x3008), 0, "queue 0 is notified");
}

#[test]
fn without_messages_the_line_is_used() {
    let _guard = exclusive();
    let host = host(space(), 0);
    let device = probe(&host).unwrap();
    let handler = device.line_handler().expect("a line");
    assert_eq!(host.config.read32(0, 3, 0, 0x98) >> 31, 0, "MSI-X off");
    assert_eq!(host.config.read32(0, 3, 0, 0x04) & 0x400, 0);
    assert!(!handler.on_interrupt());
    map(0x5000, 4).write8(0, 1);
    assert!(handler.on_interrupt());
}

#[test]
fn nonsense_is_named() {
    let _guard = exclusive();
    let reason = |change: fn(&Space)| {
        let space = space();
        change(&space);
        probe(&host(space, 1)).err().expect("must fail").reason
    };
    assert_eq!(
        reason(|s| s.set(3, 0x34, 0)),
        Reason::MissingCapability("common configuration")
    );
    assert_eq!(
        reason(|s| s.set(3, 0x40 + 12, 0x37)),
        Reason::MissingCapability("common configuration"),
        "too short"
    );
    assert_eq!(
        reason(|s| s.set(3, 0x68 + 8, 0xffff_fff0)),
        Reason::MissingCapability("notification"),
        "outside the BAR"
    );
    assert_eq!(
        reason(|s| s.set(3, 0x78, 0x1000)),
        Reason::MissingCapability("notification"),
        "the queue's register lies outside"
    );
    let host = host(space(), 1);
    *host.window.lock() = 0x1000..0x4000;
    assert_eq!(probe(&host).err().unwrap().reason, Reason::NoRoomForBar(4));
}

/// Configuration space of any content: no panic and no endless walk.
#[test]
fn noise_in_configuration_space_is_survived() {
    let _guard = exclusive();
    for seed in 1..2000 {
        let mut numbers = Numbers(seed);
        let space = space();
        for _ in 0..numbers.below(6) {
            let offset = 4 * coracle_abi::convert::low_u16(1 + numbers.below(0x2f));
            let old = space.read32(0, 3, 0, offset);
            let bit = 1 << numbers.below(32);
            space.set(3, offset, old ^ bit);
        }
        let _ = probe(&host(space, 1));
    }
}

#[test]
fn functions_behind_bridges_are_found() {
    let space = Space::default();
    let set = |at, value| {
        space.words.lock().unwrap().insert(at, value);
    };
    set((0, 0, 0, 0), 0x29c0_8086);
    set((0, 31, 0, 0), 0x2918_8086);
    set((0, 31, 0, 0x0c), 0x0080_0000); // several functions
    set((0, 31, 2, 0), 0x2922_8086);
    set((0, 2, 0, 0), 0x000c_1b36);
    set((0, 2, 0, 0x0c), 0x0001_0000); // a bridge
    set((0, 2, 0, 0x18), 0x0001_0100); // to bus 1
    set((1, 0, 0, 0), 0x1041_1af4);
    set((1, 0, 0, 0x0c), 0x0001_0000); // a bridge that leads back
    set((1, 0, 0, 0x18), 0x0000_0000);
    let found: Vec<_> = devices(&space)
        .iter()
        .map(|f| (f.bus, f.device, f.function))
        .collect();
    assert_eq!(
        found,
        [(0, 0, 0), (0, 2, 0), (0, 31, 0), (0, 31, 2), (1, 0, 0)]
    );
}
