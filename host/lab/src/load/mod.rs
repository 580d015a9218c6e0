// SPDX-License-Identifier: Apache-2.0

//! Load generators: the tools the studies and the field use, and one of our own for constant rates and for scenarios.
//! Whatever the tool prints becomes one [`Outcome`].

mod ab;
mod client;
mod csv;
mod dnsperf;
mod engine;
mod http;
mod install;
mod iperf3;
mod jmeter;
mod memtier;
#[cfg(test)]
mod mutated;
mod oha;
mod parameters;
mod query;
mod rate;
mod rate_dns;
mod redis;
mod scenario;
mod tcp_sink;
mod tool;
mod units;
mod wrk;
mod wrk2;

pub use install::install;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::{Error, Result};

/// A load generator.
pub trait Generator {
    /// Its name in experiments: "wrk", "ab" ...
    fn name(&self) -> &'static str;

    /// How it offers load and what its response times are, in a line for the report's method section.
    fn method(&self) -> &'static str;

    /// The Debian package of its tool, if there is one.
    fn package(&self) -> Option<&'static str> {
        None
    }

    /// Finds the tool, or says how to install it; answers its version. Tools that are too old are an error.
    fn find(&self) -> Result<String>;

    /// Checks a point's parameters before anything is started: an unknown one is an error with the nearest known one.
    fn check(&self, point: &Point) -> Result<()>;

    /// Runs it once and waits. `Error::Interrupted` when `job.cancel` becomes true.
    fn run(&self, job: &Job<'_>) -> Result<Outcome>;
}

/// Parameters of one point, by name.
pub type Point = BTreeMap<String, toml::Value>;

/// One run of a generator.
#[derive(Debug)]
pub struct Job<'a> {
    /// The service.
    pub target: SocketAddr,
    /// Its parameters.
    pub point: &'a Point,
    /// Instead of what the point says; for warm-up and ramps.
    pub duration: Option<Duration>,
    /// Instead of what the point says: requests a second.
    pub rate_per_s: Option<f64>,
    /// The processors it may use, if it is pinned.
    pub pin: Option<&'a [usize]>,
    /// The folder of the experiment, for files that parameters name.
    pub experiment: &'a std::path::Path,
    /// For raw output.
    pub folder: PathBuf,
    /// Becomes true when the user wants the run to end.
    pub cancel: &'a AtomicBool,
}

/// What came out. One for each row of the tool's output: redis-benchmark has one for each test.
#[derive(Debug)]
pub struct Outcome {
    /// The rows.
    pub rows: Vec<Row>,
    /// The command line, as a person would type it.
    pub command: String,
    /// What the tool printed.
    pub raw: String,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// Added to the point: redis-benchmark's "test" -> "GET".
    pub label: BTreeMap<String, String>,
    /// Right answers.
    pub answers: u64,
    /// Over this time.
    pub took: Duration,
    /// By kind.
    pub errors: BTreeMap<String, u64>,
    /// Response times in ns, where the tool gives all of them.
    pub latency: Option<Histogram<u64>>,
    /// What else the tool says, by metric name, also percentiles where there is no histogram.
    pub metrics: BTreeMap<String, f64>,
    /// Over time, as in [`crate::record::Sample::series`].
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
}

/// All generators.
#[must_use]
pub fn generators() -> Vec<Box<dyn Generator>> {
    vec![
        Box::new(wrk::Wrk),
        Box::new(redis::RedisBenchmark),
        Box::new(ab::Ab),
        Box::new(dnsperf::Dnsperf),
        Box::new(iperf3::Iperf3),
        Box::new(tcp_sink::TcpSink),
        Box::new(rate::Rate),
        Box::new(rate_dns::RateDns),
        Box::new(rate::Closed),
        Box::new(rate::Hold),
        Box::new(scenario::Scenarios),
        Box::new(jmeter::Jmeter),
        Box::new(memtier::Memtier),
        Box::new(wrk2::Wrk2),
        Box::new(oha::Oha),
    ]
}

/// The generator of that name, or an error with the nearest known one.
pub fn generator(name: &str) -> Result<Box<dyn Generator>> {
    let all = generators();
    let names: Vec<&str> = all.iter().map(|generator| generator.name()).collect();
    let unknown = format!(
        "there is no load generator `{name}`{}",
        parameters::hint(name, &names)
    );
    all.into_iter()
        .find(|generator| generator.name() == name)
        .ok_or(Error::Input(unknown))
}

/// A histogram for response times in ns, from 1 ns to an hour, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(3_600_000_000_000, 3)
        .expect("three digits and an hour are within what a histogram can have")
}
