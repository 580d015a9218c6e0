// SPDX-License-Identifier: Apache-2.0

//! wrk: HTTP in a closed loop over kept connections. Each connection sends its next request when the answer to the last
//! one is there, so a server that stalls is asked less, and the stall is seen by as many requests as there are connections.
//!
//! wrk prints a few percentiles; a script of ours ([`SCRIPT`]) makes it print all it has counted. To those counts wrk has
//! already added made-up ones: for each answer slower than twice the mean interval of a connection it adds what further
//! requests "would have seen" (`stats_correct`, since 4.0). So the counts can be more than the answers.

mod output;

use std::io::Write;
use std::time::Duration;

use super::parameters::Parameters;
use super::tool::{self, Tool};
use super::{Generator, Job, Outcome, Point};
use crate::{Error, Result};

/// The script that prints the counts.
pub(super) const SCRIPT: &str = include_str!("done.lua");

const TOOL: Tool = Tool::packaged("wrk", "wrk");

/// wrk.
#[derive(Debug)]
pub(super) struct Wrk;

const KNOWN: &[&str] = &["connections", "threads", "duration_s", "path", "timeout_s"];

struct Settings<'a> {
    connections: u64,
    threads: u64,
    duration: Duration,
    path: &'a str,
    timeout: Duration,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("wrk", KNOWN, point)?;
    let connections = parameters.count_to("connections", 100_000)?.unwrap_or(10);
    let threads = parameters.count_to("threads", 256)?.unwrap_or(1);
    if threads > connections {
        return Err(Error::Input(format!(
            "wrk: {threads} threads need at least as many connections, not {connections}"
        )));
    }
    Ok(Settings {
        connections,
        threads,
        duration: parameters
            .seconds("duration_s")?
            .unwrap_or(Duration::from_secs(10)),
        path: parameters.path()?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(5)),
    })
}

impl Generator for Wrk {
    fn name(&self) -> &'static str {
        "wrk"
    }

    fn method(&self) -> &'static str {
        "closed loop: each connection waits for the answer before it asks again, so a stall is seen by few requests; \
         wrk adds made-up counts for answers slower than twice the mean interval"
    }

    fn package(&self) -> Option<&'static str> {
        TOOL.package
    }

    fn find(&self) -> Result<String> {
        let version = output::version(&TOOL.about("-v")?)?;
        // The script's interface came with 4.0.
        tool::at_least("wrk", &version, &[4, 0])?;
        Ok(format!("wrk {version}"))
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let duration = whole_seconds(job.duration.unwrap_or(settings.duration));
        let mut script = tempfile::Builder::new()
            .prefix("clab-wrk-")
            .suffix(".lua")
            .tempfile_in(&job.folder)
            .map_err(Error::file(&job.folder))?;
        script
            .write_all(SCRIPT.as_bytes())
            .map_err(Error::file(script.path()))?;
        let mut command = TOOL.command()?;
        command
            .arg(format!("-t{}", settings.threads))
            .arg(format!("-c{}", settings.connections))
            .arg(format!("-d{}s", duration.as_secs()))
            .arg("--latency")
            .arg("--timeout")
            .arg(format!("{}s", whole_seconds(settings.timeout).as_secs()))
            .arg("-s")
            .arg(script.path())
            .arg(format!("http://{}{}", job.target, settings.path));
        let limit = duration + settings.timeout + Duration::from_secs(30);
        let printed = tool::run_job(&mut command, job, limit)?;
        printed.expect_success(&command)?;
        let raw = printed.raw();
        let row =
            output::row(&printed.stdout).map_err(|why| tool::not_understood("wrk", &why, &raw))?;
        Ok(Outcome {
            rows: vec![row],
            command: tool::shown_job(&command, job),
            raw,
        })
    }
}

/// Whole seconds, at least one: wrk takes no fractions.
pub(super) fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(
        (duration.as_millis().div_ceil(1000))
            .try_into()
            .unwrap_or(1)
            .max(1),
    )
}
