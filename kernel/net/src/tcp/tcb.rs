// SPDX-License-Identifier: Apache-2.0
//! The state of one connection (RFC 9293, 3.3.1), and the small questions everybody asks about it.

use alloc::sync::Weak;
use alloc::vec::Vec;

use coracle_abi::convert::usize_from_u32;
use coracle_core::{Errno, PollEvents};
use coracle_logic::timer_queue::TimerHandle;

use super::TcpSocket;
use super::buffers::{Growth, affordable};
use super::congestion::Congestion;
use super::options::TcpOptions;
use super::receive_queue::ReceiveQueue;
use super::rtt::Rtt;
use super::send_queue::SendQueue;
use super::seq::{before, distance, plus};
use crate::address::Flow;
use crate::link::Path;
use crate::stack::NetStack;

/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;
/// The largest window scale we ask for: enough for the largest receive buffer.
pub(super) const WINDOW_SCALE: u8 = 7;
/// Acknowledgements sent without delay when a connection is young and has shown no conversation yet.
const QUICK_ACKS: u8 = 8;

/// States of RFC 9293, 3.3.2. LISTEN and half-open connections are kept elsewhere, TIME-WAIT is a table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    Closed,
}

/// What the methods of a connection need from outside.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) stack: &'a NetStack,
    pub(super) options: &'a TcpOptions,
    /// The socket, for its timer.
    pub(super) socket: &'a Weak<TcpSocket>,
    pub(super) now: u64,
}

/// Transmission control block.
pub(super) struct Tcb {
    pub(super) state: State,
    pub(super) flow: Flow,
    pub(super) path: Path,
    /// Whether the connection was ever established.
    pub(super) established: bool,
    pub(super) error: Option<Errno>,
    /// A temporary obstacle to report if the connection fails for lack of answers.
    pub(super) soft_error: Option<Errno>,
    /// No descriptor refers to it any more.
    pub(super) orphan: bool,
    pub(super) receive_shutdown: bool,

    pub(super) snd_una: u32,
    pub(super) snd_nxt: u32,
    /// Highest sequence number sent; `snd_nxt` goes back to `snd_una` on a time-out.
    pub(super) snd_max: u32,
    pub(super) snd_wnd: usize,
    pub(super) snd_wl1: u32,
    pub(super) snd_wl2: u32,
    pub(super) largest_snd_wnd: usize,
    pub(super) snd_scale: u8,
    /// Payload of a full segment.
    pub(super) mss: usize,
    pub(super) send: SendQueue,
    /// The application has closed its sending side: a FIN follows the data.
    pub(super) fin_queued: bool,
    /// End of the last segment sent that was not full (Minshall's variant of Nagle's rule).
    pub(super) small_end: u32,
    /// More data was promised (`MSG_MORE`) up to this point of the stream, if it is the end of the queue.
    pub(super) more_promised: bool,
    /// Somebody wants to know about room in the send queue.
    pub(super) wants_room: bool,

    pub(super) rcv_nxt: u32,
    /// Right edge of the window as last advertised.
    pub(super) rcv_adv: u32,
    pub(super) rcv_scale: u8,
    pub(super) receive: ReceiveQueue,
    pub(super) fin_received: bool,
    pub(super) growth: Growth,

    pub(super) ack_now: bool,
    /// Full segments that arrived since the last acknowledgement.
    pub(super) unacked_bytes: usize,
    pub(super) quick_acks: u8,
    pub(super) sack_ok: bool,

    pub(super) rtt: Rtt,
    /// A segment being timed: its end and when it was sent.
    pub(super) timing: Option<(u32, u64)>,
    pub(super) congestion: Congestion,
    /// What the peer has beyond `snd_una`: sorted, disjoint.
    pub(super) sacked: Vec<(u32, u32)>,
    pub(super) duplicate_acks: u32,
    /// In loss recovery until this is acknowledged.
    pub(super) recovery: Option<u32>,
    /// In recovery: retransmitted up to here.
    pub(super) retransmitted_to: u32,
    /// After a time-out: no fast retransmit before this is acknowledged.
    pub(super) no_recovery_before: u32,
    /// Time-outs in a row.
    pub(super) backoff: u32,
    /// When the first of them began.
    pub(super) stalled_since: u64,
    pub(super) last_sent: u64,
    pub(super) last_received: u64,
    pub(super) last_challenge: u64,
    pub(super) keep_probes: u32,
    pub(super) retransmits: u64,
    /// Bytes entered into the account of all connections.
    pub(super) charged: usize,

    pub(super) retransmit_at: u64,
    pub(super) persist_at: u64,
    pub(super) delayed_ack_at: u64,
    pub(super) keepalive_at: u64,
    pub(super) cork_at: u64,
    /// End of FIN-WAIT-2 of an orphan, or of a lingering close.
    pub(super) give_up_at: u64,
    pub(super) timer: Option<TimerHandle>,
    /// When `timer` goes off.
    pub(super) timer_at: u64,
}

impl Tcb {
    pub(super) fn new(flow: Flow, path: Path, state: State, iss: u32, now: u64) -> Self {
        let mss = path.mss(flow.remote.address);
        Self {
            state,
            flow,
            path,
            established: false,
            error: None,
            soft_error: None,
            orphan: false,
            receive_shutdown: false,
            snd_una: iss,
            snd_nxt: iss,
            snd_max: iss,
            snd_wnd: 0,
            snd_wl1: 0,
            snd_wl2: 0,
            largest_snd_wnd: 0,
            snd_scale: 0,
            mss,
            send: SendQueue::default(),
            fin_queued: false,
            small_end: iss,
            more_promised: false,
            wants_room: false,
            rcv_nxt: 0,
            rcv_adv: 0,
            rcv_scale: 0,
            receive: ReceiveQueue::default(),
            fin_received: false,
            growth: Growth::default(),
            ack_now: false,
            unacked_bytes: 0,
            quick_acks: QUICK_ACKS,
            sack_ok: false,
            rtt: Rtt::new(),
            timing: None,
            congestion: Congestion::new(mss),
            sacked: Vec::new(),
            duplicate_acks: 0,
            recovery: None,
            retransmitted_to: iss,
            no_recovery_before: iss,
            backoff: 0,
            stalled_since: now,
            last_sent: now,
            last_received: now,
            last_challenge: 0,
            keep_probes: 0,
            retransmits: 0,
            charged: 0,
            retransmit_at: NEVER,
            persist_at: NEVER,
            delayed_ack_at: NEVER,
            keepalive_at: NEVER,
            cork_at: NEVER,
            give_up_at: NEVER,
            timer: None,
            timer_at: NEVER,
        }
    }

    /// Whether both sides have agreed on sequence numbers and the connection has not ended.
    pub(super) fn is_synchronized(&self) -> bool {
        !matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Closed
        )
    }

    /// Whether the application may send.
    pub(super) fn can_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && !self.fin_queued
    }

    /// Bytes and flags under way.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        distance(self.snd_una, self.snd_nxt)
    }

    /// Sequence number behind the last queued byte.
    #[inline]
    pub(super) fn data_end(&self) -> u32 {
        plus(self.snd_una, self.send.len())
    }

    /// Bytes queued and not sent yet.
    #[inline]
    pub(super) fn unsent(&self) -> usize {
        self.send.len().saturating_sub(self.in_flight())
    }

    /// The application's share of the receive buffer that is free.
    pub(super) fn free_window(&self, cx: &Context<'_>) -> usize {
        let held = self.receive.held();
        let left = cx.stack.tcp.memory_left(&cx.stack.config);
        let scaled_most = usize::from(u16::MAX) << self.rcv_scale;
        self.receive_limit(cx.options)
            .saturating_sub(held)
            .min(affordable(held, left))
            .min(scaled_most)
    }

    /// The window the peer was told and may still use.
    #[inline]
    pub(super) fn offered_window(&self) -> usize {
        if before(self.rcv_adv, self.rcv_nxt) {
            return 0;
        }
        distance(self.rcv_nxt, self.rcv_adv)
    }

    /// Whether the application is told that it can write: a third of the buffer is free, as on Linux.
    pub(super) fn has_room(&self, options: &TcpOptions) -> bool {
        let queued = self.send.len();
        let free = self.send_limit(options).saturating_sub(queued);
        free > 0 && free >= queued / 2 && self.unsent() < options.not_sent_low
    }

    /// Notes a window advertised by the peer.
    pub(super) fn set_send_window(&mut self, window: u16, scale: u8, seq: u32, ack: u32) {
        self.snd_wnd = usize_from_u32(u32::from(window) << scale);
        self.largest_snd_wnd = self.largest_snd_wnd.max(self.snd_wnd);
        self.snd_wl1 = seq;
        self.snd_wl2 = ack;
    }

    /// Whether no more data can come.
    pub(super) fn at_end(&self) -> bool {
        self.fin_received || self.receive_shutdown || self.state == State::Closed
    }

    /// Readiness as Linux's `tcp_poll` has it.
    pub(super) fn poll(&self, options: &TcpOptions) -> PollEvents {
        let mut events = PollEvents::empty();
        let read = PollEvents::IN | PollEvents::RDNORM;
        let write = PollEvents::OUT | PollEvents::WRNORM;
        let closed = self.state == State::Closed;
        // A connection that ended has lost both directions; one that never began has not.
        let ended = closed && (self.established || self.error.is_some() || self.fin_queued);
        let receive_ended = self.fin_received || self.receive_shutdown || ended;
        let send_ended = self.fin_queued || ended;
        if closed || receive_ended && send_ended {
            events |= PollEvents::HUP;
        }
        if receive_ended {
            events |= read | PollEvents::RDHUP;
        }
        if !matches!(self.state, State::SynSent) {
            if self.receive.len() >= options.receive_low.max(1) {
                events |= read;
            }
            if send_ended || self.has_room(options) {
                events |= write;
            }
        }
        if self.error.is_some() {
            events |= PollEvents::ERR;
        }
        events
    }
}
