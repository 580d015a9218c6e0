// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask test`: what must hold before a change goes in, in one command; CI calls the same.

mod abi;
mod apps;
mod disk;
mod dynamic;
mod folders;
mod guest;
mod lab;
mod load;
mod probe;
mod report;
mod runtimes;
mod vm;
mod vm_cases;
mod volumes;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use self::report::Report;
use crate::build::{self, Flavour, KERNEL_TARGET};
use crate::{paths, setup, sh, syscalls};

/// The most one compiler or test command may take.
const STEP_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The Go modules of the repository.
const GO_MODULES: [&str; 5] = [
    "apps/edge",
    "apps/todo-go",
    "tests/programs/go_cgo",
    "tests/programs/go_threaded",
    "tests/programs/holder",
];

/// Rust packages outside the workspace.
const OTHER_CRATES: [&str; 2] = ["tests/programs/tokio_http/Cargo.toml", "fuzz/Cargo.toml"];

/// Runs everything.
pub(crate) fn all() -> Result<()> {
    setup::run()?;
    let mut report = Report::default();
    check(&mut report)?;
    unit(&mut report)?;
    if report.step("build", || build::run(Flavour::Release))? {
        abi::run(&mut report, &[])?;
        vm::run(&mut report, &[])?;
        runtimes::run(&mut report, &[])?;
        apps::run(&mut report, &[])?;
        lab::run(&mut report, &[])?;
    }
    report.finish()
}

/// Runs a part.
pub(crate) fn part(part: &str, only: &[&str]) -> Result<()> {
    let mut report = Report::default();
    match (part, only) {
        ("check", []) => check(&mut report)?,
        ("unit", []) => unit(&mut report)?,
        ("abi", families) => abi::run(&mut report, families)?,
        ("vm", cases) => vm::run(&mut report, cases)?,
        ("apps", names) => apps::run(&mut report, names)?,
        ("lab", names) => lab::run(&mut report, names)?,
        ("runtimes", names) => runtimes::run(&mut report, names)?,
        _ => bail!("unknown part of the tests: {part} {}", only.join(" ")),
    }
    report.finish()
}

/// Formatting and lints.
fn check(report: &mut Report) -> Result<()> {
    let go = setup::go()?;
    report.step("format: Rust", || {
        sh_step(&mut build::cargo(["fmt", "--all", "--check"]))?;
        OTHER_CRATES.iter().try_for_each(|manifest| {
            sh_step(&mut build::cargo([
                "fmt",
                "--check",
                "--manifest-path",
                manifest,
            ]))
        })
    })?;
    report.step("format: Go", || {
        let gofmt = go.with_file_name("gofmt");
        let listed = sh::output(
            sh::cmd(gofmt, ["-l"])
                .args(GO_MODULES)
                .current_dir(paths::root()),
        )?;
        if listed.is_empty() {
            Ok(())
        } else {
            bail!("not formatted:\n{listed}")
        }
    })?;
    report.step("lints: host", || {
        let args = [
            "clippy",
            "--quiet",
            "--workspace",
            "--exclude",
            "coracle-kernel",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ];
        sh_step(&mut build::cargo(args))
    })?;
    report.step("lints: kernel", || {
        let args = [
            "clippy",
            "--quiet",
            "-p",
            "coracle-kernel",
            "--target",
            KERNEL_TARGET,
            "--",
            "-D",
            "warnings",
        ];
        sh_step(&mut build::cargo(args))
    })?;
    report.step("docs: system calls", syscalls::check)?;
    report.step("lints: Go", || {
        GO_MODULES.iter().try_for_each(|module| {
            sh_step(sh::cmd(&go, ["vet", "./..."]).current_dir(paths::in_root(module)))
        })
    })?;
    report.step("format and lints: JavaScript", || {
        npm(&["ci", "--silent"])?;
        npm(&["run", "--silent", "check"])
    })?;
    report.step("format and lints: Python", || {
        let ruff = setup::python()?.join("ruff");
        for folder in [todo_python(), paths::in_root("tests/programs/python")] {
            sh_step(sh::cmd(&ruff, ["format", "--quiet", "--diff"]).current_dir(&folder))?;
            sh_step(sh::cmd(&ruff, ["check", "--quiet"]).current_dir(&folder))?;
        }
        Ok(())
    })?;
    report.step("format: Java", || mvn(&["spotless:check"]))?;
    Ok(())
}

/// The service in Python.
fn todo_python() -> PathBuf {
    paths::in_root("apps/todo-python")
}

/// `npm` on the service in JavaScript.
fn npm(args: &[&str]) -> Result<()> {
    let folder = paths::in_root("apps/todo-node");
    sh_step(sh::cmd("npm", args.iter().copied()).current_dir(folder))
}

/// `mvn` on the service in Java, whose build has the compiler's lints.
fn mvn(args: &[&str]) -> Result<()> {
    let folder = paths::in_root("apps/todo-java");
    let args = ["--quiet", "--batch-mode"].iter().chain(args).copied();
    sh_step(sh::cmd("mvn", args).current_dir(folder))
}

/// Unit tests on the host.
fn unit(report: &mut Report) -> Result<()> {
    println!("unit tests: Rust");
    let mut command = build::cargo([
        "test",
        "--quiet",
        "--workspace",
        "--exclude",
        "coracle-kernel",
        "--no-fail-fast",
    ]);
    let result = sh::output_within(&mut command, STEP_LIMIT)?;
    let (passed, failed) = rust_results(&result.stdout);
    if failed > 0 || !result.success() {
        println!("{}\n{}", result.stdout.trim(), result.stderr.trim());
    }
    // A crate that does not compile, or a run that was cut off, has no result line of its own.
    let broken = usize::from(!result.success() && failed == 0);
    report.add("unit tests: Rust", passed, failed + broken);

    let go = setup::go()?;
    report.step("unit tests: Go", || {
        let apps = GO_MODULES
            .iter()
            .filter(|module| module.starts_with("apps/"));
        apps.copied().try_for_each(|module| {
            sh_step(sh::cmd(&go, ["test", "./..."]).current_dir(paths::in_root(module)))
        })
    })?;
    report.step("unit tests: JavaScript", || {
        npm(&["ci", "--silent"])?;
        npm(&["test", "--silent"])
    })?;
    report.step("unit tests: Python", || {
        let python = setup::python()?.join("python");
        sh_step(sh::cmd(python, ["-m", "unittest", "tests.test_todo"]).current_dir(todo_python()))
    })?;
    report.step("unit tests: Java", || mvn(&["package"]))?;
    Ok(())
}

/// Runs a command, whose output matters only when it fails.
fn sh_step(command: &mut std::process::Command) -> Result<()> {
    let result = sh::output_within(command, STEP_LIMIT)?;
    if result.success() {
        return Ok(());
    }
    let how = result.status.map_or_else(
        || format!("took more than {STEP_LIMIT:?}"),
        |status| status.to_string(),
    );
    bail!("{how}\n{}\n{}", result.stdout.trim(), result.stderr.trim())
}

/// Passed and failed tests in what `cargo test` printed.
fn rust_results(text: &str) -> (usize, usize) {
    let mut totals = (0, 0);
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "))
    {
        let number_before = |word: &str| {
            let words: Vec<&str> = line.split([' ', ';']).collect();
            let at = words.iter().position(|found| *found == word)?;
            words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
        };
        totals.0 += number_before("passed").unwrap_or(0);
        totals.1 += number_before("failed").unwrap_or(0);
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::rust_results;

    #[test]
    fn results_of_several_crates_add_up() {
        let text = "running 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n\
                    test result: FAILED. 5 passed; 3 failed; 0 ignored; 0 measured\n";
        assert_eq!(rust_results(text), (7, 3));
        assert_eq!(rust_results("error: could not compile"), (0, 0));
    }
}
