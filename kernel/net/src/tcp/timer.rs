// SPDX-License-Identifier: Apache-2.0
//! What happens when nothing happens: retransmission, window probes, keepalive, delayed acknowledgements, giving up.

use coracle_core::{Errno, PollEvents};

use super::rtt::MAX_RTO_NS;
use super::seq::{later, plus};
use super::tcb::{Context, NEVER, State, Tcb};
use crate::timers::TimerKey;

/// Time-outs in a row before an established connection is given up (`tcp_retries2`).
const RETRIES: u32 = 15;
/// The same for one that nobody refers to any more (`tcp_orphan_retries`).
const ORPHAN_RETRIES: u32 = 8;
const SECOND_NS: u64 = 1_000_000_000;
/// Timers go off at multiples of this: about four milliseconds.
const GRAIN_NS: u64 = 1 << 22;

impl Tcb {
    fn earliest(&self) -> u64 {
        self.retransmit_at
            .min(self.persist_at)
            .min(self.delayed_ack_at)
            .min(self.keepalive_at)
            .min(self.cork_at)
            .min(self.give_up_at)
    }

    /// Makes sure that the timer goes off in time; too early does no harm.
    #[inline]
    pub(super) fn schedule(&mut self, cx: &Context<'_>) {
        // Rounded up, so that the timers of many connections go off together: one interrupt serves them all.
        let earliest = self.earliest().saturating_add(GRAIN_NS - 1) & !(GRAIN_NS - 1);
        if earliest < self.timer_at && self.state != State::Closed {
            self.cancel_timer(cx);
            let key = TimerKey::Tcp(cx.socket.clone());
            self.timer = Some(cx.stack.timers.set(earliest, key));
            self.timer_at = earliest;
        }
    }

    pub(super) fn cancel_timer(&mut self, cx: &Context<'_>) {
        if let Some(timer) = self.timer.take() {
            cx.stack.timers.cancel(timer);
        }
        self.timer_at = NEVER;
    }

    /// The timer went off.
    pub(super) fn on_timer(&mut self, cx: &Context<'_>) -> PollEvents {
        self.timer = None;
        self.timer_at = NEVER;
        if self.state == State::Closed {
            return PollEvents::empty();
        }
        let now = cx.now;
        if self.give_up_at <= now {
            if self.orphan && self.state != State::FinWait2 {
                self.send_reset(cx);
            }
            return self.finish(cx);
        }
        if self.delayed_ack_at <= now {
            // The application did not answer: a peer that waits for us is served sooner next time.
            self.quick_acks = 2;
            self.send_ack(cx);
        }
        if self.cork_at <= now {
            self.output(cx); // the waiting is over: `holds_small` looks at the time
            self.cork_at = NEVER;
        }
        if self.keepalive_at <= now
            && let Some(events) = self.on_keepalive(cx)
        {
            return events;
        }
        if self.persist_at <= now
            && let Some(events) = self.on_persist(cx)
        {
            return events;
        }
        if self.retransmit_at <= now
            && let Some(events) = self.on_timeout(cx)
        {
            return events;
        }
        self.schedule(cx);
        PollEvents::empty()
    }

    /// Whether the peer has been silent too long, in spite of `tries` attempts.
    fn is_hopeless(&self, cx: &Context<'_>, tries: u32) -> bool {
        let limit = match self.state {
            State::SynSent | State::SynReceived => cx.options.syn_retries,
            _ if self.orphan => ORPHAN_RETRIES,
            _ => RETRIES,
        };
        let user_ns = u64::from(cx.options.user_timeout_ms) * 1_000_000;
        let over_user = user_ns > 0 && cx.now.saturating_sub(self.stalled_since) >= user_ns;
        tries >= limit || over_user
    }

    fn give_up(&mut self, cx: &Context<'_>) -> PollEvents {
        let error = self.soft_error.unwrap_or(Errno::ETIMEDOUT);
        self.fail(cx, error)
    }

    /// Nothing was acknowledged for too long (RFC 6298, 5).
    #[cold]
    fn on_timeout(&mut self, cx: &Context<'_>) -> Option<PollEvents> {
        if self.is_hopeless(cx, self.backoff) {
            return Some(self.give_up(cx));
        }
        cx.stack.counters.tcp_timeouts.bump();
        let first = self.backoff == 0;
        if first {
            self.stalled_since = self.stalled_since.max(self.last_received);
        }
        self.backoff += 1;
        self.timing = None;
        self.retransmit_at = NEVER;
        // The way may have changed.
        let remote = self.flow.remote.address;
        if let Ok(path) = cx.stack.route(remote, Some(self.flow.local.address), None) {
            self.path = path;
        }
        match self.state {
            State::SynSent | State::SynReceived => {
                cx.stack.counters.tcp_retransmits.bump();
                self.send_syn(cx);
                return None;
            }
            _ => {}
        }
        let in_flight = self.in_flight();
        self.congestion.on_timeout(in_flight, self.mss, first);
        self.recovery = None;
        self.duplicate_acks = 0;
        // The peer may have thrown away what it reported (RFC 2018, 8).
        self.sacked.clear();
        self.no_recovery_before = later(self.no_recovery_before, self.snd_max);
        self.snd_nxt = self.snd_una;
        self.output(cx);
        if self.retransmit_at == NEVER {
            // The window has closed over what was under way: probe it.
            self.persist_at = self.persist_at.min(cx.now + self.rtt.rto_ns(self.backoff));
        }
        None
    }

    /// The peer's window has been closed for a while: ask with one byte (RFC 9293, 3.8.6.1).
    #[cold]
    fn on_persist(&mut self, cx: &Context<'_>) -> Option<PollEvents> {
        self.persist_at = NEVER;
        if self.send.len() == 0 && !self.fin_queued {
            return None;
        }
        // A peer that answers may keep its window closed for ever, unless nobody cares for the data any more.
        let silent = cx.now.saturating_sub(self.last_received) > MAX_RTO_NS;
        if (silent || self.orphan) && self.is_hopeless(cx, self.backoff) {
            return Some(self.give_up(cx));
        }
        self.snd_nxt = self.snd_una;
        let len = self
            .send
            .len()
            .min(1)
            .max(self.snd_wnd.min(self.send.len()).min(self.mss));
        let (sent, _) = self.send_data(cx, self.snd_una, len, false);
        // The byte counts as sent, so that its acknowledgement is accepted, but it is sent again with the rest.
        self.snd_max = later(self.snd_max, plus(self.snd_una, sent));
        self.timing = None;
        self.retransmit_at = NEVER;
        self.backoff = (self.backoff + 1).min(RETRIES);
        self.persist_at = cx.now + self.rtt.rto_ns(self.backoff);
        None
    }

    /// Whether an idle peer is still there (`SO_KEEPALIVE`).
    #[cold]
    fn on_keepalive(&mut self, cx: &Context<'_>) -> Option<PollEvents> {
        self.keepalive_at = NEVER;
        if !cx.options.keepalive || !self.is_synchronized() {
            return None;
        }
        let idle_ns = u64::from(cx.options.keep_idle_s) * SECOND_NS;
        let due = self.last_received + idle_ns;
        if self.keep_probes == 0 && cx.now < due || self.snd_una != self.snd_max {
            self.keepalive_at = due.max(cx.now + SECOND_NS);
            return None;
        }
        if self.keep_probes >= cx.options.keep_count {
            self.send_reset(cx);
            return Some(self.give_up(cx));
        }
        self.keep_probes += 1;
        self.send_probe(cx);
        self.keepalive_at = cx.now + u64::from(cx.options.keep_interval_s) * SECOND_NS;
        None
    }
}
