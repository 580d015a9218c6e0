// SPDX-License-Identifier: Apache-2.0
//! Device registers.

/// A range of device registers, mapped uncached. Accesses are checked against its length and never reordered by the
/// compiler.
#[derive(Clone, Copy, Debug)]
pub struct Mmio {
    base: *mut u8,
    len: usize,
}

// SAFETY: the range is device memory that lives for ever; concurrent accesses are single loads and stores, and their
// order is the driver's business.
unsafe impl Send for Mmio {}
// SAFETY: as above.
unsafe impl Sync for Mmio {}

macro_rules! access {
    ($read:ident, $write:ident, $t:ty) => {
        /// Reads a register. Panics if it lies outside the range or is misaligned: a defect of the driver.
        #[must_use]
        pub fn $read(&self, offset: usize) -> $t {
            // SAFETY: `at` checked that the register lies in the mapped range and is aligned.
            unsafe {
                self.at(offset, size_of::<$t>())
                    .cast::<$t>()
                    .read_volatile()
            }
        }

        /// Writes a register. Panics if it lies outside the range or is misaligned: a defect of the driver.
        pub fn $write(&self, offset: usize, value: $t) {
            // SAFETY: `at` checked that the register lies in the mapped range and is aligned.
            unsafe {
                self.at(offset, size_of::<$t>())
                    .cast::<$t>()
                    .write_volatile(value)
            }
        }
    };
}

impl Mmio {
    /// The registers at `base`.
    ///
    /// # Safety
    /// `[base, base + len)` must be mapped for ever and used for nothing else.
    #[must_use]
    pub const unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self { base, len }
    }

    /// Where the range is mapped, for registers that are accessed by the architecture's own code.
    #[must_use]
    pub fn base(&self) -> usize {
        self.base as usize
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the range has no registers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the range. Panics if it is not within it.
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "part of the range"
        );
        Self {
            base: self.base.wrapping_add(offset),
            len,
        }
    }

    fn at(&self, offset: usize, size: usize) -> *mut u8 {
        assert!(
            offset.checked_add(size).is_some_and(|end| end <= self.len),
            "register within the range"
        );
        let at = self.base.wrapping_add(offset);
        assert!((at as usize).is_multiple_of(size), "register is aligned");
        at
    }

    access!(read8, write8, u8);
    access!(read16, write16, u16);
    access!(read32, write32, u32);
    access!(read64, write64, u64);
}
