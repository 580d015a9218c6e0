// SPDX-License-Identifier: Apache-2.0

//! What the engine is told: what to ask, which answers are right, and when to send.

use std::time::Duration;

/// What is asked.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What is spoken.
    pub(crate) protocol: Protocol,
    /// The requests, as bytes, sent one after the other and then from the begin. At least one.
    pub(crate) requests: Vec<Vec<u8>>,
    /// Status codes of right answers (DNS: RCODE).
    pub(crate) right: Right,
    /// The most a request may take from when it was sent.
    pub(crate) timeout: Duration,
    /// Each request gets a connection of its own, the making of which is part of its time.
    pub(crate) fresh: bool,
}

/// Which status codes are right.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Right {
    /// HTTP: 200 to 399.
    Success,
    /// One.
    Only(u16),
    /// DNS: the name is there, or is known not to be.
    Known,
}

impl Right {
    pub(super) fn has(self, status: u16) -> bool {
        match self {
            Right::Success => (200..400).contains(&status),
            Right::Only(one) => status == one,
            Right::Known => matches!(status, 0 | 3),
        }
    }
}

/// What is spoken over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1 over TCP.
    Http,
    /// DNS over UDP, a socket for each connection.
    Dns,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// So many a second, evenly, for this time.
    Rate(f64, Duration),
    /// As fast as answers come, so many in all, and at most for this time.
    Closed(u64, Duration),
    /// One on each connection, at most so many under way.
    OnceEach(usize),
}
