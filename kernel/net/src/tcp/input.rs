// SPDX-License-Identifier: Apache-2.0
//! A segment arrives at a connection (RFC 9293, 3.10.7, with the checks of RFC 5961).

use coracle_abi::convert::usize_from_u32;
use coracle_core::packet::PacketBuf;
use coracle_core::{Errno, PollEvents};

use super::buffers::LEAST;
use super::seq::{after, before, distance, later, plus};
use super::tcb::{Context, NEVER, State, Tcb, WINDOW_SCALE};
use crate::wire::tcp::{Flags, Options};

/// An acknowledgement waits this long for data to go with (RFC 9293, 3.8.6.3; Linux's minimum).
const DELAYED_ACK_NS: u64 = 40_000_000;
/// Least time between two challenges to suspicious segments (RFC 5961, 7; Linux's `tcp_invalid_ratelimit`).
const CHALLENGE_NS: u64 = 500_000_000;

/// A received segment without its payload.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: Flags,
    pub(super) window: u16,
    pub(super) options: Options,
}

const READABLE: PollEvents = PollEvents::IN.union(PollEvents::RDNORM);
const WRITABLE: PollEvents = PollEvents::OUT.union(PollEvents::WRNORM);
const ENDED: PollEvents = READABLE
    .union(WRITABLE)
    .union(PollEvents::HUP)
    .union(PollEvents::RDHUP);

impl Tcb {
    /// Processes a segment; `buf` is its payload. Returns what may have become ready.
    pub(super) fn on_segment(
        &mut self,
        cx: &Context<'_>,
        segment: &Segment,
        buf: PacketBuf,
    ) -> PollEvents {
        match self.state {
            State::Closed => return PollEvents::empty(),
            State::SynSent => return self.on_segment_in_syn_sent(cx, segment, buf),
            _ => {}
        }
        self.last_received = cx.now;
        self.keep_probes = 0;
        let flags = segment.flags;
        let len = buf.len() + usize::from(flags.contains(Flags::FIN));

        if !self.is_acceptable(segment.seq, len) {
            if !flags.contains(Flags::RST) {
                // An old duplicate, a probe of a closed window or of a silent peer: say where we are. Its
                // acknowledgement counts if it is not old.
                let mut events = PollEvents::empty();
                if segment.seq == self.rcv_nxt && flags.contains(Flags::ACK) {
                    events = self.on_ack(cx, segment, true).unwrap_or(events);
                }
                if self.state != State::Closed {
                    if flags.contains(Flags::SYN) {
                        self.challenge(cx);
                    } else {
                        self.ack_now = true;
                    }
                    self.output(cx);
                }
                return events;
            }
            return PollEvents::empty();
        }
        if flags.contains(Flags::RST) {
            // Only the exact next number proves that the sender sees the connection (RFC 5961, 3.2).
            if segment.seq == self.rcv_nxt {
                return self.on_reset(cx);
            }
            self.challenge(cx);
            return PollEvents::empty();
        }
        if flags.contains(Flags::SYN) {
            if self.state == State::SynReceived && segment.seq.wrapping_add(1) == self.rcv_nxt {
                self.send_syn(cx);
            } else {
                self.challenge(cx);
            }
            return PollEvents::empty();
        }
        if !flags.contains(Flags::ACK) {
            return PollEvents::empty();
        }
        let mut events = PollEvents::empty();
        if self.state == State::SynReceived {
            if !after(segment.ack, self.snd_una) || after(segment.ack, self.snd_max) {
                return PollEvents::empty();
            }
            self.establish(cx, segment, segment.ack);
            events = WRITABLE;
        }
        match self.on_ack(cx, segment, len > 0) {
            Some(more) => events |= more,
            None => {
                if self.ack_now {
                    self.send_ack(cx);
                }
                return events;
            }
        }
        if self.state == State::Closed {
            return events;
        }
        if len > 0 {
            events |= self.on_payload(cx, segment, buf);
        }
        if self.state == State::Closed {
            return events;
        }
        if self.ack_now || self.unsent() > 0 || self.fin_queued || self.recovery.is_some() {
            self.output(cx);
        } else {
            self.schedule(cx);
        }
        events
    }

    /// The handshake is complete: `ack` acknowledges our SYN.
    pub(super) fn establish(&mut self, cx: &Context<'_>, segment: &Segment, ack: u32) {
        self.state = State::Established;
        self.established = true;
        self.snd_una = ack;
        self.snd_nxt = later(self.snd_nxt, ack);
        self.small_end = ack;
        self.no_recovery_before = ack;
        let scale = if segment.flags.contains(Flags::SYN) {
            0
        } else {
            self.snd_scale
        };
        self.set_send_window(segment.window, scale, segment.seq, ack);
        self.retransmit_at = NEVER;
        self.backoff = 0;
        if cx.options.keepalive {
            self.keepalive_at = cx.now + u64::from(cx.options.keep_idle_s) * 1_000_000_000;
        }
    }

    /// Takes over what the peer offered in its SYN.
    pub(super) fn take_syn_options(&mut self, cx: &Context<'_>, options: &Options) {
        let most = cx.options.max_segment.map_or(usize::MAX, usize::from);
        // Without the option 536 is what every host must take (RFC 9293, 3.7.1).
        let offered = usize::from(options.mss.unwrap_or(536)).max(64);
        self.mss = self
            .path
            .mss(self.flow.remote.address)
            .min(offered)
            .min(most);
        self.congestion = super::congestion::Congestion::new(self.mss);
        if let Some(scale) = options.window_scale {
            self.snd_scale = scale;
            self.rcv_scale = WINDOW_SCALE;
        } else {
            self.snd_scale = 0;
            self.rcv_scale = 0;
        }
        self.sack_ok = options.sack_permitted;
    }

    fn on_segment_in_syn_sent(
        &mut self,
        cx: &Context<'_>,
        segment: &Segment,
        buf: PacketBuf,
    ) -> PollEvents {
        let flags = segment.flags;
        let acceptable_ack = flags.contains(Flags::ACK) && segment.ack == self.snd_nxt;
        if flags.contains(Flags::ACK) && !acceptable_ack {
            if !flags.contains(Flags::RST) {
                cx.stack
                    .reset_in_answer(&self.flow, segment, buf.len(), cx.now);
            }
            return PollEvents::empty();
        }
        if flags.contains(Flags::RST) {
            if acceptable_ack {
                return self.fail(cx, Errno::ECONNREFUSED);
            }
            return PollEvents::empty();
        }
        if !flags.contains(Flags::SYN) {
            return PollEvents::empty();
        }
        self.last_received = cx.now;
        self.rcv_nxt = segment.seq.wrapping_add(1);
        self.take_syn_options(cx, &segment.options);
        let window = cx.options.receive_buffer.min(usize::from(u16::MAX));
        self.rcv_adv = plus(self.rcv_nxt, window);
        if !acceptable_ack {
            // Both sides called at once.
            self.state = State::SynReceived;
            self.set_send_window(segment.window, 0, segment.seq, 0);
            self.send_syn(cx);
            self.schedule(cx);
            return PollEvents::empty();
        }
        if let Some((_, sent_at)) = self.timing.take().filter(|_| self.backoff == 0) {
            self.rtt.sample(cx.now.saturating_sub(sent_at));
        }
        self.establish(cx, segment, segment.ack);
        let mut events = WRITABLE;
        if !buf.is_empty() || flags.contains(Flags::FIN) {
            let mut rest = *segment;
            rest.seq = self.rcv_nxt;
            events |= self.on_payload(cx, &rest, buf);
        }
        self.ack_now = true;
        self.output(cx);
        events
    }

    /// RFC 9293, 3.10.7.4, first check.
    fn is_acceptable(&self, seq: u32, len: usize) -> bool {
        let window = self.offered_window();
        let in_window = |s: u32| !before(s, self.rcv_nxt) && before(s, plus(self.rcv_nxt, window));
        match (len, window) {
            (0, 0) => seq == self.rcv_nxt,
            // A pure acknowledgement of a peer that has filled the window lies at its right edge.
            (0, _) => in_window(seq) || seq == plus(self.rcv_nxt, window),
            (_, 0) => false,
            _ => in_window(seq) || in_window(plus(seq, len - 1)),
        }
    }

    /// Answers a suspicious segment with where we are, not too often.
    fn challenge(&mut self, cx: &Context<'_>) {
        if cx.now >= self.last_challenge + CHALLENGE_NS || self.last_challenge == 0 {
            self.last_challenge = cx.now.max(1);
            self.send_ack(cx);
        }
    }

    fn on_reset(&mut self, cx: &Context<'_>) -> PollEvents {
        let error = match self.state {
            State::SynReceived => Errno::ECONNREFUSED,
            State::CloseWait => Errno::EPIPE,
            _ => Errno::ECONNRESET,
        };
        if matches!(self.state, State::Closing | State::LastAck) {
            // Both sides have finished: nothing is lost.
            return self.finish(cx);
        }
        self.fail(cx, error)
    }

    /// Ends the connection with an error.
    pub(super) fn fail(&mut self, cx: &Context<'_>, error: Errno) -> PollEvents {
        self.error = Some(error);
        self.finish(cx) | PollEvents::ERR
    }

    /// Ends the connection: nothing is sent or received any more. What was received can still be read.
    pub(super) fn finish(&mut self, cx: &Context<'_>) -> PollEvents {
        self.state = State::Closed;
        self.send.clear();
        self.sacked.clear();
        self.cancel_timer(cx);
        cx.stack.forget_connection(&self.flow);
        ENDED
    }

    /// The acknowledgement in a segment. `None` if it cannot be true: then the segment is dropped (RFC 5961, 5.2).
    fn on_ack(
        &mut self,
        cx: &Context<'_>,
        segment: &Segment,
        carries_data: bool,
    ) -> Option<PollEvents> {
        let ack = segment.ack;
        if after(ack, self.snd_max) {
            self.ack_now = true;
            return None;
        }
        if before(ack, self.snd_una) {
            let oldest = self.largest_snd_wnd.max(usize::from(u16::MAX));
            if distance(ack, self.snd_una) > oldest {
                self.challenge(cx);
                return None;
            }
            return Some(PollEvents::empty());
        }
        let window = usize_from_u32(u32::from(segment.window) << self.snd_scale);
        let same_window = window == self.snd_wnd;
        let newer = before(self.snd_wl1, segment.seq)
            || self.snd_wl1 == segment.seq && !after(self.snd_wl2, ack);
        if newer {
            let scale = self.snd_scale;
            self.set_send_window(segment.window, scale, segment.seq, ack);
            if self.snd_wnd >= self.mss.min(self.unsent().max(1)) {
                self.persist_at = NEVER;
            }
        }
        let news = self.sack_ok && segment.options.sack_count > 0 && self.note_sacks(segment);
        if ack == self.snd_una {
            let under_way = self.in_flight() > 0; // not so while a closed window is probed
            if under_way
                && (news || !carries_data && same_window && segment.options.sack_count == 0)
            {
                self.on_duplicate_ack(cx);
            }
            return Some(PollEvents::empty());
        }
        Some(self.on_new_ack(cx, ack))
    }

    fn on_new_ack(&mut self, cx: &Context<'_>, ack: u32) -> PollEvents {
        let acked = distance(self.snd_una, ack);
        let under_way = self.in_flight();
        let data = acked.min(self.send.len());
        let fin_acked = acked > data;
        self.send.acknowledge(data);
        self.snd_una = ack;
        self.snd_nxt = later(self.snd_nxt, ack);
        if before(self.small_end, ack) {
            self.small_end = ack;
        }
        if let Some((end, sent_at)) = self.timing
            && !before(ack, end)
        {
            self.rtt.sample(cx.now.saturating_sub(sent_at));
            self.timing = None;
        }
        self.backoff = 0;
        self.stalled_since = cx.now;
        self.soft_error = None;
        self.duplicate_acks = 0;
        self.advance_recovery(cx, acked, under_way);
        self.retransmit_at = if self.snd_una == self.snd_max {
            NEVER
        } else {
            cx.now + self.rtt.rto_ns(0)
        };
        let mut events = PollEvents::empty();
        if fin_acked {
            events |= self.on_fin_acked(cx);
        }
        if data > 0 && self.wants_room && self.has_room(cx.options) {
            self.wants_room = false;
            events |= WRITABLE;
        }
        events
    }

    fn on_fin_acked(&mut self, cx: &Context<'_>) -> PollEvents {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.orphan {
                    let timeout = u64::from(cx.options.fin_timeout_s) * 1_000_000_000;
                    self.give_up_at = self.give_up_at.min(cx.now + timeout);
                }
                WRITABLE // a lingering close waits for this
            }
            State::Closing => self.enter_time_wait(cx),
            State::LastAck => self.finish(cx),
            _ => PollEvents::empty(),
        }
    }

    /// Everything is said and acknowledged; a table entry guards the sequence numbers for a while.
    fn enter_time_wait(&mut self, cx: &Context<'_>) -> PollEvents {
        if self.ack_now {
            self.send_ack(cx);
        }
        self.state = State::Closed;
        self.send.clear();
        self.cancel_timer(cx);
        let seq = later(self.snd_nxt, self.snd_max);
        cx.stack
            .begin_time_wait(&self.flow, seq, self.rcv_nxt, cx.now);
        ENDED
    }

    /// Payload or FIN of an acceptable segment.
    fn on_payload(
        &mut self,
        cx: &Context<'_>,
        segment: &Segment,
        mut buf: PacketBuf,
    ) -> PollEvents {
        if matches!(
            self.state,
            State::CloseWait | State::Closing | State::LastAck
        ) {
            return PollEvents::empty(); // nothing can follow the peer's FIN
        }
        let (mut seq, mut fin) = (segment.seq, segment.flags.contains(Flags::FIN));
        if before(seq, self.rcv_nxt) {
            let known = distance(seq, self.rcv_nxt);
            buf.trim_front(known);
            seq = self.rcv_nxt;
            self.ack_now = true; // part of it was sent in vain
        }
        let offered = self.offered_window();
        let room = offered.saturating_sub(distance(self.rcv_nxt, seq));
        if buf.len() > room {
            buf.truncate(room);
            fin = false;
            self.ack_now = true;
        }
        if self.orphan && !buf.is_empty() {
            // Nobody will ever read this: tell the peer (RFC 9293, 3.6.1).
            self.send_reset(cx);
            return self.fail(cx, Errno::ECONNRESET);
        }
        let held = self.receive.held();
        if held >= LEAST && cx.stack.tcp.is_out_of_memory(&cx.stack.config) {
            // The window was promised when there was memory; the peer will send it again.
            cx.stack.counters.drop_receive_full.bump();
            self.ack_now = true;
            return PollEvents::empty();
        }
        if seq != self.rcv_nxt {
            // Received buffers are about half full when segments are.
            let memory = 2 * self.receive_limit(cx.options);
            self.receive.push_early(seq, buf, fin, memory);
            self.ack_now = true; // a duplicate acknowledgement tells the peer of the gap (RFC 5681, 4.2)
            return PollEvents::empty();
        }
        let count = buf.len();
        let mut events = PollEvents::empty();
        if count > 0 {
            self.rcv_nxt = plus(self.rcv_nxt, count);
            self.receive.push(buf);
            events |= READABLE;
        }
        if self.receive.has_gap() {
            let (next, gap_fin) = self.receive.close_gap(self.rcv_nxt);
            self.rcv_nxt = next;
            fin |= gap_fin;
            self.ack_now = true;
        }
        if count > 0 {
            self.delay_ack(cx, count);
        }
        if self.receive.len() < cx.options.receive_low && !fin {
            events = PollEvents::empty();
        }
        if fin {
            events |= self.on_fin(cx);
        }
        events
    }

    /// Decides when in-order data is acknowledged: at once for every second full segment and at the start, else
    /// together with an answer or after a while.
    fn delay_ack(&mut self, cx: &Context<'_>, count: usize) {
        self.unacked_bytes += count;
        let quick = cx.options.quick_ack || self.quick_acks > 0;
        if self.unacked_bytes >= 2 * self.mss || quick {
            self.quick_acks = self.quick_acks.saturating_sub(1);
            self.ack_now = true;
        } else if self.delayed_ack_at == NEVER {
            self.delayed_ack_at = cx.now + DELAYED_ACK_NS;
        }
    }

    fn on_fin(&mut self, cx: &Context<'_>) -> PollEvents {
        self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        self.fin_received = true;
        self.ack_now = true;
        let events = READABLE | PollEvents::RDHUP;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => return events | self.enter_time_wait(cx),
            _ => {}
        }
        if self.fin_queued {
            events | PollEvents::HUP
        } else {
            events
        }
    }
}
