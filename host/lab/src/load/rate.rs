// SPDX-License-Identifier: Apache-2.0

//! Our own HTTP/1.1 generators on the [`engine`](super::engine): `rate` (open loop at a constant rate), `closed` (closed
//! loop, for short and exact runs) and `hold` (many connections of which few do anything).

use std::time::Duration;

use hdrhistogram::Histogram;

use super::engine::{Engine, Pace, Plan, Protocol, Right, Tally};
use super::parameters::Parameters;
use super::tool::pin_thread;
use super::{Generator, Job, Outcome, Point, Row, http};
use crate::{Error, Result};

/// How many requests of connections that only hold are under way at a time.
const AT_A_TIME: usize = 100;

/// Open loop.
#[derive(Debug)]
pub(super) struct Rate;

/// Closed loop.
#[derive(Debug)]
pub(super) struct Closed;

/// Many connections, few of them active.
#[derive(Debug)]
pub(super) struct Hold;

/// Parameters that all three have.
macro_rules! common {
    ($($more:literal),*) => {
        &[
            "connections", "duration_s", "path", "timeout_s", "method", "body", "body_file",
            "content_type", "status", "fresh", $($more),*
        ]
    };
}

struct Settings<'a> {
    connections: usize,
    duration: Option<Duration>,
    requests: Option<u64>,
    rate_per_s: Option<f64>,
    active: usize,
    path: &'a str,
    timeout: Duration,
    method: Option<&'a str>,
    body: Option<&'a str>,
    body_file: Option<&'a str>,
    content_type: Option<&'a str>,
    status: Option<u16>,
    fresh: bool,
}

fn settings<'a>(
    generator: &'static str,
    known: &[&'static str],
    point: &'a Point,
) -> Result<Settings<'a>> {
    let parameters = Parameters::new(generator, known, point)?;
    let small = |name: &str, most: u64, default: usize| -> Result<usize> {
        let value = parameters.count_to(name, most)?;
        Ok(value.map_or(default, |value| usize::try_from(value).unwrap_or(default)))
    };
    let settings = Settings {
        connections: small("connections", 1_000_000, 10)?,
        duration: parameters.seconds("duration_s")?,
        requests: parameters.count("requests")?,
        rate_per_s: parameters.number("rate_per_s")?,
        active: small("active", 1_000_000, 1)?,
        path: parameters.path()?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(5)),
        method: parameters.word("method")?,
        body: parameters.text("body")?,
        body_file: parameters.text("body_file")?,
        content_type: parameters.text("content_type")?,
        status: parameters
            .count_to("status", 599)?
            .and_then(|status| u16::try_from(status).ok()),
        fresh: parameters.flag("fresh")?,
    };
    let wrong = |what: &str| Err(Error::Input(format!("{generator}: {what}")));
    if settings.body.is_some() && settings.body_file.is_some() {
        return wrong("either `body` or `body_file`");
    }
    if settings.rate_per_s.is_some_and(|rate| rate > 1e7) {
        return wrong("`rate_per_s` must be at most 10000000");
    }
    if settings.active > settings.connections {
        return wrong("`active` must not be more than `connections`");
    }
    if settings.fresh && generator == "hold" {
        return wrong("`fresh` makes no sense: connections are held");
    }
    Ok(settings)
}

impl Settings<'_> {
    fn plan(&self, job: &Job<'_>) -> Result<Plan> {
        let file = match self.body_file {
            Some(name) => {
                let path = job.experiment.join(name);
                Some(std::fs::read(&path).map_err(Error::file(path))?)
            }
            None => None,
        };
        let body = self.body.map(str::as_bytes).or(file.as_deref());
        let method = self
            .method
            .unwrap_or(if body.is_some() { "POST" } else { "GET" });
        let mut headers = Vec::new();
        if let Some(content_type) = self.content_type {
            headers.push(("Content-Type".to_owned(), content_type.to_owned()));
        }
        if self.fresh {
            headers.push(("Connection".to_owned(), "close".to_owned()));
        }
        Ok(Plan {
            protocol: Protocol::Http,
            requests: vec![http::request(method, self.path, job.target, &headers, body)],
            right: self.status.map_or(Right::Success, Right::Only),
            timeout: self.timeout,
            fresh: self.fresh,
        })
    }

    fn duration(&self, job: &Job<'_>) -> Duration {
        job.duration
            .or(self.duration)
            .unwrap_or(Duration::from_secs(10))
    }
}

impl Generator for Rate {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn method(&self) -> &'static str {
        "open loop at a constant rate: a request's time counts from when it was due, also if it had to wait for a connection"
    }

    fn find(&self) -> Result<String> {
        Ok(own())
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings("rate", common!("rate_per_s"), point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings("rate", common!("rate_per_s"), job.point)?;
        let rate_per_s = job.rate_per_s.or(settings.rate_per_s).ok_or_else(|| {
            Error::Input("rate: `rate_per_s` is missing: how many requests a second?".to_owned())
        })?;
        let pace = Pace::Rate(rate_per_s, settings.duration(job));
        let command = format!(
            "coracle lab: rate {rate_per_s}/s, {} connections, {:.1} s, http://{}{}",
            settings.connections,
            settings.duration(job).as_secs_f64(),
            job.target,
            settings.path
        );
        let row = open_loop(
            job,
            &settings.plan(job)?,
            settings.connections,
            pace,
            rate_per_s,
        )?;
        Ok(outcome(vec![row], command))
    }
}

impl Generator for Closed {
    fn name(&self) -> &'static str {
        "closed"
    }

    fn method(&self) -> &'static str {
        "closed loop: each connection waits for the answer before it asks again, so a stall is seen by one request of each; \
         all response times are kept"
    }

    fn find(&self) -> Result<String> {
        Ok(own())
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings("closed", common!("requests"), point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings("closed", common!("requests"), job.point)?;
        let (pace, length) = match (job.duration, settings.requests) {
            // Whatever comes first.
            (None, Some(requests)) => (
                Pace::Closed(requests, settings.duration.unwrap_or(Duration::MAX)),
                format!("{requests} requests"),
            ),
            _ => (
                Pace::Closed(u64::MAX, settings.duration(job)),
                format!("{:.1} s", settings.duration(job).as_secs_f64()),
            ),
        };
        let command = format!(
            "coracle lab: closed, {} connections, {length}, http://{}{}",
            settings.connections, job.target, settings.path
        );
        let plan = settings.plan(job)?;
        let row = on_pinned_thread(job, || {
            let mut engine = Engine::new(job.target, settings.connections, &plan, job.cancel)?;
            let (tally, took) = engine.run(pace, 0..settings.connections)?;
            Ok(tally.row(took))
        })?;
        Ok(outcome(vec![row], command))
    }
}

impl Generator for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn method(&self) -> &'static str {
        "all connections are made and ask once (phase first), then the active ones ask in a closed loop while the others are \
         held (phase active), then the others ask once more (phase last)"
    }

    fn find(&self) -> Result<String> {
        Ok(own())
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings("hold", common!("active"), point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings("hold", common!("active"), job.point)?;
        let (all, active) = (settings.connections, settings.active);
        let duration = settings.duration(job);
        let command = format!(
            "coracle lab: hold {all} connections, {active} of them active for {:.1} s, http://{}{}",
            duration.as_secs_f64(),
            job.target,
            settings.path
        );
        let plan = settings.plan(job)?;
        let rows = on_pinned_thread(job, || {
            let mut engine = Engine::new(job.target, all, &plan, job.cancel)?;
            let mut rows = Vec::new();
            for (phase, pace, using) in [
                ("first", Pace::OnceEach(AT_A_TIME), 0..all),
                ("active", Pace::Closed(u64::MAX, duration), 0..active),
                ("last", Pace::OnceEach(AT_A_TIME), active..all),
            ] {
                if using.is_empty() {
                    continue;
                }
                let (tally, took): (Tally, Duration) = engine.run(pace, using)?;
                let mut row = tally.row(took);
                row.label.insert("phase".to_owned(), phase.to_owned());
                rows.push(row);
            }
            Ok(rows)
        })?;
        Ok(outcome(rows, command))
    }
}

/// The row of an open loop.
pub(super) fn open_loop(
    job: &Job<'_>,
    plan: &Plan,
    connections: usize,
    pace: Pace,
    rate_per_s: f64,
) -> Result<Row> {
    on_pinned_thread(job, || {
        let mut engine = Engine::new(job.target, connections, plan, job.cancel)?;
        let (tally, took) = engine.run(pace, 0..connections)?;
        let delay_us = micros(&tally.delay);
        let mut row = tally.row(took);
        row.metrics.insert("send_delay_p99_us".to_owned(), delay_us);
        row.metrics.insert("offered_per_s".to_owned(), rate_per_s);
        Ok(row)
    })
}

/// What the lab's own generators say as their version.
pub(super) fn own() -> String {
    format!("coracle {}", env!("CARGO_PKG_VERSION"))
}

/// Runs `work` on a thread of its own that is kept on the processors of the job.
pub(super) fn on_pinned_thread<T: Send>(
    job: &Job<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(pin) = job.pin {
                pin_thread(pin)
                    .map_err(|why| Error::Host(format!("pin to processors {pin:?}: {why}")))?;
            }
            work()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(Error::Host("the load generator panicked".to_owned())))
    })
}

#[expect(clippy::cast_precision_loss, reason = "times are below 2^53 ns")]
fn micros(histogram: &Histogram<u64>) -> f64 {
    histogram.value_at_quantile(0.99) as f64 / 1e3
}

/// The outcome of an own generator: there is no other output than the rows.
pub(super) fn outcome(rows: Vec<Row>, command: String) -> Outcome {
    use std::fmt::Write;
    let mut raw = String::new();
    for row in &rows {
        // Writing to a String cannot fail.
        let _ = writeln!(
            raw,
            "{:?} answers {} took {:?} errors {:?} metrics {:?}",
            row.label, row.answers, row.took, row.errors, row.metrics
        );
        if let Some(latency) = &row.latency {
            for quantile in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let _ = writeln!(
                    raw,
                    "  {quantile} {} ns",
                    latency.value_at_quantile(quantile)
                );
            }
        }
    }
    Outcome { rows, command, raw }
}
