// SPDX-License-Identifier: Apache-2.0

//! Ways to run an image. Each states its substrate; platforms are compared within one.
//!
//! What is alike for all: the files of the image ([`root`]), program, arguments, environment, user; the number of
//! processors and which of the host's they are; the memory; the network path up to the bridge ([`crate::network`]); output
//! that goes to a file of the host; volumes on the host's disk, where `fsync` waits for that disk; `/tmp` in memory.
//!
//! What is not alike, because it is what a platform is:
//! - *Memory* is a limit of the control group for process, container and gVisor, which share the host's page cache; for a VM
//!   it is the size of the guest's memory, from which its kernel and page cache live too.
//! - *Processors*: on the host a service is bound to as many processors as it has vCPUs. Of a VM the whole VMM is bound to
//!   the processors of the server's side, so its own threads share them with the vCPUs.
//! - *Root*: the host mounts a scratch layer over the files; the Linux VM has them on a disk with ext4 whose changes are
//!   dropped, the unikernel on one with EROFS below memory.

pub(crate) mod cgroup;
mod container;
mod folders;
mod image;
pub mod linux_vm;
mod oci;
mod process;
mod root;
mod scratch;
mod spawn;
mod tool;
pub(crate) mod unikernel;
mod vmm;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::experiment::{Service, unknown};
use crate::network::{Link, Wanted};
use crate::record::PlatformFacts;
use crate::{Error, Result};

/// A way to run an image.
pub trait Platform: Send {
    /// The name in experiments: "process", "container", "gvisor", "linux-vm", "linux-vm-container", "unikernel", "image:NAME".
    fn name(&self) -> &str;

    /// What it is, for the record.
    fn facts(&self) -> PlatformFacts;

    /// The place in the network it needs.
    fn wanted(&self) -> Wanted;

    /// Makes what a start needs and what should not count as start: root file system, disk image. Cached by digest.
    fn prepare(&mut self, service: &Service, image: &Image) -> Result<Prepared>;

    /// Starts it. Returns as soon as the start command runs; it is up when the probe says so.
    fn start(&mut self, order: &Order<'_>) -> Result<Box<dyn Instance>>;
}

/// The image of a service, found and, where need be, made.
#[derive(Clone, Debug)]
pub struct Image {
    /// The archive, folder or ELF.
    pub path: PathBuf,
    /// `sha256:...`.
    pub digest: String,
}

/// What [`Platform::prepare`] found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prepared {
    /// `image_bytes`.
    pub image_bytes: u64,
    /// `image_shared_bytes`.
    pub shared_bytes: u64,
}

/// What to start.
#[derive(Debug)]
pub struct Order<'a> {
    /// The service, prepared before.
    pub service: &'a Service,
    /// Processors.
    pub vcpus: u32,
    /// Memory of the guest, or the limit.
    pub memory_bytes: u64,
    /// The processors of the host it may use, if it is pinned.
    pub pin: Option<Vec<usize>>,
    /// Its place in the network.
    pub link: &'a Link,
    /// A name that no other instance of this run has, fit for file names and interface names (at most 11 letters).
    pub name: &'a str,
    /// A folder for its files, empty; removed by the caller.
    pub folder: PathBuf,
}

/// A started service. Dropping it ends it and removes all it left: processes, cgroups, mounts, namespaces.
pub trait Instance: Send {
    /// The command lines that started it, as a person would type them.
    fn commands(&self) -> Vec<String>;

    /// Where it is reached.
    fn address(&self) -> IpAddr;

    /// How it ended, if it did.
    fn ended(&mut self) -> Option<Ended>;

    /// Its processes on the host, for the meter. Threads need not be listed.
    fn processes(&self) -> Processes;

    /// What it wrote on standard output since the start (also of `batch` programs).
    fn output(&mut self) -> String;

    /// Output and errors, of the platform too, for a failure.
    fn log(&mut self) -> String;

    /// Ends it in order, within `grace`; then by force.
    fn stop(self: Box<Self>, grace: Duration) -> Result<Option<Ended>>;

    /// Counters the guest itself reports over its control channel, by name ("boot.kernel_ms", "exits" ...); empty elsewhere.
    fn counters(&mut self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code, 128+n for a signal; none if the platform cannot tell.
    pub code: Option<i32>,
    /// In words.
    pub reason: String,
}

/// Processes on the host by their part.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// The application's own (host, container) or the VMM (VM, unikernel).
    pub payload: Vec<u32>,
    /// The container runtime's or monitor's, which are counted and shown apart.
    pub runtime: Vec<u32>,
    /// Guest memory of a VMM, to tell its mapping from the VMM's own.
    pub guest_memory_bytes: Option<u64>,
    /// The control group that has the payload and nothing else, where there is one: it also knows processes that have ended.
    pub cgroup: Option<PathBuf>,
}

/// How often it is looked whether an instance has ended.
const END_PERIOD: Duration = Duration::from_millis(2);

/// The substrate of what runs without a VMM.
const HOST: &str = "host";

/// A way to make a platform.
type Make = fn() -> Result<Box<dyn Platform>>;

/// The platforms by name, in the order of tables. `container` may name its runtime: `container:crun`.
const PLATFORMS: &[(&str, Make)] = &[
    ("process", || Ok(Box::new(process::Process::find()?))),
    ("container", || {
        Ok(Box::new(container::Container::find("container")?))
    }),
    ("gvisor", || Ok(Box::new(container::Container::gvisor()?))),
    ("linux-vm", || Ok(Box::new(linux_vm::LinuxVm::find()?))),
    ("linux-vm-container", || {
        Ok(Box::new(linux_vm::LinuxVm::with_container()?))
    }),
    ("unikernel", || Ok(Box::new(unikernel::Unikernel::find()?))),
];

/// The names of all platforms.
#[must_use]
pub fn names() -> Vec<&'static str> {
    PLATFORMS.iter().map(|(name, _)| *name).collect()
}

/// The images of others that are described below `base`, as platforms: `image:NAME`.
#[must_use]
pub fn image_names(base: &Path) -> Vec<String> {
    image::names(base)
}

/// The platform of that name. `base`: the folder that holds `experiments/`.
///
/// # Errors
/// [`Error::Input`] for a name that is unknown, with the nearest known one; [`Error::Host`] when this host lacks what the
/// platform needs, with what to do.
pub fn find(name: &str, base: &Path) -> Result<Box<dyn Platform>> {
    if name.starts_with(image::PREFIX) {
        return Ok(Box::new(image::OtherImage::find(name, base)?));
    }
    if name.starts_with("container:") {
        return Ok(Box::new(container::Container::find(name)?));
    }
    match PLATFORMS.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => make(),
        None => Err(Error::Input(unknown("platform", name, &names()))),
    }
}

/// What [`Platform::prepare`] kept for a service.
fn prepared<'a, T>(kept: &'a BTreeMap<String, T>, service: &Service) -> Result<&'a T> {
    kept.get(&service.name)
        .ok_or_else(|| Error::Input(format!("the service {} was not prepared", service.name)))
}

fn wrong_link(platform: &str) -> Error {
    Error::Input(format!(
        "{platform}: a place in the network of the wrong kind"
    ))
}

/// The name of an instance's control group: of this process, so that a later run knows whether it still lives.
fn cgroup_name(order: &Order<'_>) -> String {
    format!(
        "{}{}-{}",
        crate::network::PREFIX,
        std::process::id(),
        order.name
    )
}

/// The processors a service of the host is bound to: as many as it has vCPUs, of those it may use. Instances without a pin
/// take turns, so that many of them use all.
fn processors(order: &Order<'_>) -> Result<Vec<usize>> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let own = nix::unistd::Pid::from_raw(0);
    let (all, from) = match &order.pin {
        Some(pin) => (pin.clone(), 0),
        None => {
            let set = nix::sched::sched_getaffinity(own)
                .map_err(|error| Error::Host(format!("sched_getaffinity: {error}")))?;
            let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
            let all: Vec<usize> = (0..nix::sched::CpuSet::count()).filter(is_set).collect();
            let from = TURN.fetch_add(1, Ordering::Relaxed) % all.len().max(1);
            (all, from)
        }
    };
    let wanted = usize::try_from(order.vcpus).unwrap_or(usize::MAX);
    let mut chosen: Vec<usize> = all
        .iter()
        .cycle()
        .skip(from)
        .take(wanted.min(all.len()))
        .copied()
        .collect();
    chosen.sort_unstable();
    Ok(chosen)
}

/// Files in the instance's folder for what a program writes: `NAME.stdout` and `NAME.stderr`.
fn streams(folder: &Path, name: &str) -> Result<(File, File)> {
    let create = |end: &str| {
        let path = folder.join(format!("{name}.{end}"));
        File::create(&path).map_err(Error::file(path))
    };
    Ok((create("stdout")?, create("stderr")?))
}

/// How an instance that was asked to end did so within `grace`, if it did.
fn end_within(instance: &mut dyn Instance, grace: Duration) -> Option<Ended> {
    let deadline = Instant::now() + grace;
    loop {
        if let Some(ended) = instance.ended() {
            return Some(ended);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(END_PERIOD);
    }
}

/// Ends a child at once and takes its status.
fn end_child(child: &mut Child) {
    // One that has ended needs no signal; then both say so.
    drop(child.kill());
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn an_unknown_platform_names_the_nearest() {
        let error = find("linuxvm", std::path::Path::new("/")).err().unwrap();
        assert!(error.to_string().contains("\"linux-vm\"?"), "{error}");
    }
}
