// SPDX-License-Identifier: Apache-2.0

//! A very small HTTP/1.1 client: when does the first answer come, and do a hundred come.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::sh;

/// The longest answer the client takes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How long one attempt to connect may take. A guest that is not up swallows the first packet; TCP would repeat it
/// after a second only.
const CONNECT_LIMIT: Duration = Duration::from_millis(30);

/// How long to wait for the answer on a connection that was made.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// What shows that a service is there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ready {
    /// `GET` of this path is answered with status 200.
    Http(&'static str),
    /// These bytes, sent on a new connection, are answered with bytes that begin so.
    Says {
        ask: &'static str,
        answer: &'static str,
    },
}

/// Asks about every millisecond until a complete answer has come; returns it, of HTTP the body.
///
/// # Errors
/// When `deadline` passes, when `gone` says that the guest ended, or on Ctrl-C.
pub(crate) fn first_answer(
    service: SocketAddr,
    ready: &Ready,
    deadline: Instant,
    mut gone: impl FnMut() -> Option<String>,
) -> Result<String> {
    loop {
        let asked = match ready {
            Ready::Http(path) => get(service, path),
            Ready::Says { ask, answer } => say(service, ask, answer),
        };
        let refused = match asked {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        sh::check_interrupt()?;
        if let Some(how) = gone() {
            bail!("the guest ended before it answered: {how}");
        }
        if Instant::now() >= deadline {
            return Err(refused).context("no answer in time");
        }
        sleep(PAUSE);
    }
}

/// One request on a connection of its own.
fn get(service: SocketAddr, path: &str) -> Result<String> {
    Client::connect(service, CONNECT_LIMIT)?.get(path)
}

/// One question in a protocol of lines, on a connection of its own.
fn say(service: SocketAddr, ask: &str, answer: &str) -> Result<String> {
    let mut stream = Client::connect(service, CONNECT_LIMIT)?.stream;
    stream.write_all(ask.as_bytes()).context("send")?;
    let mut bytes = vec![0; answer.len()];
    stream.read_exact(&mut bytes).context("read the answer")?;
    let said = String::from_utf8_lossy(&bytes).into_owned();
    if said != answer {
        bail!("the answer was `{said}`, wanted `{answer}`");
    }
    Ok(said)
}

/// One connection that is kept between requests.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes received and not yet taken.
    received: Vec<u8>,
}

impl Client {
    /// Connects within `limit`.
    pub(crate) fn connect(service: SocketAddr, limit: Duration) -> Result<Client> {
        let stream = TcpStream::connect_timeout(&service, limit)
            .with_context(|| format!("connect to {service}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        Ok(Client {
            stream,
            received: Vec::new(),
        })
    }

    /// Sends `GET path` and returns the body of the answer, whose status must be 200.
    pub(crate) fn get(&mut self, path: &str) -> Result<String> {
        write!(self.stream, "GET {path} HTTP/1.1\r\nHost: guest\r\n\r\n")
            .context("send the request")?;
        loop {
            if let Some((used, answer)) = parse(&self.received)? {
                self.received.drain(..used);
                return Ok(answer);
            }
            if self.received.len() > ANSWER_BYTES_MAX {
                bail!("an answer of more than {ANSWER_BYTES_MAX} bytes");
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the connection ended within the answer"),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("read the answer"),
            }
        }
    }
}

/// The length and the body of the first answer in `bytes`; `None` while it is incomplete. Only answers with a
/// `Content-Length` are understood: the service's bodies are short, so Go always sends one.
fn parse(bytes: &[u8]) -> Result<Option<(usize, String)>> {
    let Some(head_end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..head_end]).context("the answer's head is not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("the answer was `{status}`");
    }
    let length: usize = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("an answer without Content-Length")?
        .1
        .trim()
        .parse()
        .context("Content-Length is not a number")?;
    let (start, Some(end)) = (head_end + 4, (head_end + 4).checked_add(length)) else {
        bail!("Content-Length {length} is absurd");
    };
    let body = bytes.get(start..end);
    Ok(body.map(|body| (end, String::from_utf8_lossy(body).into_owned())))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn answers_are_taken_whole() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP";
        assert_eq!(
            parse(whole).unwrap(),
            Some((whole.len() - 4, "hello".to_owned()))
        );
        for cut in 0..whole.len() - 4 {
            assert_eq!(parse(&whole[..cut]).unwrap(), None, "{cut} bytes");
        }
    }

    #[test]
    fn other_answers_are_errors() {
        for bad in [
            "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let absurd = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", usize::MAX);
        assert!(parse(absurd.as_bytes()).is_err());
    }
}
