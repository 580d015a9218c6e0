// SPDX-License-Identifier: Apache-2.0

//! What a ratio says: better, worse, the same, or nothing yet.

use super::words;
use crate::metric::Better;
use crate::statistics::{Ratio, SETTLED_WITHIN};

/// Up to this share of its middle an interval may be wide.
pub(super) const SHARE: f64 = SETTLED_WITHIN;

/// What a ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Better,
    Worse,
    /// The interval holds 1 and is narrow.
    Same,
    /// They differ, in something that is neither good nor bad.
    Different,
    NotSettled,
}

impl Finding {
    /// What `ratio` says of `metric`, where an interval up to `share` wide is settled.
    pub(super) fn of(metric: &str, ratio: &Ratio, share: f64) -> Finding {
        let more = ratio.ratio > 1.0;
        match (ratio.differs(), words::better(metric)) {
            (true, Better::Neither) => Finding::Different,
            (true, Better::Higher) if more => Finding::Better,
            (true, Better::Lower) if !more => Finding::Better,
            (true, _) => Finding::Worse,
            (false, _) if ratio.is_settled(share) => Finding::Same,
            (false, _) => Finding::NotSettled,
        }
    }

    /// As [`Finding::of`] for what is the same in every run.
    pub(super) fn of_exact(metric: &str, ratio: f64) -> Finding {
        match (words::better(metric), ratio) {
            (_, 1.0) => Finding::Same,
            (Better::Neither, _) => Finding::Different,
            (Better::Higher, more) if more > 1.0 => Finding::Better,
            (Better::Lower, less) if less < 1.0 => Finding::Better,
            _ => Finding::Worse,
        }
    }

    /// In a word or two.
    pub(super) fn word(self) -> &'static str {
        match self {
            Finding::Better => "better",
            Finding::Worse => "worse",
            Finding::Same => "no difference",
            Finding::Different => "different",
            Finding::NotSettled => "not settled",
        }
    }
}
