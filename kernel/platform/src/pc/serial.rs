// SPDX-License-Identifier: Apache-2.0
//! The first serial port (16550), polled: early boot and panics only. It is slow, so nothing else goes there.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

use coracle_arch::port;

const BASE: u16 = 0x3f8;
const LINE_CONTROL: u16 = BASE + 3;
const LINE_STATUS: u16 = BASE + 5;
const SCRATCH: u16 = BASE + 7;

const UNKNOWN: u8 = 0;
const PRESENT: u8 = 1;
const ABSENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether the machine has the port; looks once.
fn is_present() -> bool {
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => {
            // SAFETY: the serial port's registers; the kernel is its only user.
            let found = unsafe {
                port::write8(SCRATCH, 0x5a);
                let found = port::read8(SCRATCH) == 0x5a;
                if found {
                    port::write8(LINE_CONTROL, 3); // 8N1; the emulated port has no real speed
                }
                found
            };
            STATE.store(if found { PRESENT } else { ABSENT }, Ordering::Relaxed);
            found
        }
        state => state == PRESENT,
    }
}

/// Writes bytes, waiting for the port.
pub fn write(bytes: &[u8]) {
    if !is_present() {
        return;
    }
    for byte in bytes {
        // SAFETY: as above. The wait is bounded, so a dead port cannot stop the kernel.
        unsafe {
            for _ in 0..100_000 {
                if port::read8(LINE_STATUS) & 0x20 != 0 {
                    break;
                }
            }
            port::write8(BASE, *byte);
        }
    }
}

/// The port as a formatter's target.
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write(text.as_bytes());
        Ok(())
    }
}
