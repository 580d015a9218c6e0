// SPDX-License-Identifier: Apache-2.0
//! Interrupt controllers, clock and timer; and who is called for which vector.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use coracle_arch::interrupt::{DEVICE_VECTORS, FIRST_DEVICE_VECTOR, message};
use coracle_arch::{TrapFrame, clock, cpu, lapic, smp};
use coracle_core::device::InterruptHandler;
use coracle_core::memory::map_device;
use coracle_core::sync::SpinLock;
use coracle_core::{thread, time};
use coracle_platform::{ioapic, pit, rtc};

struct Vectors {
    /// Handlers of each device vector; a line can have several.
    handlers: Vec<Vec<Arc<dyn InterruptHandler>>>,
    /// The vector of each line that has one.
    lines: Vec<(u32, u8)>,
}

static VECTORS: SpinLock<Vectors> = SpinLock::new(Vectors {
    handlers: Vec::new(),
    lines: Vec::new(),
});

/// Frequency to assume when nothing tells it and the timer does not count: wrong, but the kernel runs.
const FALLBACK_TSC_KHZ: u64 = 2_000_000;

/// Starts clock and interrupt controllers.
pub(crate) fn init(tsc_khz: Option<u64>) {
    let map = |physical| {
        map_device(physical, coracle_abi::PAGE_SIZE).expect("memory for the mapping of registers")
    };
    let lapic_base = map(lapic::physical()).base();
    let khz = tsc_khz
        .or_else(cpu::tsc_khz)
        .or_else(pit::measure_tsc_khz)
        // SAFETY: mapped just now, for ever, and nobody else uses these registers.
        .or_else(|| unsafe { lapic::measure_tsc_khz(lapic_base) })
        .unwrap_or_else(|| {
            log::warn!("the frequency of the time stamp counter is unknown: assuming 2 GHz");
            FALLBACK_TSC_KHZ
        });
    clock::set_frequency(khz);
    log::debug!("the time stamp counter runs at {khz} kHz");
    if let Some(seconds) = rtc::read() {
        time::set_wall(seconds * 1_000_000_000);
    } else {
        log::warn!("no wall clock: the time starts at 1970");
    }
    // SAFETY: both are mapped just now, for ever, and nobody else uses these registers.
    unsafe {
        lapic::init(lapic_base);
        ioapic::init(map(ioapic::PHYSICAL).base());
    }
}

/// Takes a vector and attaches a handler to it. `None` when all are taken.
fn allocate(vectors: &mut Vectors, handler: Arc<dyn InterruptHandler>) -> Option<u8> {
    let index = vectors.handlers.len();
    let vector = u8::try_from(index).ok().filter(|n| *n < DEVICE_VECTORS)? + FIRST_DEVICE_VECTOR;
    vectors.handlers.push(alloc::vec![handler]);
    Some(vector)
}

/// Attaches a handler to an interrupt line.
pub(crate) fn attach_line(line: u32, handler: Arc<dyn InterruptHandler>) {
    let mut vectors = VECTORS.lock();
    if let Some((_, vector)) = vectors.lines.iter().find(|(l, _)| *l == line) {
        let index = usize::from(vector - FIRST_DEVICE_VECTOR);
        vectors.handlers[index].push(handler);
        return;
    }
    match allocate(&mut vectors, handler) {
        Some(vector) if ioapic::route(line, vector, lapic::id()) => {
            vectors.lines.push((line, vector))
        }
        _ => log::error!("interrupt line {line} cannot be used: its device will be silent"),
    }
}

/// Attaches a handler to a message interrupt: address and data for the device.
pub(crate) fn attach_message(handler: Arc<dyn InterruptHandler>) -> Option<(u64, u32)> {
    allocate(&mut VECTORS.lock(), handler).map(message)
}

/// Interrupts since boot: of the timer, from other CPUs, of devices.
pub(crate) static COUNTS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// An interrupt, on the kernel stack of whatever was running.
#[unsafe(no_mangle)]
fn on_irq(frame: &mut TrapFrame, vector: u8) {
    match vector {
        lapic::TIMER_VECTOR => {
            COUNTS[0].fetch_add(1, Ordering::Relaxed);
            lapic::end_of_interrupt();
            thread::on_timer_interrupt();
        }
        smp::WAKE_VECTOR => {
            COUNTS[1].fetch_add(1, Ordering::Relaxed);
            lapic::end_of_interrupt();
            thread::on_wake_interrupt();
        }
        _ => {
            COUNTS[2].fetch_add(1, Ordering::Relaxed);
            serve(vector);
            lapic::end_of_interrupt();
        }
    }
    // Kernel code was interrupted in its idle loop, which looks by itself.
    if !frame.is_kernel() {
        crate::entry::before_return(frame, false);
    }
}

fn serve(vector: u8) {
    let index = usize::from(vector.wrapping_sub(FIRST_DEVICE_VECTOR));
    // The handler is called without the lock: it may wake threads, and another CPU may attach more handlers.
    let mut n = 0;
    loop {
        let handler = VECTORS
            .lock()
            .handlers
            .get(index)
            .and_then(|list| list.get(n))
            .cloned();
        let Some(handler) = handler else { return };
        handler.on_interrupt();
        n += 1;
    }
}
