// SPDX-License-Identifier: Apache-2.0
//! QEMU's firmware configuration device: how many CPUs there are (`docs/specs/fw_cfg.rst` of QEMU).

use coracle_arch::port;

const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
const SIGNATURE: u16 = 0;
const CPU_COUNT: u16 = 5;

fn read<const N: usize>(key: u16) -> [u8; N] {
    // SAFETY: the device's ports; on machines without it they read as ones and ignore writes.
    unsafe {
        port::write16(SELECTOR, key);
        core::array::from_fn(|_| port::read8(DATA))
    }
}

/// Number of CPUs; `None` if the machine is not QEMU's.
#[must_use]
pub fn cpu_count() -> Option<usize> {
    (read(SIGNATURE) == *b"QEMU").then(|| usize::from(u16::from_le_bytes(read(CPU_COUNT))).max(1))
}
