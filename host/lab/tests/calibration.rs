// SPDX-License-Identifier: Apache-2.0

//! The generators against a server whose delay, limit and stalls are known (experiments/calibration). The machine that
//! runs this may be busy: what is compared are ratios, and each case may be tried a few times.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use coracle_lab::load::{Job, Row, generator};

/// One run of a case may meet a busy moment of the machine.
const TRIES: usize = 4;

/// The calibration server; ended when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(args: &[&str]) -> Server {
        let mut child = Command::new(program())
            .args(["--port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Server {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
        }
    }

    fn load(&self, name: &str, point: &str) -> Row {
        let point = toml::from_str(point).unwrap();
        let generator = generator(name).unwrap();
        generator.check(&point).unwrap();
        let outcome = generator.run(&Job {
            target: self.address,
            point: &point,
            duration: None,
            rate_per_s: None,
            pin: None,
            experiment: Path::new("."),
            folder: std::env::temp_dir(),
            cancel: &AtomicBool::new(false),
        });
        outcome.unwrap().rows.remove(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles the server, once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../experiments/calibration/server.c"
        );
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calibration-server");
        let status = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(source)
            .status();
        assert!(status.unwrap().success(), "compile {source}");
        program
    })
}

/// Tries the case until it holds.
fn try_case(case: impl Fn() -> Result<(), String>) {
    let mut last = String::new();
    for _ in 0..TRIES {
        match case() {
            Ok(()) => return,
            Err(why) => last = why,
        }
    }
    panic!("{TRIES} times, at last: {last}");
}

fn quantile_ms(row: &Row, quantile: f64) -> f64 {
    let latency = row.latency.as_ref().unwrap();
    Duration::from_nanos(latency.value_at_quantile(quantile)).as_secs_f64() * 1e3
}

fn throughput(row: &Row) -> f64 {
    f64::from(u32::try_from(row.answers).unwrap()) / row.took.as_secs_f64()
}

fn within(what: &str, have: f64, want: f64, share: f64) -> Result<(), String> {
    if (have / want - 1.0).abs() <= share {
        Ok(())
    } else {
        Err(format!(
            "{what} is {have:.3}, not {want} within {:.0} %",
            share * 100.0
        ))
    }
}

#[test]
fn a_delay_is_seen_open_loop() {
    try_case(|| {
        let server = Server::start(&["--delay-us", "20000"]);
        let row = server.load("rate", "connections = 50\nrate_per_s = 500\nduration_s = 2");
        within("median", quantile_ms(&row, 0.5), 20.0, 0.02)?;
        within("throughput", throughput(&row), 500.0, 0.02)?;
        if row.errors.is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}", row.errors))
        }
    });
}

#[test]
fn a_limit_is_seen_open_loop() {
    try_case(|| {
        let server = Server::start(&["--rate", "500"]);
        let row = server.load(
            "rate",
            "connections = 200\nrate_per_s = 1000\nduration_s = 3",
        );
        within("throughput", throughput(&row), 500.0, 0.02)?;
        // Of the 3000 due, 1500 were answered meanwhile, and 200 were under way at the end. Those sent last had waited for
        // longest.
        let unsent = f64::from(u32::try_from(row.errors["unsent"]).unwrap());
        within("unsent", unsent, 1300.0, 0.05)?;
        within("last", quantile_ms(&row, 1.0), 1700.0, 0.1)
    });
}

#[test]
fn a_limit_is_seen_closed_loop() {
    try_case(|| {
        let server = Server::start(&["--rate", "500"]);
        let row = server.load("closed", "connections = 50\nrequests = 1500");
        assert_eq!(row.answers, 1500);
        within("throughput", throughput(&row), 500.0, 0.02)?;
        // The closed loop makes its queue as long as it has connections (Little's law), whatever users would do.
        within("median", quantile_ms(&row, 0.5), 100.0, 0.05)
    });
}

#[test]
fn a_stall_is_seen_open_loop_and_hidden_closed_loop() {
    try_case(|| {
        let stalling = [
            "--delay-us",
            "1000",
            "--stall-every-ms",
            "2000",
            "--stall-ms",
            "500",
        ];
        let server = Server::start(&stalling);
        let open = server.load(
            "rate",
            "connections = 200\nrate_per_s = 400\nduration_s = 3.9",
        );
        let server = Server::start(&stalling);
        let closed = server.load("closed", "connections = 1\nduration_s = 3.9");
        // Of those due in 3.9 s, an eighth were due within the one stall, evenly over it.
        within("open loop, p99", quantile_ms(&open, 0.99), 461.0, 0.1)?;
        within("open loop, maximum", quantile_ms(&open, 1.0), 500.0, 0.1)?;
        // One single request of the closed loop met the stall.
        let (p99, max) = (quantile_ms(&closed, 0.99), quantile_ms(&closed, 1.0));
        within("closed loop, maximum", max, 500.0, 0.1)?;
        if p99 < 50.0 {
            Ok(())
        } else {
            Err(format!("the closed loop saw it: p99 is {p99} ms"))
        }
    });
}

#[test]
fn each_request_may_have_its_own_connection() {
    let server = Server::start(&["--delay-us", "1000"]);
    let row = server.load("closed", "connections = 4\nrequests = 200\nfresh = true");
    assert_eq!((row.answers, row.errors.len()), (200, 0));
}

#[test]
fn held_connections_are_asked_at_the_begin_and_at_the_end() {
    let server = Server::start(&[]);
    let point = toml::from_str("connections = 300\nactive = 3\nduration_s = 0.3").unwrap();
    let outcome = generator("hold").unwrap().run(&Job {
        target: server.address,
        point: &point,
        duration: None,
        rate_per_s: None,
        pin: Some(&[0]),
        experiment: Path::new("."),
        folder: std::env::temp_dir(),
        cancel: &AtomicBool::new(false),
    });
    let rows = outcome.unwrap().rows;
    let phases: Vec<&str> = rows.iter().map(|row| row.label["phase"].as_str()).collect();
    assert_eq!(phases, ["first", "active", "last"]);
    assert_eq!((rows[0].answers, rows[2].answers), (300, 297));
    assert!(rows[1].answers > 10, "{}", rows[1].answers);
}

#[test]
fn a_server_that_is_gone_is_an_error() {
    let server = Server::start(&[]);
    let address = server.address;
    drop(server);
    for name in ["rate", "closed", "hold"] {
        let point = toml::from_str("timeout_s = 0.3").unwrap();
        let result = generator(name).unwrap().run(&Job {
            target: address,
            point: &point,
            duration: Some(Duration::from_secs(1)),
            rate_per_s: Some(100.0),
            pin: None,
            experiment: Path::new("."),
            folder: std::env::temp_dir(),
            cancel: &AtomicBool::new(false),
        });
        let why = result.unwrap_err().to_string();
        assert!(why.contains("could be made within 0.3 s"), "{name}: {why}");
    }
}
