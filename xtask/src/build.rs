// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask build`: the kernel, the command and the sample service, finished, in `build/`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{paths, setup, sh};

/// The kernel's compile target.
pub(crate) const KERNEL_TARGET: &str = "x86_64-unknown-none";

/// How the kernel is compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// As shipped: link-time optimisation over everything.
    Release,
    /// The same code without the slow link, for working on it.
    Dev,
}

impl Flavour {
    fn profile(self) -> &'static str {
        match self {
            Flavour::Release => "kernel",
            Flavour::Dev => "kernel-dev",
        }
    }
}

/// Builds everything a user runs.
pub(crate) fn run(flavour: Flavour) -> Result<()> {
    kernel(flavour)?;
    cli()?;
    todo_go()
}

/// `cargo` with our tool chain, at the root of the repository.
pub(crate) fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = sh::cmd(
        std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        args,
    );
    command.current_dir(paths::root());
    command
}

/// Compiles the kernel; `build/coracle-kernel` is stripped, `build/coracle-kernel.debug` has its symbols and lines.
fn kernel(flavour: Flavour) -> Result<()> {
    let profile = flavour.profile();
    sh::run(&mut cargo([
        "build",
        "-p",
        "coracle-kernel",
        "--target",
        KERNEL_TARGET,
        "--profile",
        profile,
    ]))?;
    let compiled = paths::target()
        .join(KERNEL_TARGET)
        .join(profile)
        .join("coracle-kernel");
    let stripped = paths::build()?.join("coracle-kernel");
    let debug = stripped.with_extension("debug");
    objcopy(&["--only-keep-debug"], &compiled, &debug)?;
    replace(&stripped, |new| objcopy(&["--strip-all"], &compiled, new))
}

fn objcopy(how: &[&str], from: &Path, to: &Path) -> Result<()> {
    sh::output(sh::cmd("objcopy", how).arg(from).arg(to)).map(drop)
}

/// Compiles the `coracle` command.
fn cli() -> Result<()> {
    sh::run(&mut cargo(["build", "-p", "coracle", "--release"]))?;
    let compiled = paths::target().join("release/coracle");
    replace(&paths::build()?.join("coracle"), |new| {
        std::fs::copy(&compiled, new)
            .map(drop)
            .with_context(|| format!("copy {}", compiled.display()))
    })
}

/// Compiles the to-do service: static, without paths of this machine, stripped.
fn todo_go() -> Result<()> {
    let product = paths::build()?.join("todo-go");
    let mut command = sh::cmd(setup::go()?, ["build", "-trimpath", "-ldflags=-s -w", "-o"]);
    command
        .arg(&product)
        .arg(".")
        .current_dir(paths::in_root("apps/todo-go"))
        .env("CGO_ENABLED", "0");
    sh::run(&mut command)
}

/// Writes `product` beside its place and moves it there, so that guests which run the old one are not disturbed.
fn replace(product: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let new = product.with_extension("new");
    write(&new)?;
    std::fs::rename(&new, product).with_context(|| format!("write {}", product.display()))
}
