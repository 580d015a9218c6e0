// SPDX-License-Identifier: Apache-2.0

//! Distributions of response times, from the HDR histograms of samples.

use hdrhistogram::Histogram;

use crate::{Error, Result};

/// Response times of several samples together.
#[derive(Clone, Debug)]
pub struct Distribution(Histogram<u64>);

/// Answers within a class of response times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// From here on, ms.
    pub from_ms: f64,
    /// Up to here, without it; none for the last class, which has no end.
    pub to_ms: Option<f64>,
    /// How many answers.
    pub count: u64,
}

/// A part of a distribution, described.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// How many answers.
    pub count: u64,
    /// The least, ms.
    pub least_ms: f64,
    /// The greatest, ms.
    pub greatest_ms: f64,
    /// The mean, ms.
    pub mean_ms: f64,
    /// The standard deviation, ms.
    pub deviation_ms: f64,
}

impl Distribution {
    /// All answers of all histograms, each counted once; none without answers.
    ///
    /// # Errors
    /// When they are too different to be put into one.
    pub fn merge(histograms: &[Histogram<u64>]) -> Result<Option<Distribution>> {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::Input(format!("histograms cannot be added: {error}"))
        };
        let digits = histograms.iter().map(Histogram::sigfig).max().unwrap_or(3);
        let mut sum = Histogram::new(digits).map_err(|error| wrong(&error))?;
        for histogram in histograms {
            sum.add(histogram).map_err(|error| wrong(&error))?;
        }
        Ok((!sum.is_empty()).then_some(Distribution(sum)))
    }

    /// How many answers.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The response time that a share (0 to 1) of the answers does not exceed, ms.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> f64 {
        ms(self.0.value_at_quantile(share))
    }

    /// Mean and standard deviation of all answers, ms.
    #[must_use]
    pub fn mean_and_deviation_ms(&self) -> (f64, f64) {
        (self.0.mean() / 1e6, self.0.stdev() / 1e6)
    }

    /// The answers between two shares: study 003 looks at 0.02 to 0.98. None if no answer is left.
    #[must_use]
    pub fn part(&self, low: f64, high: f64) -> Option<Part> {
        let all = self.0.len();
        // Counts of answers stay far below 2^53.
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let rank = |share: f64| (share.clamp(0.0, 1.0) * all as f64).round() as u64;
        let (first, last) = (rank(low), rank(high));
        let (mut seen, mut count, mut sum, mut squares) = (0_u64, 0_u64, 0.0, 0.0);
        let (mut least, mut greatest) = (f64::INFINITY, 0.0_f64);
        for step in self.0.iter_recorded() {
            let here = step.count_at_value();
            let kept = (seen + here).min(last).saturating_sub(seen.max(first));
            seen += here;
            if kept == 0 {
                continue;
            }
            let value = ms(step.value_iterated_to());
            #[expect(clippy::cast_precision_loss)]
            let weight = kept as f64;
            count += kept;
            sum += value * weight;
            squares += value * value * weight;
            least = least.min(value);
            greatest = greatest.max(value);
        }
        if count == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss)]
        let n = count as f64;
        let mean = sum / n;
        Some(Part {
            count,
            least_ms: least,
            greatest_ms: greatest,
            mean_ms: mean,
            deviation_ms: (squares / n - mean * mean).max(0.0).sqrt(),
        })
    }

    /// Steps of the empirical distribution: response time in ms, and the share of answers that took no longer. At most about
    /// 200 of them, ever closer towards the slowest answers.
    #[must_use]
    pub fn steps(&self) -> Vec<(f64, f64)> {
        let mut steps: Vec<(f64, f64)> = vec![(ms(self.0.min()), 0.0)];
        for step in self.0.iter_quantiles(10) {
            let here = (ms(step.value_iterated_to()), step.quantile());
            match steps.last_mut() {
                Some(last) if last.0 >= here.0 && last.1 > 0.0 => last.1 = here.1,
                _ => steps.push(here),
            }
        }
        steps
    }

    /// Counts by the classes of study 003, figure 9: below 5 ms, to 50 ms, then 50 ms wide, and from 450 ms on.
    #[must_use]
    pub fn classes(&self) -> Vec<Class> {
        let edges: Vec<f64> = [0.0, 5.0]
            .into_iter()
            .chain((1..=9).map(|step| f64::from(step) * 50.0))
            .collect();
        let mut classes: Vec<Class> = edges
            .iter()
            .enumerate()
            .map(|(index, from)| Class {
                from_ms: *from,
                to_ms: edges.get(index + 1).copied(),
                count: 0,
            })
            .collect();
        for step in self.0.iter_recorded() {
            let value = ms(step.value_iterated_to());
            if let Some(class) = classes
                .iter_mut()
                .rev()
                .find(|class| value >= class.from_ms)
            {
                class.count += step.count_at_value();
            }
        }
        classes
    }
}

fn ms(ns: u64) -> f64 {
    // Response times stay far below 2^53 ns, which is 104 days.
    #[expect(clippy::cast_precision_loss)]
    let ns = ns as f64;
    ns / 1e6
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::Distribution;

    /// 1, 2, ... 1000 ms.
    fn even() -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for value in 1..=1000_u64 {
            histogram.record(value * 1_000_000).unwrap();
        }
        histogram
    }

    #[test]
    fn merging_counts_every_answer_once() {
        let mut far = Histogram::new(3).unwrap();
        far.record(29_522_000_000).unwrap();
        let merged = Distribution::merge(&[even(), even(), far])
            .unwrap()
            .unwrap();
        assert_eq!(merged.count(), 2001);
        assert!((merged.quantile_ms(0.5) - 501.0).abs() < 1.0);
        assert!((merged.quantile_ms(1.0) / 29_522.0 - 1.0).abs() < 2e-3);
        assert!(Distribution::merge(&[]).unwrap().is_none());
    }

    #[test]
    fn the_studys_part_leaves_both_ends_out() {
        let distribution = Distribution::merge(&[even()]).unwrap().unwrap();
        let part = distribution.part(0.02, 0.98).unwrap();
        assert_eq!(part.count, 960);
        assert!((part.least_ms - 21.0).abs() < 0.1 && (part.greatest_ms - 980.0).abs() < 1.0);
        assert!((part.mean_ms - 500.5).abs() < 0.5, "{part:?}");
        // Of n even values a deviation of sqrt((n^2 - 1) / 12).
        assert!((part.deviation_ms - 277.13).abs() < 0.5, "{part:?}");
    }

    #[test]
    fn steps_rise_from_nothing_to_all() {
        let distribution = Distribution::merge(&[even()]).unwrap().unwrap();
        let steps = distribution.steps();
        assert!(steps.len() > 20 && steps.len() < 260, "{}", steps.len());
        assert!(
            steps.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1),
            "{steps:?}"
        );
        assert!(steps[0].1.abs() < 1e-12 && (steps[steps.len() - 1].1 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn classes_are_those_of_the_study() {
        let classes = Distribution::merge(&[even()]).unwrap().unwrap().classes();
        let counts: Vec<u64> = classes.iter().map(|class| class.count).collect();
        assert_eq!(counts.len(), 11);
        assert_eq!(counts.iter().sum::<u64>(), 1000);
        assert_eq!(&counts[..3], [4, 45, 50]);
        assert_eq!(classes[10].to_ms, None);
        assert!(counts[10].abs_diff(551) <= 1);
    }
}
