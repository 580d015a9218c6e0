// SPDX-License-Identifier: Apache-2.0
//! `getsockopt(2)` and `setsockopt(2)`: the way to the levels, and the level `SOL_SOCKET` (`socket(7)`, `unix(7)`).
//!
//! An option that would have no effect is refused with `ENOPROTOOPT`, except hints (priority, type of service ...),
//! which may be ignored by definition.

use core::sync::atomic::{AtomicU64, Ordering};

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::net as n;
use coracle_core::{Errno, Result};

use super::file::{Kind, SocketFile};
use super::linux::{
    AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET,
    SOCK_STREAM, SOL_IP, SOL_IPV6, SOL_PACKET, SOL_SOCKET, SOL_TCP, SOL_UDPLITE,
    UDPLITE_RECV_CSCOV, UDPLITE_SEND_CSCOV,
};
use crate::tcp::TcpOptions;
use crate::udp::UdpOptions;
use crate::unix::UnixKind;
use crate::wire::protocol;

/// Limits of `SO_SNDBUF` and `SO_RCVBUF`, doubled values (`net.core.*mem_max` of Linux, and its minima).
const LEAST_BUFFER: usize = 2304;
const MOST_BUFFER: usize = 2 * 4 * 1024 * 1024;

/// An `int` option value; Linux takes a single byte for IP options, but not elsewhere.
pub(super) fn int(value: &[u8]) -> Result<i32> {
    value
        .first_chunk()
        .map(|b| i32::from_ne_bytes(*b))
        .ok_or(Errno::EINVAL)
}

pub(super) fn int_or_byte(value: &[u8]) -> Result<i32> {
    match value {
        [byte] | [byte, _] | [byte, _, _] => Ok(i32::from(*byte)),
        _ => int(value),
    }
}

/// A number of `least..=most`; `EINVAL` otherwise.
pub(super) fn ranged(value: &[u8], least: i32, most: i32) -> Result<u32> {
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
pub(super) fn give(out: &mut [u8], value: &[u8]) -> usize {
    let len = value.len().min(out.len());
    out[..len].copy_from_slice(&value[..len]);
    len
}

pub(super) fn give_int(out: &mut [u8], value: usize) -> usize {
    give(out, &i32::try_from(value).unwrap_or(i32::MAX).to_ne_bytes())
}

/// Switches that are told back as they were set. Some of them mean something to some types of sockets; others are
/// hints, or about what this stack does not have (urgent data).
const SWITCHES: [u32; 6] = [
    n::SO_KEEPALIVE,
    n::SO_BROADCAST,
    n::SO_DONTROUTE,
    n::SO_OOBINLINE,
    n::SO_NO_CHECK,
    n::SO_DEBUG,
];

fn switch_bit(name: u32) -> u32 {
    SWITCHES
        .iter()
        .position(|switch| *switch == name)
        .map_or(0, |at| 1 << at)
}

impl SocketFile {
    fn remember(&self, name: u32, on: bool) {
        let bit = switch_bit(name);
        if on {
            self.switches.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.switches.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn remembers(&self, name: u32) -> bool {
        self.switches.load(Ordering::Relaxed) & switch_bit(name) != 0
    }

    /// `setsockopt(2)`. `ENOPROTOOPT` for an unknown option, `EINVAL` for a value that is too short or out of range.
    #[cold]
    pub fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<()> {
        match level {
            SOL_SOCKET => self.set_socket_option(name, value),
            SOL_IP => self.set_ip_option(name, value),
            SOL_IPV6 => self.set_ipv6_option(name, value),
            SOL_TCP => self.set_tcp_option(name, value),
            SOL_PACKET => self.set_packet_option(name, value),
            SOL_UDPLITE => self.set_udp_lite_option(name, value),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `getsockopt(2)`: fills `out` and returns the length of the value, cut to the room there is.
    #[cold]
    pub fn get_option(&self, level: u32, name: u32, out: &mut [u8]) -> Result<usize> {
        match level {
            SOL_SOCKET => self.get_socket_option(name, out),
            SOL_IP | SOL_IPV6 => self.get_ip_option(level == SOL_IPV6, name, out),
            SOL_TCP => self.get_tcp_option(name, out),
            SOL_PACKET => self.get_packet_option(name, out),
            SOL_UDPLITE => self.get_udp_lite_option(name, out),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `packet(7)`: a card shows us all frames that its network has for us anyway, so joining changes nothing.
    fn set_packet_option(&self, name: u32, value: &[u8]) -> Result<()> {
        const PACKET_ADD_MEMBERSHIP: u32 = 1;
        const PACKET_DROP_MEMBERSHIP: u32 = 2;
        match (&self.kind, name) {
            (Kind::Packet(_), PACKET_ADD_MEMBERSHIP | PACKET_DROP_MEMBERSHIP) => {
                let index = int(value)?;
                let index = u32::try_from(index).map_err(|_| Errno::ENODEV)?;
                self.stack
                    .by_linux_index(index)?
                    .map(|_| ())
                    .ok_or(Errno::ENODEV)
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_packet_option(&self, name: u32, out: &mut [u8]) -> Result<usize> {
        const PACKET_STATISTICS: u32 = 6;
        match (&self.kind, name) {
            (Kind::Packet(socket), PACKET_STATISTICS) => {
                let (seen, dropped) = socket.take_statistics();
                let mut bytes = [0; 8];
                bytes[..4].copy_from_slice(&seen.to_ne_bytes());
                bytes[4..].copy_from_slice(&dropped.to_ne_bytes());
                Ok(give(out, &bytes))
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `udplite(7)`. A coverage that is less than the header means the header, one that is too large the largest.
    fn set_udp_lite_option(&self, name: u32, value: &[u8]) -> Result<()> {
        let Kind::Udp(socket) = &self.kind else {
            return Err(Errno::ENOPROTOOPT);
        };
        if socket.protocol != protocol::UDP_LITE {
            return Err(Errno::ENOPROTOOPT);
        }
        let coverage = match int(value)? {
            0 => 0,
            some => u16::try_from(some.max(8)).unwrap_or(u16::MAX),
        };
        match name {
            UDPLITE_SEND_CSCOV => self.change_udp(|o| o.send_coverage = Some(coverage)),
            UDPLITE_RECV_CSCOV => self.change_udp(|o| o.receive_coverage = Some(coverage)),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_udp_lite_option(&self, name: u32, out: &mut [u8]) -> Result<usize> {
        let Kind::Udp(socket) = &self.kind else {
            return Err(Errno::ENOPROTOOPT);
        };
        let coverage = match name {
            UDPLITE_SEND_CSCOV => socket.options(|o| o.send_coverage),
            UDPLITE_RECV_CSCOV => socket.options(|o| o.receive_coverage),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(give_int(out, coverage.unwrap_or(0).into()))
    }

    pub(super) fn change_tcp(&self, mut f: impl FnMut(&mut TcpOptions)) -> Result<()> {
        self.change_by(&mut f, &mut |_| {}, true, false)
    }

    pub(super) fn change_udp(&self, mut f: impl FnMut(&mut UdpOptions)) -> Result<()> {
        self.change_by(&mut |_| {}, &mut f, false, true)
    }

    /// Changes something that TCP and UDP sockets both have.
    pub(super) fn change(
        &self,
        mut tcp: impl FnMut(&mut TcpOptions),
        mut udp: impl FnMut(&mut UdpOptions),
    ) -> Result<()> {
        self.change_by(&mut tcp, &mut udp, true, true)
    }

    /// The one body behind the three: options are many, and rarely set.
    #[cold]
    fn change_by(
        &self,
        tcp: &mut dyn FnMut(&mut TcpOptions),
        udp: &mut dyn FnMut(&mut UdpOptions),
        for_tcp: bool,
        for_udp: bool,
    ) -> Result<()> {
        match &self.kind {
            Kind::Tcp(socket) if for_tcp => {
                socket.change_options(&self.stack, self.stack.now(), tcp);
                Ok(())
            }
            Kind::Udp(socket) if for_udp => {
                socket.change_options(&self.stack, udp);
                Ok(())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn set_socket_option(&self, name: u32, value: &[u8]) -> Result<()> {
        if let Some(result) = self.set_local_option(name, value) {
            return result;
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
                self.remember(name, on);
                self.change(|o| o.keepalive = on, |_| {})
            }
            n::SO_BROADCAST => {
                let on = on()?;
                self.remember(name, on);
                self.change(|_| {}, |o| o.broadcast = on)
            }
            n::SO_RCVBUF | n::SO_RCVBUFFORCE => {
                let size = buffer(value)?;
                let tcp = |o: &mut TcpOptions| {
                    o.receive_buffer = size;
                    o.receive_fixed = true;
                };
                self.change(tcp, |o| o.receive_buffer = size)
            }
            n::SO_SNDBUF | n::SO_SNDBUFFORCE => {
                let size = buffer(value)?;
                let tcp = |o: &mut TcpOptions| {
                    o.send_buffer = size;
                    o.send_fixed = true;
                };
                self.change(tcp, |o| o.send_buffer = size)
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
            n::SO_DONTROUTE | n::SO_OOBINLINE | n::SO_NO_CHECK | n::SO_DEBUG => {
                self.remember(name, on()?);
                Ok(())
            }
            // Hints.
            n::SO_PRIORITY | n::SO_BUSY_POLL | n::SO_INCOMING_CPU => int(value).map(|_| ()),
            n::SO_SNDLOWAT
            | n::SO_TYPE
            | n::SO_ERROR
            | n::SO_PROTOCOL
            | n::SO_DOMAIN
            | n::SO_ACCEPTCONN => Err(Errno::ENOPROTOOPT),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    /// `SOL_SOCKET` options of sockets that are neither TCP nor UDP; `None` for those treated alike.
    fn set_local_option(&self, name: u32, value: &[u8]) -> Option<Result<()>> {
        match (&self.kind, name) {
            (Kind::Tcp(_) | Kind::Udp(_), _) => None,
            (Kind::Unix(socket), n::SO_PASSCRED) => {
                Some(int(value).map(|on| socket.pass_credentials(on != 0)))
            }
            (Kind::Unix(socket), n::SO_SNDBUF | n::SO_SNDBUFFORCE) => {
                Some(buffer(value).map(|bytes| socket.set_send_buffer(bytes)))
            }
            // Accepted and without meaning here, as on Linux or nearly so.
            (
                _,
                n::SO_RCVBUF
                | n::SO_RCVBUFFORCE
                | n::SO_SNDBUF
                | n::SO_SNDBUFFORCE
                | n::SO_REUSEADDR
                | n::SO_KEEPALIVE
                | n::SO_BROADCAST
                | n::SO_LINGER,
            ) => Some(int(value).map(|_| ())),
            _ => None,
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
                _ => udp(&UdpOptions::default()),
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
            Kind::Tcp(socket) => (inet(socket.v6), SOCK_STREAM, protocol::TCP.into()),
            Kind::Udp(socket) => (inet(socket.v6), SOCK_DGRAM, socket.protocol.into()),
            Kind::Unix(socket) => {
                let kind = match socket.kind {
                    UnixKind::Stream => SOCK_STREAM,
                    UnixKind::Datagram => SOCK_DGRAM,
                    UnixKind::Packet => SOCK_SEQPACKET,
                };
                (AF_UNIX, kind, 0)
            }
            Kind::Netlink(_) => (AF_NETLINK, SOCK_RAW, 0),
            Kind::Packet(socket) => {
                let kind = if socket.with_header {
                    SOCK_RAW
                } else {
                    SOCK_DGRAM
                };
                let protocol = socket.local(&self.stack).protocol;
                (AF_PACKET, kind, usize::from(protocol.to_be()))
            }
            Kind::Raw(socket) => {
                let kind = if socket.ping { SOCK_DGRAM } else { SOCK_RAW };
                (inet(socket.v6), kind, usize::from(socket.protocol))
            }
        };
        let value = match name {
            n::SO_TYPE => usize_from_u32(kind),
            n::SO_DOMAIN => usize::from(domain),
            n::SO_PROTOCOL => number,
            n::SO_ERROR => {
                let error = match &self.kind {
                    Kind::Tcp(socket) => socket.take_error(),
                    Kind::Udp(socket) => socket.take_error(),
                    Kind::Unix(socket) => socket.take_error(),
                    Kind::Netlink(_) | Kind::Raw(_) | Kind::Packet(_) => None,
                };
                let number = error.map_or(0, Errno::number);
                return Ok(give(out, &number.to_ne_bytes()));
            }
            n::SO_ACCEPTCONN => match &self.kind {
                Kind::Tcp(socket) => usize::from(socket.is_listening()),
                Kind::Unix(socket) => usize::from(socket.is_listening()),
                _ => 0,
            },
            n::SO_REUSEADDR => either(self, |o| o.reuse_address, |o| o.reuse_address).into(),
            n::SO_REUSEPORT => either(self, |o| o.reuse_port, |o| o.reuse_port).into(),
            n::SO_KEEPALIVE | n::SO_BROADCAST => self.remembers(name).into(),
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
            n::SO_DONTROUTE | n::SO_OOBINLINE | n::SO_NO_CHECK | n::SO_DEBUG => {
                self.remembers(name).into()
            }
            n::SO_PRIORITY | n::SO_TIMESTAMP | n::SO_BUSY_POLL => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(give_int(out, value))
    }
}

fn store(cell: &AtomicU64, value: u64) -> Result<()> {
    cell.store(value, Ordering::Relaxed);
    Ok(())
}
