// SPDX-License-Identifier: Apache-2.0

//! `rate-dns`: DNS queries over UDP at a constant rate, open loop. dnsperf holds its rate only while few queries are under
//! way, counts from the sending, and reports mean and extremes only; this one counts from when a query was due, and keeps all
//! times.

use std::time::Duration;

use super::engine::{Pace, Plan, Protocol, Right};
use super::parameters::Parameters;
use super::rate::{open_loop, outcome, own};
use super::{Generator, Job, Outcome, Point, query};
use crate::{Error, Result};

/// Open loop for DNS.
#[derive(Debug)]
pub(super) struct RateDns;

const KNOWN: &[&str] = &[
    "query_file",
    "connections",
    "duration_s",
    "rate_per_s",
    "timeout_s",
];

struct Settings<'a> {
    query_file: &'a str,
    connections: usize,
    duration: Duration,
    rate_per_s: Option<f64>,
    timeout: Duration,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("rate-dns", KNOWN, point)?;
    let connections = parameters.count_to("connections", 60_000)?;
    Ok(Settings {
        query_file: parameters.text("query_file")?.ok_or_else(|| {
            Error::Input(
                "rate-dns: `query_file` is missing: lines such as `example.com A`".to_owned(),
            )
        })?,
        connections: connections.map_or(100, |count| usize::try_from(count).unwrap_or(100)),
        duration: parameters
            .seconds("duration_s")?
            .unwrap_or(Duration::from_secs(10)),
        rate_per_s: parameters.number("rate_per_s")?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(5)),
    })
}

impl Generator for RateDns {
    fn name(&self) -> &'static str {
        "rate-dns"
    }

    fn method(&self) -> &'static str {
        "open loop at a constant rate: a query's time counts from when it was due, also if all sockets were busy; NOERROR and \
         NXDOMAIN are right answers"
    }

    fn find(&self) -> Result<String> {
        Ok(own())
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let rate_per_s = job.rate_per_s.or(settings.rate_per_s).ok_or_else(|| {
            Error::Input("rate-dns: `rate_per_s` is missing: how many queries a second?".to_owned())
        })?;
        let file = job.experiment.join(settings.query_file);
        let text = std::fs::read_to_string(&file).map_err(Error::file(&file))?;
        let requests =
            query::read(&text).map_err(|why| Error::Input(format!("{}: {why}", file.display())))?;
        let duration = job.duration.unwrap_or(settings.duration);
        let command = format!(
            "coracle lab: rate-dns {rate_per_s}/s, {} sockets, {:.1} s, {} to {}",
            settings.connections,
            duration.as_secs_f64(),
            settings.query_file,
            job.target
        );
        let plan = Plan {
            protocol: Protocol::Dns,
            requests,
            right: Right::Known,
            timeout: settings.timeout,
            fresh: false,
        };
        let pace = Pace::Rate(rate_per_s, duration);
        let row = open_loop(job, &plan, settings.connections, pace, rate_per_s)?;
        Ok(outcome(vec![row], command))
    }
}
