// SPDX-License-Identifier: Apache-2.0
//! Options of the levels `SOL_IP` and `SOL_IPV6` (`ip(7)`, `ipv6(7)`).

use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::net as n;
use coracle_core::{Errno, Result};

use super::file::{Kind, SocketFile};
use super::options::{give_int, int, int_or_byte};
use crate::address::Address;

impl SocketFile {
    pub(super) fn set_ip_option(&self, name: u32, value: &[u8]) -> Result<()> {
        if let Kind::Raw(socket) = &self.kind
            && socket.set_option(false, name, int_or_byte(value)?)?
        {
            return Ok(());
        }
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
            n::IP_RECVTTL => {
                let on = int_or_byte(value)? != 0;
                self.change(|_| {}, |o| o.receive_ttl = on)
            }
            n::IP_RECVTOS => {
                let on = int_or_byte(value)? != 0;
                self.change(|_| {}, |o| o.receive_tos = on)
            }
            n::IP_ADD_MEMBERSHIP | n::IP_DROP_MEMBERSHIP => {
                self.change_v4_group(value, name == n::IP_ADD_MEMBERSHIP)
            }
            n::IP_MTU_DISCOVER => self.set_mtu_discovery(int_or_byte(value)?),
            // Errors are reported without the error queue; ports are always chosen late.
            n::IP_RECVERR | n::IP_BIND_ADDRESS_NO_PORT => int_or_byte(value).map(|_| ()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    pub(super) fn set_ipv6_option(&self, name: u32, value: &[u8]) -> Result<()> {
        let v6 = match &self.kind {
            Kind::Tcp(socket) => socket.v6,
            Kind::Udp(socket) => socket.v6,
            Kind::Raw(socket) => socket.v6,
            Kind::Unix(_) | Kind::Netlink(_) | Kind::Packet(_) => false,
        };
        if !v6 {
            return Err(Errno::ENOPROTOOPT);
        }
        if let Kind::Raw(socket) = &self.kind
            && socket.set_option(true, name, int(value)?)?
        {
            return Ok(());
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
            n::IPV6_RECVHOPLIMIT => {
                let on = int(value)? != 0;
                self.change(|_| {}, |o| o.receive_ttl = on)
            }
            n::IPV6_RECVTCLASS => {
                let on = int(value)? != 0;
                self.change(|_| {}, |o| o.receive_tos = on)
            }
            n::IPV6_ADD_MEMBERSHIP | n::IPV6_DROP_MEMBERSHIP => {
                let bytes: &[u8; 20] = value.first_chunk().ok_or(Errno::EINVAL)?;
                let mut octets = [0; 16];
                octets.copy_from_slice(&bytes[..16]);
                let index = int(&bytes[16..])?;
                let group = Address::from_v6(octets.into());
                self.change_group(group, index, name == n::IPV6_ADD_MEMBERSHIP)
            }
            n::IPV6_MTU_DISCOVER => self.set_mtu_discovery(int(value)?),
            n::IPV6_RECVERR => int(value).map(|_| ()),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    pub(super) fn get_ip_option(&self, v6: bool, name: u32, out: &mut [u8]) -> Result<usize> {
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
            Kind::Raw(socket) => {
                let value = socket.option(v6, name).ok_or(Errno::ENOPROTOOPT)?;
                return Ok(give_int(out, value));
            }
            Kind::Unix(_) | Kind::Netlink(_) | Kind::Packet(_) => {
                return Err(Errno::EOPNOTSUPP);
            }
        };
        let value = match (v6, name) {
            (false, n::IP_TTL) | (true, n::IPV6_UNICAST_HOPS) => usize::from(ttl),
            (false, n::IP_TOS) | (true, n::IPV6_TCLASS) => usize::from(tos),
            (false, n::IP_MULTICAST_TTL) | (true, n::IPV6_MULTICAST_HOPS) => usize::from(group_ttl),
            (false, n::IP_MULTICAST_LOOP) | (true, n::IPV6_MULTICAST_LOOP) => {
                usize::from(group_loop)
            }
            (false, n::IP_PKTINFO) | (true, n::IPV6_RECVPKTINFO) => usize::from(info),
            (false, n::IP_RECVTTL) | (true, n::IPV6_RECVHOPLIMIT) => match &self.kind {
                Kind::Udp(socket) => socket.options(|o| usize::from(o.receive_ttl)),
                _ => 0,
            },
            (false, n::IP_RECVTOS) | (true, n::IPV6_RECVTCLASS) => match &self.kind {
                Kind::Udp(socket) => socket.options(|o| usize::from(o.receive_tos)),
                _ => 0,
            },
            (true, n::IPV6_V6ONLY) => usize::from(only),
            (false, n::IP_MTU_DISCOVER) | (true, n::IPV6_MTU_DISCOVER) => {
                let strict = match &self.kind {
                    Kind::Udp(socket) => socket.options(|o| o.dont_fragment),
                    _ => false,
                };
                usize_from_u32(if strict {
                    n::IP_PMTUDISC_DO
                } else {
                    n::IP_PMTUDISC_WANT
                })
            }
            (false, n::IP_RECVERR) | (true, n::IPV6_RECVERR) => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(give_int(out, value))
    }

    /// `IP_MTU_DISCOVER` and `IPV6_MTU_DISCOVER`: TCP always discovers; datagrams are fragmented unless told otherwise.
    fn set_mtu_discovery(&self, how: i32) -> Result<()> {
        let how = u32::try_from(how).map_err(|_| Errno::EINVAL)?;
        if how > n::IP_PMTUDISC_OMIT {
            return Err(Errno::EINVAL);
        }
        let strict = matches!(how, n::IP_PMTUDISC_DO | n::IP_PMTUDISC_PROBE);
        self.change(|_| {}, |o| o.dont_fragment = strict)
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
        result?;
        let now = self.stack.now();
        if join {
            self.stack.join_group(group, place, now);
        } else {
            self.stack.leave_group(group, place, now);
        }
        Ok(())
    }
}
