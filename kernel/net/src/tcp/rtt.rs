// SPDX-License-Identifier: Apache-2.0
//! Round-trip time and the retransmission time-out computed from it (RFC 6298).

const MS: u64 = 1_000_000;
/// Before the first measurement (RFC 6298, 2.1).
const INITIAL_RTO_NS: u64 = 1_000 * MS;
/// As Linux; RFC 6298 would have one second.
const MIN_RTO_NS: u64 = 200 * MS;
pub(super) const MAX_RTO_NS: u64 = 120_000 * MS;

/// Smoothed measurements of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    /// Smoothed round-trip time; 0 before the first measurement.
    pub(super) smoothed_ns: u64,
    pub(super) variation_ns: u64,
    rto_ns: u64,
}

impl Rtt {
    pub(super) const fn new() -> Self {
        Self {
            smoothed_ns: 0,
            variation_ns: 0,
            rto_ns: INITIAL_RTO_NS,
        }
    }

    /// Takes a measurement of a segment that was sent once.
    pub(super) fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
        } else {
            let error = self.smoothed_ns.abs_diff(rtt_ns);
            self.variation_ns = (3 * self.variation_ns + error) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + rtt_ns) / 8;
        }
        // The variation counts at least as much as the least time-out, so that a steady path is not timed out by its
        // first hiccup.
        let rto = self.smoothed_ns + (4 * self.variation_ns).max(MIN_RTO_NS);
        self.rto_ns = rto.min(MAX_RTO_NS);
    }

    /// The time-out after `backoff` time-outs in a row.
    pub(super) fn rto_ns(&self, backoff: u32) -> u64 {
        (self.rto_ns << backoff.min(16)).min(MAX_RTO_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converges_and_backs_off() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.rto_ns(0), 1_000 * MS);
        for _ in 0..100 {
            rtt.sample(50 * MS);
        }
        assert!((49 * MS..=51 * MS).contains(&rtt.smoothed_ns));
        assert!(rtt.rto_ns(0) <= 255 * MS);
        assert_eq!(rtt.rto_ns(1), 2 * rtt.rto_ns(0));
        assert_eq!(rtt.rto_ns(30), MAX_RTO_NS);
    }
}
