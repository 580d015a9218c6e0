// SPDX-License-Identifier: Apache-2.0

//! Dynamic programs that check themselves: run on Linux first, then in guests with one and two vCPUs, and what they print
//! is compared.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::guest::{Guests, Job};
use super::report::Report;
use crate::sh;

/// The most one run may take.
const LIMIT: Duration = Duration::from_secs(180);

/// A program in a root folder that its makefile made.
struct Program {
    name: &'static str,
    /// On Linux, below the folder of the test programs; its libraries lie beside it.
    on_linux: &'static str,
    /// The root folder, below the folder of the test programs.
    root: &'static str,
    /// In the root folder.
    command: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "C++ of several libraries",
        on_linux: "cpp/cpp",
        root: "cpp.root",
        command: "/opt/cpp/cpp",
    },
    Program {
        name: "Go with cgo",
        on_linux: "go_cgo/go_cgo",
        root: "go_cgo.root",
        command: "/opt/go_cgo/go_cgo",
    },
    Program {
        name: "threads and network with musl",
        on_linux: "musl/musl",
        root: "musl.root",
        command: "/opt/musl/musl",
    },
];

/// Runs those that are wanted; `folder` holds the test programs.
pub(super) fn run(
    report: &mut Report,
    guests: &Guests,
    folder: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    for program in PROGRAMS.iter().filter(|program| wanted(program.name)) {
        report.step(&format!("vm {}", program.name), || {
            same_everywhere(guests, folder, program)
        })?;
    }
    Ok(())
}

fn same_everywhere(guests: &Guests, folder: &Path, program: &Program) -> Result<()> {
    let on_linux = folder.join(program.on_linux);
    let libraries = on_linux.parent().unwrap_or(folder);
    let linux = sh::output_within(&mut sh::cmd(&on_linux, [libraries]), LIMIT)?;
    if !linux.success() {
        bail!("on Linux: {}{}", linux.stdout, linux.stderr);
    }
    for vcpus in [1, 2] {
        let outcome = guests.run(&Job {
            program: &folder.join(program.root),
            args: &[program.command],
            machine: "microvm",
            vcpus,
            memory_mib: 256,
            limit: LIMIT,
        })?;
        if outcome.code != Some(0) || outcome.output.replace('\r', "") != linux.stdout {
            bail!(
                "{vcpus} vCPUs: not what Linux printed:\n{}\n{}",
                linux.stdout,
                outcome.story
            );
        }
    }
    Ok(())
}
