// SPDX-License-Identifier: Apache-2.0

//! One DNS question over UDP (RFC 1035, section 4).

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::Attempt;

/// The id of each question; one socket has one question, so it need not differ.
const ID: [u8; 2] = [0xc0, 0x7a];

/// An A query for `name`; right is any answer to it, whatever its RCODE.
pub(super) fn ask(server: SocketAddr, name: &str, silence: Duration) -> Attempt {
    let text = |error: std::io::Error| format!("DNS query to {server}: {error}");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(text)?;
    socket.connect(server).map_err(text)?;
    socket.set_read_timeout(Some(silence)).map_err(text)?;
    socket.send(&question(name)).map_err(text)?;
    let mut answer = [0; 1500];
    let length = socket.recv(&mut answer).map_err(text)?;
    if is_answer(&answer[..length]) {
        return Ok(());
    }
    Err(format!(
        "DNS query to {server}: {length} bytes that are no answer to it"
    ))
}

fn question(name: &str) -> Vec<u8> {
    // Id; recursion desired; one question, nothing else.
    let mut packet = vec![ID[0], ID[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        // The experiment's reader has checked that a label has at most 63 bytes.
        let length = label.len().min(63);
        packet.push(u8::try_from(length).unwrap_or(63));
        packet.extend_from_slice(&label.as_bytes()[..length]);
    }
    // Root; type A; class IN.
    packet.extend_from_slice(&[0, 0, 1, 0, 1]);
    packet
}

/// The same id, and the bit QR set.
fn is_answer(packet: &[u8]) -> bool {
    packet.len() >= 12 && packet[..2] == ID && packet[2] & 0x80 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_as_in_the_rfc() {
        let packet = question("www.cetic.be.");
        assert_eq!(packet[12..], *b"\x03www\x05cetic\x02be\x00\x00\x01\x00\x01");
        assert!(!is_answer(&packet));
    }

    #[test]
    fn any_rcode_is_an_answer() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut packet = [0; 512];
            let (length, from) = server.recv_from(&mut packet).unwrap();
            packet[2] |= 0x80;
            packet[3] = 3;
            server.send_to(&packet[..length], from).unwrap();
        });
        ask(address, "example.org", Duration::from_secs(2)).unwrap();
        thread.join().unwrap();
        ask(address, "example.org", Duration::from_millis(50)).unwrap_err();
    }
}
