// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask`: what developers and CI do with the repository. Every command the README names ends here.

mod apps;
mod bench;
mod build;
mod demo;
mod erofs;
mod fuzz;
mod images;
mod paths;
mod setup;
mod sh;
mod syscalls;
mod test;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup           install what is missing (Debian, Ubuntu; root or sudo)
  build [--dev]   kernel, command and sample service -> build/
  test            everything: formatting, lints, unit tests, ABI tests, VM tests
  test check | unit | abi [FAMILY...] | vm [CASE...] | apps [NAME...] | runtimes [NAME...] |
       lab [TEST...]
                  a part of it; abi, vm, apps and lab take the kernel that is in build/
  demo [linux | coracle]
                  measure the sample service as a unikernel beside a Linux VM; or one of them alone
  bench NAME [linux | coracle | both] [NUMBER]
                  boot    boot to first answer (NUMBER boots)
                  memory  the smallest memory that serves
                  smp     one and two vCPUs (NUMBER rounds)
                  conns   100 connections at work beside NUMBER idle ones
                  soak    NUMBER requests without error, growth or decay
                  stall   NUMBER guests one after the other, none of which may stall
  bench apps [APP...] [linux | coracle | both] [smp] [ROUNDS]
                  known programs as unikernels beside a Linux VM with the same root file system
  erofs FROM TO   the folder, OCI layout or image archive FROM as a root image (EROFS)
  bench endure APP [linux] [MINUTES]
                  one of them under load for minutes without error or decay
  fuzz [TARGET [SECONDS]]
                  cargo-fuzz on one target, or on all in turn
  images [NAME...]
                  the images of the recipes in images/ -> build/images/NAME.tar
  syscalls [--check]
                  docs/syscalls.md from the kernel's list; or only see whether it is up to date
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[&str]) -> Result<()> {
    sh::catch_interrupts()?;
    match arguments {
        ["setup"] => setup::run(),
        ["build"] => build::run(build::Flavour::Release),
        ["build", "--dev"] => build::run(build::Flavour::Dev),
        ["test"] => test::all(),
        ["test", part, only @ ..] => test::part(part, only),
        ["bench", "apps", rest @ ..] => apps::run(rest),
        ["bench", "endure", rest @ ..] => apps::endure::run(rest),
        ["bench", name, rest @ ..] if *name != "demo" => bench::run(name, rest),
        ["bench", "demo"] | ["demo"] => demo::run(demo::Who::Both),
        ["demo", "linux"] => demo::run(demo::Who::LinuxOnly),
        ["demo", "coracle"] => demo::run(demo::Who::CoracleOnly),
        ["erofs", from, to] => erofs::write(from, to),
        ["fuzz"] => fuzz::run(None, None),
        ["fuzz", target] => fuzz::run(Some(target), None),
        ["fuzz", target, seconds] => fuzz::run(Some(target), Some(seconds)),
        ["images", names @ ..] => images::run(names),
        ["syscalls"] => syscalls::write(),
        ["syscalls", "--check"] => syscalls::check(),
        ["help" | "-h" | "--help"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => bail!("no command\n\n{USAGE}"),
        other => bail!("unknown: {}\n\n{USAGE}", other.join(" ")),
    }
}
