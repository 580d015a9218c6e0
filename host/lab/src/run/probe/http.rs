// SPDX-License-Identifier: Apache-2.0

//! A very small HTTP/1.1 client (RFC 9112) that knows when an answer is complete.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use super::{Attempt, read};

/// The longest answer the client takes.
const ANSWER_BYTES_MAX: usize = 1 << 22;

/// `GET path`; right is a complete answer with status 200.
pub(super) fn get(mut stream: TcpStream, host: SocketAddr, path: &str) -> Attempt {
    // In one write, so that it is one packet.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .map_err(|error| format!("GET {path}: {error}"))?;
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = read(&mut stream, &mut chunk)?;
        received.extend_from_slice(&chunk[..count]);
        let state = parse(&received).map_err(|what| format!("GET {path}: {what}"))?;
        match (state, count) {
            (State::Complete, _) | (State::UntilEnd, 0) => return Ok(()),
            (State::Incomplete, 0) => {
                return Err(format!(
                    "GET {path}: the connection ended within the answer"
                ));
            }
            _ if received.len() > ANSWER_BYTES_MAX => {
                return Err(format!(
                    "GET {path}: an answer of more than {ANSWER_BYTES_MAX} bytes"
                ));
            }
            _ => {}
        }
    }
}

/// How much of an answer is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Incomplete,
    Complete,
    /// It lasts until the connection ends.
    UntilEnd,
}

/// RFC 9112, section 6.3: how long a body is.
fn parse(bytes: &[u8]) -> Result<State, String> {
    let Some(head_end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(State::Incomplete);
    };
    let head = std::str::from_utf8(&bytes[..head_end]).map_err(|_| "the head is not text")?;
    let body = &bytes[head_end + 4..];
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("answered {status:?}"));
    }
    let mut length = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return chunked(body);
        }
        if name.eq_ignore_ascii_case("content-length") {
            let value: usize = value
                .trim()
                .parse()
                .map_err(|_| "Content-Length is no number")?;
            length = Some(value);
        }
    }
    Ok(match length {
        Some(length) if body.len() >= length => State::Complete,
        Some(_) => State::Incomplete,
        None => State::UntilEnd,
    })
}

/// RFC 9112, section 7.1: a chunk of length 0 ends it.
fn chunked(mut body: &[u8]) -> Result<State, String> {
    loop {
        let Some(end) = body.windows(2).position(|two| two == b"\r\n") else {
            return Ok(State::Incomplete);
        };
        let line = std::str::from_utf8(&body[..end]).map_err(|_| "a chunk's head is not text")?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = usize::from_str_radix(digits, 16).map_err(|_| "a chunk without length")?;
        let rest = &body[end + 2..];
        if length == 0 {
            let is_over =
                rest.starts_with(b"\r\n") || rest.windows(4).any(|four| four == b"\r\n\r\n");
            return Ok(if is_over {
                State::Complete
            } else {
                State::Incomplete
            });
        }
        let Some(next) = length.checked_add(2).and_then(|skip| rest.get(skip..)) else {
            return Ok(State::Incomplete);
        };
        body = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_whole() {
        for whole in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
        ] {
            assert_eq!(parse(whole), Ok(State::Complete));
            for cut in 0..whole.len() {
                assert_eq!(parse(&whole[..cut]), Ok(State::Incomplete), "{cut} bytes");
            }
        }
        assert_eq!(parse(b"HTTP/1.0 200 OK\r\n\r\nhel"), Ok(State::UntilEnd));
    }

    #[test]
    fn other_answers_are_errors() {
        for bad in [
            "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".to_owned(),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        // An absurd length is waited for in vain, up to the limit of an answer.
        let absurd = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", usize::MAX);
        assert_eq!(parse(absurd.as_bytes()), Ok(State::Incomplete));
        let absurd = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n";
        assert_eq!(parse(absurd.as_bytes()), Ok(State::Incomplete));
    }
}
