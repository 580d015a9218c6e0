// SPDX-License-Identifier: Apache-2.0
//! All conversations by address and port, and the way of a segment to the one it belongs to.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use coracle_abi::convert::{low_u32, u64_from, usize_from_u32};
use coracle_core::packet::PacketBuf;
use coracle_core::sync::SpinLock;

use super::TcpSocket;
use super::input::Segment;
use super::listener::HalfOpen;
use super::output::Header;
use super::seq::{after, before, plus};
use crate::address::{Endpoint, Flow};
use crate::icmp::DeliveryError;
use crate::ip::IpMeta;
use crate::map::{HashKey, HashMap};
use crate::ports::PortTable;
use crate::siphash::siphash;
use crate::stack::{NetConfig, NetStack};
use crate::timers::TimerKey;
use crate::wire::checksum::Sum;
use crate::wire::protocol;
use crate::wire::tcp::{self, Flags, Options, Tcp};

const SHARDS: usize = 64;
/// How long a closed connection's numbers are guarded (Linux's `TCP_TIMEWAIT_LEN`).
const TIME_WAIT_NS: u64 = 60_000_000_000;
/// TIME-WAIT entries in one shard at most; the oldest give way.
const TIME_WAIT_PER_SHARD: usize = 512;
/// Bytes of one such entry in all tables, about. They may take an eighth of the memory there is for sockets.
const TIME_WAIT_BYTES: usize = 256;
/// How often old entries are removed.
const SWEEP_NS: u64 = 5_000_000_000;

/// What remains of a connection after both sides have closed.
#[derive(Clone, Copy)]
pub(super) struct TimeWait {
    snd_nxt: u32,
    rcv_nxt: u32,
    until: u64,
}

pub(super) enum Entry {
    Connection(Arc<TcpSocket>),
    HalfOpen(Box<HalfOpen>),
    TimeWait(Box<TimeWait>),
}

#[derive(Default)]
pub(super) struct Shard {
    pub(super) map: HashMap<Flow, Entry>,
    /// In order of their ends. An entry may have been reused meanwhile.
    time_wait: VecDeque<(u64, Flow)>,
}

/// The tables of TCP. Their locks are leaves: no other lock is taken under them.
pub(crate) struct TcpTables {
    key: HashKey,
    shards: [SpinLock<Shard>; SHARDS],
    pub(super) ports: PortTable<TcpSocket>,
    /// Bytes in all queues, in coarse steps.
    pub(super) memory: AtomicUsize,
    sweeping: AtomicBool,
}

enum Found {
    Connection(Arc<TcpSocket>),
    HalfOpen,
    TimeWait(TimeWait),
    Nothing,
}

impl TcpTables {
    pub(crate) fn new(key: HashKey) -> Self {
        Self {
            key,
            shards: core::array::from_fn(|_| SpinLock::new(Shard::default())),
            ports: PortTable::new(key),
            memory: AtomicUsize::new(0),
            sweeping: AtomicBool::new(false),
        }
    }

    /// The shard of a conversation, and its hash.
    #[inline]
    pub(super) fn shard(&self, flow: &Flow) -> (&SpinLock<Shard>, u32) {
        let hash = self.key.flow(flow);
        (&self.shards[usize_from_u32(hash >> 20) % SHARDS], hash)
    }

    /// Bytes that queues may still grow by. Half of what there is for sockets is left to what was promised already.
    pub(super) fn memory_left(&self, config: &NetConfig) -> usize {
        (config.memory_limit / 2).saturating_sub(self.memory.load(Ordering::Relaxed))
    }

    /// Whether even promised windows cannot be kept.
    pub(super) fn is_out_of_memory(&self, config: &NetConfig) -> bool {
        self.memory.load(Ordering::Relaxed) > config.memory_limit
    }

    #[inline]
    fn find(&self, flow: &Flow) -> Found {
        let (shard, hash) = self.shard(flow);
        let shard = shard.lock();
        match shard.map.get(hash, flow) {
            Some(Entry::Connection(socket)) => Found::Connection(socket.clone()),
            Some(Entry::HalfOpen(_)) => Found::HalfOpen,
            Some(Entry::TimeWait(old)) => Found::TimeWait(**old),
            None => Found::Nothing,
        }
    }

    /// Adds a conversation unless there is one already.
    pub(super) fn insert(&self, flow: Flow, entry: Entry) -> bool {
        let (shard, hash) = self.shard(&flow);
        let mut shard = shard.lock();
        let free = shard.map.get(hash, &flow).is_none();
        if free {
            shard.map.insert(hash, flow, entry);
        }
        free
    }

    /// Number of conversations, those in TIME-WAIT included.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().map.len()).sum()
    }
}

impl NetStack {
    /// A TCP segment has arrived.
    #[inline]
    pub(crate) fn input_tcp(&self, meta: &IpMeta<'_>, mut buf: PacketBuf, now: u64) {
        let Some(header) = Tcp::parse(buf.data()) else {
            self.counters.drop_malformed.bump();
            return;
        };
        if !meta.checksum_valid {
            let sum = Sum::pseudo(meta.source, meta.destination, protocol::TCP, buf.len());
            if !sum.add(buf.data()).is_valid() {
                self.counters.drop_checksum.bump();
                return;
            }
        }
        let options = if header.header_len > tcp::HEADER {
            Options::parse(&buf.data()[tcp::HEADER..header.header_len])
        } else {
            Options::default()
        };
        buf.trim_front(header.header_len);
        let flow = Flow {
            local: Endpoint::new(meta.destination, header.destination),
            remote: Endpoint::new(meta.source, header.source),
        };
        let segment = Segment {
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            options,
        };
        match self.tcp.find(&flow) {
            Found::Connection(socket) => socket.input(self, &flow, &segment, buf, now),
            Found::HalfOpen => self.input_half_open(&flow, &segment, buf, now),
            Found::TimeWait(old) => {
                if self.input_time_wait(&flow, &segment, buf.len(), old, now) {
                    self.input_unknown(&flow, &segment, buf.len(), now);
                }
            }
            Found::Nothing => self.input_unknown(&flow, &segment, buf.len(), now),
        }
    }

    /// A segment of no known conversation: a new one, or a mistake.
    fn input_unknown(&self, flow: &Flow, segment: &Segment, len: usize, now: u64) {
        if !flow.remote.address.is_unicast() || !self.is_local(flow.local.address) {
            self.counters.drop_not_for_us.bump();
            return;
        }
        let opens = segment.flags & (Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN;
        if opens {
            let choose = || self.key.flow(flow);
            let listener = self.tcp.ports.find(flow.local, flow.remote, true, choose);
            if let Some(listener) = listener {
                self.input_syn(&listener, flow, segment, now);
                return;
            }
        }
        self.counters.drop_no_socket.bump();
        self.reset_in_answer(flow, segment, len, now);
    }

    /// Answers a segment that nobody expects (RFC 9293, 3.10.7.1).
    #[cold]
    pub(super) fn reset_in_answer(&self, flow: &Flow, segment: &Segment, len: usize, now: u64) {
        if segment.flags.contains(Flags::RST) || !flow.remote.address.is_unicast() {
            return;
        }
        self.counters.tcp_resets_sent.bump();
        let (seq, ack, flags) = if segment.flags.contains(Flags::ACK) {
            (segment.ack, 0, Flags::RST)
        } else {
            let syn = segment.flags.contains(Flags::SYN);
            let fin = segment.flags.contains(Flags::FIN);
            let end = plus(segment.seq, len + usize::from(syn) + usize::from(fin));
            (0, end, Flags::RST | Flags::ACK)
        };
        let header = Header {
            flow,
            seq,
            ack,
            flags,
            window: 0,
            options: &[],
            ttl: 64,
            tos: 0,
        };
        self.send_bare_tcp(&header, now);
    }

    /// A segment for a connection in TIME-WAIT (RFC 9293 3.10.7.4, RFC 6191 without time stamps). Returns whether the
    /// entry made way for a new connection.
    fn input_time_wait(
        &self,
        flow: &Flow,
        segment: &Segment,
        len: usize,
        old: TimeWait,
        now: u64,
    ) -> bool {
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            return false; // TIME-WAIT assassination (RFC 1337): ignored
        }
        let opens = flags & (Flags::SYN | Flags::ACK) == Flags::SYN;
        if opens && after(segment.seq, old.rcv_nxt) {
            self.end_time_wait(flow);
            return true;
        }
        let is_repeat = flags.contains(Flags::FIN) || len > 0 || before(segment.seq, old.rcv_nxt);
        if is_repeat || opens {
            let header = Header {
                flow,
                seq: old.snd_nxt,
                ack: old.rcv_nxt,
                flags: Flags::ACK,
                window: 0,
                options: &[],
                ttl: 64,
                tos: 0,
            };
            self.send_bare_tcp(&header, now);
        }
        false
    }

    /// Removes a connection that has ended.
    pub(super) fn forget_connection(&self, flow: &Flow) {
        let (shard, hash) = self.tcp.shard(flow);
        let removed = shard.lock().map.remove(hash, flow);
        if removed.is_some() {
            self.counters.tcp_connections.drop_one();
        }
        drop(removed); // outside the lock
    }

    /// Replaces a connection by what has to be remembered of it.
    pub(super) fn begin_time_wait(&self, flow: &Flow, snd_nxt: u32, rcv_nxt: u32, now: u64) {
        let until = now + TIME_WAIT_NS;
        let entry = TimeWait {
            snd_nxt,
            rcv_nxt,
            until,
        };
        let (shard, hash) = self.tcp.shard(flow);
        let mut guard = shard.lock();
        let old = guard
            .map
            .insert(hash, *flow, Entry::TimeWait(Box::new(entry)));
        guard.time_wait.push_back((until, *flow));
        let affordable = self.config.memory_limit / 8 / TIME_WAIT_BYTES / SHARDS;
        let crowded = guard.time_wait.len() > affordable.clamp(8, TIME_WAIT_PER_SHARD);
        let victim = crowded.then(|| guard.time_wait.pop_front()).flatten();
        drop(guard);
        if old.is_some() {
            self.counters.tcp_connections.drop_one();
        }
        self.counters.tcp_time_wait.bump();
        drop(old);
        if let Some((until, flow)) = victim {
            self.remove_time_wait(&flow, |entry| entry.until == until);
        }
        if !self.tcp.sweeping.swap(true, Ordering::Relaxed) {
            self.timers.set(now + SWEEP_NS, TimerKey::TimeWait);
        }
    }

    fn end_time_wait(&self, flow: &Flow) {
        self.remove_time_wait(flow, |_| true);
    }

    fn remove_time_wait(&self, flow: &Flow, matches: impl Fn(&TimeWait) -> bool) {
        let (shard, hash) = self.tcp.shard(flow);
        let mut shard = shard.lock();
        if let Some(Entry::TimeWait(entry)) = shard.map.get(hash, flow)
            && matches(entry)
        {
            shard.map.remove(hash, flow);
            self.counters.tcp_time_wait.drop_one();
        }
    }

    /// Timer: removes TIME-WAIT entries whose time is over.
    #[cold]
    pub(crate) fn expire_time_wait(&self, now: u64) {
        self.tcp.sweeping.store(false, Ordering::Relaxed);
        let mut left = 0;
        for shard in &self.tcp.shards {
            loop {
                let mut guard = shard.lock();
                let expired = guard
                    .time_wait
                    .front()
                    .is_some_and(|(until, _)| *until <= now);
                let next = expired.then(|| guard.time_wait.pop_front()).flatten();
                left += usize::from(!guard.time_wait.is_empty());
                drop(guard);
                let Some((until, flow)) = next else { break };
                self.remove_time_wait(&flow, |entry| entry.until == until);
            }
        }
        if left > 0 && !self.tcp.sweeping.swap(true, Ordering::Relaxed) {
            self.timers.set(now + SWEEP_NS, TimerKey::TimeWait);
        }
    }

    /// A network error about a segment of ours.
    #[cold]
    pub(crate) fn tcp_error(&self, flow: &Flow, seq: u32, error: DeliveryError, now: u64) {
        if let Found::Connection(socket) = self.tcp.find(flow) {
            socket.on_delivery_error(self, seq, error, now);
        }
    }

    /// The first sequence number of a connection (RFC 6528): unpredictable from outside, growing for each pair of
    /// endpoints so that a reused pair is recognised.
    pub(super) fn initial_sequence(&self, flow: &Flow, now: u64) -> u32 {
        let (lh, ll) = flow.local.address.halves();
        let (rh, rl) = flow.remote.address.halves();
        let ports = u64::from(flow.local.port) << 16 | u64::from(flow.remote.port);
        let hash = siphash(self.secret, &[lh, ll, rh, rl, ports]);
        // One step every 4 microseconds, as RFC 9293 3.4.1 has it.
        low_u32(hash.wrapping_add(now / 4096))
    }

    /// Number of TCP conversations, those closing included.
    #[must_use]
    pub fn tcp_conversations(&self) -> u64 {
        u64_from(self.tcp.len())
    }
}
