// SPDX-License-Identifier: Apache-2.0
//! Devices for tests: the other side of the queues, in ordinary memory, obedient or hostile.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coracle_abi::convert::{low_u8, low_u16, usize_from, usize_from_u32};
use coracle_core::device::InterruptHandler;
use coracle_core::memory::Mmio;

use crate::error::DriverError;
use crate::transport::{QueueAddresses, Transport, feature, status};

/// The device's side of a queue.
pub(crate) struct DeviceQueue {
    addresses: QueueAddresses,
    size: u16,
    events: bool,
    /// Available index up to which chains were taken.
    taken: u16,
    /// Used index, as published.
    used: u16,
    /// Used index when an interrupt was last considered.
    considered: u16,
}

/// A chain as the device sees it.
pub(crate) struct DeviceChain {
    pub(crate) head: u16,
    /// All bytes the device may read.
    pub(crate) readable: Vec<u8>,
    writable: Vec<(u64, u32)>,
}

impl DeviceChain {
    /// Bytes the device may write.
    pub(crate) fn room(&self) -> usize {
        self.writable
            .iter()
            .map(|(_, len)| usize_from_u32(*len))
            .sum()
    }
}

fn load<T: Copy>(address: u64) -> T {
    // SAFETY: tests run in one address space; the driver's memory at this address lives while its queue does.
    unsafe { (usize_from(address) as *const T).read_volatile() }
}

fn store<T: Copy>(address: u64, value: T) {
    // SAFETY: as for `load`; a device may write here.
    unsafe { (usize_from(address) as *mut T).write_volatile(value) }
}

fn fence() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

impl DeviceQueue {
    pub(crate) fn new(addresses: QueueAddresses, size: u16, events: bool) -> Self {
        Self {
            addresses,
            size,
            events,
            taken: 0,
            used: 0,
            considered: 0,
        }
    }

    /// Takes the next chain the driver offers, and asks to be notified of the one after it.
    pub(crate) fn pop(&mut self) -> Option<DeviceChain> {
        self.ask_for_notification();
        if load::<u16>(self.addresses.available + 2) == self.taken {
            return None;
        }
        fence();
        let slot = u64::from(self.taken % self.size);
        let head = load::<u16>(self.addresses.available + 4 + 2 * slot);
        self.taken = self.taken.wrapping_add(1);
        self.ask_for_notification();
        let mut chain = DeviceChain {
            head,
            readable: Vec::new(),
            writable: Vec::new(),
        };
        let mut index = head;
        loop {
            assert!(index < self.size, "descriptor within the table");
            let at = self.addresses.descriptors + 16 * u64::from(index);
            let address = load::<u64>(at);
            let len = load::<u32>(at + 8);
            assert!(len > 0, "QEMU shuts a device for an empty descriptor");
            let flags = load::<u16>(at + 12);
            if flags & 2 != 0 {
                chain.writable.push((address, len));
            } else {
                assert!(chain.writable.is_empty(), "readable descriptors go first");
                chain
                    .readable
                    .extend((0..u64::from(len)).map(|i| load::<u8>(address + i)));
            }
            if flags & 1 == 0 {
                return Some(chain);
            }
            index = load::<u16>(at + 14);
        }
    }

    fn ask_for_notification(&self) {
        if self.events {
            let avail_event = self.addresses.used + 4 + 8 * u64::from(self.size);
            store::<u16>(avail_event, self.taken);
            fence();
        }
    }

    /// Returns a chain of which `len` bytes were written.
    pub(crate) fn push(&mut self, chain: &DeviceChain, len: u32) {
        self.push_raw(u32::from(chain.head), len);
    }

    /// Writes `bytes` into a chain and returns it.
    pub(crate) fn fill(&mut self, chain: &DeviceChain, bytes: &[u8]) {
        self.write(chain, bytes);
        self.push(chain, u32::try_from(bytes.len()).unwrap());
    }

    /// Writes `bytes` into a chain, which the device keeps.
    pub(crate) fn write(&mut self, chain: &DeviceChain, bytes: &[u8]) {
        let mut rest = bytes;
        for (address, len) in &chain.writable {
            let step = rest.len().min(usize_from_u32(*len));
            for (at, byte) in (*address..).zip(&rest[..step]) {
                store::<u8>(at, *byte);
            }
            rest = &rest[step..];
        }
        assert!(rest.is_empty(), "the chain is long enough");
    }

    /// Takes the next chain, writes `bytes` into it and returns it.
    pub(crate) fn answer(&mut self, bytes: &[u8]) {
        let chain = self.pop().expect("the driver has posted a buffer");
        self.fill(&chain, bytes);
    }

    /// Puts anything into the used ring.
    pub(crate) fn push_raw(&mut self, id: u32, len: u32) {
        let entry = self.addresses.used + 4 + 8 * u64::from(self.used % self.size);
        store::<u32>(entry, id);
        store::<u32>(entry + 4, len);
        fence();
        self.set_used_index(self.used.wrapping_add(1));
    }

    /// Publishes any index.
    pub(crate) fn set_used_index(&mut self, index: u16) {
        self.used = index;
        store::<u16>(self.addresses.used + 2, index);
        fence();
    }

    /// Whether the driver wants an interrupt for what was returned since the last call.
    pub(crate) fn wants_interrupt(&mut self) -> bool {
        fence();
        let (old, new) = (self.considered, self.used);
        self.considered = new;
        if !self.events {
            return old != new && load::<u16>(self.addresses.available) & 1 == 0;
        }
        let event = load::<u16>(self.addresses.available + 4 + 2 * u64::from(self.size));
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }

    /// Stops asking for notifications.
    pub(crate) fn suppress_notifications(&mut self) {
        assert!(self.events);
        let avail_event = self.addresses.used + 4 + 8 * u64::from(self.size);
        store::<u16>(avail_event, self.taken.wrapping_sub(1));
        fence();
    }
}

/// What a device does when it is notified of a queue.
type OnNotify = dyn FnMut(&mut FakeDevice, u16) + Send;

/// What the device knows.
#[derive(Default)]
pub(crate) struct FakeDevice {
    pub(crate) queues: Vec<Option<DeviceQueue>>,
    pub(crate) status: u8,
    pub(crate) chosen: u64,
    /// Queue number of each notification.
    pub(crate) notified: Vec<u16>,
    /// A line interrupt is raised.
    pub(crate) raised: bool,
}

impl FakeDevice {
    pub(crate) fn queue(&mut self, index: u16) -> &mut DeviceQueue {
        self.queues[usize::from(index)]
            .as_mut()
            .expect("the driver has set the queue up")
    }
}

/// A transport to a device in the same process.
pub(crate) struct FakeTransport {
    device_id: u32,
    offered: u64,
    queue_limits: Vec<u16>,
    config: Mmio,
    /// Refuses all features.
    pub(crate) refuses: bool,
    device: Mutex<FakeDevice>,
    on_notify: Mutex<Option<alloc::boxed::Box<OnNotify>>>,
}

impl FakeTransport {
    /// A device with queues of these limits. `VERSION_1` is offered.
    pub(crate) fn new(device_id: u32, offered: u64, config: &[u8], queue_limits: &[u16]) -> Self {
        // Leaked, since registers live for ever; aligned for all accesses.
        let words = config.len().div_ceil(8).max(1);
        let memory: &'static mut [u64] = alloc::vec![0u64; words].leak();
        for (index, byte) in config.iter().enumerate() {
            memory[index / 8] |= u64::from(*byte) << (8 * (index % 8));
        }
        // SAFETY: the memory is leaked and used for nothing else.
        let config = unsafe { Mmio::new(memory.as_mut_ptr().cast(), config.len()) };
        Self {
            device_id,
            offered: offered | feature::VERSION_1,
            queue_limits: queue_limits.to_vec(),
            config,
            refuses: false,
            device: Mutex::new(FakeDevice {
                queues: queue_limits.iter().map(|_| None).collect(),
                ..FakeDevice::default()
            }),
            on_notify: Mutex::new(None),
        }
    }

    /// Lets the device do something on each notification, before `notify` returns.
    pub(crate) fn on_notify(self, what: impl FnMut(&mut FakeDevice, u16) + Send + 'static) -> Self {
        *lock(&self.on_notify) = Some(alloc::boxed::Box::new(what));
        self
    }

    pub(crate) fn device(&self) -> MutexGuard<'_, FakeDevice> {
        lock(&self.device)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport for FakeTransport {
    fn device_id(&self) -> u32 {
        self.device_id
    }

    fn features(&self) -> u64 {
        self.offered
    }

    fn choose_features(&self, features: u64) {
        assert_eq!(features & !self.offered, 0, "only what was offered");
        self.device().chosen = features;
    }

    fn status(&self) -> u8 {
        self.device().status
    }

    fn set_status(&self, new: u8) {
        let mut device = self.device();
        let refused = if self.refuses { status::FEATURES_OK } else { 0 };
        device.status = new & !refused;
        if new == 0 {
            device.queues.iter_mut().for_each(|queue| *queue = None);
        }
    }

    fn config(&self) -> Mmio {
        self.config
    }

    fn config_generation(&self) -> u32 {
        0
    }

    fn queue_limit(&self, queue: u16) -> u16 {
        let limit = self.queue_limits.get(usize::from(queue));
        limit.copied().unwrap_or(0)
    }

    fn enable_queue(
        &self,
        queue: u16,
        size: u16,
        addresses: QueueAddresses,
        _handler: &Arc<dyn InterruptHandler>,
    ) -> Result<(), DriverError> {
        let mut device = self.device();
        let events = device.chosen & feature::EVENT_IDX != 0;
        assert!(size.is_power_of_two() && size <= self.queue_limits[usize::from(queue)]);
        device.queues[usize::from(queue)] = Some(DeviceQueue::new(addresses, size, events));
        Ok(())
    }

    fn notify(&self, queue: u16) {
        let mut device = self.device();
        assert_ne!(device.status & status::DRIVER_OK, 0, "not before DRIVER_OK");
        device.notified.push(queue);
        if let Some(what) = &mut *lock(&self.on_notify) {
            what(&mut device, queue);
        }
    }

    fn has_line(&self) -> bool {
        true
    }

    fn acknowledge(&self) -> bool {
        core::mem::take(&mut self.device().raised)
    }
}

/// Numbers that look random and are the same in each run (xorshift64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn byte(&mut self) -> u8 {
        low_u8(self.next() >> 24)
    }

    pub(crate) fn u16(&mut self) -> u16 {
        low_u16(self.next() >> 24)
    }
}
