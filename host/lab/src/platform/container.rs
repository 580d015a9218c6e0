// SPDX-License-Identifier: Apache-2.0

//! The platforms `container`, by any OCI runtime, and `gvisor`, by runsc: the same bundle with a runtime of the host, no
//! engine around it. The runtime's own processes are counted apart.
//!
//! As an engine would: namespaces, capabilities, masked paths, limits by control group. Not as one: no seccomp profile,
//! which differs from engine to engine and costs at every system call.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::cgroup;
use super::oci::{self, Bundle};
use super::process;
use super::root::{HostRoots, Root};
use super::scratch::Scratch;
use super::spawn::{Place, spawn};
use super::tool::{output, shown, tail, text_of};
use super::{Ended, Image, Instance, Order, Platform, Prepared, Processes, end_child, end_within};
use crate::experiment::Service;
use crate::network::{self, Wanted, find_tool};
use crate::record::PlatformFacts;
use crate::{Error, Result};

/// The runtimes that are tried for `container`.
const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Flags of runsc in the order of preference: its platform systrap, which versions before 2023 have not; its own network
/// stack, which those versions refuse where a kernel shows the settings of the first namespace in all of them.
const GVISOR: [&[&str]; 3] = [
    &["--platform=systrap", "--network=sandbox"],
    &["--platform=ptrace", "--network=sandbox"],
    &["--platform=ptrace", "--network=host"],
];

/// Containers.
#[derive(Debug)]
pub(crate) struct Container {
    name: String,
    runtime: Runtime,
    roots: HostRoots,
}

/// A program that runs bundles.
#[derive(Clone, Debug)]
struct Runtime {
    program: PathBuf,
    /// Before its command.
    flags: &'static [&'static str],
    version: String,
}

impl Container {
    /// `container`: the first runtime that works here. `container:NAME`: that one.
    pub(crate) fn find(name: &str) -> Result<Container> {
        let given = name.split_once(':').map(|(_, runtime)| runtime);
        let mut refused = Vec::new();
        for candidate in given.map_or(RUNTIMES.to_vec(), |given| vec![given]) {
            match Runtime::find(candidate, &[]) {
                Ok(runtime) => return Ok(Container::with(name, runtime)),
                Err(error) => refused.push(error.to_string()),
            }
        }
        Err(Error::Host(refused.join("; ")))
    }

    /// gVisor: its kernel in a process of the host. The first of [`GVISOR`] that works here; which one, the record says.
    pub(crate) fn gvisor() -> Result<Container> {
        let mut refused = Vec::new();
        for flags in GVISOR {
            match Runtime::find("runsc", flags) {
                Ok(runtime) => return Ok(Container::with("gvisor", runtime)),
                Err(error) => refused.push(error.to_string()),
            }
        }
        // All say the same if there is no runsc.
        refused.dedup();
        Err(Error::Host(refused.join("; ")))
    }

    fn with(name: &str, runtime: Runtime) -> Container {
        Container {
            name: name.into(),
            runtime,
            roots: HostRoots::default(),
        }
    }
}

impl Runtime {
    /// Finds a runtime and sees by a short probe that it works here.
    fn find(name: &str, flags: &'static [&'static str]) -> Result<Runtime> {
        if !network::is_privileged() {
            return Err(Error::Host(format!(
                "{name} needs root here (network namespace and cgroup), /dev/net/tun and iproute2: run the lab as root, or \
                 leave this platform out"
            )));
        }
        let program = find_tool(name).ok_or_else(|| {
            Error::Host(format!(
                "`{name}` is missing: install the package {name} (apt-get install {name})"
            ))
        })?;
        let said = output(Command::new(&program).arg("--version"))?;
        let version = said.lines().next().unwrap_or_default().to_owned();
        let runtime = Runtime {
            program,
            flags,
            version,
        };
        runtime
            .probe()
            .map_err(|said| Error::Host(format!("{name} does not work on this host: {said}")))?;
        Ok(runtime)
    }

    /// Runs `/bin/true` of the host with the limits a service gets.
    fn probe(&self) -> std::result::Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let folder = tempfile::tempdir().map_err(text)?;
        let rootfs = folder.path().join("rootfs");
        fs::create_dir(&rootfs).map_err(text)?;
        let root = Root {
            folder: rootfs.clone(),
            key: String::new(),
            argv: vec!["/bin/true".into()],
            env: Vec::new(),
            cwd: "/".into(),
            uid: 0,
            gid: 0,
            volumes: Vec::new(),
        };
        let folders = ["/bin", "/lib", "/lib64", "/usr"];
        let present = folders.iter().filter(|folder| Path::new(folder).is_dir());
        let volumes: Vec<(PathBuf, String)> = present
            .map(|folder| (PathBuf::from(folder), (*folder).to_owned()))
            .collect();
        let id = format!("{}{}-probe", network::PREFIX, std::process::id());
        let cgroups_path = cgroups_path(&id);
        let config = oci::config(&Bundle {
            root: &root,
            rootfs: &rootfs,
            volumes: &volumes,
            network: oci::Network::Empty,
            cgroups_path: Some(&cgroups_path),
            memory_bytes: Some(256 << 20),
            cpus: None,
        });
        fs::write(folder.path().join("config.json"), config.to_string()).map_err(text)?;
        let state = folder.path().join("state");
        let mut run = self.command(&state);
        run.arg("run").arg("--bundle").arg(folder.path()).arg(&id);
        let result = run.stdin(Stdio::null()).output().map_err(text)?;
        // What is not there any more cannot be removed; that is the usual case.
        drop(
            self.command(&state)
                .args(["delete", "--force", &id])
                .output(),
        );
        drop(cgroup::remove_where(|name| name == id));
        if result.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&result.stderr).into_owned();
        Err(said
            .trim()
            .lines()
            .last()
            .unwrap_or("no reason given")
            .to_owned())
    }

    fn command(&self, state: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(state).args(self.flags);
        command
    }
}

/// Where the runtime makes the control group: beside those the lab makes itself, so that it is found by name. A path that
/// is not absolute is one below the runtime's own group.
fn cgroups_path(name: &str) -> String {
    match cgroup::is_v2() {
        true => format!("/{name}"),
        false => name.to_owned(),
    }
}

impl Platform for Container {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> PlatformFacts {
        let about = [
            ("runtime", self.runtime.version.clone()),
            ("flags", self.runtime.flags.join(" ")),
            (
                "root",
                "the image's files below a scratch layer (overlay)".to_owned(),
            ),
            (
                "security",
                "namespaces, an engine's default capabilities; no seccomp profile".to_owned(),
            ),
        ];
        PlatformFacts {
            name: self.name.clone(),
            substrate: super::HOST.into(),
            about: about.map(|(key, value)| (key.to_owned(), value)).into(),
        }
    }

    fn wanted(&self) -> Wanted {
        Wanted::Namespace
    }

    fn prepare(&mut self, service: &Service, image: &Image) -> Result<Prepared> {
        self.roots.prepare(service, image)
    }

    fn start(&mut self, order: &Order<'_>) -> Result<Box<dyn Instance>> {
        let (root, namespace) = self.roots.find(order, &self.name)?;
        let scratch = Scratch::new(root, order)?;
        let cpus = super::processors(order)?;
        let id = super::cgroup_name(order);
        let config = oci::config(&Bundle {
            root,
            rootfs: &scratch.root,
            volumes: &scratch.volumes,
            network: oci::Network::At(&format!("/run/netns/{namespace}")),
            cgroups_path: Some(&cgroups_path(&id)),
            memory_bytes: Some(order.memory_bytes),
            cpus: Some(&cgroup::cpu_list(&cpus)),
        });
        let path = order.folder.join("config.json");
        fs::write(&path, config.to_string()).map_err(Error::file(&path))?;
        let (stdout, stderr) = super::streams(&order.folder, "service")?;
        let state = order.folder.join("state");
        let pid_file = order.folder.join("pid");
        let mut command = self.runtime.command(&state);
        command.arg("run").arg("--bundle").arg(&order.folder);
        command.arg("--pid-file").arg(&pid_file).arg(&id);
        let line = shown(&command);
        let place = Place {
            cpus: &cpus,
            mounts: scratch.mounts,
            ..Place::default()
        };
        // From here on Drop removes what the runtime makes, also when it does not come up.
        let mut instance = Running {
            child: None,
            runtime: self.runtime.clone(),
            state,
            id,
            pid_file,
            folder: order.folder.clone(),
            address: order.link.address(),
            line,
        };
        instance.child = Some(spawn(&mut command, place, stdout, stderr)?);
        Ok(Box::new(instance))
    }
}

#[derive(Debug)]
struct Running {
    /// The runtime, which stays as long as the container.
    child: Option<Child>,
    runtime: Runtime,
    state: PathBuf,
    /// Also the name of the control group.
    id: String,
    pid_file: PathBuf,
    folder: PathBuf,
    address: IpAddr,
    line: String,
}

impl Instance for Running {
    fn commands(&self) -> Vec<String> {
        vec![self.line.clone()]
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn ended(&mut self) -> Option<Ended> {
        match self.child.as_mut()?.try_wait() {
            Ok(status) => status.map(|status| process::ended(status, false)),
            Err(error) => Some(Ended {
                code: None,
                reason: error.to_string(),
            }),
        }
    }

    fn processes(&self) -> Processes {
        let group = cgroup::find(&self.id);
        let mut payload = group
            .as_deref()
            .map(cgroup::processes_below)
            .unwrap_or_default();
        if payload.is_empty() {
            let first = text_of(&self.pid_file).trim().parse::<u32>();
            payload.extend(first.ok());
        }
        let own = self.child.as_ref().map(Child::id);
        let runtime = own
            .map(|pid| with_descendants(pid, &payload))
            .unwrap_or_default();
        Processes {
            payload,
            runtime,
            guest_memory_bytes: None,
            cgroup: cgroup::find_accounting(&self.id),
        }
    }

    fn output(&mut self) -> String {
        text_of(&self.folder.join("service.stdout"))
    }

    fn log(&mut self) -> String {
        let file = |name: &str| text_of(&self.folder.join(name));
        tail(file("service.stderr") + &file("service.stdout"))
    }

    fn stop(mut self: Box<Self>, grace: Duration) -> Result<Option<Ended>> {
        if let Some(ended) = self.ended() {
            return Ok(Some(ended));
        }
        if !grace.is_zero()
            && self.signal("TERM")
            && let Some(ended) = end_within(self.as_mut(), grace)
        {
            return Ok(Some(ended));
        }
        let killed = self.signal("KILL");
        if let Some(child) = &mut self.child {
            if killed {
                // The runtime ends with its container.
                drop(child.wait());
            } else {
                // The container was not made yet, or has just ended.
                end_child(child);
            }
        }
        Ok(self.ended())
    }
}

impl Running {
    /// Sends a signal to the container; whether there was one to take it.
    fn signal(&self, name: &str) -> bool {
        let mut kill = self.runtime.command(&self.state);
        output(kill.args(["kill", &self.id, name])).is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut delete = self.runtime.command(&self.state);
        delete.args(["delete", "--force", &self.id]);
        // One that never came up cannot be deleted; its control group and processes are looked after below.
        drop(delete.stdin(Stdio::null()).output());
        if let Some(child) = &mut self.child {
            end_child(child);
        }
        drop(cgroup::remove_where(|name| name == self.id));
    }
}

/// A process and those it started, without `others`.
fn with_descendants(pid: u32, others: &[u32]) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at).copied() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        for task in tasks {
            let children = text_of(&task.path().join("children"));
            let children = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok());
            all.extend(children.filter(|pid| !others.contains(pid)));
        }
        at += 1;
    }
    all
}
