// SPDX-License-Identifier: Apache-2.0

//! Intervals of medians and of ratios of medians, by drawing rounds again.

use std::collections::BTreeMap;

use serde::Serialize;

use super::describe::{median, median_of};
use super::normal::{student_975, tail};
use super::random::Random;

/// How often the runs are drawn again.
pub const RESAMPLES: usize = 10_000;

/// With fewer runs there is no 95 % interval of a median, only a range.
pub const FEWEST: usize = 5;

/// The samples of one figure, by round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds(BTreeMap<u32, Vec<f64>>);

impl Rounds {
    /// Adds a sample. A value that is not a finite number is refused: the answer is false.
    #[must_use]
    pub fn add(&mut self, round: u32, value: f64) -> bool {
        if value.is_finite() {
            self.0.entry(round).or_default().push(value);
        }
        value.is_finite()
    }

    /// All samples, by round.
    #[must_use]
    pub fn values(&self) -> Vec<f64> {
        self.0.values().flatten().copied().collect()
    }

    /// How many rounds have samples.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.0.len()
    }

    /// What is drawn: rounds; the single samples where there are several of them in too few rounds to draw.
    fn units(&self) -> Vec<Vec<f64>> {
        if self.drawn_by_round() {
            self.0.values().cloned().collect()
        } else {
            self.0
                .values()
                .flatten()
                .map(|value| vec![*value])
                .collect()
        }
    }

    fn drawn_by_round(&self) -> bool {
        self.0.len() >= FEWEST || self.0.values().all(|values| values.len() == 1)
    }
}

impl FromIterator<f64> for Rounds {
    /// One sample a round; values that are not finite are left out.
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Rounds {
        let mut rounds = Rounds::default();
        for (round, value) in (0..).zip(values) {
            let _ = rounds.add(round, value);
        }
        rounds
    }
}

/// A median and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median of all samples.
    pub median: f64,
    /// The lower end of the interval; with fewer than [`FEWEST`] runs the least sample.
    pub low: f64,
    /// The upper end; with fewer than [`FEWEST`] runs the greatest sample.
    pub high: f64,
    /// How many samples.
    pub samples: usize,
    /// How many independent runs the interval rests on.
    pub runs: usize,
    /// Whether these are samples within too few rounds, so that the interval does not hold what differs from boot to boot.
    pub within_rounds: bool,
}

/// How one figure compares with another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Median by median.
    pub ratio: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How many independent runs the interval rests on, of the side that has fewer.
    pub runs: usize,
    /// Whether both sides of a round were drawn together.
    pub paired: bool,
}

impl Estimate {
    /// The width of the interval as a share of the median; none if the median is 0 and the interval is not.
    #[must_use]
    pub fn width(&self) -> Option<f64> {
        width(self.low, self.median, self.high)
    }

    /// Whether the interval rests on enough runs and is no wider than `share` of the median.
    #[must_use]
    pub fn is_settled(&self, share: f64) -> bool {
        self.runs >= FEWEST && self.width().is_some_and(|width| width <= share)
    }
}

impl Ratio {
    /// The width of the interval as a share of the ratio; none if the ratio is 0 and the interval is not.
    #[must_use]
    pub fn width(&self) -> Option<f64> {
        width(self.low, self.ratio, self.high)
    }

    /// Whether the interval rests on enough runs and is no wider than `share` of the ratio.
    #[must_use]
    pub fn is_settled(&self, share: f64) -> bool {
        self.runs >= FEWEST && self.width().is_some_and(|width| width <= share)
    }

    /// Whether the two differ: there are enough runs, and the interval does not hold 1.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.runs >= FEWEST && !(self.low..=self.high).contains(&1.0)
    }
}

fn width(low: f64, middle: f64, high: f64) -> Option<f64> {
    // Equal ends are settled even where a share of 0 would be asked for.
    if high <= low {
        return Some(0.0);
    }
    (middle != 0.0).then(|| (high - low) / middle.abs())
}

/// The median of a figure with its interval; none without samples.
#[must_use]
pub fn estimate(samples: &Rounds, seed: u64) -> Option<Estimate> {
    let values = samples.values();
    let middle = median(&values)?;
    let units = samples.units();
    let (low, high) = interval(units.len(), seed, |random, buffer| {
        draw(&units, random, buffer);
        median_of(buffer)
    })?;
    Some(Estimate {
        median: middle,
        low,
        high,
        samples: values.len(),
        runs: units.len(),
        within_rounds: !samples.drawn_by_round(),
    })
}

/// `of` by `by`, with its interval. None if a side has no sample or a single one (a ratio of two single runs says nothing),
/// or if `by` has a sample that is 0 or less, or `of` one below 0.
///
/// `same_run` says that both were measured in the same run, so that equal rounds lie next to each other in time.
#[must_use]
pub fn ratio(of: &Rounds, by: &Rounds, same_run: bool, seed: u64) -> Option<Ratio> {
    let (of_values, by_values) = (of.values(), by.values());
    let usable =
        of_values.iter().all(|value| *value >= 0.0) && by_values.iter().all(|value| *value > 0.0);
    if !usable || of_values.len() < 2 || by_values.len() < 2 {
        return None;
    }
    let middle = median(&of_values)? / median(&by_values)?;
    let (of_units, by_units) = (of.units(), by.units());
    let runs = of_units.len().min(by_units.len());
    let paired =
        same_run && of.drawn_by_round() && by.drawn_by_round() && of.0.keys().eq(by.0.keys());
    let mut second = Vec::new();
    let (low, high) = interval(runs, seed, |random, first| {
        if paired {
            first.clear();
            second.clear();
            for _ in 0..runs {
                let unit = random.below(runs);
                first.extend_from_slice(of_units.get(unit)?);
                second.extend_from_slice(by_units.get(unit)?);
            }
        } else {
            draw(&of_units, random, first);
            draw(&by_units, random, &mut second);
        }
        Some(median_of(first)? / median_of(&mut second)?)
    })?;
    Some(Ratio {
        ratio: middle,
        low,
        high,
        runs,
        paired,
    })
}

fn draw(units: &[Vec<f64>], random: &mut Random, buffer: &mut Vec<f64>) {
    buffer.clear();
    for _ in 0..units.len() {
        if let Some(unit) = units.get(random.below(units.len())) {
            buffer.extend_from_slice(unit);
        }
    }
}

/// The expanded percentile interval of a statistic of `runs` independent runs; `again` draws and computes it once.
fn interval(
    runs: usize,
    seed: u64,
    mut again: impl FnMut(&mut Random, &mut Vec<f64>) -> Option<f64>,
) -> Option<(f64, f64)> {
    let mut random = Random::new(seed);
    let mut buffer = Vec::new();
    let mut drawn = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        drawn.push(again(&mut random, &mut buffer)?);
    }
    drawn.sort_by(f64::total_cmp);
    let index = skipped(runs);
    Some((drawn[index], drawn[RESAMPLES - 1 - index]))
}

/// How many of the [`RESAMPLES`] lie below the interval, and as many above.
fn skipped(runs: usize) -> usize {
    if runs < 2 {
        return 0;
    }
    #[expect(clippy::cast_precision_loss)]
    let n = runs as f64;
    let level = tail((n / (n - 1.0)).sqrt() * student_975(runs - 1));
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let index = (level * RESAMPLES as f64).floor() as usize;
    index.min(RESAMPLES / 2 - 1)
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;
