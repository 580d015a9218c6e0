// SPDX-License-Identifier: Apache-2.0
//! Readiness bits. `poll(2)` and `epoll(7)` share the low ones, so one type serves both.

use crate::raw::general as g;

bitflags::bitflags! {
    /// Readiness of a file, with the bit values of `poll(2)` and `epoll_ctl(2)`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PollEvents: u32 {
        /// There is something to read.
        const IN = g::POLLIN;
        /// Urgent data.
        const PRI = g::POLLPRI;
        /// Writing will not block.
        const OUT = g::POLLOUT;
        /// An error is pending.
        const ERR = g::POLLERR;
        /// Hang-up: both directions are closed.
        const HUP = g::POLLHUP;
        /// The descriptor is not open (`poll` only).
        const NVAL = g::POLLNVAL;
        /// Normal data to read; equal to `IN` on Linux files.
        const RDNORM = g::POLLRDNORM;
        /// Normal data may be written; equal to `OUT` on Linux files.
        const WRNORM = g::POLLWRNORM;
        /// The peer shut down its writing half.
        const RDHUP = g::POLLRDHUP;
    }
}

impl PollEvents {
    /// Events that are reported whether asked for or not.
    pub const ALWAYS: Self = Self::ERR.union(Self::HUP);
}
