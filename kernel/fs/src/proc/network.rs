// SPDX-License-Identifier: Apache-2.0
//! `/proc/net`: interfaces and sockets, in the columns that `netstat` and libraries parse.

use alloc::format;
use alloc::string::String;
use core::cmp::Reverse;
use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Info, ProcInfo, SocketFamily, text};
use crate::pseudo::Spec;

pub(super) fn directory(info: &Info) -> Spec {
    Spec::directory([
        ("dev", text(info, devices)),
        ("if_inet6", text(info, if_inet6)),
        ("route", text(info, routes)),
        ("tcp", text(info, |i| sockets(i, SocketFamily::Tcp4))),
        ("tcp6", text(info, |i| sockets(i, SocketFamily::Tcp6))),
        ("udp", text(info, |i| sockets(i, SocketFamily::Udp4))),
        ("udp6", text(info, |i| sockets(i, SocketFamily::Udp6))),
    ])
}

fn devices(info: &dyn ProcInfo) -> String {
    let mut out = String::from(
        "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    );
    for interface in info.interfaces() {
        let [rx_bytes, rx_packets, rx_errors, rx_drops] = interface.received;
        let [tx_bytes, tx_packets, tx_errors, tx_drops] = interface.sent;
        let name = interface.name;
        let _ = writeln!(
            out,
            "{name:>6}: {rx_bytes:>7} {rx_packets:>7} {rx_errors:>4} {rx_drops:>4} {:>4} {:>5} {:>10} {:>9} \
             {tx_bytes:>8} {tx_packets:>7} {tx_errors:>4} {tx_drops:>4} {:>4} {:>5} {:>7} {:>10}",
            0, 0, 0, 0, 0, 0, 0, 0
        );
    }
    out
}

/// Address, index, prefix length, scope (0x20 for link-local), flags (0x80: permanent), name.
fn if_inet6(info: &dyn ProcInfo) -> String {
    let mut out = String::new();
    for interface in info.interfaces() {
        for (address, prefix, link_local) in &interface.v6 {
            let scope = if *link_local { 0x20 } else { 0 };
            let _ = writeln!(
                out,
                "{:032x} {:02x} {prefix:02x} {scope:02x} 80 {:>8}",
                u128::from_be_bytes(*address),
                interface.index,
                interface.name
            );
        }
    }
    out
}

/// IPv4 routes as `fib_route_seq_show` of Linux prints them: rising by destination, lines of 127 characters, addresses in
/// hexadecimal as they lie in memory.
fn routes(info: &dyn ProcInfo) -> String {
    const HEAD: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";
    const UP: u32 = 1;
    const GATEWAY: u32 = 2;
    const HOST: u32 = 4;
    let raw = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
    let mut all = info.routes();
    all.sort_by_key(|route| (route.network.0, Reverse(route.network.1)));
    let mut out = format!("{HEAD:<127}\n");
    for route in all {
        let (network, length) = route.network;
        let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
        let mut flags = UP;
        if route.gateway.is_some() {
            flags |= GATEWAY;
        }
        if host == 0 {
            flags |= HOST;
        }
        let line = format!(
            "{}\t{:08X}\t{:08X}\t{flags:04X}\t0\t0\t0\t{:08X}\t0\t0\t0",
            route.interface,
            raw(network),
            route.gateway.map_or(0, raw),
            raw(Ipv4Addr::from_bits(!host)),
        );
        let _ = writeln!(out, "{line:<127}");
    }
    out
}

/// An address as the kernel prints it: words of 32 bits in the machine's order, then the port.
fn address(at: &SocketAddr) -> String {
    let mut out = String::new();
    let mut words = |bytes: &[u8]| {
        for word in bytes.as_chunks::<4>().0 {
            let _ = write!(out, "{:08X}", u32::from_ne_bytes(*word));
        }
    };
    match at.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    }
    format!("{out}:{:04X}", at.port())
}

fn sockets(info: &dyn ProcInfo, family: SocketFamily) -> String {
    let wide = matches!(family, SocketFamily::Tcp6 | SocketFamily::Udp6);
    let mut out = String::from(if wide {
        "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    } else {
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    });
    let (uid, _) = info.owner();
    for (line, socket) in info.sockets(family).iter().enumerate() {
        let _ = writeln!(
            out,
            "{line:>4}: {} {} {:02X} {:08X}:{:08X} 00:00000000 00000000 {uid:>5}        0 {}",
            address(&socket.local),
            address(&socket.remote),
            socket.state,
            socket.queued.0,
            socket.queued.1,
            socket.inode
        );
    }
    out
}
