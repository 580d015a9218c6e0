// SPDX-License-Identifier: Apache-2.0
//! `coracle lab`: experiments that compare platforms.

mod compare;
mod list;
mod progress;
mod report;
mod run;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use coracle_lab::experiment::{Experiments, Known};
use coracle_lab::load::Generator;
use coracle_lab::platform;

use crate::error::Failure;

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// List the experiments
    List(list::ListArgs),
    /// Run experiments and write a report
    Run(run::RunArgs),
    /// Write a report on results
    Report(report::ReportArgs),
    /// Say what changed between two results of an experiment
    Compare(compare::CompareArgs),
}

/// `coracle lab ...`
pub(crate) fn lab(args: &LabArgs) -> Result<u8, Failure> {
    match &args.command {
        LabCommand::List(args) => list::list(args),
        LabCommand::Run(args) => run::run(args),
        LabCommand::Report(args) => report::report(args),
        LabCommand::Compare(args) => compare::compare_results(args),
    }
}

/// Where experiments are looked for.
#[derive(Debug, Args)]
struct Place {
    /// Folder with experiments [default: the folder experiments here or above]
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
}

impl Place {
    fn find(&self) -> Result<Experiments, Failure> {
        let found = match &self.experiments {
            Some(folder) => Experiments::at(folder),
            None => {
                let here = std::env::current_dir().map_err(|error| {
                    Failure::new(format!("the working directory is not there: {error}"))
                })?;
                Experiments::find(&here)
            }
        };
        found.map_err(Failure::new)
    }
}

/// What experiments may name.
fn known(generators: &[Box<dyn Generator>]) -> Known<'_> {
    Known {
        platforms: platform::names(),
        generators,
    }
}
