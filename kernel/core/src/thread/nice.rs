// SPDX-License-Identifier: Apache-2.0
//! The nice value of a thread: see [`coracle_logic::nice`].

use core::sync::atomic::Ordering;

pub use coracle_logic::nice::NICE;

use super::Thread;

impl Thread {
    /// Its nice value, one of [`NICE`].
    #[must_use]
    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed)
    }

    /// Sets the nice value; what is beyond the ends of [`NICE`] means the end.
    pub fn set_nice(&self, nice: i32) {
        let nice = nice.clamp(*NICE.start(), *NICE.end());
        self.nice.store(nice, Ordering::Relaxed);
    }
}
