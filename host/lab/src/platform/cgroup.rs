// SPDX-License-Identifier: Apache-2.0

//! A control group for each instance: its memory limit, its processors, what it has used, and all its processes in one
//! place, so that none survives it. Version 1, version 2 and both at once (hybrid, where version 1 has the controllers).
//!
//! Source: `Documentation/admin-guide/cgroup-v1/` and `cgroup-v2.rst`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Error, Result};

/// The controllers that are used where the host has them. Version 1 has them in hierarchies of their own.
const CONTROLLERS: [&str; 4] = ["memory", "cpuset", "cpuacct", "pids"];
/// How long killed processes may take to be gone.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What an instance may use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits<'a> {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpus: Option<&'a [usize]>,
}

/// A control group. Dropping it kills what is in it and removes it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// One for each hierarchy of version 1, or the one of version 2.
    folders: Vec<Folder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Folder {
    /// Controllers of version 1, comma between them; empty: version 2.
    controllers: String,
    path: PathBuf,
}

impl Folder {
    fn has(&self, controller: &str) -> bool {
        self.controllers.is_empty() || self.controllers.split(',').any(|name| name == controller)
    }
}

/// Whether the host's controllers are those of version 2.
pub(crate) fn is_v2() -> bool {
    parents()
        .first()
        .is_some_and(|folder| folder.controllers.is_empty())
}

/// Where the lab's groups are made: below its own in version 1; in version 2 at the top, as a group that holds
/// processes may not hand controllers down.
fn parents() -> Vec<Folder> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    parents_in(
        &read("/proc/self/mountinfo"),
        &read("/proc/self/cgroup"),
        &|path| path.is_dir(),
    )
}

fn parents_in(mountinfo: &str, own: &str, exists: &dyn Fn(&Path) -> bool) -> Vec<Folder> {
    let mounts: Vec<(&str, &str, &str)> = mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
            Some((kind, before.split(' ').nth(4)?, options))
        })
        .collect();
    let mut folders = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if !controllers
            .split(',')
            .any(|name| CONTROLLERS.contains(&name))
        {
            continue;
        }
        let mount = mounts.iter().find(|(kind, _, options)| {
            *kind == "cgroup"
                && controllers
                    .split(',')
                    .all(|name| options.split(',').any(|option| option == name))
        });
        if let Some((_, at, _)) = mount {
            // A container may see its hierarchy without the part above it.
            let below = Path::new(at).join(path.trim_start_matches('/'));
            let path = if exists(&below) {
                below
            } else {
                PathBuf::from(at)
            };
            folders.push(Folder {
                controllers: controllers.into(),
                path,
            });
        }
    }
    if folders.is_empty()
        && let Some((_, at, _)) = mounts.iter().find(|(kind, ..)| *kind == "cgroup2")
    {
        folders.push(Folder {
            controllers: String::new(),
            path: PathBuf::from(at),
        });
    }
    folders
}

impl Cgroup {
    /// Makes a group. `None` where this process may make none: who is not root measures without.
    ///
    /// # Errors
    /// When a limit cannot be set although the group can be made: it would not be what was asked for.
    pub(crate) fn create(name: &str, limits: Limits<'_>) -> Result<Option<Cgroup>> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(None);
        }
        let mut group = Cgroup {
            folders: Vec::new(),
        };
        for parent in parents() {
            if parent.controllers.is_empty() {
                for controller in ["+memory", "+cpuset", "+cpu", "+pids"] {
                    // What this kernel lacks is missed where it is used.
                    drop(fs::write(
                        parent.path.join("cgroup.subtree_control"),
                        controller,
                    ));
                }
            }
            let folder = Folder {
                path: parent.path.join(name),
                controllers: parent.controllers,
            };
            fs::create_dir(&folder.path).map_err(Error::file(&folder.path))?;
            group.folders.push(folder.clone());
            group.prepare(&folder, &parent.path, limits)?;
        }
        Ok((!group.folders.is_empty()).then_some(group))
    }

    /// A group without limits, to know what belongs to an instance. One that cannot be made is no loss: VMs have their limits
    /// themselves, and their processes are known.
    pub(crate) fn without_limits(name: &str) -> Option<Cgroup> {
        Cgroup::create(name, Limits::default()).ok().flatten()
    }

    fn prepare(&self, folder: &Folder, parent: &Path, limits: Limits<'_>) -> Result<()> {
        let put = |file: &str, text: &str| {
            let path = folder.path.join(file);
            fs::write(&path, text).map_err(Error::file(&path))
        };
        let is_v2 = folder.controllers.is_empty();
        if folder.has("cpuset") {
            let list = limits.cpus.map(cpu_list);
            if is_v2 {
                if let Some(list) = &list {
                    put("cpuset.cpus", list)?;
                }
            } else {
                // Version 1 takes no process before both are set.
                let of_parent = |file: &str| {
                    fs::read_to_string(parent.join(file)).map_err(Error::file(parent.join(file)))
                };
                put("cpuset.mems", of_parent("cpuset.mems")?.trim())?;
                match &list {
                    Some(list) => put("cpuset.cpus", list)?,
                    None => put("cpuset.cpus", of_parent("cpuset.cpus")?.trim())?,
                }
            }
        }
        if folder.has("memory")
            && let Some(bytes) = limits.memory_bytes
        {
            let file = if is_v2 {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            put(file, &bytes.to_string())?;
        }
        Ok(())
    }

    /// The files a process joins by writing `0` to them, open.
    pub(crate) fn doors(&self) -> Result<Vec<File>> {
        let open = |folder: &Folder| {
            let path = folder.path.join("cgroup.procs");
            File::options()
                .write(true)
                .open(&path)
                .map_err(Error::file(&path))
        };
        self.folders.iter().map(open).collect()
    }

    /// The processes in it and in groups below it.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.folders
            .first()
            .map_or_else(Vec::new, |folder| processes_below(&folder.path))
    }

    /// The folder with the CPU time, for the meter.
    pub(crate) fn accounting(&self) -> Option<PathBuf> {
        let folder = self.folders.iter().find(|folder| folder.has("cpuacct"));
        folder.map(|folder| folder.path.clone())
    }

    /// Whether the kernel has killed in it for lack of memory.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        let folder = self.folders.iter().find(|folder| folder.has("memory"));
        folder.is_some_and(|folder| is_short_of_memory(&folder.path))
    }
}

/// Whether the kernel has killed in a group with the memory controller, of either version, for lack of memory.
pub(crate) fn is_short_of_memory(folder: &Path) -> bool {
    ["memory.events", "memory.oom_control"].iter().any(|file| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        let mut counts = text
            .lines()
            .filter_map(|line| line.strip_prefix("oom_kill "));
        counts.any(|count| count.trim() != "0")
    })
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            if let Err(error) = remove(&folder.path) {
                eprintln!("coracle lab: {}: {error}", folder.path.display());
            }
        }
    }
}

/// The processes in a group and in groups below it.
pub(crate) fn processes_below(folder: &Path) -> Vec<u32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for below in folders_in(folder) {
        all.extend(processes_below(&below));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Kills what is in a group and below, and removes it.
fn remove(folder: &Path) -> std::io::Result<()> {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let mut processes = processes_below(folder);
        // Never ourselves, however we came there.
        processes.retain(|pid| *pid != std::process::id());
        for pid in &processes {
            // One that is gone already need not be killed.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        match remove_tree(folder) {
            Err(error)
                if Instant::now() < deadline && error.raw_os_error() == Some(nix::libc::EBUSY) =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => return other,
        }
    }
}

fn remove_tree(folder: &Path) -> std::io::Result<()> {
    for below in folders_in(folder) {
        remove_tree(&below)?;
    }
    fs::remove_dir(folder)
}

/// Removes groups of the lab whose name `is_dead` picks, with the processes in them. Answers their names.
pub(crate) fn remove_where(is_dead: impl Fn(&str) -> bool) -> Vec<String> {
    let mut removed = Vec::new();
    for folder in parents().iter().flat_map(|parent| folders_in(&parent.path)) {
        let name = folder.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|name| is_dead(name))
            && remove(&folder).is_ok()
            && !removed.iter().any(|known| known == name)
        {
            removed.push(name.to_owned());
        }
    }
    removed
}

/// The folder of the group `name` that somebody else made beside the lab's, if it is there.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    find_with(name, "memory")
}

/// The same where its CPU time is counted.
pub(crate) fn find_accounting(name: &str) -> Option<PathBuf> {
    find_with(name, "cpuacct")
}

fn find_with(name: &str, controller: &str) -> Option<PathBuf> {
    let parents = parents();
    let parent = parents.iter().find(|parent| parent.has(controller))?;
    let folder = parent.path.join(name);
    folder.is_dir().then_some(folder)
}

/// Processors as `taskset -c` and cpusets write them.
pub(crate) fn cpu_list(cpus: &[usize]) -> String {
    let texts: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::{Folder, parents_in};
    use std::path::PathBuf;

    #[test]
    fn hybrid_hosts_have_their_controllers_in_version_1() {
        let mounts = "\
30 1 0:25 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n\
31 1 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
32 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:memory:/a/b\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/x\n";
        let folder = |controllers: &str, path: &str| Folder {
            controllers: controllers.into(),
            path: PathBuf::from(path),
        };
        assert_eq!(
            parents_in(mounts, own, &|_| true),
            [
                folder("memory", "/sys/fs/cgroup/memory/a/b"),
                folder("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/")
            ]
        );
        // In a container the path above its own part is not seen.
        let found = parents_in(mounts, own, &|path| !path.ends_with("a/b"));
        assert_eq!(found[0], folder("memory", "/sys/fs/cgroup/memory"));
    }

    #[test]
    fn version_2_has_one_hierarchy() {
        let mounts =
            "32 1 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = parents_in(mounts, "0::/user.slice\n", &|_| true);
        assert_eq!(found.len(), 1);
        assert!(found[0].controllers.is_empty() && found[0].has("memory"));
        assert_eq!(found[0].path, PathBuf::from("/sys/fs/cgroup"));
    }
}
