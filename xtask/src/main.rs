// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask`: what developers and CI do with the repository. Every command the README names ends here.

mod build;
mod erofs;
mod fuzz;
mod images;
mod lab;
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
  demo [OPTIONS]  the experiment `demo`: the sample service as a unikernel beside a Linux VM
  bench NAME... [OPTIONS]
                  experiments of the lab, with what this tree builds; names and options as of `coracle lab run`
  erofs FROM TO   the folder, OCI layout or image archive FROM as a root image (EROFS)
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
        ["demo", options @ ..] => lab::run(&[&["demo"], options].concat()),
        ["bench", arguments @ ..] if !arguments.is_empty() => lab::run(arguments),
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
