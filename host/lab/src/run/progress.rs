// SPDX-License-Identifier: Apache-2.0

//! What a run says while it runs.

/// Somebody who watches.
pub trait Progress {
    /// A run of an experiment begins; it should take `seconds`.
    fn begin(&mut self, experiment: &str, seconds: f64);

    /// What is done now: "round 2/10: go on unikernel, 1 vCPU: stress connections=40".
    fn now(&mut self, what: &str);

    /// `seconds` of what was expected are done.
    fn done(&mut self, seconds: f64);

    /// A line that stays: a figure, a failure.
    fn say(&mut self, line: &str);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Progress for Quiet {
    fn begin(&mut self, _: &str, _: f64) {}
    fn now(&mut self, _: &str) {}
    fn done(&mut self, _: f64) {}
    fn say(&mut self, _: &str) {}
}
