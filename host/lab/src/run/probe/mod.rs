// SPDX-License-Identifier: Apache-2.0

//! When does the first right answer come? An attempt about every millisecond, in the service's own protocol.

mod dns;
mod http;
mod ping;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::watch::Watch;
use crate::experiment::Ready;
use crate::platform::Instance;
use crate::{Error, Result};

/// How long one attempt may wait where nothing answers. A guest that is not up swallows the first packet; TCP would repeat
/// it after a second only.
const SILENCE: Duration = Duration::from_millis(30);
/// How long to wait for the answer on a connection that was made.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// A program that runs longer than this is asked less often whether it has ended: it may be measuring.
const SHORT: Duration = Duration::from_secs(1);
/// How often an instance is asked whether it has ended, which may cost more than an attempt.
const ENDED_EVERY: Duration = Duration::from_millis(20);

/// What is asked, and where.
#[derive(Clone, Debug)]
pub struct Question {
    /// The service; of [`Ready::Ping`] only the address counts, of [`Ready::Exit`] nothing.
    pub target: SocketAddr,
    /// How.
    pub ready: Ready,
}

/// Why there is no answer yet.
type Attempt = std::result::Result<(), String>;

impl Question {
    /// Asks once; the time until the answer was there.
    ///
    /// # Errors
    /// What happened instead.
    pub fn ask(&self, silence: Duration) -> std::result::Result<Duration, String> {
        let asked = Instant::now();
        match &self.ready {
            Ready::Tcp => connect(self.target, silence).map(drop),
            Ready::Http(path) => connect(self.target, silence)
                .and_then(|stream| http::get(stream, self.target, path)),
            Ready::Redis => connect(self.target, silence).and_then(redis),
            Ready::Dns(name) => dns::ask(self.target, name, silence),
            Ready::Ping => ping::ping(self.target.ip(), silence),
            Ready::Exit => Err("it has not ended".to_owned()),
        }?;
        Ok(asked.elapsed())
    }

    /// Asks until the answer is right. Answers when that was.
    ///
    /// # Errors
    /// [`Error::Platform`] when the instance ends before, or `limit` after `since`; [`Error::Interrupted`].
    pub fn first_answer(
        &self,
        since: Instant,
        limit: Duration,
        instance: &mut dyn Instance,
        watch: &Watch,
    ) -> Result<Instant> {
        let fail = |what: String, instance: &mut dyn Instance| Error::Platform {
            what,
            log: instance.log(),
        };
        let mut looked = Instant::now();
        loop {
            let reason = match self.ask(SILENCE) {
                // The network namespace of a container answers to a ping before there is a container in it.
                Ok(_) if self.ready == Ready::Ping && instance.processes().payload.is_empty() => {
                    "its process is not there yet".to_owned()
                }
                Ok(_) => return Ok(Instant::now()),
                Err(reason) => reason,
            };
            watch.check()?;
            if self.ready == Ready::Exit || looked.elapsed() >= ENDED_EVERY {
                looked = Instant::now();
                if let Some(ended) = instance.ended() {
                    return match (&self.ready, ended.code) {
                        (Ready::Exit, Some(0)) => Ok(looked),
                        _ => Err(fail(
                            format!("it ended before it was up: {}", ended.reason),
                            instance,
                        )),
                    };
                }
            }
            if since.elapsed() >= limit {
                let seconds = limit.as_secs_f64();
                let what = format!("no right answer within {seconds:.0} s; the last try: {reason}");
                return Err(fail(what, instance));
            }
            let is_long = self.ready == Ready::Exit && since.elapsed() >= SHORT;
            std::thread::sleep(if is_long { ENDED_EVERY } else { PAUSE });
        }
    }
}

fn connect(target: SocketAddr, silence: Duration) -> std::result::Result<TcpStream, String> {
    let text = |error: std::io::Error| format!("connect to {target}: {error}");
    let stream = TcpStream::connect_timeout(&target, silence).map_err(text)?;
    let timeout = Some(ANSWER.max(silence));
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(timeout))
        .and_then(|()| stream.set_write_timeout(timeout))
        .map_err(text)?;
    Ok(stream)
}

/// `PING` in RESP, <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
fn redis(mut stream: TcpStream) -> Attempt {
    const PONG: &[u8] = b"+PONG\r\n";
    let text = |error: std::io::Error| format!("PING: {error}");
    stream.write_all(b"*1\r\n$4\r\nPING\r\n").map_err(text)?;
    let mut answer = [0; PONG.len()];
    stream.read_exact(&mut answer).map_err(text)?;
    if answer == PONG {
        return Ok(());
    }
    Err(format!(
        "PING: answered {:?}",
        String::from_utf8_lossy(&answer)
    ))
}

/// Reads some bytes; 0 at the end.
fn read(stream: &mut impl Read, into: &mut [u8]) -> std::result::Result<usize, String> {
    loop {
        match stream.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other.map_err(|error| format!("read the answer: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers one connection with these bytes.
    fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 512];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(answer);
        });
        address
    }

    fn ask(ready: Ready, answer: &'static [u8]) -> std::result::Result<Duration, String> {
        let target = server(answer);
        Question { target, ready }.ask(Duration::from_secs(1))
    }

    #[test]
    fn redis_must_pong() {
        ask(Ready::Redis, b"+PONG\r\n").unwrap();
        for wrong in [&b"-LOADING\r\n"[..], b"", b"+PON"] {
            assert!(ask(Ready::Redis, wrong).is_err());
        }
    }

    #[test]
    fn a_port_that_nobody_listens_on_is_no_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let question = Question {
            target,
            ready: Ready::Tcp,
        };
        question.ask(SILENCE).unwrap();
        drop(listener);
        assert!(question.ask(SILENCE).unwrap_err().contains("refused"));
    }

    #[test]
    fn http_must_be_whole_and_200() {
        let ready = || Ready::Http("/todos".to_owned());
        ask(
            ready(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        )
        .unwrap();
        ask(ready(), b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").unwrap_err();
        ask(ready(), b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell").unwrap_err();
    }
}
