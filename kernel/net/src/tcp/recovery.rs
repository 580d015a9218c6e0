// SPDX-License-Identifier: Apache-2.0
//! Noticing and repairing losses: duplicate and selective acknowledgements (RFC 5681, RFC 6582, RFC 6675).

use super::input::Segment;
use super::seq::{after, before, distance, later, plus};
use super::tcb::{Context, Tcb};

/// Duplicates that prove a loss.
const DUPLICATES: u32 = 3;
/// Runs of selectively acknowledged data remembered.
const RUNS: usize = 64;

impl Tcb {
    /// Notes selective acknowledgements; returns whether they said anything new.
    #[cold]
    pub(super) fn note_sacks(&mut self, segment: &Segment) -> bool {
        let before_bytes = self.sacked_bytes();
        for (left, right) in segment
            .options
            .sack
            .into_iter()
            .take(segment.options.sack_count)
        {
            let sane = after(right, left)
                && !before(left, later(self.snd_una, segment.ack))
                && !after(right, self.snd_max);
            if sane {
                self.add_run(left, right);
            }
        }
        self.sacked_bytes() > before_bytes
    }

    fn add_run(&mut self, mut left: u32, mut right: u32) {
        self.sacked.retain(|(l, r)| {
            let touches = !after(*l, right) && !before(*r, left);
            if touches {
                left = if before(*l, left) { *l } else { left };
                right = later(right, *r);
            }
            !touches
        });
        if self.sacked.len() < RUNS {
            let at = self.sacked.partition_point(|(l, _)| before(*l, left));
            self.sacked.insert(at, (left, right));
        }
    }

    fn sacked_bytes(&self) -> usize {
        self.sacked.iter().map(|(l, r)| distance(*l, *r)).sum()
    }

    /// An acknowledgement brought nothing new while data is under way.
    #[cold]
    pub(super) fn on_duplicate_ack(&mut self, cx: &Context<'_>) {
        self.duplicate_acks += 1;
        if self.recovery.is_some() {
            if !self.sack_ok {
                self.congestion.window += self.mss; // a segment has left the network
            }
            return;
        }
        let proven =
            self.duplicate_acks >= DUPLICATES || self.sack_ok && self.sacked_bytes() > 2 * self.mss;
        if !proven || before(self.snd_una, self.no_recovery_before) {
            return;
        }
        let in_flight = distance(self.snd_una, self.snd_max);
        self.congestion.on_loss(in_flight, self.mss);
        self.recovery = Some(self.snd_max);
        self.retransmitted_to = self.snd_una;
        self.resend_first(cx);
        if !self.sack_ok {
            self.congestion.window += 3 * self.mss;
        }
    }

    /// Sends the first unacknowledged segment again.
    fn resend_first(&mut self, cx: &Context<'_>) {
        let mut len = self.send.len().min(self.mss);
        if let Some((left, _)) = self.sacked.first() {
            len = len.min(distance(self.snd_una, *left));
        }
        let only_fin = len == 0;
        let fin_sent = after(self.snd_max, self.data_end());
        let fin = fin_sent && (only_fin || plus(self.snd_una, len) == self.data_end());
        if only_fin && !fin {
            return;
        }
        let (sent, fin) = self.send_data(cx, self.snd_una, len, fin);
        self.retransmitted_to = plus(self.snd_una, sent + usize::from(fin));
    }

    /// `snd_una` has moved by `acked` bytes.
    pub(super) fn advance_recovery(&mut self, cx: &Context<'_>, acked: usize, under_way: usize) {
        let una = self.snd_una;
        if !self.sacked.is_empty() {
            self.sacked.retain(|(_, r)| after(*r, una));
            if let Some(first) = self.sacked.first_mut() {
                first.0 = later(first.0, una);
            }
        }
        match self.recovery {
            None => {
                let limited = under_way + self.mss >= self.congestion.window;
                self.congestion.on_ack(acked, self.mss, limited);
            }
            Some(point) if !before(una, point) => {
                self.recovery = None;
                self.congestion.window = self.congestion.threshold;
            }
            Some(_) => {
                self.retransmitted_to = later(self.retransmitted_to, una);
                if !self.sack_ok {
                    // A partial acknowledgement: the next hole begins here (RFC 6582, 3.2 step 3).
                    let deflated = self.congestion.window.saturating_sub(acked);
                    self.congestion.window = (deflated + self.mss).max(self.mss);
                    self.resend_first(cx);
                }
            }
        }
    }

    /// End of the highest run the peer has.
    fn highest_sacked(&self) -> u32 {
        self.sacked.last().map_or(self.snd_una, |(_, r)| *r)
    }

    /// The next hole at or behind `from` that is taken for lost: everything below the highest run.
    fn next_hole(&self, from: u32) -> Option<(u32, usize)> {
        let mut at = later(from, self.snd_una);
        for (left, right) in &self.sacked {
            if before(at, *left) {
                return Some((at, distance(at, *left)));
            }
            at = later(at, *right);
        }
        None
    }

    /// Bytes believed to be in the network (RFC 6675, `SetPipe`): sent and not known to have arrived, less the holes
    /// that were not sent again yet.
    pub(super) fn pipe(&self) -> usize {
        let outstanding = distance(self.snd_una, self.snd_max).saturating_sub(self.sacked_bytes());
        let mut lost = 0;
        let mut at = self.retransmitted_to;
        while let Some((start, len)) = self.next_hole(at) {
            lost += len;
            at = plus(start, len);
        }
        outstanding.saturating_sub(lost)
    }

    /// In recovery with selective acknowledgements: sends the next lost segment if the window allows it.
    pub(super) fn send_lost(&mut self, cx: &Context<'_>) -> bool {
        let pipe = self.pipe();
        if pipe + self.mss > self.congestion.window {
            return false;
        }
        let Some((start, len)) = self.next_hole(self.retransmitted_to) else {
            return false;
        };
        if !before(start, self.highest_sacked()) {
            return false;
        }
        let queued = self
            .send
            .len()
            .saturating_sub(distance(self.snd_una, start));
        let len = len.min(self.mss).min(queued);
        if len == 0 {
            return false;
        }
        let (sent, _) = self.send_data(cx, start, len, false);
        self.retransmitted_to = plus(start, sent);
        sent > 0
    }
}
