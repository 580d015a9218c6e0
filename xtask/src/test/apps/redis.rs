// SPDX-License-Identifier: Apache-2.0

//! Redis: values come back, pipelines, time-outs, an append-only file; what needs a child process is refused clearly.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Ready, Running, Server, connect};

const READY: Ready = Ready::Says {
    ask: "PING\r\n",
    answer: "+PONG\r\n",
};

pub(super) const SERVERS: &[Server] = &[
    Server {
        name: "redis",
        image: "redis",
        command: &["/usr/bin/redis-server", "/etc/redis/redis.conf"],
        flags: &[],
        port: 6379,
        ready: READY,
        test: works,
    },
    Server {
        name: "redis, 2 vCPUs, I/O threads, append-only file",
        image: "redis",
        command: &[
            "/usr/bin/redis-server",
            "/etc/redis/redis.conf",
            "--io-threads",
            "2",
            "--io-threads-do-reads",
            "yes",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ],
        flags: &["--cpus", "2"],
        port: 6379,
        ready: READY,
        test: works,
    },
];

/// A connection that speaks Redis' protocol (<https://redis.io/docs/reference/protocol-spec/>).
struct Client(BufReader<std::net::TcpStream>);

impl Client {
    fn send(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut text = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            text.extend(format!("${}\r\n", word.len()).bytes());
            text.extend_from_slice(word);
            text.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&text).context("send")
    }

    /// One answer: the line, or the bytes that the line announces.
    fn answer(&mut self) -> Result<Vec<u8>> {
        let mut line = String::new();
        self.0.read_line(&mut line).context("read the answer")?;
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            return Ok(line.as_bytes().to_vec());
        };
        let Ok(length) = length.parse::<usize>() else {
            return Ok(b"(nil)".to_vec());
        };
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes).context("read a value")?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn ask(&mut self, words: &[&str]) -> Result<String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&words)?;
        Ok(String::from_utf8_lossy(&self.answer()?).into_owned())
    }

    fn expect(&mut self, words: &[&str], wanted: &str) -> Result<()> {
        let got = self.ask(words)?;
        if got != wanted {
            bail!("{words:?} gave {got:?}, want {wanted:?}");
        }
        Ok(())
    }
}

fn works(running: &Running<'_>) -> Result<()> {
    let mut client = Client(BufReader::new(connect(running.address)?));
    client.expect(&["SET", "greeting", "hello"], "+OK")?;
    client.expect(&["GET", "greeting"], "hello")?;
    client.expect(&["GET", "nothing"], "(nil)")?;

    let large: Vec<u8> = (0..3_000_000_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    client.send(&[b"SET", b"large", &large])?;
    if client.answer()? != b"+OK" {
        bail!("a large value was not taken");
    }
    client.send(&[b"GET", b"large"])?;
    if client.answer()? != large {
        bail!("a large value came back changed");
    }

    const DEEP: usize = 5000;
    for _ in 0..DEEP {
        client.send(&[b"INCR", b"count"])?;
    }
    for count in 1..=DEEP {
        let answer = client.answer()?;
        if answer != format!(":{count}").as_bytes() {
            bail!("{answer:?} for the {count}th INCR of a pipeline");
        }
    }
    client.expect(
        &["EVAL", "return redis.call('GET', 'count') + 1", "0"],
        ":5001",
    )?;

    client.expect(&["SET", "short", "1", "PX", "100"], "+OK")?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while client.ask(&["EXISTS", "short"])? != ":0" {
        if Instant::now() > deadline {
            bail!("a key with a time to live of 100 ms is still there after 5 s");
        }
    }

    // A snapshot is written by a child process, which there is none here: refused at once, and the log says why.
    let refused = client.ask(&["BGSAVE"])?;
    if !refused.starts_with("-ERR") {
        bail!("BGSAVE gave {refused:?}");
    }
    let log = running.guest.output(&["logs"])?;
    if !log.contains("fork") {
        bail!("the log does not say why there is no snapshot:\n{log}");
    }
    // The foreground can save.
    client.expect(&["SAVE"], "+OK")?;
    client.expect(&["GET", "greeting"], "hello")
}
