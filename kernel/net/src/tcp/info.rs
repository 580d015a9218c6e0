// SPDX-License-Identifier: Apache-2.0
//! What can be asked about a connection from outside: `TCP_INFO` and friends.

use coracle_abi::convert::{low_u32, u64_from};

use super::TcpSocket;
use super::socket::Role;
use super::tcb::{State, Tcb};
use crate::address::Endpoint;

/// Bytes of `struct tcp_info` that are filled in (up to `tcpi_total_retrans`; Linux before 3.15 had no more).
const INFO: usize = 104;

/// Numbers of the states (Linux `include/net/tcp_states.h`).
fn state_number(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

impl Tcb {
    #[cold]
    fn info(&self, now: u64) -> [u8; INFO] {
        let mut out = [0; INFO];
        out[0] = state_number(self.state);
        out[2] = u8::try_from(self.backoff).unwrap_or(u8::MAX);
        out[3] = u8::try_from(self.keep_probes).unwrap_or(u8::MAX);
        out[4] = out[2];
        // Options: selective acknowledgements 2, window scaling 4.
        out[5] = u8::from(self.sack_ok) << 1 | u8::from(self.rcv_scale > 0) << 2;
        out[6] = self.snd_scale | self.rcv_scale << 4;
        let micros = |ns: u64| low_u32((ns / 1000).min(u64::from(u32::MAX)));
        let millis = |ns: u64| low_u32((ns / 1_000_000).min(u64::from(u32::MAX)));
        let bytes = |n: usize| low_u32(u64_from(n).min(u64::from(u32::MAX)));
        let mss = self.mss.max(1);
        let words: [(usize, u32); 13] = [
            (8, micros(self.rtt.rto_ns(self.backoff))),
            (12, 40_000), // tcpi_ato
            (16, bytes(self.mss)),
            (20, bytes(self.mss)),
            (24, bytes(self.in_flight().div_ceil(mss))),
            (44, millis(now.saturating_sub(self.last_sent))),
            (52, millis(now.saturating_sub(self.last_received))),
            (60, bytes(self.path.interface.mtu)),
            (68, micros(self.rtt.smoothed_ns)),
            (72, micros(self.rtt.variation_ns)),
            (76, bytes(self.congestion.threshold / mss)),
            (80, bytes(self.congestion.window / mss)),
            (100, low_u32(self.retransmits.min(u64::from(u32::MAX)))),
        ];
        for (at, word) in words {
            out[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        out[84..88].copy_from_slice(&bytes(self.mss).to_ne_bytes()); // tcpi_advmss
        out
    }
}

impl TcpSocket {
    /// `TCP_INFO`.
    pub(crate) fn info(&self, now: u64) -> [u8; INFO] {
        match &self.inner.lock().role {
            Role::Connection(tcb) => tcb.info(now),
            role => {
                let mut out = [0; INFO];
                out[0] = if matches!(role, Role::Listening(_)) {
                    10
                } else {
                    7
                };
                out
            }
        }
    }

    /// `TCP_MAXSEG`: payload of a full segment; before the connection what was set, or 536.
    pub(crate) fn segment_size(&self) -> usize {
        let inner = self.inner.lock();
        match &inner.role {
            Role::Connection(tcb) => tcb.mss,
            _ => inner.options.max_segment.map_or(536, usize::from),
        }
    }

    /// The other end, for `accept`, even if the connection has ended meanwhile.
    pub(crate) fn flow_remote(&self) -> Endpoint {
        let inner = self.inner.lock();
        match &inner.role {
            Role::Connection(tcb) => tcb.flow.remote,
            _ => Endpoint::new(self.any_address(), 0),
        }
    }
}
