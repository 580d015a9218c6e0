// SPDX-License-Identifier: Apache-2.0
//! What an application can set on a TCP socket, and what an accepted socket inherits (`tcp(7)`, `socket(7)`).

/// Settings of one TCP socket, with the defaults of Linux unless said otherwise.
#[derive(Clone, Debug)]
pub(crate) struct TcpOptions {
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) v6_only: bool,
    pub(crate) no_delay: bool,
    pub(crate) cork: bool,
    pub(crate) quick_ack: bool,
    pub(crate) keepalive: bool,
    pub(crate) keep_idle_s: u32,
    pub(crate) keep_interval_s: u32,
    pub(crate) keep_count: u32,
    /// `SO_LINGER`: seconds, if on.
    pub(crate) linger_s: Option<u32>,
    /// Bytes; Linux doubles what is set, and so do we.
    pub(crate) receive_buffer: usize,
    pub(crate) send_buffer: usize,
    /// The application chose the size: it does not grow.
    pub(crate) receive_fixed: bool,
    pub(crate) send_fixed: bool,
    /// `TCP_USER_TIMEOUT`, 0 for none.
    pub(crate) user_timeout_ms: u32,
    pub(crate) syn_retries: u32,
    pub(crate) max_segment: Option<u16>,
    pub(crate) not_sent_low: usize,
    pub(crate) receive_low: usize,
    pub(crate) defer_accept_s: u32,
    pub(crate) fin_timeout_s: u32,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            reuse_address: false,
            reuse_port: false,
            v6_only: false,
            no_delay: false,
            cork: false,
            quick_ack: false,
            keepalive: false,
            keep_idle_s: 7200,
            keep_interval_s: 75,
            keep_count: 9,
            linger_s: None,
            receive_buffer: 128 * 1024,
            send_buffer: 128 * 1024,
            receive_fixed: false,
            send_fixed: false,
            user_timeout_ms: 0,
            syn_retries: 6,
            max_segment: None,
            not_sent_low: usize::MAX,
            receive_low: 1,
            defer_accept_s: 0,
            fin_timeout_s: 60,
            ttl: 64,
            tos: 0,
        }
    }
}
