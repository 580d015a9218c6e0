// SPDX-License-Identifier: Apache-2.0
//! How much a connection may queue: what the application set, or as much as keeps the path full.
//!
//! A window must hold what the path carries in one round trip. Both queues start small and grow with what is really
//! sent or read in a round trip, unless the application chose a size (`SO_RCVBUF`, `SO_SNDBUF`) or memory is short.

use super::options::TcpOptions;
use super::tcb::{Context, Tcb};
use crate::stack::NetStack;

/// No queue grows beyond this by itself (Linux: 4 MiB and 6 MiB).
const LARGEST: usize = 4 << 20;
/// Shortest time that counts as a round trip: below it the granularity of reads decides.
const SHORTEST_ROUND_NS: u64 = 200_000;

/// What every queue may hold however short memory is, so that no connection stands still.
pub(super) const LEAST: usize = 16 * 1024;

/// By how much a queue that holds `held` may grow if all together may grow by `left`.
pub(super) fn affordable(held: usize, left: usize) -> usize {
    left.max(LEAST.saturating_sub(held))
}

/// Measures what the application reads in a round trip.
#[derive(Clone, Copy, Default)]
pub(super) struct Growth {
    /// Size the receive queue has grown to.
    grown: usize,
    round_began: u64,
    read: usize,
}

impl Tcb {
    /// Most bytes to receive and hold.
    pub(super) fn receive_limit(&self, options: &TcpOptions) -> usize {
        if options.receive_fixed {
            options.receive_buffer
        } else {
            options.receive_buffer.max(self.growth.grown)
        }
    }

    /// Most bytes to queue for sending.
    pub(super) fn send_limit(&self, options: &TcpOptions) -> usize {
        if options.send_fixed {
            options.send_buffer
        } else {
            // Twice the congestion window: one under way, one ready.
            options
                .send_buffer
                .max((2 * self.congestion.window).min(LARGEST))
        }
    }

    /// The application has read `count` bytes.
    #[inline]
    pub(super) fn note_read(&mut self, cx: &Context<'_>, count: usize) {
        self.growth.read += count;
        let round = self.rtt.smoothed_ns.max(SHORTEST_ROUND_NS);
        if cx.now < self.growth.round_began + round {
            return;
        }
        let fits = 2 * self.growth.read <= self.receive_limit(cx.options);
        let left = cx.stack.tcp.memory_left(&cx.stack.config);
        if !fits && left > self.growth.read && !cx.options.receive_fixed {
            self.growth.grown = (4 * self.growth.read).min(LARGEST);
        }
        self.growth.read = 0;
        self.growth.round_began = cx.now;
    }

    /// Enters what this connection holds into the account of all, in steps, so that the shared counter is touched
    /// rarely.
    #[inline]
    pub(super) fn settle_memory(&mut self, stack: &NetStack) {
        use core::sync::atomic::Ordering;
        const STEP: usize = 4096;
        let held = self.send.len() + self.receive.held();
        let is_stale = held + 2 * STEP <= self.charged || held == 0 && self.charged > 0;
        if held > self.charged || is_stale {
            let charge = held.next_multiple_of(STEP);
            if charge > self.charged {
                stack
                    .tcp
                    .memory
                    .fetch_add(charge - self.charged, Ordering::Relaxed);
            } else {
                stack
                    .tcp
                    .memory
                    .fetch_sub(self.charged - charge, Ordering::Relaxed);
            }
            self.charged = charge;
        }
    }
}
