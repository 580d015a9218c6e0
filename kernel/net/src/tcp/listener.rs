// SPDX-License-Identifier: Apache-2.0
//! Connections from outside: from SYN to `accept`.
//!
//! Until the handshake is complete a connection is a small table entry; a flood of SYNs costs bounded memory, and the
//! oldest attempts give way to new ones.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};

use coracle_core::PollEvents;
use coracle_core::packet::PacketBuf;
use coracle_logic::timer_queue::TimerHandle;

use super::TcpSocket;
use super::input::Segment;
use super::output::Header;
use super::seq::plus;
use super::socket::Role;
use super::table::Entry;
use super::tcb::{Context, State, Tcb, WINDOW_SCALE};
use crate::address::Flow;
use crate::stack::NetStack;
use crate::timers::TimerKey;
use crate::wire::len16;
use crate::wire::tcp::{Flags, OptionBytes, Options};

/// Incomplete handshakes of one listener, if its backlog is not larger.
const HALF_OPEN: usize = 128;
/// Answers to one SYN (`tcp_synack_retries`).
const SYN_ACK_RETRIES: u32 = 5;
const FIRST_RETRY_NS: u64 = 1_000_000_000;

/// A handshake that waits for its last part.
#[derive(Clone)]
pub(super) struct HalfOpen {
    listener: Weak<TcpSocket>,
    iss: u32,
    /// Next byte expected from the peer.
    rcv_nxt: u32,
    window: u16,
    mss: u16,
    options: Options,
    sent_at: u64,
    retries: u32,
    timer: TimerHandle,
}

/// The queues of a listening socket.
pub(super) struct Listener {
    pub(super) backlog: usize,
    /// Complete, to be accepted.
    pub(super) ready: VecDeque<Arc<TcpSocket>>,
    /// Incomplete, oldest first.
    pub(super) half_open: VecDeque<Flow>,
}

impl Listener {
    pub(super) fn new(backlog: usize) -> Self {
        Self {
            backlog,
            ready: VecDeque::new(),
            half_open: VecDeque::new(),
        }
    }

    /// Drops an incomplete handshake from the list; those that complete are near its front.
    fn forget(&mut self, flow: &Flow) {
        if let Some(at) = self.half_open.iter().position(|f| f == flow) {
            self.half_open.remove(at);
        }
    }

    /// Linux lets one more in than the backlog says.
    fn is_full(&self) -> bool {
        self.ready.len() > self.backlog
    }
}

impl NetStack {
    fn send_syn_ack(&self, flow: &Flow, half: &HalfOpen, now: u64) {
        let scale = half.options.window_scale.map(|_| WINDOW_SCALE);
        let options = OptionBytes::syn(half.mss, scale, half.options.sack_permitted);
        let header = Header {
            flow,
            seq: half.iss,
            ack: half.rcv_nxt,
            flags: Flags::SYN | Flags::ACK,
            window: half.window,
            options: options.as_slice(),
            ttl: 64,
            tos: 0,
        };
        self.send_bare_tcp(&header, now);
    }

    /// A SYN for a listening socket.
    pub(super) fn input_syn(
        &self,
        listener: &Arc<TcpSocket>,
        flow: &Flow,
        segment: &Segment,
        now: u64,
    ) {
        let mut inner = listener.inner.lock();
        let buffer = inner.options.receive_buffer;
        let most = inner.options.max_segment;
        let Role::Listening(queues) = &mut inner.role else {
            drop(inner);
            self.reset_in_answer(flow, segment, 0, now);
            return;
        };
        if queues.is_full() {
            self.counters.tcp_listen_overflows.bump();
            return; // the peer tries again
        }
        let victim = (queues.half_open.len() >= queues.backlog.max(HALF_OPEN))
            .then(|| queues.half_open.pop_front())
            .flatten();
        queues.half_open.push_back(*flow);
        drop(inner);
        if let Some(victim) = victim {
            self.counters.tcp_listen_overflows.bump();
            self.forget_half_open(&victim);
        }
        let Ok(path) = self.route(flow.remote.address, Some(flow.local.address), None) else {
            self.counters.drop_unreachable.bump();
            listener.drop_half_open(flow);
            return;
        };
        let own = len16(path.mss(flow.remote.address));
        let key = TimerKey::HalfOpen(*flow);
        let half = HalfOpen {
            listener: Arc::downgrade(listener),
            iss: self.initial_sequence(flow, now),
            rcv_nxt: segment.seq.wrapping_add(1),
            window: len16(buffer),
            mss: most.map_or(own, |m| m.min(own)),
            options: segment.options,
            sent_at: now,
            retries: 0,
            timer: self.timers.set(now + FIRST_RETRY_NS, key),
        };
        if self
            .tcp
            .insert(*flow, Entry::HalfOpen(Box::new(half.clone())))
        {
            self.send_syn_ack(flow, &half, now);
        } else {
            // Another CPU was quicker with a copy of the same SYN.
            self.timers.cancel(half.timer);
            listener.drop_half_open(flow);
        }
    }

    fn half_open(&self, flow: &Flow) -> Option<HalfOpen> {
        let (shard, hash) = self.tcp.shard(flow);
        match shard.lock().map.get(hash, flow) {
            Some(Entry::HalfOpen(half)) => Some((**half).clone()),
            _ => None,
        }
    }

    /// Removes a half-open entry; returns whether it was still there.
    fn forget_half_open(&self, flow: &Flow) -> bool {
        let (shard, hash) = self.tcp.shard(flow);
        let removed = {
            let mut shard = shard.lock();
            match shard.map.get(hash, flow) {
                Some(Entry::HalfOpen(_)) => shard.map.remove(hash, flow),
                _ => None,
            }
        };
        if let Some(Entry::HalfOpen(half)) = &removed {
            self.timers.cancel(half.timer);
        }
        removed.is_some()
    }

    /// Timer: our SYN was not answered.
    #[cold]
    pub(crate) fn retransmit_syn_ack(&self, flow: &Flow, now: u64) {
        let again = {
            let (shard, hash) = self.tcp.shard(flow);
            let mut shard = shard.lock();
            match shard.map.get_mut(hash, flow) {
                Some(Entry::HalfOpen(half)) if half.retries < SYN_ACK_RETRIES => {
                    half.retries += 1;
                    let wait = FIRST_RETRY_NS << half.retries;
                    half.timer = self.timers.set(now + wait, TimerKey::HalfOpen(*flow));
                    Some((**half).clone())
                }
                _ => None,
            }
        };
        if let Some(half) = again {
            self.counters.tcp_retransmits.bump();
            self.send_syn_ack(flow, &half, now);
        } else if let Some(half) = self.half_open(flow)
            && self.forget_half_open(flow)
            && let Some(listener) = half.listener.upgrade()
        {
            listener.drop_half_open(flow);
        }
    }

    /// A segment for a half-open connection.
    pub(super) fn input_half_open(&self, flow: &Flow, segment: &Segment, buf: PacketBuf, now: u64) {
        let Some(half) = self.half_open(flow) else {
            return; // changed meanwhile; the peer will repeat itself
        };
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            if segment.seq == half.rcv_nxt
                && self.forget_half_open(flow)
                && let Some(listener) = half.listener.upgrade()
            {
                listener.drop_half_open(flow);
            }
            return;
        }
        if flags.contains(Flags::SYN) {
            if segment.seq.wrapping_add(1) == half.rcv_nxt {
                self.send_syn_ack(flow, &half, now); // ours was lost
            }
            return;
        }
        if !flags.contains(Flags::ACK) {
            return;
        }
        if segment.ack != half.iss.wrapping_add(1) {
            self.reset_in_answer(flow, segment, buf.len(), now);
            return;
        }
        let Some(listener) = half.listener.upgrade() else {
            self.forget_half_open(flow);
            self.reset_in_answer(flow, segment, buf.len(), now);
            return;
        };
        if let Some(socket) = self.complete(&listener, flow, &half, segment, now) {
            socket.input(self, flow, segment, buf, now);
            listener.poll.notify(PollEvents::IN | PollEvents::RDNORM);
        }
    }

    /// The handshake is complete: makes the connection and queues it for `accept`.
    fn complete(
        &self,
        listener: &Arc<TcpSocket>,
        flow: &Flow,
        half: &HalfOpen,
        segment: &Segment,
        now: u64,
    ) -> Option<Arc<TcpSocket>> {
        let mut inner = listener.inner.lock();
        let options = inner.options.clone();
        let Role::Listening(queues) = &mut inner.role else {
            drop(inner);
            self.forget_half_open(flow);
            self.reset_in_answer(flow, segment, 0, now);
            return None;
        };
        if queues.is_full() {
            // The peer believes to be connected and will repeat its data; meanwhile there may be room.
            self.counters.tcp_listen_overflows.bump();
            return None;
        }
        let path = self
            .route(flow.remote.address, Some(flow.local.address), None)
            .ok()?;
        let socket = TcpSocket::with_role(listener.v6, options.clone(), flow.local, |me| {
            let mut tcb = Tcb::new(*flow, path, State::SynReceived, half.iss, now);
            let cx = Context {
                stack: self,
                options: &options,
                socket: me,
                now,
            };
            tcb.take_syn_options(&cx, &half.options);
            tcb.snd_nxt = half.iss.wrapping_add(1);
            tcb.snd_max = tcb.snd_nxt;
            tcb.rcv_nxt = half.rcv_nxt;
            tcb.rcv_adv = plus(half.rcv_nxt, usize::from(half.window));
            if half.retries == 0 {
                tcb.rtt.sample(now.saturating_sub(half.sent_at));
            }
            tcb.establish(&cx, segment, tcb.snd_nxt);
            Role::Connection(Box::new(tcb))
        });
        let replaced = {
            let (shard, hash) = self.tcp.shard(flow);
            let mut shard = shard.lock();
            match shard.map.get_mut(hash, flow) {
                Some(entry @ Entry::HalfOpen(_)) => {
                    Some(core::mem::replace(entry, Entry::Connection(socket.clone())))
                }
                _ => None,
            }
        };
        let Some(Entry::HalfOpen(old)) = replaced else {
            return None; // another CPU completed it
        };
        queues.forget(flow);
        queues.ready.push_back(socket.clone());
        drop(inner);
        self.timers.cancel(old.timer);
        self.counters.tcp_connections.bump();
        self.counters.tcp_accepted.bump();
        Some(socket)
    }

    /// Ends what a listening socket has collected.
    #[cold]
    pub(super) fn close_listener(&self, queues: Listener, now: u64) {
        for flow in &queues.half_open {
            self.forget_half_open(flow);
        }
        for socket in queues.ready {
            socket.abort(self, now);
        }
    }
}

impl TcpSocket {
    /// Forgets an incomplete handshake.
    fn drop_half_open(&self, flow: &Flow) {
        if let Role::Listening(queues) = &mut self.inner.lock().role {
            queues.forget(flow);
        }
    }
}
