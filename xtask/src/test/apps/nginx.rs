// SPDX-License-Identifier: Apache-2.0

//! nginx: files of all sizes come whole, by sendfile, by copying and by threads; ranges, pipelines, uploads, logs.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Ready, Running, Server, connect, exchange};
use crate::test::load;

/// The sizes of the files in `images/nginx-bench`, which are their names too.
const SIZES: [usize; 7] = [64, 256, 1024, 4096, 16384, 65536, 262_144];

/// What 300 requests over one connection may take. A sender that held back the end of each answer for the receiver's
/// delayed acknowledgement, 40 ms, would take 12 s.
const KEPT_LIMIT: Duration = Duration::from_secs(8);

pub(super) const SERVERS: &[Server] = &[
    Server {
        name: "nginx",
        image: "nginx-bench",
        command: &["/usr/sbin/nginx", "-g", "daemon off; master_process off;"],
        flags: &[],
        port: 80,
        ready: Ready::Http("/64"),
        test: sizes,
    },
    Server {
        name: "nginx without sendfile",
        image: "nginx-bench",
        command: &[
            "/usr/sbin/nginx",
            "-g",
            "daemon off; master_process off;",
            "-c",
            "/etc/nginx/nginx-plain.conf",
        ],
        flags: &[],
        port: 80,
        ready: Ready::Http("/64"),
        test: sizes,
    },
    Server {
        name: "nginx with threads, uploads, compression, 2 vCPUs",
        image: "nginx-bench",
        command: &[
            "/usr/sbin/nginx",
            "-g",
            "daemon off; master_process off;",
            "-c",
            "/etc/nginx/nginx-test.conf",
        ],
        flags: &["--cpus", "2"],
        port: 80,
        ready: Ready::Http("/64"),
        test: everything,
    },
];

/// An answer: status, head, body.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

/// One request on a connection of its own; `head`: further lines, each with its end.
fn ask(address: SocketAddr, request: &str, head: &str, body: &[u8]) -> Result<Answer> {
    let mut bytes = format!("{request} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n{head}\r\n")
        .into_bytes();
    bytes.extend_from_slice(body);
    let answer = exchange(address, &bytes).with_context(|| request.to_owned())?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.with_context(|| format!("{request}: no head in {} bytes", answer.len()))?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status: status.with_context(|| format!("{request}: {head}"))?,
        head,
        body: answer[end + 4..].to_vec(),
    })
}

/// The first `size` bytes of the files.
fn content(size: usize) -> Vec<u8> {
    b"0123456789abcde\n"
        .iter()
        .copied()
        .cycle()
        .take(size)
        .collect()
}

/// All sizes, many requests on one connection, then load over ten.
fn sizes(running: &Running<'_>) -> Result<()> {
    for size in SIZES {
        let answer = ask(running.address, &format!("GET /{size}"), "", b"")?;
        ensure!(
            answer.status == 200 && answer.body == content(size),
            "/{size}: {} and {} bytes",
            answer.head,
            answer.body.len()
        );
    }
    let started = Instant::now();
    let mut client = crate::test::probe::Client::connect(running.address, KEPT_LIMIT)?;
    for path in ["/64", "/4096", "/65536"].iter().cycle().take(300) {
        client.get(path)?;
    }
    ensure!(
        started.elapsed() < KEPT_LIMIT,
        "300 requests over one connection took {:?}",
        started.elapsed()
    );
    for path in ["/64", "/262144"] {
        let load = load::wrk(running.address, path, 10, 1)?;
        ensure!(
            load.errors == 0 && load.requests > 0,
            "{path}: {} errors beside {} answers",
            load.errors,
            load.requests
        );
    }
    Ok(())
}

fn everything(running: &Running<'_>) -> Result<()> {
    sizes(running)?;
    let address = running.address;
    let whole = content(262_144);
    for size in SIZES {
        let answer = ask(address, &format!("GET /threads/{size}"), "", b"")?;
        ensure!(answer.body == whole[..size], "by threads: {}", answer.head);
    }
    for (first, last) in [(0, 0), (4095, 4097), (100, 200_000), (262_143, 262_143)] {
        let range = format!("Range: bytes={first}-{last}\r\n");
        let answer = ask(address, "GET /262144", &range, b"")?;
        ensure!(
            answer.status == 206 && answer.body == whole[first..=last],
            "{range}: {}",
            answer.head
        );
    }
    conditional(address)?;
    // It comes in chunks, so the first chunk's length stands before what is compressed.
    let packed = ask(address, "GET /text", "Accept-Encoding: gzip\r\n", b"")?;
    ensure!(
        packed.head.contains("Content-Encoding: gzip")
            && packed.body.windows(2).any(|bytes| bytes == [0x1f, 0x8b]),
        "not compressed: {}",
        packed.head
    );
    pipeline(address)?;

    let upload: Vec<u8> = (0..5_000_000_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    let length = format!("Content-Length: {}\r\n", upload.len());
    let put = ask(address, "PUT /upload/a/b", &length, &upload)?;
    ensure!(put.status == 201, "upload: {}", put.head);
    let back = ask(address, "GET /upload/a/b", "", b"")?;
    ensure!(
        back.body == upload,
        "an upload came back changed: {}",
        back.head
    );
    let gone = ask(address, "DELETE /upload/a/b", "", b"")?;
    ensure!(gone.status == 204, "delete: {}", gone.head);
    let missing = ask(address, "GET /upload/a/b", "", b"")?;
    ensure!(missing.status == 404, "deleted: {}", missing.head);

    let log = ask(address, "GET /logs/access.log", "", b"")?;
    let log = String::from_utf8_lossy(&log.body);
    ensure!(
        log.contains("PUT /upload/a/b HTTP/1.1\" 201"),
        "the log of requests lacks the upload"
    );
    Ok(())
}

/// An answer that the client has already is not sent again.
fn conditional(address: SocketAddr) -> Result<()> {
    let answer = ask(address, "GET /64", "", b"")?;
    for (from, to) in [
        ("ETag: ", "If-None-Match: "),
        ("Last-Modified: ", "If-Modified-Since: "),
    ] {
        let value = answer.head.lines().find_map(|line| line.strip_prefix(from));
        let value = value.with_context(|| format!("no {from} in {}", answer.head))?;
        let again = ask(address, "GET /64", &format!("{to}{value}\r\n"), b"")?;
        ensure!(
            again.status == 304 && again.body.is_empty(),
            "{to}{value}: {}",
            again.head
        );
    }
    Ok(())
}

/// Many requests at once on one connection, answered in order.
fn pipeline(address: SocketAddr) -> Result<()> {
    const DEEP: usize = 100;
    let request = "GET /256 HTTP/1.1\r\nHost: guest\r\n\r\n".repeat(DEEP);
    let last = "GET /65536 HTTP/1.1\r\nHost: guest\r\nConnection: close\r\n\r\n";
    let answer = exchange(address, (request + last).as_bytes())?;
    let heads = answer
        .windows(15)
        .filter(|bytes| bytes == b"HTTP/1.1 200 OK")
        .count();
    ensure!(
        heads == DEEP + 1 && answer.ends_with(&content(65536)),
        "{heads} answers to {} requests of a pipeline",
        DEEP + 1
    );
    // A client that goes away in the middle of an answer leaves the server as it was.
    let mut stream = connect(address)?;
    stream.write_all(b"GET /262144 HTTP/1.1\r\nHost: guest\r\n\r\n")?;
    drop(stream);
    let after = ask(address, "GET /64", "", b"")?;
    if after.status != 200 {
        bail!("after a client that went away: {}", after.head);
    }
    Ok(())
}
