// SPDX-License-Identifier: Apache-2.0
//! The `coracle` command.
//!
//! Exit codes are podman's: the application's own for `run` and `wait`, 128+n for a signal, 125 for an error of Coracle
//! itself, 126 for a program that cannot be executed, 127 for one that is not there.

mod args;
mod config;
mod detach;
mod error;
mod folders;
mod plan;
mod quantity;
mod run;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::error::{Failure, OWN_ERROR};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(OWN_ERROR)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match dispatch(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("coracle: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Monitor(args) => detach::monitor(&args.name),
    }
}
