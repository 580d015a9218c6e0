// SPDX-License-Identifier: Apache-2.0
//! What the check says.

use serde::Serialize;

/// How good the prospects are. The numbers are the exit codes of `coracle check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Verdict {
    /// Nothing speaks against it.
    Fits = 0,
    /// Part of what the program can do will fail.
    MayFail = 1,
    /// It will not start, or not do what it is for.
    CannotRun = 2,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The program itself: not there, no ELF file, another CPU.
    Program,
    /// A library or the dynamic loader.
    Library,
    /// Other processes it would start.
    Process,
    /// A script that is run first.
    Script,
    /// A system call.
    SystemCall,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it means for the run.
    pub verdict: Verdict,
    /// What it is about.
    pub subject: Subject,
    /// The fact, in a sentence.
    pub message: String,
    /// The way out; empty if nothing need be done or can be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Where it comes from: functions from the outermost caller on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub way: Vec<String>,
}

impl Finding {
    pub(crate) fn new(verdict: Verdict, subject: Subject, message: impl Into<String>) -> Self {
        Self {
            verdict,
            subject,
            message: message.into(),
            remedy: String::new(),
            way: Vec::new(),
        }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    pub(crate) fn way(mut self, way: Vec<String>) -> Self {
        self.way = way;
        self
    }
}

/// A library with the file it was found as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Library {
    /// The name that is asked for.
    pub name: String,
    /// Its path in the image; `None` if it is missing.
    pub path: Option<String>,
}

/// A system call that the program's code can make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SystemCall {
    /// Its name in the manual.
    pub name: &'static str,
    /// `full`, `partial`, `refused` or `missing`.
    pub level: &'static str,
    /// What of it does not work.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
    /// A way to it: functions from the outermost caller on.
    pub way: Vec<String>,
}

/// All that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The worst of the findings.
    pub verdict: Verdict,
    /// The commands from the entry point on: scripts, then the program with its arguments.
    pub commands: Vec<Vec<String>>,
    /// What the program is written in or for, where it is known.
    pub runtime: Option<&'static str>,
    /// Its dynamic loader.
    pub interpreter: Option<String>,
    /// Its libraries.
    pub libraries: Vec<Library>,
    /// What speaks against it, and what is good to know; the worst first.
    pub findings: Vec<Finding>,
    /// System calls in reach, the least supported first.
    pub system_calls: Vec<SystemCall>,
    /// An estimate of the memory it needs to start, in bytes.
    pub memory_floor_bytes: u64,
}
