// SPDX-License-Identifier: Apache-2.0
//! Multicast groups: which ones this machine is in, and telling the network so that switches and routers send them here
//! (IGMPv3, RFC 3376; MLDv2, RFC 3810).
//!
//! All groups are joined for any source. Reports say so at once when something changes, and again when a querier asks.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use coracle_core::packet::{HEADROOM, PacketBuf, TxPacket};
use coracle_core::sync::SpinLock;

use crate::address::Address;
use crate::ip::IpMeta;
use crate::link::{Interface, Path};
use crate::stack::NetStack;
use crate::wire::checksum::Sum;
use crate::wire::ipv6::{self, Ipv6};
use crate::wire::{ipv4, len16, protocol};

/// What a report says of a group (RFC 3376 4.2.12): we are in it; we join; we leave.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Record {
    IsMember = 2,
    Leave = 3,
    Join = 4,
}

/// IGMP messages: a query, and our report.
const IGMP_QUERY: u8 = 0x11;
const IGMP_REPORT: u8 = 0x22;
/// MLD messages: a query, and our report.
pub(crate) const MLD_QUERY: u8 = 130;
const MLD_REPORT: u8 = 143;

/// An IPv4 header with the option "router alert" (RFC 2113).
const V4_HEADER: usize = 24;
/// The hop-by-hop header with the option "router alert" for MLD (RFC 2711).
const ROUTER_ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
const HOP_BY_HOP: u8 = 0;

struct Membership {
    group: Address,
    /// Index of the interface.
    interface: usize,
    /// Sockets and addresses that want it.
    users: usize,
}

/// The groups of all interfaces.
#[derive(Default)]
pub(crate) struct Groups(SpinLock<Vec<Membership>>);

impl NetStack {
    /// One more user of a group.
    #[cold]
    pub(crate) fn join_group(&self, group: Address, interface: usize, now: u64) {
        {
            let mut groups = self.groups.0.lock();
            let same = |m: &&mut Membership| m.group == group && m.interface == interface;
            if let Some(membership) = groups.iter_mut().find(same) {
                membership.users += 1;
                return;
            }
            groups.push(Membership {
                group,
                interface,
                users: 1,
            });
        }
        if let Some(interface) = self.interface(interface) {
            self.report_groups(interface, &[group], Record::Join, now);
        }
    }

    /// One user less of a group.
    #[cold]
    pub(crate) fn leave_group(&self, group: Address, interface: usize, now: u64) {
        {
            let mut groups = self.groups.0.lock();
            let same = |m: &Membership| m.group == group && m.interface == interface;
            let Some(at) = groups.iter().position(same) else {
                return;
            };
            groups[at].users -= 1;
            if groups[at].users > 0 {
                return;
            }
            groups.swap_remove(at);
        }
        if let Some(interface) = self.interface(interface) {
            self.report_groups(interface, &[group], Record::Leave, now);
        }
    }

    /// A querier asks which groups we are in: all of them, or one.
    #[cold]
    pub(crate) fn answer_group_query(&self, meta: &IpMeta<'_>, asked: Address, now: u64) {
        let groups: Vec<Address> = {
            let groups = self.groups.0.lock();
            let here = groups.iter().filter(|m| {
                m.interface == meta.interface.index
                    && m.group.is_v4() == asked.is_v4()
                    && (asked.is_unspecified() || m.group == asked)
            });
            here.map(|m| m.group).collect()
        };
        self.report_groups(meta.interface, &groups, Record::IsMember, now);
    }

    /// A received IGMP message.
    #[cold]
    pub(crate) fn input_igmp(&self, meta: &IpMeta<'_>, buf: &PacketBuf, now: u64) {
        let Some(message) = buf.data().first_chunk::<8>() else {
            self.counters.drop_malformed.bump();
            return;
        };
        if !Sum::default().add(buf.data()).is_valid() {
            self.counters.drop_checksum.bump();
            return;
        }
        if message[0] == IGMP_QUERY {
            let [.., a, b, c, d] = *message;
            self.answer_group_query(meta, Address::from_v4(Ipv4Addr::new(a, b, c, d)), now);
        }
    }

    fn report_groups(
        &self,
        interface: &Arc<Interface>,
        groups: &[Address],
        record: Record,
        now: u64,
    ) {
        if interface.is_loopback() {
            return;
        }
        let (v4, v6): (Vec<Address>, Vec<Address>) = groups
            .iter()
            .copied()
            .filter(|g| is_reported(*g))
            .partition(|g| g.is_v4());
        if !v4.is_empty() {
            self.send_igmp_report(interface, &v4, record, now);
        }
        if !v6.is_empty() {
            self.send_mld_report(interface, &v6, record, now);
        }
    }

    fn send_igmp_report(
        &self,
        interface: &Arc<Interface>,
        groups: &[Address],
        record: Record,
        now: u64,
    ) {
        let to = Address::from_v4(Ipv4Addr::new(224, 0, 0, 22));
        let source = interface
            .source_for(to)
            .and_then(Address::v4)
            .unwrap_or(Ipv4Addr::UNSPECIFIED);
        let body = report(IGMP_REPORT, groups, record);
        let mut packet = PacketBuf::new(HEADROOM, V4_HEADER + body.len());
        let header = packet.append(V4_HEADER);
        header[0] = 0x46;
        header[1] = 0xc0; // network control
        header[8] = 1;
        header[9] = protocol::IGMP;
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&to.v6().octets()[12..]);
        header[20..].copy_from_slice(&[148, 4, 0, 0]);
        let out = packet.append(body.len());
        out.copy_from_slice(&body);
        let sum = Sum::default().add(out).finish();
        out[2..4].copy_from_slice(&sum);
        // The header is ours, so it can be completed.
        let _ = ipv4::complete(packet.data_mut(), Some(source), self.new_ip_id());
        let mut path = Path::new(interface.clone(), Address::from_v4(source), to);
        self.send_on_path(&mut path, TxPacket::new(packet), now);
    }

    fn send_mld_report(
        &self,
        interface: &Arc<Interface>,
        groups: &[Address],
        record: Record,
        now: u64,
    ) {
        let to = Address::from_v6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16));
        let source = interface.link_local().unwrap_or(Address::ANY_V6);
        let mut body = report(MLD_REPORT, groups, record);
        let sum = Sum::pseudo(source, to, protocol::ICMPV6, body.len())
            .add(&body)
            .finish();
        body[2..4].copy_from_slice(&sum);
        let payload_len = ROUTER_ALERT.len() + body.len();
        let mut packet = PacketBuf::new(HEADROOM, ipv6::HEADER + payload_len);
        Ipv6 {
            traffic_class: 0,
            payload_len,
            next_header: HOP_BY_HOP,
            hop_limit: 1,
            source: source.v6(),
            destination: to.v6(),
        }
        .emit(packet.append(ipv6::HEADER));
        packet
            .append(ROUTER_ALERT.len())
            .copy_from_slice(&ROUTER_ALERT);
        packet.append(body.len()).copy_from_slice(&body);
        let mut path = Path::new(interface.clone(), source, to);
        self.send_on_path(&mut path, TxPacket::new(packet), now);
    }
}

/// Whether membership is reported: all hosts are in the group of all hosts (RFC 3376 6, RFC 3810 6).
fn is_reported(group: Address) -> bool {
    let all_v4 = Address::from_v4(Ipv4Addr::new(224, 0, 0, 1));
    let all_v6 = Address::from_v6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    group != all_v4 && group != all_v6
}

/// A report of either protocol without its checksum: both have the same layout.
fn report(kind: u8, groups: &[Address], record: Record) -> Vec<u8> {
    // As many as fit in any frame.
    const MOST: usize = 60;
    let groups = &groups[..groups.len().min(MOST)];
    let mut out = alloc::vec![kind, 0, 0, 0, 0, 0];
    out.extend(len16(groups.len()).to_be_bytes());
    for group in groups {
        out.extend([record as u8, 0, 0, 0]);
        match group.v4() {
            Some(v4) => out.extend(v4.octets()),
            None => out.extend(group.v6().octets()),
        }
    }
    out
}
