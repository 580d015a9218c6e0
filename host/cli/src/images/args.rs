// SPDX-License-Identifier: Apache-2.0
//! The command line of everything about images; letters and names are podman's.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::Format;

/// When a registry is asked for an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pull {
    /// Always: it may have changed there
    Always,
    /// If it is not here
    Missing,
    /// Not at all
    Never,
}

/// Where an image may come from.
#[derive(Debug, Clone, Args)]
pub(crate) struct LookupArgs {
    /// When to ask a registry for the image
    #[arg(long, value_enum, default_value = "missing")]
    pub(crate) pull: Pull,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// How registries are spoken to.
#[derive(Debug, Clone, Args)]
pub(crate) struct RegistryArgs {
    /// File with credentials [default: those of podman login, then docker login]
    #[arg(long, value_name = "FILE")]
    pub(crate) authfile: Option<PathBuf>,
    /// Whether to ask for HTTPS and a certificate; on this machine itself they are not needed
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true)]
    pub(crate) tls_verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImagesArgs {
    /// Only images whose name contains this
    pub(crate) name: Option<String>,
    /// How the list is written
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// Only those with reference=PART or label=KEY[=VALUE]
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub(crate) filter: Vec<String>,
    /// Only ids
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RmiArgs {
    /// All images
    #[arg(short, long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Also those in use; a name that is not there is no error
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Names or ids of images
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Names of images
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Name or id of the image
    pub(crate) name: String,
    /// Where it goes [default: what it is called]
    pub(crate) destination: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Archive or layout [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Name of the image [default: what it is called there]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SaveArgs {
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Name or id of the image
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Name of the image
    #[arg(short, long, value_name = "NAME")]
    pub(crate) tag: String,
    /// The recipe [default: Containerfile or Dockerfile in the context]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Value of an ARG of the recipe
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) build_arg: Vec<String>,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Folder from which files are copied
    #[arg(default_value = ".")]
    pub(crate) context: PathBuf,
}
