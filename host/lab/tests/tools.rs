// SPDX-License-Identifier: Apache-2.0

//! The tools themselves, where they are installed, against small servers of this test: what is recorded in
//! `tests/recorded` may not be what the next version prints. A tool that is not there is left out, and said.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use coracle_lab::load::{Job, Row, generator};

/// Runs the generator, or says that its tool is not there.
fn load(name: &str, target: SocketAddr, point: &str) -> Option<Vec<Row>> {
    let generator = generator(name).unwrap();
    match generator.find() {
        Ok(version) => eprintln!("{name}: {version}"),
        Err(why) => {
            eprintln!("left out: {why}");
            return None;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("queries.txt"), "www.example.com A\n").unwrap();
    let point = toml::from_str(point).unwrap();
    generator.check(&point).unwrap();
    let outcome = generator.run(&Job {
        target,
        point: &point,
        duration: None,
        rate_per_s: None,
        pin: Some(&[0]),
        experiment: folder.path(),
        folder: folder.path().to_owned(),
        cancel: &AtomicBool::new(false),
    });
    let outcome = outcome.unwrap();
    let command = &outcome.command;
    let own = command.starts_with("coracle lab: ");
    assert!(own || command.starts_with("taskset -c 0 "), "{command}");
    Some(outcome.rows)
}

/// Serves each connection by `answer` on a thread of its own, as long as the test program lives.
fn serve(answer: fn(TcpStream) -> Option<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

/// HTTP/1.0 and 1.1; every tenth request of `/mixed` is answered with 503.
fn http(stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    for count in 1.. {
        let mut head = Vec::new();
        loop {
            let line = lines.next()?.ok()?;
            if line.is_empty() {
                break;
            }
            head.push(line.to_ascii_lowercase());
        }
        let keep =
            head.contains(&"connection: keep-alive".to_owned()) || !head[0].ends_with("http/1.0");
        let status = if head[0].contains("/mixed") && count % 10 == 0 {
            "503 Service Unavailable"
        } else {
            "200 OK"
        };
        let keeping = if keep { "keep-alive" } else { "close" };
        let text =
            format!("HTTP/1.1 {status}\r\nConnection: {keeping}\r\nContent-Length: 2\r\n\r\nok");
        (&stream).write_all(text.as_bytes()).ok()?;
        if !keep {
            break;
        }
    }
    None
}

/// `+OK` to each command of RESP, inline or as an array.
fn resp(stream: TcpStream) -> Option<()> {
    let mut input = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(count) = line.strip_prefix('*') {
            for _ in 0..count.trim().parse::<usize>().ok()? {
                let mut length = String::new();
                input.read_line(&mut length).ok()?;
                let length: usize = length.strip_prefix('$')?.trim().parse().ok()?;
                input.read_exact(&mut vec![0; length + 2]).ok()?;
            }
        }
        (&stream).write_all(b"+OK\r\n").ok()?;
    }
}

#[test]
fn wrk_and_ab() {
    let target = serve(http);
    if let Some(rows) = load(
        "wrk",
        target,
        "connections = 2\nduration_s = 1\npath = '/mixed'",
    ) {
        let row = &rows[0];
        let (right, wrong) = (row.answers, row.errors["status"]);
        // 9 of 10, but for what was under way at the end.
        assert!(
            wrong > 0 && right.abs_diff(9 * wrong) <= 20,
            "{right} {wrong}"
        );
        assert!(row.latency.as_ref().unwrap().len() >= right + wrong);
    }
    for keep_alive in [true, false] {
        let point = format!("connections = 2\nrequests = 300\nkeep_alive = {keep_alive}");
        if let Some(rows) = load("ab", target, &point) {
            assert_eq!((rows[0].answers, rows[0].errors.len()), (300, 0));
        }
    }
    if let Some(rows) = load("ab", target, "connections = 2\nduration_s = 1") {
        assert!(rows[0].answers > 10 && rows[0].took < Duration::from_secs(3));
    }
}

#[test]
fn redis_benchmark() {
    let target = serve(resp);
    let point = "connections = 3\npipeline = 4\nrequests = 1200\ntests = 'ping,set'";
    if let Some(rows) = load("redis-benchmark", target, point) {
        let tests: Vec<&str> = rows.iter().map(|row| row.label["test"].as_str()).collect();
        assert_eq!(tests, ["PING_INLINE", "PING_BULK", "SET"]);
        assert!(rows.iter().all(|row| row.answers == 1200));
    }
}

/// A name server that knows no name.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, peer)) = socket.recv_from(&mut query) {
            // NXDOMAIN, with the question as it came.
            query[2] = 0x81;
            query[3] = 0x03;
            let _ = socket.send_to(&query[..length], peer);
        }
    });
    target
}

#[test]
fn dnsperf_and_rate_dns() {
    let target = name_server();
    let point = "query_file = 'queries.txt'\nconnections = 2\nduration_s = 1\nrate_per_s = 200";
    for name in ["dnsperf", "rate-dns"] {
        if let Some(rows) = load(name, target, point) {
            let answers = rows[0].answers;
            assert!((190..=201).contains(&answers), "{name}: {answers}");
            assert!(rows[0].errors.is_empty(), "{:?}", rows[0].errors);
        }
    }
}

#[test]
fn a_name_server_that_does_not_answer_is_seen() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = silent.local_addr().unwrap();
    let point = "query_file = 'queries.txt'\nconnections = 40\nduration_s = 0.5\nrate_per_s = 100\ntimeout_s = 0.3";
    let row = load("rate-dns", target, point).unwrap().remove(0);
    assert_eq!((row.answers, row.errors["timeout"]), (0, 50));
    drop(silent);
    // Nobody is there: ICMP says so, and the queries are lost at once.
    let row = load("rate-dns", target, point).unwrap().remove(0);
    assert_eq!(row.answers, 0);
    assert!(row.errors["connect"] > 0, "{:?}", row.errors);
}

/// A child that is ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn iperf3() {
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = free.local_addr().unwrap();
    drop(free);
    let server = Command::new("iperf3")
        .args(["-s", "-1", "-p", &target.port().to_string()])
        .stdout(Stdio::null())
        .spawn();
    let Ok(server) = server else {
        eprintln!("left out: iperf3 is not installed");
        return;
    };
    let _server = Ended(server);
    std::thread::sleep(Duration::from_millis(500));
    let rows = load("iperf3", target, "duration_s = 1").unwrap();
    assert!(rows[0].metrics["bandwidth_mbit_s"] > 10.0);
}
