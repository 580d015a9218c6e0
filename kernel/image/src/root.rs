// SPDX-License-Identifier: Apache-2.0
//! The root file system and the process around the program.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Display;
use core::net::IpAddr;

use coracle_abi::Errno;
use coracle_abi::convert::usize_from_u32;
use coracle_abi::raw::general as g;
use coracle_core::device::{BlockDevice, CharDevice, ShareDevice};
use coracle_core::exit::{ExitReason, end_process};
use coracle_core::file::OpenFile;
use coracle_core::memory::{self, Page};
use coracle_core::vdso;
use coracle_fs::erofs::Erofs;
use coracle_fs::tmpfs::TmpFs;
use coracle_fs::vfs::{Follow, MountOptions, NewKind, NewNode, OpenRequest, Vfs};
use coracle_fs::{archive, dev};
use coracle_loader::config::{BootConfig, RootDisk};
use coracle_syscall::info;
use coracle_syscall::process::Process;

use crate::memory::BootInfo;
use crate::mounts;
use crate::network;

/// Where the root file system lies in the bundle.
const PREFIX: &[u8] = b"rootfs/";
/// Soft limit of descriptors where the configuration has none.
const DESCRIPTORS: u32 = 1 << 20;

fn page(bytes: &'static [u8]) -> Option<Page> {
    memory::static_page(bytes).ok()
}

/// Builds the name space and the process. Stops with a panic if the bundle is damaged, and ends the machine with one
/// line if the root's disk cannot be used.
pub(crate) fn init(
    boot: &BootInfo,
    config: &BootConfig,
    console: Arc<dyn CharDevice>,
    disks: &[Arc<dyn BlockDevice>],
    shares: &[Arc<dyn ShareDevice>],
) {
    // Files may use half of the memory, as a tmpfs on Linux.
    let limit = boot.memory_bytes() / 2;
    let vfs = match config.root_disk {
        Some(disk) => on_disk(config, disk, disks, limit),
        None => in_memory(boot, config, limit),
    };
    let mounted = dev::mount(&vfs, console, limit)
        .and_then(|()| coracle_fs::dev::mount_at(&vfs, b"/tmp", TmpFs::new(limit, 0o1777)))
        .and_then(|()| coracle_syscall::procfs::mount(&vfs))
        .and_then(|()| add_etc(&vfs, config));
    mounted
        .unwrap_or_else(|error| panic!("mounting /dev, /tmp and /proc, and filling /etc: {error}"));
    mounts::mount_all(&vfs, &config.mounts, shares, disks, limit);

    let limit_of = |name: &str| {
        config
            .rlimits
            .iter()
            .find(|(n, ..)| n == name)
            .map(|(_, soft, _)| *soft)
    };
    let descriptors = limit_of("RLIMIT_NOFILE")
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(DESCRIPTORS);
    let process = Process::new(vfs, limit, descriptors);
    process.set_owner(config.uid, config.gid);
    enter_directory(&process, &config.cwd);
    // Input can be read and the outputs written, as in a container without a terminal: so the end of the input is no
    // hang-up of the outputs.
    for access in [g::O_RDONLY, g::O_WRONLY, g::O_WRONLY] {
        let open = process
            .vfs
            .open(
                process.vfs.root(),
                b"/dev/console",
                &OpenRequest::new(access),
            )
            .unwrap_or_else(|error| panic!("/dev/console: {error}"));
        add(&process, open);
    }
    process.install().expect("installed once");
    info::set_identity(config.uid, config.gid);
    info::set_hostname(&config.hostname);
    for (name, soft, hard) in &config.rlimits {
        if let Err(error) = info::set_limit_by_name(name, (*soft, *hard)) {
            log::warn!("{name}: {error}");
        }
    }
    vdso::init().expect("memory for the vDSO");
}

/// The root from the bundle.
fn in_memory(boot: &BootInfo, config: &BootConfig, limit: u64) -> Vfs {
    let root = TmpFs::new(limit, 0o755);
    archive::unpack(&root, boot.bundle, PREFIX, page)
        .unwrap_or_else(|error| panic!("boot module: {error}"));
    ensure_directories(&root);
    let options = MountOptions {
        read_only: config.read_only,
    };
    Vfs::new(root, options)
}

/// The root from an image on a disk, which all its instances share: changes stay in memory.
fn on_disk(config: &BootConfig, disk: RootDisk, disks: &[Arc<dyn BlockDevice>], limit: u64) -> Vfs {
    let number = disk.device;
    let fail = |why: &dyn Display| -> ! {
        let line = alloc::format!("root file system on disk {number}: {why}");
        end_process(ExitReason::Exec(126, line))
    };
    let Some(device) = disks.get(usize_from_u32(number)) else {
        fail(&"the machine has no such disk");
    };
    let image = Erofs::mount(device.clone()).unwrap_or_else(|error| fail(&error));
    let root = TmpFs::over(&*image, limit).unwrap_or_else(|error| fail(&error));
    ensure_directories(&root);
    let options = MountOptions {
        read_only: config.read_only,
    };
    Vfs::new(root, options)
}

/// Mounts `/sys`, which says how many CPUs run.
pub(crate) fn mount_sys() {
    coracle_syscall::procfs::mount_sys().unwrap_or_else(|error| panic!("mounting /sys: {error}"));
}

/// The files in `/etc` that a container runtime writes.
fn add_etc(vfs: &Vfs, config: &BootConfig) -> coracle_core::Result<()> {
    let (addresses, servers): (Vec<IpAddr>, Vec<IpAddr>) = network::known_addresses();
    coracle_fs::etc::add_missing(vfs, &config.hostname, &addresses, &servers)
}

/// Makes the directories on which file systems are mounted, before the root may become read-only.
fn ensure_directories(root: &Arc<TmpFs>) {
    let vfs = Vfs::new(root.clone(), MountOptions::default());
    for (path, mode) in [
        (&b"/dev"[..], 0o755),
        (b"/proc", 0o555),
        (b"/sys", 0o555),
        (b"/tmp", 0o1777),
    ] {
        let node = NewNode {
            kind: NewKind::Directory,
            mode,
            uid: 0,
            gid: 0,
        };
        match vfs.create(vfs.root(), path, &node) {
            Ok(_) | Err(Errno::EEXIST) => {}
            Err(error) => panic!("root file system: {}: {error}", path.escape_ascii()),
        }
    }
}

fn add(process: &Process, open: Arc<OpenFile>) {
    process
        .add_file(open, false)
        .expect("the first three descriptors are free");
}

/// The working directory; as in a container it is made if it is missing.
fn enter_directory(process: &Process, path: &str) {
    let mut prefix = String::new();
    for part in path.split('/').filter(|p| !p.is_empty()) {
        prefix.push('/');
        prefix.push_str(part);
        let node = process.new_node(NewKind::Directory, 0o755);
        // It may be there already; whether the walk succeeds is seen below.
        let _ = process
            .vfs
            .create(process.vfs.root(), prefix.as_bytes(), &node);
    }
    match process
        .vfs
        .resolve(process.vfs.root(), path.as_bytes(), Follow::Yes)
    {
        Ok(place) => *process.cwd.lock() = place,
        Err(error) => log::warn!("working directory {path}: {error}; using /"),
    }
}
