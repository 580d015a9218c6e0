// SPDX-License-Identifier: Apache-2.0
//! `coracle lab compare`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use coracle_lab::report::{COLUMNS, Comparison, compare};

use crate::error::Failure;
use crate::output;

/// A main figure became worse by more than was allowed.
const WORSE: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// The earlier result: its folder or file
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The later result of the same experiment
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// How it is written
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
    /// Show all figures, not only the main ones and those that differ
    #[arg(long)]
    all: bool,
    /// End with exit code 1 if a main figure is worse by at least this share, such as 0.05
    #[arg(long, value_name = "SHARE", value_parser = share)]
    fail_on_worse: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Says what changed.
pub(super) fn compare_results(args: &CompareArgs) -> Result<u8, Failure> {
    let found = compare(&args.before, &args.after).map_err(Failure::new)?;
    match args.output {
        Format::Json => output::json(&found)?,
        Format::Text => print(&found, args.all),
    }
    let Some(share) = args.fail_on_worse else {
        return Ok(0);
    };
    let worse = found.worse(share);
    for figure in &worse {
        eprintln!(
            "worse by {} % or more: {} of {}, {}, {}",
            share * 100.0,
            figure.metric,
            figure.platform,
            figure.service,
            figure.workload
        );
    }
    Ok(if worse.is_empty() { 0 } else { WORSE })
}

fn print(found: &Comparison, all: bool) {
    let line = |text: &str| output::line(&shown(text));
    line(&format!(
        "{}: {} -> {}",
        found.experiment, found.before, found.after
    ));
    for remark in &found.remarks {
        line(&format!("note: {remark}"));
    }
    if !found.differences.is_empty() {
        line("Not the same, so a change below may come from it:");
        for difference in &found.differences {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            line(&format!(
                "  {}: {} -> {}",
                difference.what,
                text(&difference.before),
                text(&difference.after)
            ));
        }
    }
    let rows = found.table(all).into_iter();
    let rows = rows.map(|row| row.iter().map(|cell| shown(cell)).collect());
    output::table(&COLUMNS, rows.collect());
    line(&found.summary());
}

/// A result may come from elsewhere: what would steer a terminal is shown as a question mark.
fn shown(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=10.0).contains(&share) => Ok(share),
        _ => Err("want a share such as 0.05 for 5 %".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{share, shown};

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(shown("a\u{1b}[2Jb\nc"), "a?[2Jb?c");
    }

    #[test]
    fn shares_are_numbers_of_sense() {
        assert_eq!(share("0.05"), Ok(0.05));
        for wrong in ["", "x", "-1", "NaN", "inf", "50"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
