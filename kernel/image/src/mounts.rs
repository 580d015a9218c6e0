// SPDX-License-Identifier: Apache-2.0
//! What the configuration mounts besides the root: shares of the host, disks, memory.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use coracle_abi::Errno;
use coracle_core::Result;
use coracle_core::device::{BlockDevice, ShareDevice};
use coracle_core::exit::{ExitReason, end_process};
use coracle_fs::ext::{Volume, VolumeOptions};
use coracle_fs::ninep::NinepFs;
use coracle_fs::populate::populate;
use coracle_fs::tmpfs::TmpFs;
use coracle_fs::vfs::{
    FileSystem, Follow, Kind, MountOptions, NewKind, NewNode, Place, Vfs, device_number,
};
use coracle_loader::config::{MountConfig, MountKind};

/// Exit status of a guest that cannot be set up (docs/guide.md).
const CANNOT_START: u8 = 125;
/// Major device number of virtio disks, as it usually is on Linux.
const DISK_MAJOR: u32 = 254;

/// Mounts everything, in order. Ends the machine with one line if something cannot be mounted: a program must not run
/// without its volume.
pub(crate) fn mount_all(
    vfs: &Vfs,
    mounts: &[MountConfig],
    shares: &[Arc<dyn ShareDevice>],
    disks: &[Arc<dyn BlockDevice>],
    memory_limit: u64,
) {
    for mount in mounts {
        let options = MountOptions {
            read_only: mount.read_only,
        };
        let made = match &mount.kind {
            MountKind::Ext { device } => volume(device, mount.read_only, disks, memory_limit),
            kind => file_system(kind, shares, memory_limit).map_err(|error| error.to_string()),
        };
        let put = |fs: Arc<dyn FileSystem>| {
            let path = mount.destination.as_bytes();
            if fs.root().kind() == Kind::Directory {
                let place = reach(vfs, path)?;
                if matches!(mount.kind, MountKind::Ext { .. }) && !mount.read_only {
                    populate(&*fs, &place.inode)?;
                }
                return vfs.mount(&place, fs, options);
            }
            let (directory, name) = split(path);
            let directory = reach(vfs, directory)?;
            make(vfs, &directory, name, NewKind::File)?;
            vfs.mount_file(&directory, name, fs, options)
        };
        let done = made.and_then(|fs| put(fs).map_err(|error| error.to_string()));
        if let Err(error) = done {
            let line = format!(
                "cannot mount {} at {}: {error}",
                describe(&mount.kind),
                mount.destination
            );
            end_process(ExitReason::Exec(CANNOT_START, line));
        }
    }
}

fn describe(kind: &MountKind) -> String {
    match kind {
        MountKind::Share { tag, .. } => format!("the share {tag}"),
        MountKind::Ext { device } => format!("the disk {device}"),
        MountKind::Memory { .. } => "a file system in memory".into(),
    }
}

fn file_system(
    kind: &MountKind,
    shares: &[Arc<dyn ShareDevice>],
    memory_limit: u64,
) -> Result<Arc<dyn FileSystem>> {
    match kind {
        MountKind::Share { tag, file } => {
            let device = shares.iter().find(|share| share.tag() == tag);
            let fs = NinepFs::mount(device.ok_or(Errno::ENODEV)?.clone())?;
            match file {
                Some(name) => fs.only_file(name.as_bytes()),
                None => Ok(fs),
            }
        }
        // By `volume`, which has more to say.
        MountKind::Ext { .. } => Err(Errno::ENODEV),
        MountKind::Memory { size_bytes, mode } => Ok(TmpFs::new(
            size_bytes.unwrap_or(memory_limit).min(memory_limit),
            *mode,
        )),
    }
}

/// The volume on a disk such as `/dev/vdb`.
fn volume(
    device: &str,
    read_only: bool,
    disks: &[Arc<dyn BlockDevice>],
    memory_limit: u64,
) -> Result<Arc<dyn FileSystem>, String> {
    let number = match device.strip_prefix("/dev/vd").map(str::as_bytes) {
        Some([letter @ b'a'..=b'z']) => letter - b'a',
        _ => return Err("it is not a disk such as /dev/vda".into()),
    };
    let disk = disks
        .get(usize::from(number))
        .ok_or("the machine has no such disk")?;
    let options = VolumeOptions {
        read_only,
        // With what programs keep in memory besides, all of it is still there for them.
        cache_bytes: memory_limit / 4,
        device_number: device_number(DISK_MAJOR, u32::from(number) * 16),
    };
    match Volume::mount(disk.clone(), &options) {
        Ok(volume) => Ok(volume),
        Err(error) => Err(error.to_string()),
    }
}

/// The place of a directory. What is missing on the way is made, also in a root that is mounted read-only.
fn reach(vfs: &Vfs, path: &[u8]) -> Result<Place> {
    let names = path.split(|byte| *byte == b'/');
    names
        .filter(|name| !name.is_empty())
        .try_fold(vfs.root().clone(), |here, name| {
            make(vfs, &here, name, NewKind::Directory)
        })
}

/// The entry of that name, which is made if it is missing.
fn make(vfs: &Vfs, here: &Place, name: &[u8], kind: NewKind<'_>) -> Result<Place> {
    let mode = match kind {
        NewKind::Directory => 0o755,
        _ => 0o644,
    };
    let node = NewNode {
        kind,
        mode,
        uid: 0,
        gid: 0,
    };
    match vfs.resolve(here, name, Follow::Yes) {
        Err(Errno::ENOENT) => Ok(Place {
            inode: here.inode.create(name, &node)?,
            mount: here.mount.clone(),
        }),
        found => found,
    }
}

/// The directory's path and the last name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |at| at + 1);
    let path = &path[..end];
    let start = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    path.split_at(start)
}
