// SPDX-License-Identifier: Apache-2.0
//! The command line: nouns, verbs and letters are podman's.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Runs Linux executables as unikernels: one application, one kernel, one virtual machine.
#[derive(Debug, Parser)]
#[command(name = "coracle", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: the application's own for run and wait, 128+n for signal n, \
    125 an error of coracle, 126 the program cannot be executed, 127 the program was not found."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start an executable, or a program in a folder, as a unikernel
    Run(Box<RunArgs>),
    /// Watch a detached instance (started by `run -d`)
    #[command(hide = true)]
    Monitor(NameArg),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Run in the background and print the name
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Remove the instance when it ends
    #[arg(long)]
    pub(crate) rm: bool,
    /// Name of the instance [default: made from the program's]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Set a variable of the environment; without =VALUE it is taken from here
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Read variables from a file, one NAME=VALUE a line
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Vec<PathBuf>,
    /// Pass a port of the host on to the guest: [ADDRESS:]HOST:GUEST[/udp]
    #[arg(short, long, value_name = "PORTS")]
    pub(crate) publish: Vec<String>,
    /// Memory of the guest, such as 64M
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Number of vCPUs, 1 to 8
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<String>,
    /// Numeric user and group: UID[:GID]
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Working directory in the guest
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// Make the root file system read-only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// How guest code runs: auto, kvm or tcg (software emulation)
    #[arg(long)]
    pub(crate) accel: Option<String>,
    /// Machine type: microvm or q35
    #[arg(long)]
    pub(crate) machine: Option<String>,
    /// Network: user, none or tap=NAME,ip=ADDRESS/PREFIX[,gw=ADDRESS][,mac=MAC]
    #[arg(long)]
    pub(crate) network: Option<String>,
    /// Print the VMM's command line instead of running it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Log every system call on the serial port (serial.log of the instance)
    #[arg(long)]
    pub(crate) trace: bool,
    /// A static executable, or a folder used as root file system
    #[arg(value_name = "ELF|DIR")]
    pub(crate) image: PathBuf,
    /// Arguments; for a folder, first the program in it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NameArg {
    /// Name of the instance
    pub(crate) name: String,
}
