// SPDX-License-Identifier: Apache-2.0
//! The end.

use coracle_arch::cpu;

/// Resets the machine. The VMM is started such that a reset ends it.
pub fn off() -> ! {
    cpu::reset()
}
