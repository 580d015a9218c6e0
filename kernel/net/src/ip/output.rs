// SPDX-License-Identifier: Apache-2.0
//! IP packets to send: route, header, fragments.

use core::sync::atomic::Ordering;

use coracle_abi::Errno;
use coracle_abi::convert::{low_u16, low_u32};
use coracle_core::Result;
use coracle_core::packet::{ChecksumOffload, HEADROOM, PacketBuf, TxPacket};

use crate::address::Address;
use crate::link::Path;
use crate::packet::{contiguous, copy_fragment};
use crate::stack::NetStack;
use crate::wire::checksum::Sum;
use crate::wire::ethernet;
use crate::wire::ipv4::{self, Ipv4};
use crate::wire::ipv6::{self, Ipv6};
use crate::wire::len16;

/// The fields of an IP header that a protocol chooses.
#[derive(Clone, Copy)]
pub(crate) struct IpHeader {
    pub(crate) destination: Address,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// IPv4: routers must not fragment it. What may be fragmented gets a number of its own (RFC 6864).
    pub(crate) dont_fragment: bool,
}

/// Next header of an IPv6 fragment.
const FRAGMENT_HEADER: u8 = 44;

/// Fills in the transport checksum of `packet`, whose head begins with the transport header and whose checksum field
/// (at `field`) is zero; or leaves it to the device, or, on loopback, to nobody.
#[inline]
pub(crate) fn checksum_in_place(
    packet: &mut TxPacket,
    path: &Path,
    destination: Address,
    protocol: u8,
    field: usize,
) {
    let len = packet.len();
    let interface = &path.interface;
    if interface.is_loopback() {
        return;
    }
    let mut sum = Sum::pseudo(path.source, destination, protocol, len);
    let fits = len + ipv6::HEADER <= interface.mtu || packet.segmentation.is_some();
    let bytes = if interface.capabilities.tx_checksum && fits {
        packet.checksum = Some(ChecksumOffload {
            start: 0, // moved as headers are put in front
            offset: len16(field),
        });
        sum.partial()
    } else {
        sum = sum.add(packet.head.data());
        let mut odd = !packet.head.len().is_multiple_of(2);
        for fragment in &packet.fragments {
            let mut bytes = PacketBuf::new(1, fragment.len());
            copy_fragment(fragment, bytes.append(fragment.len()));
            if odd {
                // The sum so far ended in half a word: begin with the other half.
                bytes.prepend(1).fill(0);
            }
            odd = !bytes.len().is_multiple_of(2);
            sum = sum.add(bytes.data());
        }
        // A UDP checksum of zero means "none" (RFC 768); for TCP both zeroes are the same.
        match sum.finish() {
            [0, 0] => [0xff, 0xff],
            bytes => bytes,
        }
    };
    packet.head.data_mut()[field..field + 2].copy_from_slice(&bytes);
}

impl NetStack {
    /// Finds the way to `destination`. `source` is the address to send from if one was chosen; `interface` the
    /// interface if one was chosen. `ENETUNREACH` without a route, `EADDRNOTAVAIL` without an address to send from.
    pub(crate) fn route(
        &self,
        destination: Address,
        source: Option<Address>,
        interface: Option<usize>,
    ) -> Result<Path> {
        let source = source.filter(|s| !s.is_unspecified());
        if destination.is_loopback() || self.is_local(destination) {
            let lo = self.interface(0).ok_or(Errno::ENETUNREACH)?;
            let own = if destination.is_loopback() {
                lo.source_for(destination)
            } else {
                Some(destination)
            };
            let source = source.or(own).ok_or(Errno::EADDRNOTAVAIL)?;
            return Ok(Path::new(lo.clone(), source, destination));
        }
        let route = self.routes.lock().find(destination);
        let is_group = destination.is_multicast() || destination == Address::BROADCAST;
        let by_source = || {
            let source = source?;
            self.interfaces()
                .find(|i| i.has_address(source))
                .map(|i| i.index)
        };
        let local_scope = is_group || destination.is_v6_link_local();
        let index = match (interface, local_scope, route) {
            (Some(index), ..) => index,
            (None, true, route) => by_source().or(route.map(|r| r.interface)).unwrap_or(1),
            (None, false, Some(route)) => route.interface,
            (None, false, None) => return Err(Errno::ENETUNREACH),
        };
        let out = self.interface(index).ok_or(Errno::ENETUNREACH)?;
        let next_hop = match route {
            Some(route) if !local_scope && route.interface == index => {
                route.gateway.unwrap_or(destination)
            }
            _ => destination,
        };
        let source = source
            .or_else(|| out.source_for(destination))
            .ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(Path::new(out.clone(), source, next_hop))
    }

    /// Puts an IP header in front of a transport packet and sends it; fragments it if it is too long.
    #[inline]
    pub(crate) fn send_ip(
        &self,
        path: &mut Path,
        mut packet: TxPacket,
        header: IpHeader,
        now: u64,
    ) {
        let len = packet.len();
        let is_v4 = header.destination.is_v4();
        let ip_len = if is_v4 { ipv4::HEADER } else { ipv6::HEADER };
        if len + ip_len > path.interface.mtu && packet.segmentation.is_none() {
            self.send_fragments(path, &packet, header, now);
            return;
        }
        let source = path.source;
        let head = packet.head.prepend(ip_len);
        if is_v4 {
            let id = if header.dont_fragment {
                0
            } else {
                self.new_ip_id()
            };
            Self::emit_v4(head, source, header, len, id, 0, false);
        } else {
            Self::emit_v6(head, source, header, header.protocol, len);
        }
        let front = len16(ip_len + ethernet::HEADER);
        if let Some(checksum) = &mut packet.checksum {
            checksum.start = front;
        }
        if let Some(segmentation) = &mut packet.segmentation {
            segmentation.header_len += front;
        }
        self.send_on_path(path, packet, now);
    }

    /// A number for a packet that may be fragmented.
    pub(crate) fn new_ip_id(&self) -> u16 {
        low_u16(self.next_ip_id.fetch_add(1, Ordering::Relaxed))
    }

    fn emit_v4(
        out: &mut [u8],
        source: Address,
        header: IpHeader,
        len: usize,
        id: u16,
        fragment_offset: usize,
        more_fragments: bool,
    ) {
        let (Some(source), Some(destination)) = (source.v4(), header.destination.v4()) else {
            return;
        };
        Ipv4 {
            header_len: ipv4::HEADER,
            total_len: ipv4::HEADER + len,
            tos: header.tos,
            id,
            dont_fragment: header.dont_fragment,
            more_fragments,
            fragment_offset,
            ttl: header.ttl,
            protocol: header.protocol,
            source,
            destination,
        }
        .emit(out);
    }

    fn emit_v6(out: &mut [u8], source: Address, header: IpHeader, next_header: u8, len: usize) {
        Ipv6 {
            traffic_class: header.tos,
            payload_len: len,
            next_header,
            hop_limit: header.ttl,
            source: source.v6(),
            destination: header.destination.v6(),
        }
        .emit(out);
    }

    /// Sends a packet that is longer than the interface allows in pieces (RFC 791 3.2, RFC 8200 4.5).
    #[cold]
    fn send_fragments(&self, path: &mut Path, packet: &TxPacket, header: IpHeader, now: u64) {
        let is_v4 = header.destination.is_v4();
        let front = if is_v4 {
            ipv4::HEADER
        } else {
            ipv6::HEADER + ipv6::Fragment::LEN
        };
        let whole = contiguous(packet);
        let step = (path.interface.mtu - front) & !7;
        let id = coracle_core::random::u64();
        let (mut offset, total) = (0, whole.len());
        while offset < total {
            let len = step.min(total - offset);
            let more = offset + len < total;
            let mut head = PacketBuf::new(HEADROOM, len);
            head.append(len)
                .copy_from_slice(&whole.data()[offset..offset + len]);
            let out = head.prepend(front);
            if is_v4 {
                let id = low_u16(id);
                Self::emit_v4(out, path.source, header, len, id, offset, more);
            } else {
                let (v6, extension) = out.split_at_mut(ipv6::HEADER);
                let len = len + ipv6::Fragment::LEN;
                Self::emit_v6(v6, path.source, header, FRAGMENT_HEADER, len);
                ipv6::Fragment {
                    offset,
                    more,
                    id: low_u32(id),
                }
                .emit(header.protocol, extension);
            }
            self.send_on_path(path, TxPacket::new(head), now);
            offset += len;
        }
    }
}
