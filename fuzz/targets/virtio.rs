// SPDX-License-Identifier: Apache-2.0
//! A virtio device that does anything: its offer, its configuration, what it puts into its rings, and when.
//!
//! As long as it only returns chains it has, frames arrive and leave unchanged and in order. Once it lies, nothing is
//! promised but that the driver neither panics nor touches memory that is not its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_core::device::{
    BlockDevice, CharDevice, EntropyDevice, InterruptHandler, Message, NetDevice, ShareDevice,
};
use coracle_core::memory::{Mmio, Page};
use coracle_core::packet::{Fragment, HEADROOM, PacketBuf, TxPacket};
use coracle_drivers::transport::{QueueAddresses, Transport, feature};
use coracle_drivers::{Device, DriverError, NetOptions, probe};

/// The fuzzer's bytes, taken from the front; zeroes when they are used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let len = N.min(self.0.len());
        out[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        out
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.bytes();
        byte
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }
}

/// A chain the device has taken.
struct Chain {
    head: u16,
    /// Address, length, and whether the device may write.
    pieces: Vec<(u64, u32, bool)>,
}

struct Queue {
    at: QueueAddresses,
    size: u16,
    taken: u16,
    used: u16,
    chains: VecDeque<Chain>,
}

/// The device. Its queues' memory belongs to the driver, which lives longer than any access: the driver resets the
/// device, which forgets its queues, before it frees them.
struct Lab {
    id: u32,
    offered: u64,
    limit: u16,
    /// Keeps the memory behind `config`.
    _registers: Box<[u64; 4]>,
    config: Mmio,
    /// What a disk does with its requests.
    answers: Mutex<VecDeque<u8>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    status: u8,
    interrupt: bool,
    queues: Vec<Option<Queue>>,
}

fn load<T: Copy>(address: u64) -> T {
    let at = usize::try_from(address).expect("an address") as *const T;
    // SAFETY: memory of the driver's queues or of a buffer it has lent and not got back.
    unsafe { at.read_volatile() }
}

fn store<T: Copy>(address: u64, value: T) {
    let at = usize::try_from(address).expect("an address") as *mut T;
    // SAFETY: as for `load`, and the device may write there.
    unsafe { at.write_volatile(value) }
}

impl Queue {
    fn take(&mut self) {
        if load::<u16>(self.at.available + 2) == self.taken {
            return;
        }
        let slot = u64::from(self.taken % self.size);
        let head = load::<u16>(self.at.available + 4 + 2 * slot);
        self.taken = self.taken.wrapping_add(1);
        let mut pieces = Vec::new();
        let mut index = head;
        loop {
            let at = self.at.descriptors + 16 * u64::from(index);
            let flags = load::<u16>(at + 12);
            pieces.push((load(at), load(at + 8), flags & 2 != 0));
            if flags & 1 == 0 || pieces.len() > usize::from(self.size) {
                break;
            }
            index = load(at + 14);
        }
        assert!(pieces.len() <= usize::from(self.size), "no endless chain");
        self.chains.push_back(Chain { head, pieces });
    }

    fn put(&mut self, id: u32, len: u32) {
        let entry = self.at.used + 4 + 8 * u64::from(self.used % self.size);
        store(entry, id);
        store(entry + 4, len);
        self.used = self.used.wrapping_add(1);
        store(self.at.used + 2, self.used);
    }
}

impl Chain {
    fn read(&self) -> Vec<u8> {
        let readable = self.pieces.iter().filter(|(_, _, write)| !write);
        readable
            .flat_map(|(at, len, _)| (0..u64::from(*len)).map(move |i| load::<u8>(at + i)))
            .collect()
    }

    /// Writes as much of `bytes` as fits and returns how much that is.
    fn write(&self, bytes: &[u8]) -> usize {
        let writable = self.pieces.iter().filter(|(_, _, write)| *write);
        let places = writable.flat_map(|(at, len, _)| *at..at + u64::from(*len));
        places.zip(bytes).map(|(at, byte)| store(at, *byte)).count()
    }
}

impl Lab {
    fn new(input: &mut Input<'_>) -> Self {
        let kind = input.byte();
        let id = match kind {
            0x80.. if kind % 4 == 3 => 2,
            _ => [1, 3, 3, 4][usize::from(kind % 4)],
        };
        let offered = u64::from_le_bytes(input.bytes()) | feature::VERSION_1;
        let limit = 1 << (input.byte() % 8);
        let mut registers = Box::new([0u64; 4]);
        registers.fill_with(|| u64::from_le_bytes(input.bytes()));
        let len = usize::from(input.byte() % 33);
        // SAFETY: the memory lives in the same structure, which the driver keeps for as long as it lives.
        let config = unsafe { Mmio::new(registers.as_mut_ptr().cast(), len) };
        Self {
            id,
            offered,
            limit,
            _registers: registers,
            config,
            answers: Mutex::new(input.0.iter().copied().collect()),
            state: Mutex::default(),
        }
    }

    /// A disk answers or lies before its driver, which waits, goes on: by the next bytes of the input.
    fn answer_all(&self, queue: &mut Queue) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = || answers.pop_front().unwrap_or(0);
        loop {
            queue.take();
            // It wants to hear of the next request, or nobody would ever answer that.
            store(queue.at.used, 0u16);
            store(queue.at.used + 4 + 8 * u64::from(queue.size), queue.taken);
            let Some(chain) = queue.chains.pop_front() else {
                return;
            };
            let room = chain.pieces.iter().filter(|(_, _, write)| *write);
            let room: usize = room.map(|(_, len, _)| *len as usize).sum();
            let mut bytes = vec![next(); room];
            bytes[room - 1] = 0;
            let len = chain.write(&bytes);
            let len = u32::try_from(len).expect("short");
            match next() % 6 {
                0 => queue.put(u32::from(next()), len),
                1 => queue.put(chain.head.into(), u32::from(next())),
                2 => {
                    bytes[room - 1] = next();
                    chain.write(&bytes);
                    queue.put(chain.head.into(), len);
                }
                _ => queue.put(chain.head.into(), len),
            }
            if next() % 16 == 1 {
                queue.used = queue.used.wrapping_add(0x4000);
                store(queue.at.used + 2, queue.used);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Lab {
    fn device_id(&self) -> u32 {
        self.id
    }

    fn features(&self) -> u64 {
        self.offered
    }

    fn choose_features(&self, features: u64) {
        assert_eq!(features & !self.offered, 0);
    }

    fn status(&self) -> u8 {
        self.state().status
    }

    fn set_status(&self, status: u8) {
        let mut state = self.state();
        state.status = status;
        if status == 0 {
            state.queues.clear();
        }
    }

    fn config(&self) -> Mmio {
        self.config
    }

    fn config_generation(&self) -> u32 {
        0
    }

    fn queue_limit(&self, _queue: u16) -> u16 {
        self.limit
    }

    fn enable_queue(
        &self,
        queue: u16,
        size: u16,
        at: QueueAddresses,
        _handler: &Arc<dyn InterruptHandler>,
    ) -> Result<(), DriverError> {
        assert!(size.is_power_of_two() && size <= self.limit);
        let queues = &mut self.state().queues;
        let needed = queues.len().max(usize::from(queue) + 1);
        queues.resize_with(needed, || None);
        queues[usize::from(queue)] = Some(Queue {
            at,
            size,
            taken: 0,
            used: 0,
            chains: VecDeque::new(),
        });
        Ok(())
    }

    fn notify(&self, queue: u16) {
        let mut state = self.state();
        let queue = state.queues[usize::from(queue)].as_mut();
        let queue = queue.expect("notified of a queue that is there");
        if self.id == 2 {
            self.answer_all(queue);
        }
    }

    fn has_line(&self) -> bool {
        true
    }

    fn acknowledge(&self) -> bool {
        std::mem::take(&mut self.state().interrupt)
    }
}

/// What was sent each way and has not arrived yet.
#[derive(Default)]
struct OnTheWay {
    lied: bool,
    to_driver: VecDeque<Vec<u8>>,
    to_device: VecDeque<Vec<u8>>,
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let lab = Arc::new(Lab::new(&mut input));
    let options = NetOptions {
        rx_buffers: 8,
        queue_pairs: 1,
    };
    let Ok(device) = probe(lab.clone(), options) else {
        return;
    };
    let mut way = OnTheWay::default();
    while !input.0.is_empty() {
        match input.byte() % 4 {
            0 => act(&lab, &mut input, &mut way),
            1 => lie(&lab, &mut input, &mut way),
            _ => drive(&device, &mut input, &mut way),
        }
    }
}

/// The device works: takes a chain, or returns one it has.
fn act(lab: &Lab, input: &mut Input<'_>, way: &mut OnTheWay) {
    if lab.id == 2 {
        return; // it answers when it is notified
    }
    let mut state = lab.state();
    state.interrupt |= input.byte() & 1 != 0;
    let number = usize::from(input.byte() % 6);
    let Some(Some(queue)) = state.queues.get_mut(number) else {
        return;
    };
    if way.lied {
        return; // what it believes to have may be gone
    }
    if input.byte() & 1 == 0 {
        queue.take();
        return;
    }
    let Some(chain) = queue.chains.pop_front() else {
        return;
    };
    if lab.id == 1 && number == 1 {
        let sent = way.to_device.pop_front().expect("a frame was sent");
        assert_eq!(chain.read()[12..], sent);
    }
    let mut bytes = vec![0; usize::from(input.u16() % 2200)];
    let start: [u8; 16] = input.bytes();
    bytes
        .iter_mut()
        .zip(start)
        .for_each(|(to, from)| *to = from);
    let len = chain.write(&bytes);
    queue.put(u32::from(chain.head), u32::try_from(len).expect("short"));
    if lab.id == 1 && number == 0 && len > 12 {
        way.to_driver.push_back(bytes[12..len].to_vec());
    }
}

/// The device writes nonsense into a ring.
fn lie(lab: &Lab, input: &mut Input<'_>, way: &mut OnTheWay) {
    if lab.id == 2 {
        return; // it lies when it is notified
    }
    let mut state = lab.state();
    let number = usize::from(input.byte() % 6);
    let Some(Some(queue)) = state.queues.get_mut(number) else {
        return;
    };
    match input.byte() % 4 {
        0 => store(queue.at.used, input.u16()),
        1 => store(queue.at.used + 4 + 8 * u64::from(queue.size), input.u16()),
        2 => {
            way.lied = true;
            queue.used = input.u16();
            store(queue.at.used + 2, queue.used);
        }
        _ => {
            way.lied = true;
            let id = u32::from_le_bytes(input.bytes());
            let id = if id & 1 == 0 { id } else { id >> 28 };
            queue.put(id, u32::from(input.u16()));
        }
    }
}

/// The kernel uses the device.
fn drive(device: &Device, input: &mut Input<'_>, way: &mut OnTheWay) {
    let what = input.byte();
    match device {
        Device::Net(net) => match what % 5 {
            0 => {
                net.receive(usize::from(input.byte() % 20), &mut |packet| {
                    assert!(packet.buf.len() <= 2048.max(net.mtu() + 18));
                    if !way.lied {
                        assert_eq!(
                            way.to_driver.pop_front().as_deref(),
                            Some(packet.buf.data())
                        );
                    }
                });
            }
            1 => send(&**net, input, way),
            2 => net.flush(),
            3 => drop(net.set_receive_interrupts(input.byte() & 1 != 0)),
            _ => drop(net.on_interrupt()),
        },
        Device::Console(console) => match what % 6 {
            0 => drop(console.on_interrupt()),
            1 => drop(console.drain(0)),
            more => {
                let port = match input.byte() & 1 {
                    0 => console.console(0),
                    _ => console.port("org.coracle.control", 0),
                };
                let Some(port) = port else { return };
                match more {
                    2 => drop(port.write(&vec![b'x'; usize::from(input.u16() % 9000)])),
                    3 => drop(port.read(&mut vec![0; usize::from(input.u16() % 9000)])),
                    4 => drop(port.poll()),
                    _ => drop(port.write_in_crash(b"crash", 0)),
                }
            }
        },
        Device::Block(disk) => {
            let sector = u64::from(input.u16());
            let pages = (0..input.byte() % 9).map(|_| Page::zeroed().expect("memory"));
            let pages: Vec<Page> = pages.collect();
            match what % 4 {
                0 => drop(disk.read(sector, &pages)),
                1 => drop(disk.write(sector, &pages)),
                2 => drop(disk.flush()),
                _ => drop(disk.on_interrupt()),
            }
        }
        Device::Entropy(rng) => drop(rng.fill(&mut [0; 40], 0)),
        // An exchange would wait for an answer that may never come.
        Device::Share(share) => match what % 2 {
            0 => drop(share.on_interrupt()),
            _ => drop(share.post(Message {
                request: vec![b'r'; 1 + usize::from(input.byte())],
                answer: vec![0; 1 + usize::from(input.byte())],
                ..Message::default()
            })),
        },
        Device::Unknown(_) | Device::Absent => {}
    }
}

fn send(net: &dyn NetDevice, input: &mut Input<'_>, way: &mut OnTheWay) {
    let headroom = if input.byte() & 1 == 0 { HEADROOM } else { 3 };
    let mut head = PacketBuf::new(headroom, 64);
    head.append(1 + usize::from(input.byte() % 60)).fill(b'h');
    let mut frame = head.data().to_vec();
    let mut packet = TxPacket::new(head);
    let mut body = PacketBuf::new(0, 256);
    body.append(256).fill(b'f');
    let body = Arc::new(body);
    for _ in 0..input.byte() % 8 {
        let offset = usize::from(input.byte());
        let len = usize::from(input.byte()) % (257 - offset);
        frame.extend(&body.data()[offset..offset + len]);
        packet.fragments.push(Fragment::Buffer {
            buffer: body.clone(),
            offset,
            len,
        });
    }
    if packet.fragments.len() > net.capabilities().max_fragments {
        return;
    }
    match net.transmit(packet) {
        Ok(()) => way.to_device.push_back(frame),
        Err(back) => assert_eq!((back.len(), back.head.headroom()), (frame.len(), headroom)),
    }
}
