// SPDX-License-Identifier: Apache-2.0

//! What was counted during one phase of load.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::load::{Row, histogram};

/// The most points of a series: longer runs have longer slices.
const POINTS: u32 = 3000;
const SLICE: Duration = Duration::from_millis(100);

/// Counts of one phase.
#[derive(Debug)]
pub(crate) struct Tally {
    begin: Instant,
    slice: Duration,
    slices: Vec<Slice>,
    /// Right answers.
    pub(crate) answers: u64,
    /// By kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// ns.
    pub(crate) latency: Histogram<u64>,
    /// How long after its intended start, or after a connection became free if that was later, a request was sent; ns.
    pub(crate) delay: Histogram<u64>,
    /// When the last answer came.
    pub(crate) last: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    answers: u32,
    sum_ns: u64,
    max_ns: u64,
}

impl Tally {
    /// Begins to count a phase of about this length.
    pub(crate) fn new(begin: Instant, length: Duration) -> Self {
        Tally {
            begin,
            slice: SLICE.max(length / POINTS),
            slices: Vec::new(),
            answers: 0,
            errors: BTreeMap::new(),
            latency: histogram(),
            delay: histogram(),
            last: begin,
        }
    }

    /// A right answer at `now` to a request whose time counts from `start`.
    pub(crate) fn answer(&mut self, start: Instant, now: Instant) {
        let took_ns = nanoseconds(now.saturating_duration_since(start));
        self.answers += 1;
        self.last = self.last.max(now);
        self.latency.saturating_record(took_ns);
        let at = now.saturating_duration_since(self.begin).as_nanos() / self.slice.as_nanos();
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        // Answers that come after the phase, while it drains, end the series.
        let most = 2 * POINTS as usize;
        if at < most {
            if at >= self.slices.len() {
                self.slices.resize(at + 1, Slice::default());
            }
            let slice = &mut self.slices[at];
            slice.answers += 1;
            slice.sum_ns += took_ns;
            slice.max_ns = slice.max_ns.max(took_ns);
        }
    }

    /// When it began to count.
    pub(crate) fn begin(&self) -> Instant {
        self.begin
    }

    /// Adds what another one has counted since about the same time, in slices of the same length.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.begin = self.begin.min(other.begin);
        self.last = self.last.max(other.last);
        self.answers += other.answers;
        for (kind, count) in &other.errors {
            self.error(kind, *count);
        }
        // All have the same bounds.
        self.latency += &other.latency;
        self.delay += &other.delay;
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), Slice::default());
        }
        for (have, more) in self.slices.iter_mut().zip(&other.slices) {
            have.answers += more.answers;
            have.sum_ns += more.sum_ns;
            have.max_ns = have.max_ns.max(more.max_ns);
        }
    }

    /// `count` requests without a right answer.
    pub(crate) fn error(&mut self, kind: &str, count: u64) {
        if count == 0 {
            return;
        }
        match self.errors.get_mut(kind) {
            Some(have) => *have += count,
            None => {
                self.errors.insert(kind.to_owned(), count);
            }
        }
    }

    /// The row of a phase that took `took`. The slice that the phase ended in is left out: it is shorter.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and times in ns are below 2^53"
    )]
    pub(crate) fn row(self, took: Duration) -> Row {
        let slice_s = self.slice.as_secs_f64();
        let whole = usize::try_from(took.as_nanos() / self.slice.as_nanos()).unwrap_or(usize::MAX);
        let mut throughput = Vec::new();
        let mut mean = Vec::new();
        let mut max = Vec::new();
        for at in 0..whole.min(2 * POINTS as usize) {
            let at_s = at as f64 * slice_s;
            let slice = self.slices.get(at).copied().unwrap_or_default();
            throughput.push((at_s, f64::from(slice.answers) / slice_s));
            if slice.answers > 0 {
                mean.push((at_s, slice.sum_ns as f64 / f64::from(slice.answers) / 1e6));
                max.push((at_s, slice.max_ns as f64 / 1e6));
            }
        }
        Row {
            label: BTreeMap::new(),
            answers: self.answers,
            took,
            errors: self.errors,
            latency: Some(self.latency),
            metrics: BTreeMap::new(),
            series: BTreeMap::from([
                ("throughput_per_s".to_owned(), throughput),
                ("latency_mean_ms".to_owned(), mean),
                ("latency_max_ms".to_owned(), max),
            ]),
        }
    }
}

/// A duration in ns; centuries are cut.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
