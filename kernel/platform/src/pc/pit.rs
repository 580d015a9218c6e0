// SPDX-License-Identifier: Apache-2.0
//! The interval timer (8254), used once: to measure the time stamp counter where nobody tells its frequency.

use coracle_arch::{clock, port};

const HZ: u64 = 1_193_182;
/// About 10 ms.
const COUNT: u16 = 11_932;

/// Frequency of the time stamp counter in kHz, measured for 10 ms with channel 2; `None` if the timer does not count.
#[must_use]
pub fn measure_tsc_khz() -> Option<u64> {
    let [low, high] = COUNT.to_le_bytes();
    // SAFETY: channel 2 belongs to the speaker, which nobody uses; its gate is switched on, the speaker stays off.
    unsafe {
        port::write8(0x61, port::read8(0x61) & !2 | 1);
        port::write8(0x43, 0b1011_0000); // channel 2, both bytes, mode 0
        port::write8(0x42, low);
        port::write8(0x42, high);
    }
    let start = clock::tsc();
    for _ in 0..10_000_000u32 {
        // SAFETY: as above.
        if unsafe { port::read8(0x61) } & 0x20 != 0 {
            let counts = clock::tsc() - start;
            return Some(counts * HZ / u64::from(COUNT) / 1000).filter(|khz| *khz > 10_000);
        }
    }
    None
}
