// SPDX-License-Identifier: Apache-2.0
//! What the stack counts. Each counter only grows, except the gauges, which say so.

use core::sync::atomic::{AtomicU64, Ordering};

/// A number that any CPU may add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    #[inline]
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes one off a gauge.
    #[inline]
    pub(crate) fn drop_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident, )*) => {
        /// Counters of one stack.
        #[derive(Debug, Default)]
        pub struct Counters { $( $(#[$doc])* pub $name: Counter, )* }

        impl Counters {
            /// Calls `each(name, value)` for every counter.
            pub fn for_each(&self, mut each: impl FnMut(&'static str, u64)) {
                $( each(stringify!($name), self.$name.get()); )*
            }
        }
    };
}

counters! {
    /// Frames received from devices.
    rx_packets,
    /// Their bytes.
    rx_bytes,
    /// Frames given to devices.
    tx_packets,
    /// Their bytes.
    tx_bytes,
    /// Packets that went from this machine to itself.
    loopback_packets,
    /// Malformed headers or lengths.
    drop_malformed,
    /// Wrong checksums.
    drop_checksum,
    /// Packets for other hosts or unknown protocols.
    drop_not_for_us,
    /// No socket there.
    drop_no_socket,
    /// A receive queue was full.
    drop_receive_full,
    /// No route or no answer from the neighbour.
    drop_unreachable,
    /// The queue behind a full transmit ring was full too.
    drop_transmit_full,
    /// Fragments that did not complete a packet in time or in memory.
    drop_fragments,
    /// TCP segments sent again.
    tcp_retransmits,
    /// Retransmission time-outs.
    tcp_timeouts,
    /// Connections that found the accept queue or the handshake queue full.
    tcp_listen_overflows,
    /// Connections opened from outside.
    tcp_accepted,
    /// Connections opened from here.
    tcp_connects,
    /// RST segments sent.
    tcp_resets_sent,
    /// Connections now, those closing included; a gauge.
    tcp_connections,
    /// TIME-WAIT entries now; a gauge.
    tcp_time_wait,
    /// UDP datagrams received for a socket.
    udp_received,
    /// UDP datagrams sent.
    udp_sent,
}
