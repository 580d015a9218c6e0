// SPDX-License-Identifier: Apache-2.0

//! The platform `process`: the service as an ordinary process of the host, in the files of its image and in a network
//! namespace, with the same limits as elsewhere, and nothing else of a container: it sees the host's processes and devices.

use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::cgroup::{Cgroup, Limits};
use super::root::HostRoots;
use super::scratch::Scratch;
use super::spawn::{Inside, Place, c_string, spawn};
use super::tool::{shown, tail, text_of};
use super::{Ended, Image, Instance, Order, Platform, Prepared, Processes, end_child, end_within};
use crate::experiment::Service;
use crate::network::{self, Wanted};
use crate::record::PlatformFacts;
use crate::{Error, Result};

/// Processes of the host.
#[derive(Debug)]
pub(crate) struct Process {
    roots: HostRoots,
}

impl Process {
    pub(crate) fn find() -> Result<Process> {
        if !network::is_privileged() {
            return Err(Error::Host(
                "the platform process needs root (network namespace, chroot, cgroup), /dev/net/tun and iproute2: run the lab \
                 as root, or leave it out"
                    .into(),
            ));
        }
        Ok(Process {
            roots: HostRoots::default(),
        })
    }
}

impl Platform for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn facts(&self) -> PlatformFacts {
        let about = [
            (
                "root",
                "the image's files below a scratch layer (overlay), entered by chroot",
            ),
            (
                "limits",
                "memory by control group, processors by affinity and cpuset",
            ),
        ];
        PlatformFacts {
            name: self.name().into(),
            substrate: super::HOST.into(),
            about: about
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        }
    }

    fn wanted(&self) -> Wanted {
        Wanted::Namespace
    }

    fn prepare(&mut self, service: &Service, image: &Image) -> Result<Prepared> {
        self.roots.prepare(service, image)
    }

    fn start(&mut self, order: &Order<'_>) -> Result<Box<dyn Instance>> {
        let (root, namespace) = self.roots.find(order, self.name())?;
        let scratch = Scratch::new(root, order)?.with_system()?;
        let cpus = super::processors(order)?;
        let limits = Limits {
            memory_bytes: Some(order.memory_bytes),
            cpus: Some(&cpus),
        };
        let cgroup = Cgroup::create(&super::cgroup_name(order), limits)?;
        let (stdout, stderr) = super::streams(&order.folder, "service")?;
        let mut command = Command::new(&root.argv[0]);
        command.args(&root.argv[1..]).env_clear();
        command.envs(root.env.iter().filter_map(|text| text.split_once('=')));
        // What a person would type for what is done without any of these programs.
        let line = format!(
            "ip netns exec {namespace} taskset -c {} chroot --userspec={}:{} {} {}",
            super::cgroup::cpu_list(&cpus),
            root.uid,
            root.gid,
            root.folder.display(),
            shown(&command)
        );
        let place = Place {
            cpus: &cpus,
            cgroup: cgroup.as_ref(),
            namespace: Some(namespace),
            mounts: scratch.mounts,
            inside: Some(Inside {
                root: c_string(&scratch.root)?,
                cwd: c_string(&root.cwd)?,
                uid: root.uid,
                gid: root.gid,
            }),
            inherited: Vec::new(),
        };
        let child = spawn(&mut command, place, stdout, stderr)?;
        Ok(Box::new(Running {
            child,
            folder: order.folder.clone(),
            address: order.link.address(),
            line,
            cgroup,
        }))
    }
}

#[derive(Debug)]
struct Running {
    child: Child,
    folder: PathBuf,
    address: IpAddr,
    line: String,
    cgroup: Option<Cgroup>,
}

/// Exit code as a shell shows it, and the reason. `is_short_of_memory`: whether the kernel killed for lack of memory.
pub(super) fn ended(status: ExitStatus, is_short_of_memory: bool) -> Ended {
    let reason = match status.signal() {
        Some(9) if is_short_of_memory => "out-of-memory".to_owned(),
        Some(signal) => format!("signal {signal}"),
        None => "exit".to_owned(),
    };
    Ended {
        code: status.code().or(status.signal().map(|signal| 128 + signal)),
        reason,
    }
}

impl Instance for Running {
    fn commands(&self) -> Vec<String> {
        vec![self.line.clone()]
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn ended(&mut self) -> Option<Ended> {
        let status = self.child.try_wait();
        let is_short = || self.cgroup.as_ref().is_some_and(Cgroup::is_short_of_memory);
        match status {
            Ok(status) => status.map(|status| ended(status, is_short())),
            Err(error) => Some(Ended {
                code: None,
                reason: error.to_string(),
            }),
        }
    }

    fn processes(&self) -> Processes {
        let group = self.cgroup.as_ref();
        let payload = group.map_or_else(|| vec![self.child.id()], Cgroup::processes);
        Processes {
            payload,
            runtime: Vec::new(),
            guest_memory_bytes: None,
            cgroup: group.and_then(Cgroup::accounting),
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
        let pid = Pid::from_raw(self.child.id().cast_signed());
        if kill(pid, Signal::SIGTERM).is_ok()
            && let Some(ended) = end_within(self.as_mut(), grace)
        {
            return Ok(Some(ended));
        }
        end_child(&mut self.child);
        Ok(self.ended())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end_child(&mut self.child);
    }
}
