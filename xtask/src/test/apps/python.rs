// SPDX-License-Identifier: Apache-2.0

//! Python: the to-do service with Flask and with Falcon, and programs that check themselves.

use anyhow::{Context, Result, ensure};

use super::{Program, Ready, Running, Server, exchange};
use crate::test::load;

const IMAGE: &str = "todo-python";

pub(super) const SERVERS: &[Server] = &[
    Server {
        name: "python: Flask on gunicorn",
        image: IMAGE,
        command: &[
            "/usr/bin/python3",
            "/usr/bin/gunicorn",
            "todo.with_flask:app",
        ],
        flags: &["-m", "1G", "-w", "/srv/todo"],
        port: 8080,
        ready: Ready::Http("/todos"),
        test: works,
    },
    Server {
        name: "python: Falcon on gunicorn, 2 vCPUs",
        image: IMAGE,
        command: &[
            "/usr/bin/python3",
            "/usr/bin/gunicorn",
            "todo.with_falcon:app",
        ],
        flags: &["-m", "1G", "-w", "/srv/todo", "--cpus", "2"],
        port: 8080,
        ready: Ready::Http("/todos"),
        test: works,
    },
];

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "python: standard library and numpy",
        image: IMAGE,
        command: &["/usr/bin/python3", "/srv/check/selfcheck.py"],
        flags: &["-m", "1G", "-e", "LANG=C.UTF-8"],
        says: "python: ok",
    },
    Program {
        name: "python: kafka-python and confluent-kafka, 2 vCPUs",
        image: IMAGE,
        command: &["/usr/bin/python3", "/srv/check/kafka_clients.py"],
        flags: &["-m", "1G", "--cpus", "2"],
        says: "kafka: ok",
    },
];

/// All answers of the service, then load over eight connections.
fn works(running: &Running<'_>) -> Result<()> {
    let cases = [
        ("GET /", "", "200", "Welcome!\n"),
        ("GET /todos/4", "", "200", "\"Learn Python\""),
        ("GET /todos/9", "", "200", "Todo not found: 9"),
        ("POST /sort", "[3,1,2]", "200", "[1,2,3]\n"),
        ("POST /sort", "{}", "400", "want a JSON array"),
        ("GET /nowhere", "", "404", ""),
    ];
    for (line, body, status, part) in cases {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: guest\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(running.address, request.as_bytes()).with_context(|| line)?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(
            answer.split(' ').nth(1) == Some(status) && answer.contains(part),
            "{line}: want {status} with {part:?}, got {answer}"
        );
    }
    let load = load::wrk(running.address, "/todos", 8, 1)?;
    ensure!(
        load.errors == 0 && load.requests > 0,
        "{} errors beside {} answers",
        load.errors,
        load.requests
    );
    Ok(())
}
