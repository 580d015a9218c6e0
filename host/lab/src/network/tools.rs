// SPDX-License-Identifier: Apache-2.0

//! iproute2, and programs of the host in general. Batches are one process for several changes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::{Error, Result};

/// Folders that hold administration tools and are not in every user's PATH.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Where a program of this host is, in PATH or in the folders for administrators.
pub(crate) fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// A command of a tool of iproute2.
fn command(tool: &str) -> Result<Command> {
    let path = find_tool(tool)
        .ok_or_else(|| Error::Host(format!("`{tool}` is missing: install iproute2")))?;
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    Ok(command)
}

fn checked(line: &str, output: std::io::Result<Output>) -> Result<String> {
    let output = output.map_err(|error| Error::Host(format!("{line}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Host(format!("`{line}`: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a tool.
pub(super) fn run(tool: &str, args: &[&str]) -> Result<()> {
    output(tool, args).map(drop)
}

/// Runs a tool for what it prints.
pub(super) fn output(tool: &str, args: &[&str]) -> Result<String> {
    let line = format!("{tool} {}", args.join(" "));
    checked(&line, command(tool)?.args(args).output())
}

/// Several changes by one `ip`, which ends at the first that fails.
pub(super) fn batch(lines: &[String]) -> Result<()> {
    feed(command("ip")?.args(["-batch", "-"]), lines)
}

/// The same in a namespace.
pub(super) fn batch_in(namespace: &str, lines: &[String]) -> Result<()> {
    feed(command("ip")?.args(["-n", namespace, "-batch", "-"]), lines)
}

fn feed(command: &mut Command, lines: &[String]) -> Result<()> {
    let shown = format!("ip: {}", lines.join("; "));
    let mut run = || {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all((lines.join("\n") + "\n").as_bytes())?;
        }
        child.wait_with_output()
    };
    checked(&shown, run()).map(drop)
}
