// SPDX-License-Identifier: Apache-2.0

//! An experiment: the folder `experiments/NAME` with `experiment.toml` and README.

mod check;
mod nearest;
pub mod parameters;
mod points;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use check::Known;
pub use nearest::{nearest, unknown};
pub use points::{number, split, text};
pub use read::{Experiments, FILE, FOLDER, Loaded, parse};
use serde::{Deserialize, Serialize};

/// The version of `experiment.toml` this lab reads.
pub const SCHEMA: u32 = 1;

/// `experiment.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// [`SCHEMA`].
    pub schema: u32,
    /// One line for lists and headings.
    pub title: String,
    /// The question the report answers, as a sentence with a question mark.
    pub question: String,
    /// The study it repeats: "000" to "004". None: ours.
    pub study: Option<String>,
    /// Names of platforms that take part unless `--platforms` says otherwise; the first of a substrate is what the others of
    /// that substrate are compared with.
    pub platforms: Vec<String>,
    /// What runs.
    #[serde(rename = "service")]
    pub services: Vec<Service>,
    /// What is done to it.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
    /// The machine of every platform.
    #[serde(default)]
    pub machine: Machine,
    /// How often each combination is started anew and measured.
    pub repetitions: Repetitions,
    /// What the study published, to be put beside.
    #[serde(default, rename = "published")]
    pub published: Vec<Published>,
    /// Statements the report decides, a sentence each.
    #[serde(default, rename = "verdict")]
    pub verdicts: Vec<Verdict>,
}

/// A service: an image and how to know that it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// A word for tables: "go".
    pub name: String,
    /// What `coracle run` would take: archive, folder or ELF. A path is relative to the folder that holds `experiments/`.
    pub image: String,
    /// The command that makes the image when it is missing, run by `sh -c` in the folder that holds `experiments/`.
    pub make: Option<String>,
    /// Replaces the image's CMD.
    #[serde(default)]
    pub args: Vec<String>,
    /// Added to the image's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The port it listens on; none for programs that run to their end.
    pub port: Option<u16>,
    /// When it is up.
    #[serde(default)]
    pub ready: Ready,
    /// Seconds it may take to be up; default 60.
    pub ready_limit_s: Option<f64>,
    /// Writable folders kept on a disk of their own with fsync (a volume); elsewhere writes go to memory or a scratch layer.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Instead of [`Machine::memory`], such as "512M".
    pub memory: Option<String>,
}

/// When a service counts as up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Ready {
    /// A TCP connection to the port is accepted.
    #[default]
    Tcp,
    /// `GET` of this path is answered with status 200.
    Http(String),
    /// `PING` is answered with `PONG` (RESP).
    Redis,
    /// An A query for this name is answered (any RCODE).
    Dns(String),
    /// An ICMP echo request is answered.
    Ping,
    /// It ends with exit code 0 (programs that run to their end).
    Exit,
}

/// The machine each platform gives the service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// Numbers of processors; each is a variant of its own.
    pub vcpus: Vec<u32>,
    /// Instead of them with `--quick`; none: the same.
    pub quick_vcpus: Option<Vec<u32>>,
    /// Memory limit (cgroup) or guest memory, such as "256M".
    pub memory: String,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            vcpus: vec![1],
            quick_vcpus: None,
            memory: "256M".to_owned(),
        }
    }
}

impl Machine {
    /// The numbers of processors of a run.
    #[must_use]
    pub fn vcpus(&self, quick: bool) -> &[u32] {
        match &self.quick_vcpus {
            Some(vcpus) if quick => vcpus,
            _ => &self.vcpus,
        }
    }
}

/// How often.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repetitions {
    /// As published, or what it takes to settle.
    pub full: u32,
    /// With `--quick`.
    pub quick: u32,
}

/// One kind of work. Lists among the parameters span a matrix of points.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// A word for tables: "stress".
    pub name: String,
    /// What is done.
    pub kind: Kind,
    /// Names of services; empty: all.
    #[serde(default)]
    pub services: Vec<String>,
    /// Names of platforms; empty: all that take part.
    #[serde(default)]
    pub platforms: Vec<String>,
    /// Numbers of processors; empty: all of the machine. A machine that no workload of a service wants is not started.
    #[serde(default)]
    pub vcpus: Vec<u32>,
    /// It takes part in so many rounds, the first ones; none: in all.
    pub rounds: Option<u32>,
    /// Instead of `rounds` with `--quick`; 0 leaves it out.
    pub quick_rounds: Option<u32>,
    /// The load generator of `load`, `ramp` and `endurance`, by name (see [`crate::load::generators`]).
    pub tool: Option<String>,
    /// Parameters in file order; see each generator and kind. A list spans a matrix: `connections = [1, 10]`.
    #[serde(default)]
    pub with: toml::Table,
    /// What replaces parameters with `--quick`.
    #[serde(default)]
    pub quick: toml::Table,
}

/// What a workload does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Boot, measure start and idle memory only.
    Start,
    /// One run of the generator for each point, after a warm-up.
    Load,
    /// The rate is raised step by step until the service stops keeping up.
    Ramp,
    /// Throughput of every slice of a long run.
    Endurance,
    /// The program itself measures, prints JSON lines `{"metric": NAME, "value": NUMBER, ...point}` on its standard output, and ends.
    Batch,
    /// N instances; one at random is killed and started again, and again.
    BootStorm,
    /// Instances are added until memory or latency breaks.
    Density,
    /// The smallest memory with which it starts and answers.
    SmallestMemory,
}

/// A figure of the study.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Our platform it stands beside.
    pub platform: String,
    /// What the study ran: "OSv on XenServer 7.5".
    #[serde(rename = "as")]
    pub ran_as: Option<String>,
    /// As in [`Service::name`].
    pub service: Option<String>,
    /// As in [`Workload::name`].
    pub workload: String,
    /// Parameters that name the point, as texts.
    #[serde(default)]
    pub point: BTreeMap<String, String>,
    /// Number of processors, if that matters.
    pub vcpus: Option<u32>,
    /// The metric.
    pub metric: String,
    /// In the metric's unit.
    pub value: f64,
    /// Where it is printed, or that it is derived, and known mistakes.
    pub source: Option<String>,
}

/// A statement decided by the ratio of medians of two platforms.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Which workload and metric decide.
    pub workload: String,
    /// See [`crate::metric`].
    pub metric: String,
    /// The platform judged.
    pub platform: String,
    /// The platform it is judged against; must have the same substrate.
    pub against: String,
    /// What was claimed or is wanted, for the sentence: "Go: +38 % in the study".
    pub claim: Option<String>,
}

/// Bytes of `64M`, `64MiB`, `1g`, `67108864`. Powers of 1024, as podman's `-m`.
///
/// # Errors
/// What is wrong with it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is no size; write for example 256M"))?;
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        unit => return Err(format!("{text:?}: unknown unit {unit:?}; use k, m or g")),
    };
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text:?} is more than a 64-bit machine can address"))
}
