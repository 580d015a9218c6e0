// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask demo` and `cargo xtask bench`: the lab's experiments with the kernel and the command of this tree.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::build::{self, Flavour};
use crate::{paths, setup, sh};

/// Builds, then becomes `coracle lab run` with `arguments`: names of experiments and its options. Its exit code is ours,
/// and so are its interrupts: it keeps what it measured.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    setup::run()?;
    build::run(Flavour::Release)?;
    let mut command = sh::cmd(paths::build()?.join("coracle"), ["lab", "run", "--install"]);
    command
        .args(arguments)
        .current_dir(paths::root())
        .env("PATH", setup::path_with_go()?);
    Err(command.exec()).with_context(|| sh::shown(&command))
}
