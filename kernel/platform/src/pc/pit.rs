// SPDX-License-Identifier: Apache-2.0
//! The interval timer (8254), used once: to measure the time stamp counter where nobody tells its frequency.

use coracle_arch::{clock, port};

const HZ: u64 = 1_193_182;
/// Ticks to measure over, about 8 ms.
const TICKS: u16 = 9_546;
/// Looks at the counter after which it must have moved, and be done; each takes some microseconds.
const LOOKS: [u32; 2] = [100, 100_000];

/// Ticks since the counter was started, with the time stamp at that moment.
fn look() -> (u64, u16) {
    // The virtual CPU may lose its processor between two instructions: of some readings the quickest is right.
    let reading = || {
        let before = clock::tsc();
        // SAFETY: the timer's ports, of which the kernel is the only user; the latch command stops nothing.
        let count = unsafe {
            port::write8(0x43, 0);
            u16::from_le_bytes([port::read8(0x40), port::read8(0x40)])
        };
        let took = clock::tsc() - before;
        (took, before + took / 2, u16::MAX - count)
    };
    let (_, at, ticks) =
        (0..4).map(|_| reading()).fold(
            reading(),
            |best, next| if next.0 < best.0 { next } else { best },
        );
    (at, ticks)
}

/// Frequency of the time stamp counter in kHz, measured for 8 ms with channel 0; `None` if the timer does not count.
#[must_use]
pub fn measure_tsc_khz() -> Option<u64> {
    // SAFETY: as above; its interrupt is masked and comes once at most.
    unsafe {
        port::write8(0x43, 0b0011_0000); // channel 0, both bytes, mode 0: counts down once
        port::write8(0x40, 0xff);
        port::write8(0x40, 0xff);
    }
    let moved = |to: u16, looks: u32| {
        let mut all = (0..looks).map(|_| look());
        all.find(|(_, ticks)| (to..u16::MAX).contains(ticks))
    };
    let (start, first) = moved(1, LOOKS[0])?;
    let (end, last) = moved(first.checked_add(TICKS)?, LOOKS[1])?;
    let ticks = u64::from(last - first);
    Some((end - start) * HZ / ticks / 1000).filter(|khz| *khz > 10_000)
}
