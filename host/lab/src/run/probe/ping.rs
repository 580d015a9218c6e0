// SPDX-License-Identifier: Apache-2.0

//! One ICMP echo request (RFC 792).

use std::net::{IpAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::Attempt;

const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;

/// Sends one echo request; right is its reply. Needs root, or a group of `net.ipv4.ping_group_range`.
pub(super) fn ping(target: IpAddr, silence: Duration) -> Attempt {
    let text = |error: nix::Error| format!("ping {target}: {}", error.desc());
    let IpAddr::V4(address) = target else {
        return Err(format!("ping {target}: not an IPv4 address"));
    };
    let open = |kind| {
        socket(
            AddressFamily::Inet,
            kind,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::Icmp,
        )
    };
    // A raw socket shows the IP header too.
    let (socket, has_header) = match open(SockType::Raw) {
        Ok(socket) => (socket, true),
        Err(_) => (open(SockType::Datagram).map_err(text)?, false),
    };
    let id = std::process::id().to_be_bytes();
    let request = echo_request([id[2], id[3]]);
    let end = Instant::now() + silence;
    let to = SockaddrIn::from(SocketAddrV4::new(address, 0));
    sendto(socket.as_raw_fd(), &request, &to, MsgFlags::empty()).map_err(text)?;
    // Raw sockets get every ICMP packet of the host: others are skipped.
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let micros = i64::try_from(left.as_micros()).unwrap_or(i64::MAX).max(1);
        let timeout = TimeVal::new(micros / 1_000_000, micros % 1_000_000);
        setsockopt(&socket, sockopt::ReceiveTimeout, &timeout).map_err(text)?;
        let mut packet = [0; 256];
        let length = match recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
            Ok(length) => length,
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => continue,
            Err(error) => return Err(text(error)),
        };
        let packet = &packet[..length];
        let is_ours = if has_header {
            // Source: RFC 791, section 3.1.
            let header = usize::from(packet.first().unwrap_or(&0) & 15) * 4;
            packet.get(12..16) == Some(&address.octets()[..])
                && packet
                    .get(header..)
                    .is_some_and(|icmp| is_reply(icmp, &request))
        } else {
            packet.first() == Some(&ECHO_REPLY)
        };
        if is_ours {
            return Ok(());
        }
    }
    Err(format!("ping {target}: no reply"))
}

fn echo_request(id: [u8; 2]) -> [u8; 16] {
    let mut packet = [0; 16];
    packet[0] = ECHO_REQUEST;
    packet[4..6].copy_from_slice(&id);
    packet[7] = 1;
    packet[8..].copy_from_slice(b"coracle!");
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum);
    packet
}

/// The same identifier, number and data.
fn is_reply(icmp: &[u8], request: &[u8; 16]) -> bool {
    icmp.first() == Some(&ECHO_REPLY) && icmp.get(4..16) == Some(&request[4..])
}

/// RFC 1071.
fn checksum(packet: &[u8; 16]) -> [u8; 2] {
    let mut sum = 0_u32;
    for pair in packet.chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [_, _, high, low] = (!sum).to_be_bytes();
    [high, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_right_sum() {
        // The sum over a packet with its checksum is 0 (RFC 1071, section 1).
        assert_eq!(checksum(&echo_request([0x12, 0x34])), [0, 0]);
    }

    #[test]
    fn only_the_reply_to_the_request_counts() {
        let request = echo_request([1, 2]);
        let mut reply = request;
        assert!(!is_reply(&reply, &request));
        reply[0] = ECHO_REPLY;
        assert!(is_reply(&reply, &request));
        assert!(!is_reply(&reply, &echo_request([1, 3])));
        assert!(!is_reply(&reply[..8], &request));
    }
}
