// SPDX-License-Identifier: Apache-2.0

//! `scenario`: users of a web service, each of whom asks, reads the answer, thinks, and asks again. What they ask stands in a
//! TOML file: several kinds of requests, by weight or in sequence, with places to fill, credentials, and what a right answer
//! is. One row for each kind of request, and one for all, if there are several.

mod file;
mod template;

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use file::{Order, Request, Scenario};
use template::Filling;

use super::client::{Client, Lost};
use super::engine::Tally;
use super::parameters::Parameters;
use super::rate::{on_pinned_thread, outcome, own};
use super::{Generator, Job, Outcome, Point, Row};
use crate::{Error, Result};

/// The generator.
#[derive(Debug)]
pub(super) struct Scenarios;

const KNOWN: &[&str] = &[
    "file",
    "users",
    "requests",
    "duration_s",
    "timeout_s",
    "seed",
];

struct Settings<'a> {
    file: &'a str,
    users: u64,
    /// Of each user.
    requests: Option<u64>,
    duration: Option<Duration>,
    timeout: Duration,
    seed: u64,
}

fn settings(point: &Point) -> Result<Settings<'_>> {
    let parameters = Parameters::new("scenario", KNOWN, point)?;
    Ok(Settings {
        file: parameters.text("file")?.ok_or_else(|| {
            Error::Input("scenario: `file` is missing: the TOML file with the requests".to_owned())
        })?,
        users: parameters.count_to("users", 10_000)?.unwrap_or(1),
        requests: parameters.count("requests")?,
        duration: parameters.seconds("duration_s")?,
        timeout: parameters
            .seconds("timeout_s")?
            .unwrap_or(Duration::from_secs(30)),
        seed: parameters.count("seed")?.unwrap_or(1),
    })
}

impl Generator for Scenarios {
    fn name(&self) -> &'static str {
        "scenario"
    }

    fn method(&self) -> &'static str {
        "users who wait for their answer and think before they ask again (closed loop); a request's time counts from its \
         sending to the end of the answer's body"
    }

    fn find(&self) -> Result<String> {
        Ok(own())
    }

    fn check(&self, point: &Point) -> Result<()> {
        settings(point).map(|_| ())
    }

    fn run(&self, job: &Job<'_>) -> Result<Outcome> {
        let settings = settings(job.point)?;
        let scenario = Scenario::read(&job.experiment.join(settings.file))?;
        let length = match (job.duration, settings.requests, settings.duration) {
            (Some(duration), ..) => (u64::MAX, duration),
            (None, Some(requests), duration) => (requests, duration.unwrap_or(Duration::MAX)),
            (None, None, Some(duration)) => (u64::MAX, duration),
            // Each kind of request once, or as often as its sequence says.
            (None, None, None) => {
                let times = scenario.requests.iter().map(|request| request.times).sum();
                (times, Duration::MAX)
            }
        };
        let command = format!(
            "coracle lab: scenario {}, {} users, http://{}",
            settings.file, settings.users, job.target
        );
        let rows = on_pinned_thread(job, || run(&scenario, &settings, length, job))?;
        Ok(outcome(rows, command))
    }
}

/// What one kind of request came to.
struct Count {
    tally: Tally,
    exchanges: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Count {
    fn new(begin: Instant, length: Duration) -> Count {
        Count {
            tally: Tally::new(begin, length),
            exchanges: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    fn add(&mut self, other: &Count) {
        self.tally.add(&other.tally);
        self.exchanges += other.exchanges;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
    fn row(self, name: Option<&str>, took: Duration) -> Row {
        let each = self.exchanges.max(1) as f64;
        let sent = self.sent_bytes as f64 / each;
        let received = self.received_bytes as f64 / each;
        let mut row = self.tally.row(took);
        if let Some(name) = name {
            row.label.insert("request".to_owned(), name.to_owned());
        }
        row.metrics
            .insert("sent_per_request_bytes".to_owned(), sent);
        row.metrics
            .insert("received_per_request_bytes".to_owned(), received);
        row
    }
}

/// All users, each on a thread. `length`: at most so many requests of each user, and at most for this time.
fn run(
    scenario: &Scenario,
    settings: &Settings<'_>,
    length: (u64, Duration),
    job: &Job<'_>,
) -> Result<Vec<Row>> {
    let users = usize::try_from(settings.users).unwrap_or(usize::MAX);
    let expected = length.1.min(Duration::from_secs(86_400));
    // Nobody asks before all are prepared.
    let ready = Barrier::new(users);
    let unprepared = AtomicBool::new(false);
    let results: Vec<Result<Vec<Count>>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..settings.users {
            let (ready, unprepared) = (&ready, &unprepared);
            threads.push(scope.spawn(move || {
                let mut user = User::new(number, scenario, settings, job);
                let prepared = user.prepare();
                unprepared.fetch_or(prepared.is_err(), Ordering::Relaxed);
                ready.wait();
                prepared?;
                if unprepared.load(Ordering::Relaxed) {
                    return Ok(Vec::new());
                }
                user.act(length, expected)
            }));
        }
        threads
            .into_iter()
            .map(|thread| {
                let panicked = || Error::Host("a user of the scenario panicked".to_owned());
                thread.join().unwrap_or_else(|_| Err(panicked()))
            })
            .collect()
    });
    let mut sum: Option<Vec<Count>> = None;
    for result in results {
        let counts = result?;
        match &mut sum {
            None => sum = Some(counts),
            Some(sum) => sum
                .iter_mut()
                .zip(&counts)
                .for_each(|(sum, count)| sum.add(count)),
        }
    }
    let Some(counts) = sum else {
        return Ok(Vec::new());
    };
    let begin = counts.iter().map(|count| count.tally.begin()).min();
    let begin = begin.unwrap_or_else(Instant::now);
    let last = counts.iter().map(|count| count.tally.last).max();
    let took = last.map_or(Duration::ZERO, |last| last.duration_since(begin));
    let mut all = Count::new(begin, expected);
    counts.iter().for_each(|count| all.add(count));
    if counts.len() == 1 {
        return Ok(vec![all.row(None, took)]);
    }
    let mut rows = vec![all.row(Some("all"), took)];
    for (request, count) in scenario.requests.iter().zip(counts) {
        rows.push(count.row(Some(&request.name), took));
    }
    Ok(rows)
}

struct User<'a> {
    number: u64,
    scenario: &'a Scenario,
    job: &'a Job<'a>,
    client: Client<'a>,
    random: Random,
    count: u64,
}

impl<'a> User<'a> {
    fn new(number: u64, scenario: &'a Scenario, settings: &Settings<'_>, job: &'a Job<'a>) -> Self {
        User {
            number,
            scenario,
            job,
            client: Client::new(job.target, settings.timeout, job.cancel),
            random: Random(settings.seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            count: 0,
        }
    }

    /// Asks what has to be asked beforehand. Wrong answers end the run: what comes after would mean nothing.
    fn prepare(&mut self) -> Result<()> {
        for request in &self.scenario.prepare {
            for _ in 0..request.times {
                let bytes = self.bytes(request);
                let failed = match self.client.exchange(&bytes) {
                    Ok(answer) => request.judge(answer.status, self.client.body()),
                    Err(Lost::Kind(kind)) => Some(kind.to_owned()),
                    Err(Lost::Interrupted) => return Err(Error::Interrupted),
                };
                if let Some(kind) = failed {
                    let body = String::from_utf8_lossy(self.client.body()).into_owned();
                    return Err(Error::Platform {
                        what: format!(
                            "scenario: request `{}` of the preparation, user {}: {kind}",
                            request.name, self.number
                        ),
                        log: body,
                    });
                }
            }
        }
        Ok(())
    }

    fn bytes(&mut self, request: &Request) -> Vec<u8> {
        let mut values = BTreeMap::new();
        for (name, &(from, to)) in &self.scenario.values {
            values.insert(name.clone(), self.random.between(from, to));
        }
        let filling = Filling {
            user: self.number,
            count: self.count,
            values: &values,
        };
        self.count += 1;
        request.bytes(self.job.target, &filling)
    }

    fn act(
        &mut self,
        (requests, length): (u64, Duration),
        expected: Duration,
    ) -> Result<Vec<Count>> {
        let begin = Instant::now();
        let mut counts: Vec<Count> = self
            .scenario
            .requests
            .iter()
            .map(|_| Count::new(begin, expected))
            .collect();
        for number in 0..requests {
            if begin.elapsed() >= length {
                break;
            }
            if self.job.cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let at = self.next(number);
            let request = &self.scenario.requests[at];
            let bytes = self.bytes(request);
            let start = Instant::now();
            let answer = self.client.exchange(&bytes);
            let now = Instant::now();
            let count = &mut counts[at];
            count.exchanges += 1;
            count.sent_bytes += self.client.sent_bytes;
            count.received_bytes += self.client.received_bytes;
            match answer {
                Ok(answer) => match request.judge(answer.status, self.client.body()) {
                    None => count.tally.answer(start, now),
                    Some(kind) => count.tally.error(&kind, 1),
                },
                Err(Lost::Kind(kind)) => {
                    count.tally.error(kind, 1);
                    // A server that is gone is not asked a million times a second.
                    self.sleep(Duration::from_millis(10))?;
                }
                Err(Lost::Interrupted) => return Err(Error::Interrupted),
            }
            count.tally.last = count.tally.last.max(now);
            let (from, to) = self.scenario.think_ms;
            let think = self.random.between(from, to);
            self.sleep(Duration::from_millis(think))?;
        }
        Ok(counts)
    }

    /// Which kind of request comes next.
    fn next(&mut self, number: u64) -> usize {
        let size = |request: &Request| match self.scenario.order {
            Order::Weighted => request.weight,
            Order::Sequence => request.times,
        };
        let sum: u64 = self.scenario.requests.iter().map(size).sum();
        let mut left = match self.scenario.order {
            Order::Weighted => self.random.between(0, sum.saturating_sub(1)),
            Order::Sequence => number % sum.max(1),
        };
        for (at, request) in self.scenario.requests.iter().enumerate() {
            match left.checked_sub(size(request)) {
                Some(rest) => left = rest,
                None => return at,
            }
        }
        0
    }

    fn sleep(&self, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if self.job.cancel.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): what is drawn must be the same for the same seed, in each version of the lab.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// From `from` to `to`, both included.
    fn between(&mut self, from: u64, to: u64) -> u64 {
        let span = (to - from).saturating_add(1);
        from + self.next() % span
    }
}
