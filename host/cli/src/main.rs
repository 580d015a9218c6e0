// SPDX-License-Identifier: Apache-2.0
//! The `coracle` command.
//!
//! Exit codes are podman's: `run` answers with the application's own, 128+n for a signal; 125 is an error of Coracle
//! itself, 126 a program that cannot be executed, 127 one that is not there.

mod args;
mod bundle;
mod check;
mod config;
mod detach;
mod doctor;
mod error;
mod folders;
mod images;
mod inspect;
mod lab;
mod lifecycle;
mod logs;
mod output;
mod plan;
mod ps;
mod quantity;
mod run;
mod stats;
mod syscalls;
mod trace;
mod volume;
mod volumes;

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
        Command::Build(args) => images::build(&args),
        Command::Images(args) => images::images(&args),
        Command::Rmi(args) => images::rmi(&args),
        Command::Pull(args) => images::pull(&args),
        Command::Push(args) => images::push(&args),
        Command::Load(args) => images::load(&args),
        Command::Save(args) => images::save(&args),
        Command::Ps(args) => ps::ps(&args),
        Command::Logs(args) => logs::logs(&args),
        Command::Stop(args) => lifecycle::stop(&args),
        Command::Kill(args) => lifecycle::kill(&args),
        Command::Rm(args) => lifecycle::rm(&args),
        Command::Wait(args) => lifecycle::wait(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Stats(args) => stats::stats(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Volume(args) => volume::volume(&args),
        Command::Check(args) => check::check(&args),
        Command::Lab(args) => lab::lab(&args),
        Command::Doctor => doctor::doctor(),
        Command::Syscalls(args) => syscalls::syscalls(&args),
        Command::Config(args) => config::show(&args),
        Command::Monitor(args) => detach::monitor(&args.name),
    }
}
