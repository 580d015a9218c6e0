// SPDX-License-Identifier: Apache-2.0
//! Numbers of the socket interface that `linux-raw-sys` does not have (Linux `include/linux/socket.h`,
//! `include/linux/net.h`).

#![expect(missing_docs, reason = "the names are those of the manual pages")]

pub const AF_UNSPEC: u16 = 0;
pub const AF_UNIX: u16 = 1;
pub const AF_INET: u16 = 2;
pub const AF_INET6: u16 = 10;
pub const AF_NETLINK: u16 = 16;
pub const AF_PACKET: u16 = 17;

pub const SOCK_STREAM: u32 = 1;
pub const SOCK_DGRAM: u32 = 2;
pub const SOCK_RAW: u32 = 3;
pub const SOCK_SEQPACKET: u32 = 5;
/// Types are below this number.
pub const SOCK_MAX: u32 = 11;

pub const MSG_OOB: u32 = 0x1;
pub const MSG_PEEK: u32 = 0x2;
pub const MSG_CTRUNC: u32 = 0x8;
pub const MSG_TRUNC: u32 = 0x20;
pub const MSG_DONTWAIT: u32 = 0x40;
pub const MSG_EOR: u32 = 0x80;
pub const MSG_WAITALL: u32 = 0x100;
pub const MSG_ERRQUEUE: u32 = 0x2000;
pub const MSG_NOSIGNAL: u32 = 0x4000;
pub const MSG_MORE: u32 = 0x8000;

pub const SOL_IP: u32 = 0;
pub const SOL_SOCKET: u32 = 1;
pub const SOL_TCP: u32 = 6;
pub const SOL_UDP: u32 = 17;
/// `udplite(7)`.
pub const SOL_UDPLITE: u32 = 136;
pub const UDPLITE_SEND_CSCOV: u32 = 10;
pub const UDPLITE_RECV_CSCOV: u32 = 11;
pub const SOL_IPV6: u32 = 41;
pub const SOL_RAW: u32 = 255;
pub const SOL_PACKET: u32 = 263;
pub const SOL_NETLINK: u32 = 270;

pub const SCM_RIGHTS: u32 = 1;
pub const SCM_CREDENTIALS: u32 = 2;
