// SPDX-License-Identifier: Apache-2.0

//! Medians, intervals and ratios of samples, and distributions of response times.
//!
//! A figure is the **median** of its runs. Its 95 % interval, and that of a ratio of two medians, come from the
//! **bootstrap**: the runs are drawn again, with replacement, [`RESAMPLES`] times from a recorded seed, and the interval
//! holds the middle of what came out. The plain percentile interval is too narrow for the few runs a lab has, so its
//! levels are widened as T. Hesterberg describes ("What Teachers Should Know about the Bootstrap", 2014, section 4.5,
//! "expanded percentile"): instead of 2.5 % they are Φ(-√(n/(n-1)) · t) with Student's t of n-1 degrees of freedom.
//!
//! What is drawn is a **round**, not a sample: samples of one round share their boot and the state of the host. For a
//! ratio the two sides of a round are drawn together where every round has both, since platforms take turns within a
//! round and share its slow moments; where a run failed on one side, both sides are drawn apart, which is right for
//! independent runs and too wide, not too narrow, for runs that share moments.
//!
//! No way of computing gives a 95 % interval for a median of fewer than [`FEWEST`] runs: even from the least to the
//! greatest of four covers the true median only 7 times out of 8. With fewer, the range is given and nothing is decided.

mod bootstrap;
mod describe;
mod latency;
mod normal;
mod random;

pub use bootstrap::{Estimate, FEWEST, RESAMPLES, Ratio, Rounds, estimate, ratio};
pub use describe::{mean_and_deviation, median, quantile, trimmed};
pub use latency::{Class, Distribution, Part};
pub use random::Random;

/// An interval wider than this share of its middle leaves a figure "not settled", unless asked otherwise.
pub const SETTLED_WITHIN: f64 = 0.10;
