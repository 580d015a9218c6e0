// SPDX-License-Identifier: Apache-2.0

//! Programs of the host that are run to their end, and how command lines are shown.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::network::find_tool;
use crate::{Error, Result};

/// A program of the host, or an error that names the package.
pub(crate) fn tool(name: &str, package: &str) -> Result<PathBuf> {
    find_tool(name).ok_or_else(|| {
        Error::Host(format!(
            "`{name}` is missing: install the package {package}"
        ))
    })
}

/// Runs a command to its end and answers what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let bytes = output_bytes(command)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The same for what is not text.
pub(crate) fn output_bytes(command: &mut Command) -> Result<Vec<u8>> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::Host(format!("`{shown}`: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.trim().lines().last().unwrap_or("no reason given");
    Err(Error::Host(format!(
        "`{shown}` ended with {}: {last}",
        output.status
    )))
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Bytes a file takes on the disk: holes do not count.
pub(crate) fn bytes_on_disk(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    path.metadata().map_or(0, |meta| meta.blocks() * 512)
}

/// Bytes all files of a folder take on the disk, each once however many names it has.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut seen = std::collections::HashSet::new();
    let mut todo = vec![folder.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                todo.push(entry.path());
            }
            if seen.insert((meta.dev(), meta.ino())) {
                bytes += meta.blocks() * 512;
            }
        }
    }
    bytes
}

/// The last part of a text, at most 16 KiB of it.
pub(crate) fn tail(text: String) -> String {
    const MOST: usize = 16 << 10;
    if text.len() <= MOST {
        return text;
    }
    let mut from = text.len() - MOST;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// A file as text; nothing if there is none.
pub(crate) fn text_of(path: &Path) -> String {
    std::fs::read(path).map_or_else(
        |_| String::new(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}
