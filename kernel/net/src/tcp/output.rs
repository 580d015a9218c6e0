// SPDX-License-Identifier: Apache-2.0
//! Segments to send: what may go now, and how it is put into packets.

use alloc::vec::Vec;

use coracle_abi::convert::{low_u16, u64_from};
use coracle_core::packet::{HEADROOM, PacketBuf, Segmentation, TxPacket};

use super::seq::{after, before, distance, later, plus};
use super::tcb::{Context, NEVER, State, Tcb, WINDOW_SCALE};
use crate::address::{Address, Flow};
use crate::ip::{IpHeader, checksum_in_place};
use crate::link::Path;
use crate::stack::NetStack;
use crate::wire::tcp::{self, Flags, OptionBytes, Tcp};
use crate::wire::{ipv4, ipv6, len16, protocol};

/// Payload up to this many bytes is copied into the packet's head: cheaper than another descriptor.
const COPY_LIMIT: usize = 512;
/// How long corked data waits (tcp(7), `TCP_CORK`).
const CORK_NS: u64 = 200_000_000;
/// Payload of a segment on loopback, chosen to fit the packet pool.
const LOOPBACK_MSS: usize = 3840;

impl Path {
    /// Payload of a full segment without options.
    pub(super) fn mss(&self, destination: Address) -> usize {
        let headers = tcp::HEADER
            + if destination.is_v4() {
                ipv4::HEADER
            } else {
                ipv6::HEADER
            };
        if self.interface.is_loopback() {
            LOOPBACK_MSS
        } else {
            self.interface.mtu.saturating_sub(headers).max(88)
        }
    }
}

/// Everything about a segment but its payload.
pub(super) struct Header<'a> {
    pub(super) flow: &'a Flow,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: Flags,
    pub(super) window: u16,
    pub(super) options: &'a [u8],
    pub(super) ttl: u8,
    pub(super) tos: u8,
}

impl NetStack {
    /// Puts a TCP header in front of `packet`'s payload and sends it.
    #[inline]
    pub(super) fn send_tcp(
        &self,
        path: &mut Path,
        mut packet: TxPacket,
        header: &Header<'_>,
        now: u64,
    ) {
        let len = tcp::HEADER + header.options.len();
        Tcp {
            source: header.flow.local.port,
            destination: header.flow.remote.port,
            seq: header.seq,
            ack: header.ack,
            header_len: len,
            flags: header.flags,
            window: header.window,
        }
        .emit(packet.head.prepend(len), header.options);
        if let Some(segmentation) = &mut packet.segmentation {
            segmentation.header_len = len16(len);
        }
        let destination = header.flow.remote.address;
        checksum_in_place(&mut packet, path, destination, protocol::TCP, tcp::CHECKSUM);
        let ip = IpHeader {
            destination,
            protocol: protocol::TCP,
            ttl: header.ttl,
            tos: header.tos,
            dont_fragment: true,
        };
        self.send_ip(path, packet, ip, now);
    }

    /// Sends a segment without payload that belongs to no connection.
    pub(super) fn send_bare_tcp(&self, header: &Header<'_>, now: u64) {
        let flow = header.flow;
        match self.route(flow.remote.address, Some(flow.local.address), None) {
            Ok(mut path) => {
                let packet = TxPacket::new(PacketBuf::new(HEADROOM, 0));
                self.send_tcp(&mut path, packet, header, now);
            }
            Err(_) => self.counters.drop_unreachable.bump(),
        }
    }
}

impl Tcb {
    /// Sends what may be sent now, and an acknowledgement if one is due that no data carried.
    pub(super) fn output(&mut self, cx: &Context<'_>) {
        while self.send_next(cx) {}
        if self.ack_now {
            self.send_ack(cx);
        }
        self.schedule(cx);
    }

    /// Sends one segment (or one large one for the device to cut); returns whether there may be another.
    fn send_next(&mut self, cx: &Context<'_>) -> bool {
        if !self.is_synchronized() {
            return false;
        }
        if self.recovery.is_some() && self.sack_ok && self.send_lost(cx) {
            return true;
        }
        let in_flight = self.in_flight();
        let unsent = self.send.len().saturating_sub(in_flight);
        let fin_due = self.fin_queued && !after(self.snd_nxt, self.data_end());
        if unsent == 0 && !fin_due {
            return false;
        }
        if in_flight == 0 && cx.now > self.last_sent + self.rtt.rto_ns(0) {
            self.congestion.on_idle(self.mss);
        }
        let len = self.sendable(cx, unsent, in_flight);
        let fin = fin_due && len == unsent;
        if len == 0 && !fin {
            return false;
        }
        let sent = self.send_data(cx, self.snd_nxt, len, fin);
        self.snd_nxt = plus(self.snd_nxt, sent.0 + usize::from(sent.1));
        if after(self.snd_nxt, self.snd_max) {
            self.snd_max = self.snd_nxt;
        }
        if !sent.0.is_multiple_of(self.mss) {
            self.small_end = self.snd_nxt;
        }
        if sent.1 {
            self.on_fin_sent();
        }
        true
    }

    fn on_fin_sent(&mut self) {
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            state => state,
        };
    }

    /// How many of the `unsent` bytes may go in the next segment.
    fn sendable(&mut self, cx: &Context<'_>, unsent: usize, in_flight: usize) -> usize {
        let mut congestion = self.congestion.window;
        let mut pipe = in_flight;
        if self.recovery.is_some() && self.sack_ok {
            pipe = self.pipe();
        } else if self.recovery.is_none() {
            // Limited transmit (RFC 3042): the first duplicates each let one new segment out.
            congestion += self.duplicate_acks.min(2) as usize * self.mss;
        }
        let window = self.snd_wnd.saturating_sub(in_flight);
        let usable = window.min(congestion.saturating_sub(pipe));
        let resend = before(self.snd_nxt, self.snd_max);
        let largest = self.largest_segment(resend);
        let len = unsent.min(usable).min(largest);
        if len < unsent && len < self.mss {
            // Only part of a segment fits the window: wait for more, unless the peer's window will never be larger
            // (silly window avoidance, RFC 9293 3.8.6.2.1).
            let worth_it = len > 0 && in_flight == 0 && len >= self.largest_snd_wnd / 2;
            if !worth_it {
                if in_flight == 0 && window < self.mss && self.persist_at == NEVER {
                    self.persist_at = cx.now + self.rtt.rto_ns(self.backoff);
                }
                return 0;
            }
            return len;
        }
        let rest = len % self.mss;
        if rest == 0 || resend || self.fin_queued {
            return len;
        }
        if len < unsent {
            // A large segment ends on a boundary if more follows.
            return len - rest;
        }
        if self.holds_small(cx) {
            return len - rest;
        }
        len
    }

    /// Whether the last, partly filled segment waits for more data: corked, more was promised, or Nagle's rule in
    /// Minshall's form (only a small segment under way holds back another).
    fn holds_small(&mut self, cx: &Context<'_>) -> bool {
        if cx.options.cork || self.more_promised {
            if self.cork_at == NEVER {
                self.cork_at = cx.now + CORK_NS;
            }
            return self.cork_at > cx.now;
        }
        self.cork_at = NEVER;
        !cx.options.no_delay && after(self.small_end, self.snd_una)
    }

    /// Payload of the largest packet the interface takes.
    fn largest_segment(&self, resend: bool) -> usize {
        let capabilities = &self.path.interface.capabilities;
        let offered = if self.flow.remote.address.is_v4() {
            capabilities.tso4
        } else {
            capabilities.tso6
        };
        if offered && !resend && capabilities.tx_checksum && capabilities.max_fragments > 1 {
            let most = capabilities.max_segmented_bytes.min(60_000);
            (most - most % self.mss).max(self.mss)
        } else {
            self.mss
        }
    }

    /// Sends the `len` queued bytes at `seq`, perhaps fewer if the device takes few fragments, and the FIN if they
    /// are the last. Returns what was sent.
    pub(super) fn send_data(
        &mut self,
        cx: &Context<'_>,
        seq: u32,
        len: usize,
        fin: bool,
    ) -> (usize, bool) {
        let offset = distance(self.snd_una, seq);
        let capabilities = self.path.interface.capabilities;
        let copy = len <= COPY_LIMIT
            || capabilities.max_fragments == 0
            || self.path.interface.is_loopback();
        let (mut packet, sent) = if copy {
            let mut head = PacketBuf::new(HEADROOM, len);
            if len > 0 {
                self.send.copy(offset, head.append(len));
            }
            (TxPacket::new(head), len)
        } else {
            let mut packet = TxPacket::new(PacketBuf::new(HEADROOM, 0));
            let most = capabilities.max_fragments;
            let mut fragments = Vec::with_capacity(4);
            let mut lent = self.send.lend(offset, len, most, &mut fragments);
            if lent < len && lent < self.mss {
                // Many tiny pieces: copy one segment's worth.
                fragments.clear();
                lent = len.min(self.mss);
                self.send.copy(offset, packet.head.append(lent));
            }
            packet.fragments = fragments;
            (packet, lent)
        };
        let fin = fin && sent == len;
        if sent > self.mss {
            packet.segmentation = Some(Segmentation {
                mss: len16(self.mss),
                header_len: 0, // set as headers are put in front
                ipv6: !self.flow.remote.address.is_v4(),
            });
        }
        let end = plus(seq, sent);
        let mut flags = Flags::ACK;
        flags.set(Flags::FIN, fin);
        flags.set(Flags::PSH, sent > 0 && end == self.data_end());
        self.transmit(cx, packet, seq, flags);
        let end = plus(end, usize::from(fin));
        let is_new = after(end, self.snd_max);
        if is_new {
            if self.timing.is_none() {
                self.timing = Some((end, cx.now));
            }
        } else {
            self.timing = None; // Karn: an answer could be to either copy
            self.retransmits += 1;
            cx.stack.counters.tcp_retransmits.bump();
        }
        if self.retransmit_at == NEVER {
            self.retransmit_at = cx.now + self.rtt.rto_ns(self.backoff);
        }
        self.persist_at = NEVER;
        self.cork_at = NEVER;
        (sent, fin)
    }

    /// Sends an acknowledgement without data.
    pub(super) fn send_ack(&mut self, cx: &Context<'_>) {
        let packet = TxPacket::new(PacketBuf::new(HEADROOM, 0));
        self.transmit(cx, packet, later(self.snd_nxt, self.snd_max), Flags::ACK);
    }

    /// Sends a segment the peer must answer: it lies in front of its window (keepalive, RFC 9293 3.8.4).
    pub(super) fn send_probe(&mut self, cx: &Context<'_>) {
        let packet = TxPacket::new(PacketBuf::new(HEADROOM, 0));
        self.transmit(cx, packet, self.snd_una.wrapping_sub(1), Flags::ACK);
    }

    /// Sends a reset.
    pub(super) fn send_reset(&mut self, cx: &Context<'_>) {
        cx.stack.counters.tcp_resets_sent.bump();
        let packet = TxPacket::new(PacketBuf::new(HEADROOM, 0));
        let seq = later(self.snd_nxt, self.snd_max);
        self.transmit(cx, packet, seq, Flags::RST | Flags::ACK);
    }

    /// Sends our SYN, or SYN and ACK when both sides called at once.
    pub(super) fn send_syn(&mut self, cx: &Context<'_>) {
        let mss = self.path.mss(self.flow.remote.address);
        let mss = cx
            .options
            .max_segment
            .map_or(len16(mss), |m| m.min(len16(mss)));
        let answer = self.state == State::SynReceived;
        let options = OptionBytes::syn(mss, Some(WINDOW_SCALE), true);
        let flags = if answer {
            Flags::SYN | Flags::ACK
        } else {
            Flags::SYN
        };
        // The window of a SYN is never scaled (RFC 7323, 2.2).
        let window = cx.options.receive_buffer.min(usize::from(u16::MAX));
        let header = Header {
            flow: &self.flow,
            seq: self.snd_una,
            ack: if answer { self.rcv_nxt } else { 0 },
            flags,
            window: len16(window),
            options: options.as_slice(),
            ttl: cx.options.ttl,
            tos: cx.options.tos,
        };
        let packet = TxPacket::new(PacketBuf::new(HEADROOM, 0));
        cx.stack.send_tcp(&mut self.path, packet, &header, cx.now);
        self.snd_nxt = self.snd_una.wrapping_add(1);
        self.snd_max = self.snd_nxt;
        self.last_sent = cx.now;
        self.retransmit_at = cx.now + self.rtt.rto_ns(self.backoff);
    }

    /// Sends a segment with the acknowledgement and window of now.
    fn transmit(&mut self, cx: &Context<'_>, packet: TxPacket, seq: u32, flags: Flags) {
        let window = self.choose_window(cx);
        // Not in a segment that the option would make too long: the pure acknowledgements carry it.
        let room = packet.len() + tcp::MAX_HEADER - tcp::HEADER <= self.mss;
        let sack = if self.sack_ok && self.receive.has_gap() && room {
            OptionBytes::sack(self.receive.sack_blocks())
        } else {
            OptionBytes::none()
        };
        let header = Header {
            flow: &self.flow,
            seq,
            ack: self.rcv_nxt,
            flags,
            window,
            options: sack.as_slice(),
            ttl: cx.options.ttl,
            tos: cx.options.tos,
        };
        cx.stack.send_tcp(&mut self.path, packet, &header, cx.now);
        self.ack_now = false;
        self.delayed_ack_at = NEVER;
        self.unacked_bytes = 0;
        self.last_sent = cx.now;
    }

    /// The window to advertise: never taken back, and opened only in steps worth a segment (RFC 9293, 3.8.6.2.2).
    fn choose_window(&mut self, cx: &Context<'_>) -> u16 {
        let offered = self.offered_window();
        let free = self.free_window(cx);
        let step = self.mss.min(self.receive_limit(cx.options) / 2);
        let window = if free >= offered + step {
            free
        } else {
            offered
        };
        let unit = (1usize << self.rcv_scale) - 1;
        let field = ((window + unit) >> self.rcv_scale).min(usize::from(u16::MAX));
        self.rcv_adv = plus(self.rcv_nxt, field << self.rcv_scale);
        low_u16(u64_from(field))
    }

    /// Whether the application has freed so much of the window that the peer should know now.
    pub(super) fn window_update_due(&self, cx: &Context<'_>) -> bool {
        let offered = self.offered_window();
        let free = self.free_window(cx);
        let half = self.receive_limit(cx.options) / 2;
        let gain = free.saturating_sub(offered);
        gain >= (2 * self.mss).min(half) && offered < half
    }

    /// A link on the way carries less than we thought (RFC 1191). At least what every IP link must carry remains.
    pub(super) fn shrink_segments(&mut self, cx: &Context<'_>, mtu: usize) {
        let (headers, least) = if self.flow.remote.address.is_v4() {
            (40, 552)
        } else {
            (60, 1280)
        };
        let mss = mtu.max(least) - headers;
        if mss < self.mss {
            self.mss = mss;
            self.snd_nxt = self.snd_una;
            self.output(cx);
        }
    }
}
