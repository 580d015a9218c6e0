// SPDX-License-Identifier: Apache-2.0

//! The samples of the comparison, and the table made of them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::demo::figures::median;

/// What a figure is compared by.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// Lower is better; if there is a goal, the unikernel's median must not be above it.
    Lower(Option<f64>),
    /// Higher is better; if there is a goal, it is the least ratio of the unikernel's median to the Linux VM's.
    Higher(Option<f64>),
}

/// A figure with all its samples.
struct Figure {
    name: String,
    wanted: Wanted,
    linux: Vec<f64>,
    coracle: Vec<f64>,
}

/// All samples, also written to a file of JSON lines as they come.
pub(crate) struct Results {
    figures: Vec<Figure>,
    problems: Vec<String>,
    file: File,
}

impl Results {
    pub(crate) fn create(path: &Path) -> Result<Results> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        Ok(Results {
            figures: Vec::new(),
            problems: Vec::new(),
            file,
        })
    }

    /// A line of the file that is no sample.
    pub(crate) fn note(&mut self, what: &Value) -> Result<()> {
        writeln!(self.file, "{what}").context("write the samples")
    }

    /// The time to the first answer, seconds.
    pub(crate) fn boot(
        &mut self,
        platform: &str,
        figure: &str,
        value: f64,
        goal: Option<f64>,
    ) -> Result<()> {
        self.add(platform, figure, value, Wanted::Lower(goal), &Value::Null)
    }

    /// A figure that is better when lower.
    pub(crate) fn lower(
        &mut self,
        platform: &str,
        figure: &str,
        value: f64,
        context: &Value,
    ) -> Result<()> {
        self.add(platform, figure, value, Wanted::Lower(None), context)
    }

    /// A rate, and the least ratio to the Linux VM's.
    pub(crate) fn rate(
        &mut self,
        platform: &str,
        figure: &str,
        value: f64,
        goal: Option<f64>,
        context: &Value,
    ) -> Result<()> {
        self.add(platform, figure, value, Wanted::Higher(goal), context)
    }

    fn add(
        &mut self,
        platform: &str,
        name: &str,
        value: f64,
        wanted: Wanted,
        context: &Value,
    ) -> Result<()> {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        self.note(&json!({
            "time": time, "platform": platform, "figure": name, "value": value, "context": context,
        }))?;
        let at = match self.figures.iter().position(|figure| figure.name == name) {
            Some(at) => at,
            None => {
                self.figures.push(Figure {
                    name: name.to_owned(),
                    wanted,
                    linux: Vec::new(),
                    coracle: Vec::new(),
                });
                self.figures.len() - 1
            }
        };
        let figure = &mut self.figures[at];
        match platform {
            "Coracle" => figure.coracle.push(value),
            _ => figure.linux.push(value),
        }
        Ok(())
    }

    /// Records what went wrong, such as requests without an answer.
    pub(crate) fn add_problem(&mut self, what: String) -> Result<()> {
        self.note(&json!({ "problem": what }))?;
        self.problems.push(what);
        Ok(())
    }

    /// All that went wrong, a line each.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Medians, ratios, goals.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<58} {:>10} {:>10} {:>7}  goal\n",
            "", "Linux VM", "Coracle", "ratio"
        );
        for figure in &self.figures {
            let (linux, coracle) = (median(&figure.linux), median(&figure.coracle));
            let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), digits);
            let ratio = linux.zip(coracle).map(|(linux, coracle)| coracle / linux);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<58} {:>10} {:>10} {:>7}  {}",
                figure.name,
                shown(linux),
                shown(coracle),
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                verdict(figure.wanted, coracle, ratio),
            );
        }
        text
    }
}

/// The goal and whether it is reached.
fn verdict(wanted: Wanted, coracle: Option<f64>, ratio: Option<f64>) -> String {
    let (text, reached) = match wanted {
        Wanted::Lower(Some(goal)) => (format!("{goal}"), coracle.map(|value| value <= goal)),
        Wanted::Higher(Some(goal)) => (format!("{goal:.1}"), ratio.map(|value| value >= goal)),
        Wanted::Lower(None) | Wanted::Higher(None) => return String::new(),
    };
    match reached {
        Some(true) => format!("{text} reached"),
        Some(false) => format!("{text} MISSED"),
        None => text,
    }
}

/// A number with three digits or more.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Wanted, verdict};

    #[test]
    fn goals_are_judged() {
        let higher = Wanted::Higher(Some(2.0));
        assert_eq!(verdict(higher, Some(5.0), Some(2.0)), "2.0 reached");
        assert_eq!(verdict(higher, Some(5.0), Some(1.9)), "2.0 MISSED");
        assert_eq!(verdict(higher, Some(5.0), None), "2.0");
        let lower = Wanted::Lower(Some(0.4));
        assert_eq!(verdict(lower, Some(0.3), None), "0.4 reached");
        assert_eq!(verdict(lower, Some(0.5), Some(0.1)), "0.4 MISSED");
        assert_eq!(verdict(Wanted::Lower(None), Some(1.0), Some(0.5)), "");
    }
}
