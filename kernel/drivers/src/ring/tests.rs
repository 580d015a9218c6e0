// SPDX-License-Identifier: Apache-2.0
//! The queue against a device that obeys, one that is slow, and ones that lie.

use alloc::vec;
use alloc::vec::Vec;
use std::sync::{Condvar, Mutex};

use coracle_abi::convert::{low_u32, usize_from, usize_from_u32};

use super::*;
use crate::testing::{DeviceChain, DeviceQueue, Numbers};

/// What the device reads, and what it fills.
struct Token {
    name: u64,
    _text: Vec<u8>,
    room: Vec<u8>,
}

fn pair(size: u16, events: bool) -> (Virtqueue<Token>, DeviceQueue) {
    let queue = Virtqueue::new("test", 0, size, events);
    let device = DeviceQueue::new(queue.addresses(), size, events);
    (queue, device)
}

/// Adds a chain of `pieces` readable bytes, a descriptor each, and one of `room` bytes to fill.
fn add(queue: &mut Virtqueue<Token>, name: u64, pieces: usize, room: usize) -> bool {
    let text = vec![b'r'; pieces];
    let mut room = vec![0; room];
    let mut spans: Vec<Span> = text.chunks(1).map(Span::readable).collect();
    if !room.is_empty() {
        spans.push(Span::writable(&mut room));
    }
    let token = Token {
        name,
        _text: text,
        room,
    };
    queue.add(&spans, token).is_ok()
}

fn pop(queue: &mut Virtqueue<Token>) -> Option<(u64, u32)> {
    queue.pop_used().map(|(token, len)| (token.name, len))
}

#[test]
fn chains_go_out_and_come_back() {
    let (mut queue, mut device) = pair(4, true);
    assert!(add(&mut queue, 1, 2, 3));
    assert!(!add(&mut queue, 2, 2, 0), "one descriptor is left");
    assert!(add(&mut queue, 3, 1, 0));
    assert_eq!(pop(&mut queue), None);
    let first = device.pop().unwrap();
    assert_eq!(first.readable, b"rr");
    let second = device.pop().unwrap();
    assert!(device.pop().is_none());
    device.push(&second, 77);
    assert_eq!(pop(&mut queue), Some((3, 0)), "nothing to write in there");
    device.fill(&first, b"ok");
    let (token, len) = queue.pop_used().unwrap();
    assert_eq!((token.name, len, &token.room[..]), (1, 2, &b"ok\0"[..]));
    assert_eq!((queue.free(), queue.in_flight()), (4, 0));
}

/// Random additions and answers in random order: each token comes back once, with its own bytes, and no descriptor is
/// ever lost. Runs past the wrap of the 16-bit indexes.
#[test]
fn nothing_is_lost_in_any_order() {
    for (seed, events) in [(1, true), (2, false)] {
        let mut numbers = Numbers(seed);
        let (mut queue, mut device) = pair(16, events);
        let mut held: Vec<DeviceChain> = Vec::new();
        let mut waiting: Vec<u64> = Vec::new();
        let mut name = 0;
        for _ in 0..600_000 {
            match numbers.below(8) {
                0..=2 => {
                    let pieces = usize_from(numbers.below(4));
                    let room = if pieces == 0 {
                        8
                    } else {
                        8 * usize_from(numbers.below(2))
                    };
                    let fits = pieces + usize::from(room > 0) <= usize::from(queue.free());
                    assert_eq!(add(&mut queue, name, pieces, room), fits);
                    if fits {
                        waiting.push(name);
                        name += 1;
                    }
                }
                3 | 4 => held.extend(device.pop()),
                5 | 6 if !held.is_empty() => {
                    let chain = held.swap_remove(usize_from(numbers.below(held.len() as u64)));
                    device.push(&chain, low_u32(numbers.below(9)));
                }
                _ => {
                    while let Some((done, _)) = pop(&mut queue) {
                        let at = waiting.iter().position(|n| *n == done).unwrap();
                        waiting.remove(at);
                    }
                }
            }
        }
        while let Some(chain) = device.pop() {
            held.push(chain);
        }
        held.iter().for_each(|chain| device.push(chain, 0));
        while let Some((done, _)) = pop(&mut queue) {
            waiting.retain(|n| *n != done);
        }
        assert!(waiting.is_empty() && !queue.is_broken());
        assert!(name > 70_000, "only {name} chains");
        assert_eq!((queue.free(), queue.in_flight()), (16, 0));
    }
}

#[test]
fn a_lying_device_shuts_its_queue() {
    type Lie = fn(&mut DeviceQueue, &DeviceChain);
    let lies: [(&str, Lie); 8] = [
        ("an id beyond the table", |d, _| d.push_raw(4, 0)),
        ("a huge id", |d, _| d.push_raw(u32::MAX, 0)),
        ("an id that truncates", |d, c| {
            d.push_raw(0x1_0000 | u32::from(c.head), 0)
        }),
        ("the middle of a chain", |d, c| {
            d.push_raw(u32::from(c.head) + 1, 0)
        }),
        ("more bytes than room", |d, c| d.push(c, 9)),
        ("the same chain twice", |d, c| {
            d.push(c, 8);
            d.push(c, 8);
        }),
        ("an index that jumps", |d, _| d.set_used_index(3)),
        ("an index that goes back", |d, _| d.set_used_index(u16::MAX)),
    ];
    for (what, lie) in lies {
        for events in [true, false] {
            let (mut queue, mut device) = pair(4, events);
            assert!(add(&mut queue, 1, 1, 8) && add(&mut queue, 2, 1, 8));
            let chain = device.pop().unwrap();
            lie(&mut device, &chain);
            let returned = core::iter::from_fn(|| queue.pop_used()).count();
            assert!(queue.is_broken(), "{what}");
            let honest = usize::from(what == "the same chain twice");
            assert_eq!(returned, honest, "{what}: no token is made up");
            assert!(!add(&mut queue, 3, 1, 0), "{what}");
            assert!(!queue.enable_interrupts() && !queue.has_used() && !queue.should_notify());
        }
    }
}

#[test]
fn an_answer_to_nothing_shuts_the_queue() {
    let (mut queue, mut device) = pair(4, true);
    device.set_used_index(1);
    assert!(queue.enable_interrupts(), "there seems to be something");
    assert!(pop(&mut queue).is_none() && queue.is_broken());
    assert!(!queue.enable_interrupts());
}

/// A used ring full of noise: no panic, no token twice, and the queue ends up shut.
#[test]
fn noise_in_the_used_ring_is_survived() {
    for seed in 1..3000 {
        let mut numbers = Numbers(seed);
        let (mut queue, mut device) = pair(8, numbers.below(2) == 0);
        let mut returned = Vec::new();
        for name in 0..64 {
            add(&mut queue, name, 1 + usize_from(numbers.below(2)), 16);
            let _ = device.pop();
            match numbers.below(3) {
                0 => device.push_raw(low_u32(numbers.below(10)), low_u32(numbers.below(20))),
                1 => device.push_raw(low_u32(numbers.below(4)), 16),
                _ if numbers.below(8) == 0 => device.set_used_index(numbers.u16()),
                _ => {}
            }
            while let Some((token, len)) = queue.pop_used() {
                assert!(usize_from_u32(len) <= token.room.len());
                returned.push(token.name);
            }
        }
        let count = returned.len();
        returned.sort_unstable();
        returned.dedup();
        assert_eq!(returned.len(), count, "seed {seed}: no token comes twice");
    }
}

#[test]
fn the_device_is_told_when_it_wants_to_be() {
    let (mut queue, mut device) = pair(8, true);
    assert!(!queue.should_notify(), "nothing was added");
    add(&mut queue, 1, 1, 0);
    assert!(queue.should_notify() && !queue.should_notify());
    let chain = device.pop().unwrap();
    assert!(device.pop().is_none()); // goes to sleep
    device.push(&chain, 0);
    device.suppress_notifications();
    add(&mut queue, 2, 1, 0);
    assert!(!queue.should_notify(), "the device polls");
    device.pop().unwrap();
    assert!(device.pop().is_none());
    add(&mut queue, 3, 1, 0);
    add(&mut queue, 4, 1, 0);
    assert!(queue.should_notify(), "its wish lies between two additions");

    let (mut queue, _device) = pair(8, false);
    add(&mut queue, 1, 1, 0);
    assert!(queue.should_notify() && !queue.should_notify());
}

#[test]
fn interrupts_come_when_asked_for() {
    for events in [true, false] {
        let (mut queue, mut device) = pair(8, events);
        (0..4).for_each(|name| assert!(add(&mut queue, name, 1, 0)));
        let chains: Vec<_> = core::iter::from_fn(|| device.pop()).collect();
        device.push(&chains[0], 0);
        assert!(!device.wants_interrupt(), "off at first");
        assert!(queue.enable_interrupts(), "one is there already");
        assert!(pop(&mut queue).is_some() && !queue.enable_interrupts());
        device.push(&chains[1], 0);
        assert!(device.wants_interrupt());
        assert!(pop(&mut queue).is_some());
        queue.disable_interrupts();
        device.push(&chains[2], 0);
        assert!(!device.wants_interrupt());
        assert!(pop(&mut queue).is_some());
    }
    let (mut queue, mut device) = pair(8, true);
    (0..4).for_each(|name| assert!(add(&mut queue, name, 1, 0)));
    assert!(!queue.enable_interrupts_after(3));
    for wanted in [false, false, true, false] {
        let chain = device.pop().unwrap();
        device.push(&chain, 0);
        assert_eq!(device.wants_interrupt(), wanted);
    }
    assert!(queue.enable_interrupts_after(4) && !queue.enable_interrupts_after(5));
}

/// The two sides of the queue, and the bell that wakes each.
const DRIVER: usize = 0;
const DEVICE: usize = 1;

/// Where both sides sleep. When both do and nobody rang, a wake-up was lost: that is known at once, however slow the
/// machine is.
#[derive(Default)]
struct Bells {
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Default)]
struct BellState {
    rung: [bool; 2],
    asleep: [bool; 2],
    over: bool,
    lost: bool,
}

impl Bells {
    fn ring(&self, side: usize) {
        self.state.lock().unwrap().rung[side] = true;
        self.changed.notify_all();
    }

    /// Sleeps until the bell of this side rings, or all is over; whether it goes on.
    fn sleep(&self, side: usize) -> bool {
        let mut state = self.state.lock().unwrap();
        let other = 1 - side;
        let nobody_rang = !state.rung[side] && !state.rung[other];
        if state.asleep[other] && nobody_rang && !state.over {
            state.lost = true;
            state.over = true;
            self.changed.notify_all();
        }
        state.asleep[side] = true;
        while !state.rung[side] && !state.over {
            state = self.changed.wait(state).unwrap();
        }
        state.asleep[side] = false;
        state.rung[side] = false;
        !state.over
    }

    fn end(&self) {
        self.state.lock().unwrap().over = true;
        self.changed.notify_all();
    }
}

/// Driver and device on two threads, each asleep until told by the other: a lost notification or interrupt shows as a
/// standstill.
#[test]
fn no_wakeup_is_lost() {
    const CHAINS: u64 = 100_000;
    for events in [true, false] {
        let (mut queue, mut device) = pair(8, events);
        let bells = Bells::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    while let Some(chain) = device.pop() {
                        device.push(&chain, 0);
                        if device.wants_interrupt() {
                            bells.ring(DRIVER);
                        }
                    }
                    if !bells.sleep(DEVICE) {
                        return;
                    }
                }
            });
            let (mut sent, mut done) = (0, 0);
            while done < CHAINS {
                while sent < CHAINS && add(&mut queue, sent, 1, 0) {
                    sent += 1;
                }
                if queue.should_notify() {
                    bells.ring(DEVICE);
                }
                let before = done;
                while pop(&mut queue).is_some() {
                    done += 1;
                }
                if done == before && !queue.enable_interrupts() && !bells.sleep(DRIVER) {
                    break;
                }
                queue.disable_interrupts();
            }
            bells.end();
        });
        let state = bells.state.into_inner().unwrap();
        assert!(!state.lost, "a wake-up was lost");
        assert_eq!(queue.in_flight(), 0);
    }
}
