// SPDX-License-Identifier: Apache-2.0
//! `/proc`: what runtimes and libraries read of it (proc(5)).
//!
//! Everything shown is true; what the kernel does not know is left out rather than made up.

mod descriptors;
mod info;
mod kernel;
mod network;
mod process;
mod system;

pub use info::{
    CpuTime, InterfaceInfo, Mapping, ProcInfo, RouteInfo, SignalInfo, SocketFamily, SocketInfo,
    SystemMemory, ThreadInfo,
};

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::raw::general as g;

use crate::Result;
use crate::pseudo::{PseudoFs, Spec};
use crate::vfs::Vfs;

/// The kernel's answers, shared by all files.
type Info = Arc<dyn ProcInfo>;

/// Mounts `/proc`.
pub fn mount(vfs: &Vfs, info: Arc<dyn ProcInfo>) -> Result<()> {
    let fs = PseudoFs::new("proc", g::PROC_SUPER_MAGIC, root(&info));
    crate::dev::mount_at(vfs, b"/proc", fs)
}

/// A file whose text is made from the kernel's answers.
fn text(info: &Info, make: fn(&dyn ProcInfo) -> String) -> Spec {
    let info = info.clone();
    Spec::file(move || make(&*info).into_bytes())
}

/// As [`text`], for bytes.
fn bytes(info: &Info, make: fn(&dyn ProcInfo) -> Vec<u8>) -> Spec {
    let info = info.clone();
    Spec::file(move || make(&*info))
}

/// A link whose text is made from the kernel's answers.
fn link(info: &Info, make: fn(&dyn ProcInfo) -> String) -> Spec {
    let info = info.clone();
    Spec::link(move || make(&*info).into_bytes())
}

fn root(info: &Info) -> Spec {
    Spec::Directory(alloc::vec![
        ("self".into(), link(info, |i| format!("{}", i.pid()))),
        (
            "thread-self".into(),
            link(info, |i| format!("{}/task/{}", i.pid(), i.current_thread())),
        ),
        (format!("{}", info.pid()), process::directory(info)),
        ("cpuinfo".into(), text(info, |i| i.cpu_description())),
        ("meminfo".into(), text(info, system::meminfo)),
        ("stat".into(), text(info, system::stat)),
        ("uptime".into(), text(info, system::uptime)),
        ("loadavg".into(), text(info, system::loadavg)),
        ("version".into(), text(info, system::version)),
        ("filesystems".into(), Spec::constant(system::FILESYSTEMS)),
        ("mounts".into(), Spec::link(|| b"self/mounts".to_vec())),
        ("net".into(), Spec::link(|| b"self/net".to_vec())),
        ("sys".into(), kernel::directory(info)),
    ])
}

#[cfg(test)]
mod tests;
