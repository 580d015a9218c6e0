// SPDX-License-Identifier: Apache-2.0

//! What all VMs of the lab share: the VMM, how it runs guest code, the machine. Platforms with the same of these, and only
//! they, are compared.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use coracle_vmm::accel::AccelChoice;
use coracle_vmm::{Accel, Host, Qemu};

use super::cgroup::Cgroup;
use super::spawn::{Place, spawn};
use super::tool::{shown, text_of};
use super::{Order, Processes, end_child, folders};
use crate::{Error, Result};

/// The machine type.
pub(crate) const MACHINE: &str = "microvm";

/// QEMU's own filter of system calls, as `coracle run` sets it.
pub(crate) const SANDBOX: &str =
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// The VMM of this host.
#[derive(Clone, Debug)]
pub(crate) struct Vmm {
    pub(crate) qemu: Qemu,
    pub(crate) version: String,
    pub(crate) accel: Accel,
    /// Frequency of the host's time-stamp counter. An emulated guest sees the same counter, and Linux has nothing on this
    /// machine to measure it against.
    pub(crate) tsc_khz: Option<u64>,
}

impl Vmm {
    /// Finds QEMU and how it runs guest code here: `CORACLE_ACCEL`, else KVM if a probe guest runs, else emulation.
    pub(crate) fn find() -> Result<Vmm> {
        let host_error = |error: &dyn std::fmt::Display| Error::Host(error.to_string());
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let given = variable("CORACLE_QEMU");
        let qemu =
            Qemu::find(given.as_deref().map(Path::new)).map_err(|error| host_error(&error))?;
        let mut host = Host::load(&folders::cache()?);
        let version = host
            .qemu_version(&qemu)
            .map_err(|error| host_error(&error))?;
        qemu.check(version).map_err(|error| host_error(&error))?;
        let choice: AccelChoice = variable("CORACLE_ACCEL")
            .unwrap_or_else(|| "auto".into())
            .parse()
            .map_err(|error| Error::Input(format!("CORACLE_ACCEL: {error}")))?;
        let chosen = choice
            .choose(&mut host, &qemu)
            .map_err(|error| host_error(&error))?;
        Ok(Vmm {
            version: format!("{}.{}", version.major, version.minor),
            accel: chosen.accel,
            tsc_khz: host.tsc_khz().or_else(nominal_khz),
            qemu,
        })
    }

    /// What platforms must share to be compared.
    pub(crate) fn substrate(&self) -> String {
        format!("qemu {}, {MACHINE}, {}", self.version, self.accel)
    }

    /// QEMU's option for a guest that is not ours. Its buffer of translated code is the largest that `coracle run` would
    /// give a guest with this memory, so that a whole Linux does not run out of it; `coracle run` sizes its own by the
    /// program.
    pub(crate) fn accel_option(&self, memory_bytes: u64) -> String {
        match self.accel {
            Accel::Kvm => "kvm".into(),
            Accel::Tcg => format!("tcg,tb-size={}", ((memory_bytes >> 20) / 4).clamp(64, 256)),
        }
    }

    /// The processor model the guest sees.
    pub(crate) fn cpu(&self) -> &'static str {
        match self.accel {
            Accel::Kvm => "host",
            Accel::Tcg => "max",
        }
    }

    /// Options of a TAP that hand packets over in the host's kernel, where that is possible; as `coracle run` decides it.
    pub(crate) fn vhost(&self) -> &'static str {
        let opens = || {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/vhost-net")
                .is_ok()
        };
        match self.accel {
            Accel::Kvm if opens() => ",vhost=on",
            _ => "",
        }
    }
}

/// A VMM that was started. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    /// The instance's folder, where the VMM's own words are in `vmm.stdout` and `vmm.stderr`.
    pub(super) folder: PathBuf,
    pub(super) address: IpAddr,
    pub(super) line: String,
    memory_bytes: u64,
    /// Removed last, with what the VMM may have started.
    _cgroup: Option<Cgroup>,
}

impl Started {
    /// Starts `command` where the order wants it. `inherited`: descriptors the VMM keeps.
    pub(super) fn new(
        command: &mut Command,
        order: &Order<'_>,
        inherited: Vec<OwnedFd>,
    ) -> Result<Started> {
        let cgroup = Cgroup::without_limits(&super::cgroup_name(order));
        let (stdout, stderr) = super::streams(&order.folder, "vmm")?;
        let place = Place {
            cpus: order.pin.as_deref().unwrap_or_default(),
            cgroup: cgroup.as_ref(),
            inherited,
            ..Place::default()
        };
        let line = shown(command);
        Ok(Started {
            child: spawn(command, place, stdout, stderr)?,
            folder: order.folder.clone(),
            address: order.link.address(),
            line,
            memory_bytes: order.memory_bytes,
            _cgroup: cgroup,
        })
    }

    pub(super) fn processes(&self) -> Processes {
        Processes {
            payload: vec![self.child.id()],
            runtime: Vec::new(),
            guest_memory_bytes: Some(self.memory_bytes),
            cgroup: None,
        }
    }

    /// A file of the instance's folder as text; nothing if there is none.
    pub(super) fn text(&self, name: &str) -> String {
        text_of(&self.folder.join(name))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        end_child(&mut self.child);
    }
}

/// What the processor says of its frequency, where its counter is not steady.
fn nominal_khz() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    let (whole, _) = line.split_once(':')?.1.trim().split_once('.')?;
    whole.parse::<u64>().ok().map(|mhz| mhz * 1000)
}
