// SPDX-License-Identifier: Apache-2.0
//! How much may be under way: NewReno with byte counting (RFC 5681, RFC 6582, RFC 3465).

/// Congestion state of one connection, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    pub(super) window: usize,
    pub(super) threshold: usize,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    counted: usize,
}

/// No window grows beyond this.
const LARGEST: usize = 8 << 20;

impl Congestion {
    /// The initial window (RFC 6928).
    pub(super) fn new(mss: usize) -> Self {
        Self {
            window: (10 * mss).min((2 * mss).max(14_600)),
            threshold: LARGEST,
            counted: 0,
        }
    }

    /// New data was acknowledged outside of recovery. `was_limited` tells whether the window had been in use: an
    /// application that sends little proves nothing about the network (RFC 7661).
    pub(super) fn on_ack(&mut self, acked: usize, mss: usize, was_limited: bool) {
        if !was_limited {
            return;
        }
        if self.window < self.threshold {
            self.window += acked.min(2 * mss);
        } else {
            self.counted += acked;
            if self.counted >= self.window {
                self.counted -= self.window;
                self.window += mss;
            }
        }
        self.window = self.window.min(LARGEST);
    }

    /// A loss was noticed by duplicate acknowledgements.
    pub(super) fn on_loss(&mut self, in_flight: usize, mss: usize) {
        self.threshold = (in_flight / 2).max(2 * mss);
        self.window = self.threshold;
        self.counted = 0;
    }

    /// The retransmission timer expired. `first` unless it had just done so for the same data.
    pub(super) fn on_timeout(&mut self, in_flight: usize, mss: usize, first: bool) {
        if first {
            self.threshold = (in_flight / 2).max(2 * mss);
        }
        self.window = mss;
        self.counted = 0;
    }

    /// Nothing was sent for longer than a time-out: begin carefully again (RFC 5681, 4.1).
    pub(super) fn on_idle(&mut self, mss: usize) {
        self.window = self.window.min(Self::new(mss).window);
    }
}
