// SPDX-License-Identifier: Apache-2.0
//! Control messages of UDP sockets: what a receiver wants to know of a packet's header, and what a sender wants in it
//! (`ip(7)`, `ipv6(7)`, RFC 3542).

use alloc::vec::Vec;

use coracle_abi::raw::net as n;
use coracle_core::{Errno, Result};

use super::ControlMessage;
use super::file::{Kind, SocketFile};
use super::linux::{SOL_IP, SOL_IPV6};
use super::options::{int, int_or_byte};
use crate::address::Address;
use crate::stack::NetStack;
use crate::udp::{UdpReceived, UdpSend};

impl SocketFile {
    /// What the socket's options ask to be told of a datagram, in Linux's order.
    pub(super) fn told_of(&self, got: &UdpReceived) -> Vec<ControlMessage> {
        let Kind::Udp(socket) = &self.kind else {
            return Vec::new();
        };
        let (info, ttl, tos) = socket.options(|o| (o.packet_info, o.receive_ttl, o.receive_tos));
        let mut control = Vec::new();
        let mut add = |level, kind, data| control.push(ControlMessage::Other { level, kind, data });
        let [hops, class] = [got.ttl, got.tos].map(|value| i32::from(value).to_ne_bytes().to_vec());
        let index = i32::try_from(got.interface + 1).unwrap_or(0).to_ne_bytes();
        let v4 = got.destination.v4();
        match v4 {
            Some(v4) if info && !socket.v6 => {
                let mut data = index.to_vec();
                data.extend(v4.octets()); // ipi_spec_dst
                data.extend(v4.octets()); // ipi_addr
                add(SOL_IP, n::IP_PKTINFO, data);
            }
            _ if info => {
                let mut data = got.destination.v6().octets().to_vec();
                data.extend(index);
                add(SOL_IPV6, n::IPV6_PKTINFO, data);
            }
            _ => {}
        }
        match (socket.v6, v4.is_some()) {
            (false, _) => {
                if ttl {
                    add(SOL_IP, n::IP_TTL, hops);
                }
                if tos {
                    add(SOL_IP, n::IP_TOS, alloc::vec![got.tos]);
                }
            }
            (true, false) => {
                if ttl {
                    add(SOL_IPV6, n::IPV6_HOPLIMIT, hops);
                }
                if tos {
                    add(SOL_IPV6, n::IPV6_TCLASS, class);
                }
            }
            (true, true) => {} // an IPv4 packet has neither
        }
        control
    }
}

/// What the control messages of a send call want. `EINVAL` for values no header can have, for messages of the socket's
/// own level that are not known, and for a source that is not this machine's.
pub(super) fn wanted(control: &[ControlMessage], v6: bool, stack: &NetStack) -> Result<UdpSend> {
    let mut send = UdpSend::default();
    for message in control {
        let ControlMessage::Other { level, kind, data } = message else {
            continue;
        };
        match (*level, *kind) {
            (SOL_IP, n::IP_TTL) => {
                let ttl = u8::try_from(int(data)?).ok().filter(|ttl| *ttl > 0);
                send.ttl = Some(ttl.ok_or(Errno::EINVAL)?);
            }
            (SOL_IP, n::IP_TOS) => send.tos = byte(int_or_byte(data)?)?,
            (SOL_IP, n::IP_PKTINFO) => {
                let data: &[u8; 12] = data[..].try_into().map_err(|_| Errno::EINVAL)?;
                let source = [data[4], data[5], data[6], data[7]];
                send.interface = interface(int(data)?)?;
                send.source = own(stack, Address::from_v4(source.into()))?;
            }
            (SOL_IPV6, n::IPV6_HOPLIMIT) if v6 => send.ttl = byte(int(data)?)?,
            (SOL_IPV6, n::IPV6_TCLASS) if v6 => send.tos = byte(int(data)?)?,
            (SOL_IPV6, n::IPV6_PKTINFO) if v6 => {
                let data: &[u8; 20] = data[..].try_into().map_err(|_| Errno::EINVAL)?;
                let mut source = [0; 16];
                source.copy_from_slice(&data[..16]);
                send.interface = interface(int(&data[16..])?)?;
                send.source = own(stack, Address::from_v6(source.into()))?;
            }
            (SOL_IP, _) if !v6 => return Err(Errno::EINVAL),
            (SOL_IPV6, _) if v6 => return Err(Errno::EINVAL),
            _ => {} // for another protocol
        }
    }
    Ok(send)
}

/// A field of one byte; -1 leaves it to the socket's options.
fn byte(value: i32) -> Result<Option<u8>> {
    match value {
        -1 => Ok(None),
        value => u8::try_from(value).map(Some).map_err(|_| Errno::EINVAL),
    }
}

/// Linux's index of an interface, from 1; 0 leaves the choice to the route.
fn interface(index: i32) -> Result<Option<usize>> {
    let index = usize::try_from(index).map_err(|_| Errno::ENODEV)?;
    Ok(index.checked_sub(1))
}

fn own(stack: &NetStack, source: Address) -> Result<Option<Address>> {
    if source.is_unspecified() {
        Ok(None)
    } else if stack.is_local(source) {
        Ok(Some(source))
    } else {
        Err(Errno::EINVAL)
    }
}
