// SPDX-License-Identifier: Apache-2.0

//! A client that waits: one kept connection, one request after the other. For users of a scenario; the engine of `rate` has
//! its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::http::{Answer, Reader};

/// How often a wait looks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The kind of error.
    Kind(&'static str),
    /// The user wants to stop.
    Interrupted,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client<'a> {
    target: SocketAddr,
    timeout: Duration,
    cancel: &'a AtomicBool,
    stream: Option<TcpStream>,
    reader: Reader,
    /// Bytes of heads and bodies, sent and received, of the last exchange.
    pub(super) sent_bytes: u64,
    /// See above.
    pub(super) received_bytes: u64,
}

impl<'a> Client<'a> {
    pub(super) fn new(target: SocketAddr, timeout: Duration, cancel: &'a AtomicBool) -> Self {
        Client {
            target,
            timeout,
            cancel,
            stream: None,
            reader: Reader::new(true),
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// The body of the last answer.
    pub(super) fn body(&self) -> &[u8] {
        self.reader.body()
    }

    /// Sends a request and waits for its answer. A kept connection that the server had ended meanwhile is made anew, once,
    /// as browsers do.
    pub(super) fn exchange(&mut self, request: &[u8]) -> Result<Answer, Lost> {
        let kept = self.stream.is_some();
        match self.try_exchange(request) {
            Err(Lost::Kind("closed" | "reset")) if kept && self.received_bytes == 0 => {
                self.try_exchange(request)
            }
            other => other,
        }
    }

    fn try_exchange(&mut self, request: &[u8]) -> Result<Answer, Lost> {
        self.reader.reset();
        (self.sent_bytes, self.received_bytes) = (0, 0);
        let result = self.send_and_wait(request);
        if !matches!(result, Ok(Answer { close: false, .. })) {
            self.stream = None;
        }
        result
    }

    fn send_and_wait(&mut self, request: &[u8]) -> Result<Answer, Lost> {
        let end = Instant::now() + self.timeout;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect_timeout(&self.target, self.timeout)
                    .map_err(|_| Lost::Kind("connect"))?;
                stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_write_timeout(Some(self.timeout)))
                    .and_then(|()| stream.set_read_timeout(Some(LOOK.min(self.timeout))))
                    .map_err(|_| Lost::Kind("socket"))?;
                none.insert(stream)
            }
        };
        stream.write_all(request).map_err(|why| kind(&why))?;
        self.sent_bytes = request.len() as u64;
        let mut buffer = [0; 16 << 10];
        loop {
            let count = match stream.read(&mut buffer) {
                Ok(0) => return self.reader.end().ok_or(Lost::Kind("closed")),
                Ok(count) => count,
                Err(why)
                    if matches!(
                        why.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    if self.cancel.load(Ordering::Relaxed) {
                        return Err(Lost::Interrupted);
                    }
                    if Instant::now() >= end {
                        return Err(Lost::Kind("timeout"));
                    }
                    continue;
                }
                Err(why) => return Err(kind(&why)),
            };
            self.received_bytes += count as u64;
            match self.reader.take(&buffer[..count]) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) if Instant::now() >= end => return Err(Lost::Kind("timeout")),
                Ok(None) => {}
                Err(_) => return Err(Lost::Kind("malformed")),
            }
        }
    }
}

fn kind(why: &std::io::Error) -> Lost {
    Lost::Kind(match why.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "reset",
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "timeout",
        _ => "socket",
    })
}
