// SPDX-License-Identifier: Apache-2.0

//! Ways to run an image. Each states its substrate; platforms are compared within one.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Result;
use crate::experiment::Service;
use crate::network::{Kind, Link};
use crate::record::PlatformFacts;

/// A way to run an image.
pub trait Platform {
    /// The name in experiments: "process", "container", "gvisor", "linux-vm", "linux-vm-container", "unikernel", "image:NAME".
    fn name(&self) -> &str;

    /// What it is, for the record.
    fn facts(&self) -> PlatformFacts;

    /// What it is attached to the network by.
    fn attachment(&self) -> Kind;

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
pub trait Instance {
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
    fn counters(&mut self) -> std::collections::BTreeMap<String, f64> {
        std::collections::BTreeMap::new()
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
}
