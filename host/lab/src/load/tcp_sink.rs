// SPDX-License-Identifier: Apache-2.0

//! `tcp-sink`, the receiver of study 004: how fast the guest sends over TCP. The service sends as many buffers of 1 000 000
//! bytes as a line `N\n` asks for; one test is one such line. The clock runs from the first read to the last byte, as the
//! study's receiver had it, and a Mbit is 10^6 bits.
//!
//! The study's guest connected to the receiver; here the receiver connects, so that the guest needs to know no address.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::parameters::Parameters;
use super::rate::{on_pinned_thread, own};
use super::{Generator, Job, Outcome, Point, Row};
use crate::{Error, Result};

/// What the service sends for each buffer asked for.
const BUFFER_BYTES: u64 = 1_000_000;

/// The sink.
#[derive(Debug)]
pub(super) struct TcpSink;

const KNOWN: &[&str] = &["buffers", "tests", "pause_s", "timeout_s", "duration_s"];

struct Settings {
    buffers: u64,
    tests: u64,
    pause: Duration,
    timeout: Duration,
    duration: Option<Duration>,
}

fn settings(point: &Point) -> Result<Settings> {
    let parameters = Parameters::new("tcp-sink", KNOWN, point)?;
    Ok(Settings {
        buffers: parameters.count_to("buffers", 1_000_000)?.unwrap_or(10),
        tests: parameters.count_to("tests", 1_000_000)?.unwrap_or(100),
        pause: parameters
            .seconds("pause_s")?
            .unwrap_or(Duration::from_secs(1)),
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(30)),
        duration: parameters.seconds("duration_s")?,
    })
}

impl Generator for TcpSink {
    fn name(&self) -> &'static str {
        "tcp-sink"
    }

    fn method(&self) -> &'static str {
        "the lab receives what the service sends over one TCP connection, test after test; from the first read to the last \
         byte of a test, 10^6 bits a Mbit"
    }

    fn find(&self) -> Result<String> {
        Ok(own())
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let command = format!(
            "coracle lab: tcp-sink {}, {} tests of {} x {BUFFER_BYTES} bytes",
            job.target, settings.tests, settings.buffers
        );
        let tests = on_pinned_thread(job, || receive(&settings, job))?;
        let mut raw = String::new();
        for test in &tests {
            raw.push_str(&format!(
                "{:.6} s {:.6} s\n",
                test.at_s,
                test.took.as_secs_f64()
            ));
        }
        Ok(Outcome {
            rows: vec![row(&tests, settings.buffers)],
            command,
            raw,
        })
    }
}

/// One test.
#[derive(Debug)]
struct Test {
    /// When it began, since the first.
    at_s: f64,
    /// First read to last byte.
    took: Duration,
}

fn receive(settings: &Settings, job: &Job<'_>) -> Result<Vec<Test>> {
    let failed = |what: &str, why: &std::io::Error| Error::Platform {
        what: format!("tcp-sink: {what} {}: {why}", job.target),
        log: String::new(),
    };
    let mut stream = TcpStream::connect_timeout(&job.target, settings.timeout)
        .map_err(|why| failed("connect to", &why))?;
    // A read gives up now and then to see whether the user wants to stop.
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .and_then(|()| stream.set_write_timeout(Some(settings.timeout)))
        .map_err(|why| failed("set timeouts for", &why))?;
    let begin = Instant::now();
    let mut buffer = vec![0; 1 << 20];
    let mut tests = Vec::new();
    for number in 0..settings.tests {
        if let Some(duration) = job.duration.or(settings.duration)
            && begin.elapsed() >= duration
            && number > 0
        {
            break;
        }
        if number > 0 {
            pause(settings.pause, job.cancel)?;
        }
        let at_s = begin.elapsed().as_secs_f64();
        writeln!(stream, "{}", settings.buffers).map_err(|why| failed("ask", &why))?;
        let mut left = settings.buffers * BUFFER_BYTES;
        let mut first = None;
        let mut last = Instant::now();
        while left > 0 {
            match stream.read(&mut buffer) {
                Ok(0) => {
                    let why = std::io::Error::from(ErrorKind::UnexpectedEof);
                    return Err(failed(&format!("{left} bytes are missing from"), &why));
                }
                Ok(count) => {
                    last = Instant::now();
                    first.get_or_insert(last);
                    left = left.checked_sub(count as u64).ok_or_else(|| {
                        let why = std::io::Error::other("more bytes than were asked for");
                        failed("receive from", &why)
                    })?;
                }
                Err(why)
                    if matches!(
                        why.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    if job.cancel.load(Ordering::Relaxed) {
                        return Err(Error::Interrupted);
                    }
                    if last.elapsed() > settings.timeout {
                        let why = std::io::Error::from(ErrorKind::TimedOut);
                        return Err(failed(&format!("{left} bytes are missing from"), &why));
                    }
                }
                Err(why) => return Err(failed("receive from", &why)),
            }
        }
        let took = first.map_or(Duration::ZERO, |first| last.duration_since(first));
        tests.push(Test { at_s, took });
    }
    Ok(tests)
}

fn pause(length: Duration, cancel: &AtomicBool) -> Result<()> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(
            end.saturating_duration_since(Instant::now())
                .min(Duration::from_millis(50)),
        );
    }
    Ok(())
}

/// The mean over the tests, as the study has it; each test is a point of the series.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn row(tests: &[Test], buffers: u64) -> Row {
    let bits = (buffers * BUFFER_BYTES * 8) as f64;
    let mbit_s = |test: &Test| bits / 1e6 / test.took.as_secs_f64().max(1e-9);
    let count = tests.len().max(1) as f64;
    let mean = tests.iter().map(mbit_s).sum::<f64>() / count;
    let series = tests.iter().map(|test| (test.at_s, mbit_s(test))).collect();
    Row {
        label: BTreeMap::new(),
        answers: 0,
        took: tests.iter().map(|test| test.took).sum(),
        errors: BTreeMap::new(),
        latency: None,
        metrics: BTreeMap::from([("bandwidth_mbit_s".to_owned(), mean)]),
        series: BTreeMap::from([("bandwidth_mbit_s".to_owned(), series)]),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::{TcpSink, Test, row};
    use crate::load::{Generator, Job, Outcome};

    #[test]
    fn figures() {
        let test = |ms| Test {
            at_s: 0.0,
            took: Duration::from_millis(ms),
        };
        // 10 x 10^6 bytes in 1 s and in 2 s: 80 and 40 Mbit/s.
        let row = row(&[test(1000), test(2000)], 10);
        assert!((row.metrics["bandwidth_mbit_s"] - 60.0).abs() < 1e-9);
    }

    /// A sender that sends `bytes` for each line.
    fn sink(bytes: usize, point: &str) -> crate::Result<Outcome> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let sender = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while matches!(lines.read_line(&mut line), Ok(1..)) {
                assert_eq!(line, "2\n");
                line.clear();
                if (&stream).write_all(&vec![0; bytes]).is_err() || bytes != 2_000_000 {
                    break;
                }
            }
        });
        let point = toml::from_str(point).unwrap();
        let outcome = TcpSink.run(&Job {
            target,
            point: &point,
            duration: None,
            rate_per_s: None,
            pin: None,
            experiment: Path::new("."),
            folder: std::env::temp_dir(),
            cancel: &AtomicBool::new(false),
        });
        sender.join().unwrap();
        outcome
    }

    #[test]
    fn tests_are_counted_one_by_one() {
        let outcome = sink(2_000_000, "buffers = 2\ntests = 3\npause_s = 0.01").unwrap();
        assert_eq!(outcome.rows[0].series["bandwidth_mbit_s"].len(), 3);
    }

    #[test]
    fn too_few_bytes_are_an_error() {
        let few = sink(1_999_999, "buffers = 2\ntests = 1")
            .unwrap_err()
            .to_string();
        assert!(few.contains("1 bytes are missing"), "{few}");
    }
}
