// SPDX-License-Identifier: Apache-2.0

//! Installs the program of a generator from Debian's packages, when the user asks for it.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::tool;
use crate::{Error, Result};

/// Installs what the generator `name` needs, with `apt-get`. Needs root, and a package of that name.
pub fn install(name: &str, cancel: &AtomicBool) -> Result<()> {
    let package = super::generator(name)?.package().ok_or_else(|| {
        Error::Host(format!(
            "{name} is not in Debian's packages; install it by hand"
        ))
    })?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Host(format!(
            "only root can install {name}: `sudo apt-get install {package}`"
        )));
    }
    let install = ["install", "-y", "--no-install-recommends", package];
    // The lists of packages may be missing or old.
    if apt_get(&install, cancel).is_ok() {
        return Ok(());
    }
    apt_get(&["update"], cancel)?;
    apt_get(&install, cancel)
}

fn apt_get(args: &[&str], cancel: &AtomicBool) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    let printed = tool::run(&mut command, None, Duration::from_secs(600), cancel)?;
    printed.expect_success(&command)
}
