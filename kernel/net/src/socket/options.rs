// SPDX-License-Identifier: Apache-2.0
//! `getsockopt(2)` and `setsockopt(2)`: `socket(7)`, `tcp(7)`, `ip(7)`, `ipv6(7)`, `udp(7)`.
//!
//! An option that would have no effect is refused with `ENOPROTOOPT`, except hints (priority, type of service ...),
//! which may be ignored by definition.

use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::convert::{u64_from, usize_from_u32};
use coracle_abi::raw::net as n;
use coracle_core::{Errno, Result};

use super::file::{Kind, SocketFile};
use super::linux::{
    AF_INET, AF_INET6, AF_UNIX, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, SOL_IP, SOL_IPV6,
    SOL_SOCKET, SOL_TCP, SOL_UDP,
};
use crate::address::Address;
use crate::tcp::TcpOptions;
use crate::udp::UdpOptions;
use crate::unix::UnixKind;
use crate::wire::protocol;

/// Limits of `SO_SNDBUF` and `SO_RCVBUF`, doubled values (`net.core.*mem_max` of Linux, and its minima).
const LEAST_BUFFER: usize = 2304;
const MOST_BUFFER: usize = 2 * 4 * 1024 * 1024;

/// An `int` option value; Linux takes a single byte for IP options, but not elsewhere.
fn int(value: &[u8]) -> Result<i32> {
    value
        .first_chunk()
        .map(|b| i32::from_ne_bytes(*b))
        .ok_or(Errno::EINVAL)
}

fn int_or_byte(value: &[u8]) -> Result<i32> {
    match value {
        [byte] | [byte, _] | [byte, _, _] => Ok(i32::from(*byte)),
        _ => int(value),
    }
}

/// A number of `least..=most`; `EINVAL` otherwise.
fn ranged(value: &[u8], least: i32, most: i32) -> Result<u32> {
    let number = int(value)?;
    if !(least..=most).contains(&number) {
        return Err(Errno::EINVAL);
    }
    u32::try_from(number).map_err(|_| Errno::EINVAL)
}

/// A buffer size as Linux stores it: twice what was asked for, for its own overhead.
fn buffer(value: &[u8]) -> Result<usize> {
    let asked = int(value)?.unsigned_abs();
    Ok((usize_from_u32(asked) * 2).clamp(LEAST_BUFFER, MOST_BUFFER))
}

/// A `struct timeval`; zero means for ever. `EDOM` for microseconds out of range.
fn timeout(value: &[u8]) -> Result<u64> {
    let bytes: &[u8; 16] = value.first_chunk().ok_or(Errno::EINVAL)?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        i64::from_ne_bytes(word)
    };
    let (seconds, micros) = (word(0), word(8));
    let micros = u64::try_from(micros)
        .ok()
        .filter(|m| *m < 1_000_000)
        .ok_or(Errno::EDOM)?;
    // A negative time is over at once.
    let Ok(seconds) = u64::try_from(seconds) else {
        return Ok(1);
    };
    Ok(seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(micros * 1000))
}

fn timeval(ns: u64) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&(ns / 1_000_000_000).to_ne_bytes());
    out[8..].copy_from_slice(&(ns % 1_000_000_000 / 1000).to_ne_bytes());
    out
}

/// Copies a value as far as there is room, as `getsockopt` does.
fn give(out: &mut [u8], value: &[u8]) -> usize {
    let len = value.len().min(out.len());
    out[..len].copy_from_slice(&value[..len]);
    len
}

fn give_int(out: &mut [u8], value: usize) -> usize {
    give(out, &i32::try_from(value).unwrap_or(i32::MAX).to_ne_bytes())
}

impl SocketFile {
    /// `setsockopt(2)`. `ENOPROTOOPT` for an unknown option, `EINVAL` for a value that is too short or out of range.
    pub fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<()> {
        match level {
            SOL_SOCKET => self.set_socket_option(name, value),
            SOL_IP => self.set_ip_option(name, value),
            SOL_IPV6 => self.set_ipv6_option(name, value),
            SOL_TCP => self.set_tcp_option(name, value),
            SOL_UDP => Err(Errno::ENOPROTOOPT),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `getsockopt(2)`: fills `out` and returns the length of the value, cut to the room there is.
    pub fn get_option(&self, level: u32, name: u32, out: &mut [u8]) -> Result<usize> {
        match level {
            SOL_SOCKET => self.get_socket_option(name, out),
            SOL_IP | SOL_IPV6 => self.get_ip_option(level == SOL_IPV6, name, out),
            SOL_TCP => self.get_tcp_option(name, out),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn change_tcp(&self, f: impl FnOnce(&mut TcpOptions)) -> Result<()> {
        match &self.kind {
            Kind::Tcp(socket) => {
                socket.change_options(&self.stack, self.stack.now(), f);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn change_udp(&self, f: impl FnOnce(&mut UdpOptions)) -> Result<()> {
        match &self.kind {
            Kind::Udp(socket) => {
                socket.change_options(&self.stack, f);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// Changes something that TCP and UDP sockets both have.
    fn change(
        &self,
        tcp: impl FnOnce(&mut TcpOptions),
        udp: impl FnOnce(&mut UdpOptions),
    ) -> Result<()> {
        match &self.kind {
            Kind::Tcp(_) => self.change_tcp(tcp),
            Kind::Udp(_) => self.change_udp(udp),
            Kind::Unix(_) => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_socket_option(&self, name: u32, value: &[u8]) -> Result<()> {
        if let Kind::Unix(socket) = &self.kind {
            match name {
                n::SO_PASSCRED => {
                    socket.pass_credentials(int(value)? != 0);
                    return Ok(());
                }
                n::SO_SNDBUF | n::SO_SNDBUFFORCE => {
                    socket.set_send_buffer(buffer(value)?);
                    return Ok(());
                }
                // The sender's buffer counts; the others mean nothing here, as on Linux.
                n::SO_RCVBUF
                | n::SO_RCVBUFFORCE
                | n::SO_REUSEADDR
                | n::SO_REUSEPORT
                | n::SO_KEEPALIVE
                | n::SO_BROADCAST
                | n::SO_LINGER => {
                    return int(value).map(|_| ());
                }
                _ => {}
            }
        }
        let on = || int(value).map(|v| v != 0);
        match name {
            n::SO_REUSEADDR => {
                let on = on()?;
                self.change(|o| o.reuse_address = on, |o| o.reuse_address = on)
            }
            n::SO_REUSEPORT => {
                let on = on()?;
                self.change(|o| o.reuse_port = on, |o| o.reuse_port = on)
            }
            n::SO_KEEPALIVE => {
                let on = on()?;
                self.change(|o| o.keepalive = on, |_| {})
            }
            n::SO_BROADCAST => {
                let on = on()?;
                self.change(|_| {}, |o| o.broadcast = on)
            }
            n::SO_RCVBUF | n::SO_RCVBUFFORCE => {
                let size = buffer(value)?;
                self.change(|o| o.receive_buffer = size, |o| o.receive_buffer = size)
            }
            n::SO_SNDBUF | n::SO_SNDBUFFORCE => {
                let size = buffer(value)?;
                self.change(|o| o.send_buffer = size, |o| o.send_buffer = size)
            }
            n::SO_LINGER => {
                let bytes: &[u8; 8] = value.first_chunk().ok_or(Errno::EINVAL)?;
                let (on, seconds) = (int(bytes)?, int(&bytes[4..])?);
                let linger = (on != 0).then(|| seconds.unsigned_abs());
                self.change(|o| o.linger_s = linger, |_| {})
            }
            n::SO_RCVLOWAT => {
                let least = usize::try_from(int(value)?).unwrap_or(usize::MAX).max(1);
                self.change(|o| o.receive_low = least.min(o.receive_buffer / 2), |_| {})
            }
            n::SO_RCVTIMEO | n::SO_RCVTIMEO_NEW => store(&self.receive_timeout, timeout(value)?),
            n::SO_SNDTIMEO | n::SO_SNDTIMEO_NEW => store(&self.send_timeout, timeout(value)?),
            // Hints, and what is always the case here.
            n::SO_PRIORITY
            | n::SO_DONTROUTE
            | n::SO_OOBINLINE
            | n::SO_NO_CHECK
            | n::SO_DEBUG
            | n::SO_BUSY_POLL
            | n::SO_INCOMING_CPU => int(value).map(|_| ()),
            n::SO_SNDLOWAT
            | n::SO_TYPE
            | n::SO_ERROR
            | n::SO_PROTOCOL
            | n::SO_DOMAIN
            | n::SO_ACCEPTCONN => Err(Errno::ENOPROTOOPT),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_socket_option(&self, name: u32, out: &mut [u8]) -> Result<usize> {
        /// A value that TCP and UDP sockets both have.
        fn either<R>(
            file: &SocketFile,
            tcp: impl FnOnce(&TcpOptions) -> R,
            udp: impl FnOnce(&UdpOptions) -> R,
        ) -> R {
            match &file.kind {
                Kind::Tcp(socket) => socket.options(tcp),
                Kind::Udp(socket) => socket.options(udp),
                Kind::Unix(_) => udp(&UdpOptions::default()),
            }
        }
        if let Kind::Unix(socket) = &self.kind {
            match name {
                n::SO_PASSCRED => return Ok(give_int(out, socket.passes_credentials().into())),
                n::SO_SNDBUF => return Ok(give_int(out, socket.send_buffer())),
                n::SO_PEERCRED => {
                    socket.peer_name()?;
                    let who = (self.stack.config.credentials)();
                    let words = [who.pid, who.uid, who.gid].map(u32::to_ne_bytes);
                    return Ok(give(out, words.as_flattened()));
                }
                _ => {}
            }
        }
        let inet = |v6: bool| if v6 { AF_INET6 } else { AF_INET };
        let (domain, kind, number) = match &self.kind {
            Kind::Tcp(socket) => (inet(socket.v6), SOCK_STREAM, protocol::TCP),
            Kind::Udp(socket) => (inet(socket.v6), SOCK_DGRAM, protocol::UDP),
            Kind::Unix(socket) => {
                let kind = match socket.kind {
                    UnixKind::Stream => SOCK_STREAM,
                    UnixKind::Datagram => SOCK_DGRAM,
                    UnixKind::Packet => SOCK_SEQPACKET,
                };
                (AF_UNIX, kind, 0)
            }
        };
        let value = match name {
            n::SO_TYPE => usize_from_u32(kind),
            n::SO_DOMAIN => usize::from(domain),
            n::SO_PROTOCOL => usize::from(number),
            n::SO_ERROR => {
                let error = match &self.kind {
                    Kind::Tcp(socket) => socket.take_error(),
                    Kind::Udp(socket) => socket.take_error(),
                    Kind::Unix(socket) => socket.take_error(),
                };
                let number = error.map_or(0, Errno::number);
                return Ok(give(out, &number.to_ne_bytes()));
            }
            n::SO_ACCEPTCONN => match &self.kind {
                Kind::Tcp(socket) => usize::from(socket.is_listening()),
                Kind::Udp(_) => 0,
                Kind::Unix(socket) => usize::from(socket.is_listening()),
            },
            n::SO_REUSEADDR => either(self, |o| o.reuse_address, |o| o.reuse_address).into(),
            n::SO_REUSEPORT => either(self, |o| o.reuse_port, |o| o.reuse_port).into(),
            n::SO_KEEPALIVE => either(self, |o| o.keepalive, |_| false).into(),
            n::SO_BROADCAST => either(self, |_| false, |o| o.broadcast).into(),
            n::SO_RCVBUF => either(self, |o| o.receive_buffer, |o| o.receive_buffer),
            n::SO_SNDBUF => either(self, |o| o.send_buffer, |o| o.send_buffer),
            n::SO_RCVLOWAT => either(self, |o| o.receive_low, |_| 1),
            n::SO_SNDLOWAT => 1,
            n::SO_LINGER => {
                let linger = either(self, |o| o.linger_s, |_| None);
                let mut bytes = [0; 8];
                bytes[..4].copy_from_slice(&i32::from(linger.is_some()).to_ne_bytes());
                bytes[4..].copy_from_slice(&linger.unwrap_or(0).to_ne_bytes());
                return Ok(give(out, &bytes));
            }
            n::SO_RCVTIMEO | n::SO_RCVTIMEO_NEW => {
                let ns = self.receive_timeout.load(Ordering::Relaxed);
                return Ok(give(out, &timeval(ns)));
            }
            n::SO_SNDTIMEO | n::SO_SNDTIMEO_NEW => {
                let ns = self.send_timeout.load(Ordering::Relaxed);
                return Ok(give(out, &timeval(ns)));
            }
            n::SO_COOKIE => return Ok(give(out, &self.inode().to_ne_bytes())),
            n::SO_PRIORITY
            | n::SO_DONTROUTE
            | n::SO_OOBINLINE
            | n::SO_NO_CHECK
            | n::SO_DEBUG
            | n::SO_TIMESTAMP
            | n::SO_BUSY_POLL => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(give_int(out, value))
    }

    fn set_ip_option(&self, name: u32, value: &[u8]) -> Result<()> {
        let byte = || u8::try_from(int_or_byte(value)?).map_err(|_| Errno::EINVAL);
        match name {
            n::IP_TOS => {
                let tos = byte()?;
                self.change(|o| o.tos = tos, |o| o.tos = tos)
            }
            n::IP_TTL => {
                let ttl = match int_or_byte(value)? {
                    -1 => 64,
                    ttl => u8::try_from(ttl)
                        .ok()
                        .filter(|t| *t > 0)
                        .ok_or(Errno::EINVAL)?,
                };
                self.change(|o| o.ttl = ttl, |o| o.ttl = ttl)
            }
            n::IP_MULTICAST_TTL => {
                let ttl = match int_or_byte(value)? {
                    -1 => 1,
                    ttl => u8::try_from(ttl).map_err(|_| Errno::EINVAL)?,
                };
                self.change(|_| {}, |o| o.multicast_ttl = ttl)
            }
            n::IP_MULTICAST_LOOP => {
                let on = int_or_byte(value)? != 0;
                self.change(|_| {}, |o| o.multicast_loop = on)
            }
            n::IP_PKTINFO => {
                let on = int_or_byte(value)? != 0;
                self.change(|_| {}, |o| o.packet_info = on)
            }
            n::IP_ADD_MEMBERSHIP | n::IP_DROP_MEMBERSHIP => {
                self.change_v4_group(value, name == n::IP_ADD_MEMBERSHIP)
            }
            // Path MTU discovery is always on; errors are reported without the error queue.
            n::IP_MTU_DISCOVER | n::IP_RECVERR | n::IP_FREEBIND | n::IP_BIND_ADDRESS_NO_PORT => {
                int_or_byte(value).map(|_| ())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_ipv6_option(&self, name: u32, value: &[u8]) -> Result<()> {
        let v6 = match &self.kind {
            Kind::Tcp(socket) => socket.v6,
            Kind::Udp(socket) => socket.v6,
            Kind::Unix(_) => false,
        };
        if !v6 {
            return Err(Errno::ENOPROTOOPT);
        }
        match name {
            n::IPV6_V6ONLY => {
                let on = int(value)? != 0;
                if self.local_address()?.is_bound() {
                    return Err(Errno::EINVAL);
                }
                self.change(|o| o.v6_only = on, |o| o.v6_only = on)
            }
            n::IPV6_UNICAST_HOPS => {
                let hops = match int(value)? {
                    -1 => 64,
                    hops => u8::try_from(hops).map_err(|_| Errno::EINVAL)?,
                };
                self.change(|o| o.ttl = hops, |o| o.ttl = hops)
            }
            n::IPV6_MULTICAST_HOPS => {
                let hops = match int(value)? {
                    -1 => 1,
                    hops => u8::try_from(hops).map_err(|_| Errno::EINVAL)?,
                };
                self.change(|_| {}, |o| o.multicast_ttl = hops)
            }
            n::IPV6_MULTICAST_LOOP => {
                let on = int(value)? != 0;
                self.change(|_| {}, |o| o.multicast_loop = on)
            }
            n::IPV6_TCLASS => {
                let class = match int(value)? {
                    -1 => 0,
                    class => u8::try_from(class).map_err(|_| Errno::EINVAL)?,
                };
                self.change(|o| o.tos = class, |o| o.tos = class)
            }
            n::IPV6_RECVPKTINFO => {
                let on = int(value)? != 0;
                self.change(|_| {}, |o| o.packet_info = on)
            }
            n::IPV6_ADD_MEMBERSHIP | n::IPV6_DROP_MEMBERSHIP => {
                let bytes: &[u8; 20] = value.first_chunk().ok_or(Errno::EINVAL)?;
                let mut octets = [0; 16];
                octets.copy_from_slice(&bytes[..16]);
                let index = int(&bytes[16..])?;
                let group = Address::from_v6(octets.into());
                self.change_group(group, index, name == n::IPV6_ADD_MEMBERSHIP)
            }
            n::IPV6_MTU_DISCOVER | n::IPV6_RECVERR | n::IPV6_FREEBIND => int(value).map(|_| ()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_ip_option(&self, v6: bool, name: u32, out: &mut [u8]) -> Result<usize> {
        type Values = (u8, u8, u8, bool, bool, bool);
        let (ttl, tos, group_ttl, group_loop, info, only): Values = match &self.kind {
            Kind::Tcp(socket) => socket.options(|o| (o.ttl, o.tos, 1, true, false, o.v6_only)),
            Kind::Udp(socket) => socket.options(|o| {
                let info = o.packet_info;
                (
                    o.ttl,
                    o.tos,
                    o.multicast_ttl,
                    o.multicast_loop,
                    info,
                    o.v6_only,
                )
            }),
            Kind::Unix(_) => return Err(Errno::EOPNOTSUPP),
        };
        let value = match (v6, name) {
            (false, n::IP_TTL) | (true, n::IPV6_UNICAST_HOPS) => usize::from(ttl),
            (false, n::IP_TOS) | (true, n::IPV6_TCLASS) => usize::from(tos),
            (false, n::IP_MULTICAST_TTL) | (true, n::IPV6_MULTICAST_HOPS) => usize::from(group_ttl),
            (false, n::IP_MULTICAST_LOOP) | (true, n::IPV6_MULTICAST_LOOP) => {
                usize::from(group_loop)
            }
            (false, n::IP_PKTINFO) | (true, n::IPV6_RECVPKTINFO) => usize::from(info),
            (true, n::IPV6_V6ONLY) => usize::from(only),
            (false, n::IP_MTU_DISCOVER) | (true, n::IPV6_MTU_DISCOVER) => {
                usize_from_u32(n::IP_PMTUDISC_WANT)
            }
            (false, n::IP_RECVERR | n::IP_FREEBIND) | (true, n::IPV6_RECVERR) => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(give_int(out, value))
    }

    /// `struct ip_mreq` or `struct ip_mreqn`.
    fn change_v4_group(&self, value: &[u8], join: bool) -> Result<()> {
        let bytes: &[u8; 8] = value.first_chunk().ok_or(Errno::EINVAL)?;
        let group = Address::from_v4([bytes[0], bytes[1], bytes[2], bytes[3]].into());
        let own = Address::from_v4([bytes[4], bytes[5], bytes[6], bytes[7]].into());
        let index = match value.get(8..12) {
            Some(index) => int(index)?,
            None => 0,
        };
        let by_address = || {
            let found = self.stack.interfaces().find(|i| i.has_address(own))?;
            i32::try_from(found.index + 1).ok()
        };
        let index = if index == 0 && !own.is_unspecified() {
            by_address().ok_or(Errno::ENODEV)?
        } else {
            index
        };
        self.change_group(group, index, join)
    }

    /// Joins or leaves a group on the interface with Linux's `index`; 0 is the first real one.
    fn change_group(&self, group: Address, index: i32, join: bool) -> Result<()> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let place = match index {
            0 => 1,
            index => usize::try_from(index - 1).map_err(|_| Errno::ENODEV)?,
        };
        if self.stack.interface(place).is_none() && place != 1 {
            return Err(Errno::ENODEV);
        }
        let mut result = Ok(());
        self.change_udp(|o| {
            let at = o.groups.iter().position(|g| *g == (group, place));
            match (join, at) {
                (true, Some(_)) => result = Err(Errno::EADDRINUSE),
                (true, None) => o.groups.push((group, place)),
                (false, Some(at)) => {
                    o.groups.remove(at);
                }
                (false, None) => result = Err(Errno::EADDRNOTAVAIL),
            }
        })?;
        result
    }

    fn set_tcp_option(&self, name: u32, value: &[u8]) -> Result<()> {
        let Kind::Tcp(_) = &self.kind else {
            return Err(Errno::EOPNOTSUPP);
        };
        let on = || int(value).map(|v| v != 0);
        match name {
            n::TCP_NODELAY => {
                let on = on()?;
                self.change_tcp(|o| o.no_delay = on)
            }
            n::TCP_CORK => {
                let on = on()?;
                self.change_tcp(|o| o.cork = on)
            }
            n::TCP_QUICKACK => {
                let on = on()?;
                self.change_tcp(|o| o.quick_ack = on)
            }
            n::TCP_KEEPIDLE => {
                let seconds = ranged(value, 1, 32_767)?;
                self.change_tcp(|o| o.keep_idle_s = seconds)
            }
            n::TCP_KEEPINTVL => {
                let seconds = ranged(value, 1, 32_767)?;
                self.change_tcp(|o| o.keep_interval_s = seconds)
            }
            n::TCP_KEEPCNT => {
                let count = ranged(value, 1, 127)?;
                self.change_tcp(|o| o.keep_count = count)
            }
            n::TCP_SYNCNT => {
                let count = ranged(value, 1, 127)?;
                self.change_tcp(|o| o.syn_retries = count)
            }
            n::TCP_USER_TIMEOUT => {
                let ms = ranged(value, 0, i32::MAX)?;
                self.change_tcp(|o| o.user_timeout_ms = ms)
            }
            n::TCP_MAXSEG => {
                let size = ranged(value, 88, 32_767)?;
                let size = u16::try_from(size).map_err(|_| Errno::EINVAL)?;
                self.change_tcp(|o| o.max_segment = Some(size))
            }
            n::TCP_NOTSENT_LOWAT => {
                let bytes = usize_from_u32(int(value)?.cast_unsigned());
                self.change_tcp(|o| o.not_sent_low = bytes)
            }
            n::TCP_LINGER2 => {
                let seconds = u32::try_from(int(value)?).unwrap_or(0).min(60);
                self.change_tcp(|o| o.fin_timeout_s = seconds)
            }
            // Waiting for data before `accept` is a hint: the connection is reported when it is complete.
            n::TCP_DEFER_ACCEPT => {
                let seconds = u32::try_from(int(value)?).unwrap_or(0);
                self.change_tcp(|o| o.defer_accept_s = seconds)
            }
            n::TCP_CONGESTION => {
                let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
                if &value[..end] == b"reno" {
                    Ok(())
                } else {
                    Err(Errno::ENOENT)
                }
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_tcp_option(&self, name: u32, out: &mut [u8]) -> Result<usize> {
        let Kind::Tcp(socket) = &self.kind else {
            return Err(Errno::EOPNOTSUPP);
        };
        match name {
            n::TCP_CONGESTION => return Ok(give(out, b"reno\0\0\0\0\0\0\0\0\0\0\0\0")),
            n::TCP_INFO => return Ok(give(out, &socket.info(self.stack.now()))),
            n::TCP_MAXSEG => return Ok(give_int(out, socket.segment_size())),
            _ => {}
        }
        let value = socket.options(|o| match name {
            n::TCP_NODELAY => Some(u64::from(o.no_delay)),
            n::TCP_CORK => Some(u64::from(o.cork)),
            n::TCP_QUICKACK => Some(u64::from(o.quick_ack)),
            n::TCP_KEEPIDLE => Some(u64::from(o.keep_idle_s)),
            n::TCP_KEEPINTVL => Some(u64::from(o.keep_interval_s)),
            n::TCP_KEEPCNT => Some(u64::from(o.keep_count)),
            n::TCP_SYNCNT => Some(u64::from(o.syn_retries)),
            n::TCP_USER_TIMEOUT => Some(u64::from(o.user_timeout_ms)),
            n::TCP_NOTSENT_LOWAT => Some(u64_from(o.not_sent_low).min(u64::from(u32::MAX))),
            n::TCP_LINGER2 => Some(u64::from(o.fin_timeout_s)),
            n::TCP_DEFER_ACCEPT => Some(u64::from(o.defer_accept_s)),
            _ => None,
        });
        let value = u32::try_from(value.ok_or(Errno::ENOPROTOOPT)?).unwrap_or(u32::MAX);
        Ok(give(out, &value.to_ne_bytes()))
    }

    /// The control message that `IP_PKTINFO` and `IPV6_RECVPKTINFO` ask for.
    pub(super) fn packet_info(
        &self,
        got: &crate::udp::UdpReceived,
    ) -> alloc::vec::Vec<super::ControlMessage> {
        let Kind::Udp(socket) = &self.kind else {
            return alloc::vec::Vec::new();
        };
        if !socket.options(|o| o.packet_info) {
            return alloc::vec::Vec::new();
        }
        let index = i32::try_from(got.interface + 1).unwrap_or(0).to_ne_bytes();
        let (level, kind, data) = match got.destination.v4() {
            Some(v4) if !socket.v6 => {
                let mut data = index.to_vec();
                data.extend(v4.octets()); // ipi_spec_dst
                data.extend(v4.octets()); // ipi_addr
                (SOL_IP, n::IP_PKTINFO, data)
            }
            _ => {
                let mut data = got.destination.v6().octets().to_vec();
                data.extend(index);
                (SOL_IPV6, n::IPV6_PKTINFO, data)
            }
        };
        alloc::vec![super::ControlMessage::Other { level, kind, data }]
    }
}

fn store(cell: &AtomicU64, value: u64) -> Result<()> {
    cell.store(value, Ordering::Relaxed);
    Ok(())
}
