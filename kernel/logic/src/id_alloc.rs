// SPDX-License-Identifier: Apache-2.0
//! Numbers for threads: each new one is higher than the last until the range is used up, then it wraps.
//!
//! Linux does the same (`pid_max`, see proc(5)), and programs rely on a thread id not coming back at once.

use crate::bitset::BitSet;

/// Hands out numbers of `[first, end)`.
#[derive(Debug, Clone)]
pub struct IdAlloc {
    first: u32,
    end: u32,
    next: u32,
    used: BitSet,
}

impl IdAlloc {
    /// An allocator of the numbers `[first, end)`, none of them used.
    #[must_use]
    pub const fn new(first: u32, end: u32) -> Self {
        Self {
            first,
            end,
            next: first,
            used: BitSet::new(),
        }
    }

    /// The next free number after the last one given, wrapping at the end; `None` if all are used.
    pub fn alloc(&mut self) -> Option<u32> {
        let id = self.find(self.next).or_else(|| self.find(self.first))?;
        self.used.insert((id - self.first) as usize);
        self.next = id + 1;
        Some(id)
    }

    /// Makes a number available again; whether it had been given.
    pub fn free(&mut self, id: u32) -> bool {
        id >= self.first && self.used.remove((id - self.first) as usize)
    }

    fn find(&mut self, from: u32) -> Option<u32> {
        let found = self.used.first_absent((from - self.first) as usize);
        let id = self.first.checked_add(u32::try_from(found).ok()?)?;
        (id < self.end).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::IdAlloc;

    #[test]
    fn numbers_rise_then_wrap_and_run_out() {
        let mut ids = IdAlloc::new(1, 5);
        assert_eq!(ids.alloc(), Some(1));
        assert_eq!(ids.alloc(), Some(2));
        assert!(ids.free(1));
        assert!(!ids.free(1));
        assert!(!ids.free(0));
        assert_eq!(ids.alloc(), Some(3));
        assert_eq!(ids.alloc(), Some(4));
        assert_eq!(ids.alloc(), Some(1));
        assert_eq!(ids.alloc(), None);
        assert!(ids.free(3));
        assert_eq!(ids.alloc(), Some(3));
    }
}
