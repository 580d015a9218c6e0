// SPDX-License-Identifier: Apache-2.0

//! What a run leaves behind must be nothing, even after `kill -9`. All processes that a run starts carry a mark in their
//! environment; a later run ends those whose run is gone. Interfaces, namespaces and cgroups are the network's
//! ([`crate::network`]), folders are named after the process.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Error, Result};

/// The variable in the environment of every process of a run. The command sets it once at the begin to [`mark`].
pub const VARIABLE: &str = "CORACLE_LAB";

/// The mark of this process: its id and its start time, since ids come again.
#[must_use]
pub fn mark() -> String {
    let pid = std::process::id();
    format!("{pid}-{}", start_ticks(pid).unwrap_or(0))
}

/// A folder for the files of this run's instances.
///
/// # Errors
/// When it cannot be made.
pub fn scratch() -> Result<tempfile::TempDir> {
    let folder = std::env::temp_dir();
    tempfile::Builder::new()
        .prefix(&format!("clab{}-", std::process::id()))
        .tempdir_in(&folder)
        .map_err(Error::file(folder))
}

/// Kills all processes with the mark of this run except this one. Answers their names.
pub fn kill_own() -> Vec<String> {
    let own = std::process::id();
    let mine = mark();
    kill_where(|pid, mark| pid != own && mark == mine)
}

/// Kills what runs left that are gone, and removes their folders. Answers what was removed.
pub fn remove() -> Vec<String> {
    let own = std::process::id();
    let mut removed = kill_where(|pid, mark| pid != own && !is_alive(mark));
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix("clab")
            .and_then(|rest| rest.split_once('-'));
        let Some(pid) = pid.and_then(|(pid, _)| pid.parse::<u32>().ok()) else {
            continue;
        };
        let gone = start_ticks(pid).is_none();
        if gone && entry.path().is_dir() && fs::remove_dir_all(entry.path()).is_ok() {
            removed.push(entry.path().display().to_string());
        }
    }
    removed
}

/// Kills all processes that carry a mark which fits.
fn kill_where(fits: impl Fn(u32, &str) -> bool) -> Vec<String> {
    let mut killed = Vec::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Some(mark) = mark_of(&entry.path()) else {
            continue;
        };
        let Some(number) = i32::try_from(pid).ok().filter(|_| fits(pid, &mark)) else {
            continue;
        };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if kill(Pid::from_raw(number), Signal::SIGKILL).is_ok() {
            killed.push(format!("{} ({pid})", name.trim()));
        }
    }
    killed
}

/// The mark of a process, if it has one that we may read.
fn mark_of(process: &Path) -> Option<String> {
    let environment = fs::read(process.join("environ")).ok()?;
    let begin = format!("{VARIABLE}=");
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| std::str::from_utf8(variable).ok())
        .find_map(|variable| variable.strip_prefix(&begin).map(str::to_owned))
}

/// Whether the run with that mark still lives.
fn is_alive(mark: &str) -> bool {
    let Some((pid, ticks)) = mark.split_once('-') else {
        return false;
    };
    let pid = pid.parse().ok();
    pid.and_then(start_ticks)
        .is_some_and(|now| now.to_string() == ticks)
}

/// When a process was started, in clock ticks since boot: field 22 of `proc_pid_stat(5)`.
fn start_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The name, in parentheses, may contain blanks.
    let fields = text.rsplit(')').next()?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_what_a_dead_run_left_is_killed() {
        let sleep = |mark: &str| {
            Command::new("sleep")
                .arg("60")
                .env(VARIABLE, mark)
                .stdin(Stdio::null())
                .spawn()
                .unwrap()
        };
        let (mut dead, mut alive) = (sleep("1-1"), sleep(&mark()));
        // The mark is in the environment only after exec.
        let marked = |pid: u32| mark_of(&Path::new("/proc").join(pid.to_string())).is_some();
        while !(marked(dead.id()) && marked(alive.id())) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let folder = std::env::temp_dir().join("clab4194999-test");
        fs::create_dir_all(&folder).unwrap();
        let removed = remove();
        assert!(
            removed.contains(&format!("sleep ({})", dead.id())),
            "{removed:?}"
        );
        assert!(!dead.wait().unwrap().success());
        assert!(!folder.exists());
        assert!(alive.try_wait().unwrap().is_none());
        let killed = kill_own();
        assert!(
            killed.contains(&format!("sleep ({})", alive.id())),
            "{killed:?}"
        );
        alive.wait().unwrap();
    }

    #[test]
    fn a_process_knows_its_own_start() {
        assert!(is_alive(&mark()));
        assert!(!is_alive("1"));
        assert!(!is_alive(&format!("{}-1", std::process::id())));
    }
}
