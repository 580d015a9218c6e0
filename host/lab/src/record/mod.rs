// SPDX-License-Identifier: Apache-2.0

//! Results: JSON lines, written as they come, so that an interrupted run keeps what it measured.
//!
//! The first line is a [`Run`]; each further line is a [`Record`]. Files lie in the folder of the result:
//! `RESULT/result.jsonl`, `RESULT/raw/...` for what the tools printed.

mod histogram;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

pub use histogram::{decode, encode};
pub use read::{Recorded, find, read};
use serde::{Deserialize, Serialize};
pub use write::Writer;

/// The version of the result file. Another version is refused, with a line that says so.
pub const SCHEMA: u32 = 1;
/// The file in a result's folder.
pub const FILE: &str = "result.jsonl";
/// The folder in it with what the tools printed.
pub const RAW: &str = "raw";

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The first line.
    Run(Box<Run>),
    /// A platform was started for a service.
    Session(Session),
    /// One raw measurement.
    Sample(Sample),
    /// A session or sample that failed; the others went on.
    Failure(Failure),
    /// The run went on after an interruption.
    Resumed(Resumed),
    /// The last line of a run that came to its end, or was interrupted in order.
    End(End),
}

/// What is the same for the whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The experiment's folder name.
    pub experiment: String,
    /// `experiment.toml` as it was.
    pub text: String,
    /// Short form.
    pub quick: bool,
    /// What of the experiment was asked for.
    #[serde(default)]
    pub selection: Selection,
    /// All order and all randomness comes from it.
    pub seed: u64,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// The command line.
    pub command: Vec<String>,
    /// `git describe --always --dirty` of the folder that holds `experiments/`, if it is a checkout.
    pub commit: Option<String>,
    /// Facts of the host: "cpu", "processors", "kernel", "governor", "memory", "accelerator", "load before" ...
    pub host: BTreeMap<String, String>,
    /// Versions: tool or VMM -> what it says of itself.
    pub tools: BTreeMap<String, String>,
    /// The platforms that take part.
    pub platforms: Vec<PlatformFacts>,
    /// The images: service -> reference, digest, size.
    pub images: BTreeMap<String, ImageFacts>,
    /// What the reader must know: "load generator and server share processors".
    pub remarks: Vec<String>,
}

/// What of an experiment is run. An empty list stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Names of platforms; empty: those of the experiment.
    pub platforms: Vec<String>,
    /// Names of services.
    pub services: Vec<String>,
    /// Names of workloads.
    pub workloads: Vec<String>,
    /// Rounds; none: as the experiment says.
    pub repetitions: Option<u32>,
}

/// A platform as it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlatformFacts {
    /// Its name.
    pub name: String,
    /// What platforms must share to be compared, as a text: equal texts are comparable.
    pub substrate: String,
    /// Version and such.
    pub about: BTreeMap<String, String>,
}

/// An image as it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageFacts {
    /// As in the experiment.
    pub reference: String,
    /// `sha256:...` of the manifest, or of the file.
    pub digest: String,
}

/// One start of a service on a platform.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Counts up from 0, also over `--resume`.
    pub id: u32,
    /// The round, from 0.
    pub round: u32,
    /// Where.
    pub cell: Cell,
    /// Seconds since the start of the run.
    pub at_s: f64,
    /// The command lines that started it.
    pub commands: Vec<String>,
    /// Processors of the server's side and of the generator's, as `taskset` lists.
    pub pinned: BTreeMap<String, String>,
}

/// What was started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The platform.
    pub platform: String,
    /// The service.
    pub service: String,
    /// Processors.
    pub vcpus: u32,
}

/// One raw measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// [`Session::id`].
    pub session: u32,
    /// The round, from 0.
    pub round: u32,
    /// Where.
    pub cell: Cell,
    /// The workload's name; "start" for what is measured at every start.
    pub workload: String,
    /// The point of the matrix: "connections" -> "40".
    #[serde(default)]
    pub point: BTreeMap<String, String>,
    /// By name of metric ([`crate::metric`]).
    pub metrics: BTreeMap<String, f64>,
    /// Errors by kind: "timeout", "connect", "status 503".
    #[serde(default)]
    pub errors: BTreeMap<String, u64>,
    /// Response times, ns: HDR histogram, V2 + DEFLATE, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<String>,
    /// Over time: name -> pairs of seconds since the begin of the measurement and a value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// The file in `raw/` with what the tool printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// The run was interrupted before this measurement's time was over. It is shown, but does not count in statistics,
    /// and `--resume` measures again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// What failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// [`Session::id`].
    pub session: u32,
    /// The round, from 0.
    pub round: u32,
    /// Where.
    pub cell: Cell,
    /// The workload, if it had begun.
    pub workload: Option<String>,
    /// Its point.
    #[serde(default)]
    pub point: BTreeMap<String, String>,
    /// One line.
    pub what: String,
    /// What the platform or tool said, at most the last 16 KiB.
    pub log: String,
}

/// A run went on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resumed {
    /// When, UTC, RFC 3339.
    pub at: String,
    /// The command line.
    pub command: Vec<String>,
    /// As [`Run::commit`].
    pub commit: Option<String>,
    /// What has changed since the begin, for the reader.
    pub remarks: Vec<String>,
}

/// The end of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    /// Seconds the run took.
    pub took_s: f64,
    /// Why it ended before everything was measured, if so.
    pub interrupted: bool,
}
