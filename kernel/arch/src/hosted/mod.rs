// SPDX-License-Identifier: Apache-2.0
//! The CPU as an ordinary process sees it, so that the safe crates above run under host tests.

pub mod cpu {
    //! The calling CPU. Under host tests there is one.

    /// Index of the calling CPU.
    #[must_use]
    pub fn index() -> usize {
        0
    }

    /// Called in every loop that waits for another CPU.
    pub fn relax() {
        std::thread::yield_now();
    }
}

pub mod clock {
    //! Monotonic time.
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Nanoseconds since the first call.
    #[must_use]
    pub fn monotonic_ns() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

pub mod user {
    //! Copies to and from application memory.

    /// Copies `len` bytes and returns how many were not copied (always 0 here).
    ///
    /// # Safety
    /// Both ranges must be mapped: there is no fault handler under host tests.
    #[must_use]
    pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> usize {
        // SAFETY: promised by the caller; `copy` allows overlap.
        unsafe { core::ptr::copy(src, dst, len) };
        0
    }

    /// Writes `len` zero bytes and returns how many were not written (always 0 here).
    ///
    /// # Safety
    /// The range must be mapped and writable.
    #[must_use]
    pub unsafe fn zero(dst: *mut u8, len: usize) -> usize {
        // SAFETY: promised by the caller.
        unsafe { core::ptr::write_bytes(dst, 0, len) };
        0
    }
}
