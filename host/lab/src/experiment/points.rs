// SPDX-License-Identifier: Apache-2.0

//! Parameters: lists span a matrix, in the order of the file.

use std::collections::BTreeMap;

use super::{Kind, Workload};
use crate::load::Point;

/// Parameters of the kinds, beside those of the generator.
impl Kind {
    /// The runner's own parameters; all others are the generator's.
    #[must_use]
    pub fn parameters(self) -> &'static [&'static str] {
        match self {
            Kind::Start => &[],
            Kind::Load => &["warmup_s"],
            Kind::Ramp => &[
                "start_per_s",
                "step_per_s",
                "max_per_s",
                "step_s",
                "pause_s",
                "stop_below",
                "stop_latency_ms",
                "warmup_s",
            ],
            Kind::Endurance => &["duration_s", "slice_s", "warmup_s"],
            Kind::Batch => &["timeout_s"],
            Kind::BootStorm => &["instances", "duration_s", "pause_s", "probe"],
            Kind::Density => &["max_instances", "latency_ms", "memory_share"],
            Kind::SmallestMemory => &["limit_s", "answers"],
        }
    }

    /// Whether a load generator takes part.
    #[must_use]
    pub fn has_tool(self) -> bool {
        matches!(self, Kind::Load | Kind::Ramp | Kind::Endurance)
    }

    /// Whether it needs instances of its own instead of the session's one.
    #[must_use]
    pub fn has_many(self) -> bool {
        matches!(self, Kind::BootStorm | Kind::Density | Kind::SmallestMemory)
    }
}

impl Workload {
    /// Whether it takes part in a round, counted from 0.
    #[must_use]
    pub fn is_in_round(&self, round: u32, quick: bool) -> bool {
        let quick_rounds = self.quick_rounds.filter(|_| quick);
        quick_rounds
            .or(self.rounds)
            .is_none_or(|rounds| round < rounds)
    }

    /// All points: the matrix of the lists among the parameters, the first list changing slowest. With `quick` its
    /// parameters replace those of the full run; a duration replaces a number of requests, and the other way round.
    #[must_use]
    pub fn points(&self, quick: bool) -> Vec<Point> {
        let mut parameters = self.with.clone();
        if quick {
            for (name, value) in &self.quick {
                match name.as_str() {
                    "duration_s" => parameters.remove("requests"),
                    "requests" => parameters.remove("duration_s"),
                    _ => None,
                };
                parameters.insert(name.clone(), value.clone());
            }
        }
        let mut points = vec![Point::new()];
        for (name, value) in parameters {
            let values = match value {
                toml::Value::Array(values) => values,
                value => vec![value],
            };
            points = points
                .into_iter()
                .flat_map(|point| {
                    let name = &name;
                    values.iter().map(move |value| {
                        let mut point = point.clone();
                        point.insert(name.clone(), value.clone());
                        point
                    })
                })
                .collect();
        }
        points
    }

    /// What names a point in results: the parameters that have more than one value, in either form of the run, so that a
    /// point is called the same with and without `quick`.
    #[must_use]
    pub fn label(&self, point: &Point) -> BTreeMap<String, String> {
        let is_list = |name: &str| {
            [&self.with, &self.quick]
                .iter()
                .any(|table| matches!(table.get(name), Some(toml::Value::Array(_))))
        };
        point
            .iter()
            .filter(|(name, _)| is_list(name))
            .map(|(name, value)| (name.clone(), text(value)))
            .collect()
    }
}

/// The runner's parameters of a point, and the generator's.
#[must_use]
pub fn split(kind: Kind, point: &Point) -> (Point, Point) {
    point
        .clone()
        .into_iter()
        .partition(|(name, _)| kind.parameters().contains(&name.as_str()))
}

/// A value as in labels: texts without quotes.
#[must_use]
pub fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number, whole or not.
#[must_use]
pub fn number(value: &toml::Value) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "parameters are far below 2^53")]
        toml::Value::Integer(number) => Some(*number as f64),
        toml::Value::Float(number) if number.is_finite() => Some(*number),
        _ => None,
    }
}
