// SPDX-License-Identifier: Apache-2.0
//! Waiting for another CPU, with an end.

/// A wait for another CPU. What a CPU does with a lock, or with interrupts off, takes microseconds; after many seconds it
/// will never be done.
pub struct Patience {
    rounds: u32,
    last_ns: u64,
    waited_ns: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

impl Patience {
    /// Longest wait. A virtual CPU may be off its host's CPU for long, but not for that long.
    const LIMIT_NS: u64 = 20_000_000_000;
    /// Rounds between two looks at the clock.
    const ROUNDS: u32 = 1 << 16;
    /// Longest time that counts from one look to the next: more, and this CPU itself stood still (a paused machine).
    const STEP_NS: u64 = 500_000_000;

    /// Begins to wait.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            rounds: 0,
            last_ns: 0,
            waited_ns: 0,
        }
    }

    /// One round of the wait; serves TLB shootdowns. Returns `false` once it took too long.
    #[inline]
    #[must_use]
    pub fn wait(&mut self) -> bool {
        crate::cpu::relax();
        self.rounds = self.rounds.wrapping_add(1);
        !self.rounds.is_multiple_of(Self::ROUNDS) || self.look()
    }

    #[cold]
    fn look(&mut self) -> bool {
        let now_ns = crate::clock::monotonic_ns();
        if self.last_ns != 0 {
            self.waited_ns += now_ns.saturating_sub(self.last_ns).min(Self::STEP_NS);
        }
        self.last_ns = now_ns;
        self.waited_ns < Self::LIMIT_NS
    }
}

#[cfg(test)]
mod tests {
    use super::Patience;

    #[test]
    fn only_a_long_wait_is_too_long() {
        let mut patience = Patience::new();
        assert!((0..Patience::ROUNDS * 2).all(|_| patience.wait()));
        patience.waited_ns = Patience::LIMIT_NS;
        assert!(!(0..Patience::ROUNDS).all(|_| patience.wait()));
    }

    #[test]
    fn a_machine_that_stood_still_has_not_waited() {
        let mut patience = Patience::new();
        let _ = crate::clock::monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(patience.look());
        patience.last_ns = 1; // far in the past of a clock that ran on
        assert!(patience.look());
        assert!(patience.waited_ns <= Patience::STEP_NS);
    }
}
