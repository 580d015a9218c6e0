// SPDX-License-Identifier: Apache-2.0

//! What a killed run left behind: interfaces, namespaces, cgroups and unikernels whose names carry the id of a process that is gone.

use std::fs::{self, File};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use super::tools::run;
use crate::platform::{cgroup, unikernel};
use crate::{Error, Result};

/// How everything the lab makes begins.
pub(crate) const PREFIX: &str = "clab";
/// Where `ip netns` keeps its names.
pub(super) const NAMESPACES: &str = "/run/netns";

/// The process that made what has this name: `clab1234t5` is of process 1234.
fn pid_in(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(PREFIX)?;
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

fn is_dead(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

fn is_of_the_dead(name: &str) -> bool {
    pid_in(name).is_some_and(is_dead)
}

/// Names in a folder that belong to processes that are gone.
fn dead_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_of_the_dead(name))
        .collect()
}

/// Removes what runs left that were killed: processes in their cgroups, the cgroups, unikernels, interfaces and namespaces. What
/// belongs to a process that still lives is left alone. Answers what was removed.
///
/// # Errors
/// [`Error::Host`] when something cannot be removed.
pub fn remove_leftovers() -> Result<Vec<String>> {
    let mut removed = cgroup::remove_where(is_of_the_dead);
    removed.extend(unikernel::remove_where(is_dead));
    if !super::is_privileged() {
        return Ok(removed);
    }
    for name in dead_in("/sys/class/net") {
        // A veth's other end may have gone with its namespace in between.
        if Path::new("/sys/class/net").join(&name).exists() {
            run("ip", &["link", "delete", &name])?;
            removed.push(name);
        }
    }
    for name in dead_in(NAMESPACES) {
        run("ip", &["netns", "delete", &name])?;
        removed.push(name);
    }
    Ok(removed)
}

/// Held while a free subnet is looked for and taken, so that two runs do not find the same one.
pub(super) fn lock() -> Result<Flock<File>> {
    let path = "/run/lock/coracle-lab.lock";
    let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let file = File::create(path).map_err(Error::file(path))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| Error::File {
        path: path.into(),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::{is_of_the_dead, pid_in};

    #[test]
    fn names_tell_their_process() {
        assert_eq!(pid_in("clab1234t5"), Some(1234));
        assert_eq!(pid_in("clab77"), Some(77));
        assert_eq!(pid_in("clabx"), None);
        assert_eq!(pid_in("eth0"), None);
    }

    #[test]
    fn only_the_dead_leave_things() {
        let own = std::process::id();
        assert!(!is_of_the_dead(&format!("clab{own}t1")));
        // Above the largest pid_max.
        assert!(is_of_the_dead("clab4194305t1"));
        assert!(!is_of_the_dead("docker0"));
    }
}
