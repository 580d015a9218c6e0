// SPDX-License-Identifier: Apache-2.0
//! The command line: nouns, verbs and letters are podman's.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::images::args::{
    BuildArgs, ImagesArgs, LoadArgs, LookupArgs, PullArgs, PushArgs, RmiArgs, SaveArgs,
};

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
    /// Start an image, an executable, or a program in a folder, as a unikernel
    Run(Box<RunArgs>),
    /// List running instances
    Ps(PsArgs),
    /// Show the output of an instance
    Logs(LogsArgs),
    /// Ask instances to end, and end them after a grace period
    Stop(StopArgs),
    /// Send a signal to instances
    Kill(KillArgs),
    /// Remove ended instances
    Rm(RmArgs),
    /// Wait for instances to end and print their exit codes
    Wait(WaitArgs),
    /// Show everything known about instances or images
    Inspect(InspectArgs),
    /// Show the counters of a running guest
    Stats(StatsArgs),
    /// Show the system calls of a running instance
    Trace(TraceArgs),
    /// Manage persistent volumes: create, ls, rm, inspect, prune
    Volume(crate::volume::VolumeArgs),
    /// Build an image from a Containerfile
    Build(BuildArgs),
    /// List images
    Images(ImagesArgs),
    /// Remove images
    Rmi(RmiArgs),
    /// Fetch images from a registry
    Pull(PullArgs),
    /// Send an image to a registry
    Push(PushArgs),
    /// Take an image from an archive
    Load(LoadArgs),
    /// Write an image as an OCI archive
    Save(SaveArgs),
    /// Say whether a program can run as a unikernel, without running it
    Check(CheckArgs),
    /// Compare platforms by experiments: list, run, report, compare
    Lab(crate::lab::LabArgs),
    /// Say what this machine lacks, and the line that repairs it
    Doctor,
    /// List the system calls and how much of each works
    Syscalls(SyscallsArgs),
    /// Show the defaults of this host
    Config(ConfigArgs),
    /// Watch a detached instance (started by `run -d`)
    #[command(hide = true)]
    Monitor(NameArg),
}

/// How a list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// Names only, one a line
    Name,
}

/// What becomes of a VOLUME of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImageVolume {
    /// Each gets a new volume, which begins with what the image has there
    Anonymous,
    /// They are folders of the root like others, in the guest's memory
    Ignore,
}

#[derive(Debug, Args)]
#[command(override_usage = "coracle run [OPTIONS] IMAGE|ELF|DIR [ARGS]...")]
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
    /// Show a folder or file of the host, or a named volume, in the guest: HOST:GUEST[:ro]; a path of the guest alone
    /// gets a new volume
    #[arg(short, long, value_name = "HOST:GUEST[:ro]")]
    pub(crate) volume: Vec<String>,
    /// What becomes of the image's VOLUMEs that nothing is mounted at
    #[arg(long, value_enum, value_name = "WHAT", default_value = "anonymous")]
    pub(crate) image_volume: ImageVolume,
    /// Mount a file system in memory: PATH[:size=64m,mode=0755]
    #[arg(long, value_name = "PATH[:OPTIONS]")]
    pub(crate) tmpfs: Vec<String>,
    /// Mount in the long form: type=bind|volume|tmpfs,source=HOST,target=GUEST[,readonly]
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) mount: Vec<String>,
    /// Memory of the guest, such as 64M
    #[arg(short, long, value_name = "SIZE", allow_negative_numbers = true)]
    pub(crate) memory: Option<String>,
    /// Number of vCPUs, 1 to 8
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<String>,
    /// User and group, numbers or names of the image: USER[:GROUP] [default: the image's]
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Working directory in the guest [default: the image's]
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
    /// Network: user, none or tap=NAME,ip=ADDRESS/PREFIX|dhcp[,gw=ADDRESS][,ip6=ADDRESS/PREFIX][,gw6=ADDRESS][,mac=MAC];
    /// again for a second interface (eth1), and so on
    #[arg(long)]
    pub(crate) network: Vec<String>,
    /// Print the VMM's command line instead of running it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Show every system call on standard error; for a detached instance: coracle logs -f --serial NAME
    #[arg(long)]
    pub(crate) trace: bool,
    /// Run this instead of the image's entry point; a JSON list gives arguments too
    #[arg(long, value_name = "COMMAND")]
    pub(crate) entrypoint: Option<String>,
    #[command(flatten)]
    pub(crate) lookup: LookupArgs,
    /// An image, a static executable or a folder used as root file system, then arguments; for a folder, first the
    /// program in it
    #[arg(
        value_name = "IMAGE|ELF|DIR [ARGS]",
        required = true,
        trailing_var_arg = true
    )]
    pub(crate) command: Vec<String>,
}

impl RunArgs {
    /// The executable or folder.
    pub(crate) fn image(&self) -> &Path {
        Path::new(&self.command[0])
    }

    /// What follows it. Whatever looks like a flag there is the program's.
    pub(crate) fn arguments(&self) -> &[String] {
        &self.command[1..]
    }
}

#[derive(Debug, Args)]
pub(crate) struct NameArg {
    /// Name of the instance
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Also instances that have ended
    #[arg(short, long)]
    pub(crate) all: bool,
    /// How the list is written
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// Only those with name=PART, status=created|running|exited, reason=REASON or accel=kvm|tcg
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub(crate) filter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Go on until the instance ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show what the kernel wrote on the serial port instead
    #[arg(long)]
    pub(crate) serial: bool,
    /// Name of the instance
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Seconds between the request and the end of the VMM
    #[arg(short, long, default_value_t = 10)]
    pub(crate) time: u32,
    /// Names of instances
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Name or number of the signal
    #[arg(short, long, default_value = "KILL")]
    pub(crate) signal: String,
    /// Names of instances
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// End running instances first; a name that is not there is no error
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Also remove the volumes that were made for them and that nobody named
    #[arg(short, long)]
    pub(crate) volumes: bool,
    /// Names of instances
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// How the answer is written; name is the code alone
    #[arg(short, long, value_enum, default_value = "name")]
    pub(crate) output: Format,
    /// Names of instances
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// How it is written
    #[arg(short, long, value_enum, default_value = "json")]
    pub(crate) output: Format,
    /// Show what keeps guest and host apart
    #[arg(long)]
    pub(crate) security: bool,
    /// Names of instances
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Count the calls instead: how often, how many failed, how long they took
    #[arg(long, conflicts_with = "missing_files")]
    pub(crate) summary: bool,
    /// Show the paths that were not found instead
    #[arg(long)]
    pub(crate) missing_files: bool,
    /// End after so many seconds (else with SIGINT, or when the instance ends)
    #[arg(short, long, value_name = "SECONDS")]
    pub(crate) time: Option<u64>,
    /// How they are written
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// Name of the instance
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// How they are written
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// Name of the instance
    pub(crate) name: String,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "coracle check [OPTIONS] IMAGE|ELF|DIR [ARGS]...",
    after_help = "Exit codes: 0 it fits, 1 part of it may fail, 2 it cannot run, 125 an error of coracle, 127 not found."
)]
pub(crate) struct CheckArgs {
    /// Show where each finding comes from, the libraries, and every system call in reach
    #[arg(long)]
    pub(crate) explain: bool,
    /// How the answer is written; name is the verdict alone
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// A variable of the environment, NAME=VALUE: PATH and LD_LIBRARY_PATH count
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    #[command(flatten)]
    pub(crate) lookup: LookupArgs,
    /// An image, an executable, or a folder and the program in it, with arguments
    #[arg(
        value_name = "IMAGE|ELF|DIR [ARGS]",
        required = true,
        trailing_var_arg = true
    )]
    pub(crate) command: Vec<String>,
}

/// How much of a system call works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SyscallLevel {
    /// As on Linux
    Full,
    /// Part of it
    Partial,
    /// Always fails, on purpose
    Refused,
    /// Not there
    Missing,
}

impl SyscallLevel {
    /// The word in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Refused => "refused",
            Self::Missing => "missing",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SyscallsArgs {
    /// Only these calls, by name
    pub(crate) names: Vec<String>,
    /// Only calls of this level [default: all that are there]
    #[arg(short, long, value_enum)]
    pub(crate) level: Option<SyscallLevel>,
    /// Only calls of Linux that are not there: the same as --level missing
    #[arg(long, conflicts_with = "level")]
    pub(crate) missing: bool,
    /// How the list is written
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Show each value in force and who set it
    #[arg(long)]
    pub(crate) resolved: bool,
}
