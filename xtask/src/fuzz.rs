// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask fuzz`: cargo-fuzz on the targets in `fuzz/`, with the nightly compiler it needs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{paths, sh};

/// How long a target runs when nothing is said, seconds.
const SECONDS: u64 = 60;

/// Fuzzes one target, or all in turn, for `seconds` each.
pub(crate) fn run(target: Option<&str>, seconds: Option<&str>) -> Result<()> {
    let targets = targets()?;
    let chosen: Vec<&String> = targets
        .iter()
        .filter(|name| target.is_none_or(|wanted| *name == wanted))
        .collect();
    if chosen.is_empty() {
        bail!(
            "no fuzz target {}; there are: {}",
            target.unwrap_or_default(),
            targets.join(", ")
        );
    }
    let seconds = match seconds {
        Some(text) => text
            .parse()
            .with_context(|| format!("{text}: want a number of seconds"))?,
        None => SECONDS,
    };
    tools()?;
    for name in chosen {
        println!("{name}, {seconds} s");
        // What is found goes to the first folder; the corpus in the tree grows only by hand.
        let found = paths::created(paths::target().join("fuzz").join(name))?;
        let known = paths::in_root("fuzz/corpus").join(name);
        let mut command = cargo(&["fuzz", "run", name, "--fuzz-dir", "."]);
        command
            .arg(found)
            .arg(known)
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg("-verbosity=0");
        sh::run(command.arg("-print_final_stats=1"))?;
    }
    Ok(())
}

/// The names of the targets.
fn targets() -> Result<Vec<String>> {
    let folder = paths::in_root("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        names.extend(
            entry?
                .path()
                .file_stem()
                .and_then(|stem| stem.to_str())
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

/// Installs the nightly compiler and cargo-fuzz where they are missing.
fn tools() -> Result<()> {
    let listed = sh::output(&mut sh::cmd("rustup", ["toolchain", "list"]))?;
    if !listed.contains("nightly") {
        sh::run(&mut sh::cmd(
            "rustup",
            ["toolchain", "install", "nightly", "--profile", "minimal"],
        ))?;
    }
    if sh::output(&mut cargo(&["fuzz", "--version"])).is_err() {
        sh::run(&mut cargo(&["install", "cargo-fuzz", "--locked"]))?;
    }
    Ok(())
}

/// The nightly cargo, in the folder of the targets.
fn cargo(args: &[&str]) -> std::process::Command {
    // Through rustup: the cargo that runs us is bound to the stable tool chain, which it also announces in variables.
    let mut command = sh::cmd("rustup", ["run", "nightly", "cargo"]);
    command
        .args(args)
        .current_dir(Path::new(&paths::in_root("fuzz")))
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    command
}
