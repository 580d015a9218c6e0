// SPDX-License-Identifier: Apache-2.0

//! Scenarios against a small server that knows users, sorts, and ends connections in each of the ways that servers do.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coracle_lab::Error;
use coracle_lab::load::{Job, Row, generator};

/// A server that lives as long as the test program.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || while answer(stream.as_ref().unwrap()).is_some() {});
        }
    });
    address
}

/// Answers one request; `None` at the end of the connection.
fn answer(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let value = |name: &str| head.iter().find_map(|line| line.strip_prefix(name));
    let length = value("Content-Length: ").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    let path = head[0].split(' ').nth(1).unwrap();
    let (status, body) = match path {
        "/sort" => {
            let mut numbers: Vec<u64> = serde_json::from_slice(&body).unwrap();
            numbers.sort_unstable();
            ("200 OK", serde_json::to_vec(&numbers).unwrap())
        }
        // "user1:x"
        "/users/1" if value("Authorization: ") != Some("Basic dXNlcjE6eA==") => {
            ("401 Unauthorized", Vec::new())
        }
        "/missing" => ("404 Not Found", Vec::new()),
        _ => ("200 OK", b"{}".to_vec()),
    };
    let close = if path == "/close" {
        "Connection: close\r\n"
    } else {
        ""
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{close}Content-Length: {length}\r\n\r\n");
    let mut stream = stream;
    stream.write_all(&[head.into_bytes(), body].concat()).ok()?;
    // `/gone` is ended without a word.
    (path != "/close" && path != "/gone").then_some(())
}

fn run(file: &str, point: &str) -> coracle_lab::Result<Vec<Row>> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("users.toml"), file).unwrap();
    let point = toml::from_str(&format!("file = 'users.toml'\n{point}")).unwrap();
    let generator = generator("scenario").unwrap();
    generator.check(&point).unwrap();
    let outcome = generator.run(&Job {
        target: serve(),
        point: &point,
        duration: None,
        rate_per_s: None,
        pin: None,
        experiment: folder.path(),
        folder: folder.path().to_owned(),
        cancel: &AtomicBool::new(false),
    });
    outcome.map(|outcome| outcome.rows)
}

fn row<'a>(rows: &'a [Row], name: &str) -> &'a Row {
    rows.iter()
        .find(|row| row.label["request"] == name)
        .unwrap()
}

#[test]
fn users_ask_in_sequence() {
    let file = r#"
        order = "sequence"
        basic = "user{user}:x"
        prepare = [{ name = "create", path = "/users", body = '{"name": "user{user}"}' }]
        request = [
            { name = "user", times = 5, path = "/users/{user}" },
            { name = "sort", times = 2, path = "/sort", descending = 500, check = "sorted" },
            { name = "close", times = 3, path = "/close", check = "json" },
            { name = "gone", times = 2, path = "/gone" },
            { name = "missing", path = "/missing" },
        ]
    "#;
    let rows = run(file, "users = 3").unwrap();
    let counts = |name| {
        let row = row(&rows, name);
        (row.answers, row.errors.values().sum::<u64>())
    };
    assert_eq!(counts("user"), (15, 0));
    assert_eq!(counts("sort"), (6, 0));
    assert_eq!(counts("close"), (9, 0));
    assert_eq!(counts("gone"), (6, 0));
    assert_eq!(counts("missing"), (0, 3));
    assert_eq!(row(&rows, "missing").errors["status 404"], 3);
    assert_eq!(counts("all"), (36, 3));
    // "[500,499,...,1]" twice a user: 15 + 90 * 3 + 401 * 4 ... as the server got it.
    let body = 2 + 9 * 2 + 90 * 3 + 401 * 4 - 1;
    let sent = row(&rows, "sort").metrics["sent_per_request_bytes"];
    assert!(
        sent > f64::from(body) && sent < f64::from(body) + 300.0,
        "{sent}"
    );
}

#[test]
fn users_ask_by_weight_until_the_time_is_over() {
    let file = r#"
        think_ms = [0, 2]
        values = { device = [0, 9] }
        request = [
            { name = "often", weight = 9, path = "/devices/{device}/{count}" },
            { name = "seldom", weight = 1, path = "/" },
        ]
    "#;
    let rows = run(file, "users = 4\nduration_s = 1").unwrap();
    let (often, seldom) = (row(&rows, "often").answers, row(&rows, "seldom").answers);
    assert!(often > 4 * seldom && seldom > 0, "{often} {seldom}");
    let all = row(&rows, "all");
    assert_eq!(all.answers, often + seldom);
    assert_eq!(all.latency.as_ref().unwrap().len(), all.answers);
}

#[test]
fn a_failed_preparation_ends_the_run() {
    let file = r#"
        prepare = [{ name = "create", path = "/missing" }]
        request = [{ name = "any", path = "/" }]
    "#;
    let why = run(file, "users = 2\nduration_s = 60")
        .unwrap_err()
        .to_string();
    assert!(
        why.contains("`create`") && why.contains("status 404"),
        "{why}"
    );
}

#[test]
fn one_kind_of_request_is_one_row() {
    let file = "request = [{ name = 'sort', path = '/sort', descending = 100, check = 'sorted' }]";
    let rows = run(file, "requests = 7").unwrap();
    assert_eq!(
        (rows.len(), rows[0].answers, rows[0].label.len()),
        (1, 7, 0)
    );
}

#[test]
fn a_user_who_stops_is_obeyed() {
    for (name, point) in [
        ("scenario", "file = 'users.toml'\nduration_s = 60"),
        ("rate", "rate_per_s = 100\nduration_s = 60"),
        ("closed", "duration_s = 60"),
        ("hold", "duration_s = 60"),
        ("wrk", "duration_s = 60"),
    ] {
        let generator = generator(name).unwrap();
        if generator.find().is_err() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = "request = [{ name = 'any', path = '/' }]";
        std::fs::write(folder.path().join("users.toml"), file).unwrap();
        let cancel = AtomicBool::new(false);
        let point = toml::from_str(point).unwrap();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                cancel.store(true, Ordering::Relaxed);
            });
            generator.run(&Job {
                target: serve(),
                point: &point,
                duration: None,
                rate_per_s: None,
                pin: None,
                experiment: folder.path(),
                folder: folder.path().to_owned(),
                cancel: &cancel,
            })
        });
        assert!(
            matches!(result, Err(Error::Interrupted)),
            "{name}: {result:?}"
        );
    }
}

#[test]
fn a_file_that_is_wrong_is_named() {
    let why = run("request = [{ name = 'x', paht = '/' }]", "")
        .unwrap_err()
        .to_string();
    assert!(why.contains("users.toml") && why.contains("paht"), "{why}");
}
