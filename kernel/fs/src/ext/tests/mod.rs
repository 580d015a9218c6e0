// SPDX-License-Identifier: Apache-2.0
//! Volumes on a disk in memory: what programs see, what e2fsck says, and what is left after a crash.

mod crash;
mod damage;
mod disk;
mod files;

use alloc::sync::Arc;

use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};

use super::{Volume, VolumeOptions};
use crate::vfs::{
    FileSystem, Follow, MountOptions, NewKind, NewNode, OpenRequest, Rename, Vfs, VnodeFile,
};
use crate::{Errno, Result};
use disk::Disk;

const OPTIONS: VolumeOptions = VolumeOptions {
    read_only: false,
    cache_bytes: 1 << 20,
    device_number: 7,
};

/// A mounted volume that is forgotten when it goes, as when the machine ends; what was not written is lost.
struct Mounted {
    volume: Arc<Volume>,
    vfs: Option<Vfs>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.vfs = None;
        self.volume.forget();
    }
}

fn mount(disk: &Arc<Disk>) -> Mounted {
    mount_with(disk, &OPTIONS)
}

fn mount_with(disk: &Arc<Disk>, options: &VolumeOptions) -> Mounted {
    let volume = Volume::mount(disk.clone(), options).unwrap();
    let mount_options = MountOptions {
        read_only: options.read_only,
    };
    let vfs = Some(Vfs::new(volume.clone(), mount_options));
    Mounted { volume, vfs }
}

impl Mounted {
    fn vfs(&self) -> &Vfs {
        self.vfs.as_ref().unwrap()
    }

    fn open(&self, path: &str, flags: u32) -> Result<Arc<OpenFile>> {
        let request = OpenRequest {
            mode: 0o644,
            ..OpenRequest::new(flags)
        };
        self.vfs()
            .open(self.vfs().root(), path.as_bytes(), &request)
    }

    fn create(&self, path: &str) -> Arc<OpenFile> {
        self.open(path, g::O_RDWR | g::O_CREAT).unwrap()
    }

    fn make(&self, path: &str, kind: NewKind<'_>) -> Result<()> {
        let node = NewNode {
            kind,
            mode: 0o755,
            uid: 1,
            gid: 2,
        };
        self.vfs()
            .create(self.vfs().root(), path.as_bytes(), &node)
            .map(drop)
    }

    fn put(&self, path: &str, content: &[u8]) -> Result<()> {
        let open = self.open(path, g::O_RDWR | g::O_CREAT | g::O_TRUNC)?;
        write(&open, 0, content).map(drop)
    }

    fn get(&self, path: &str) -> Result<Vec<u8>> {
        let open = self.open(path, g::O_RDONLY)?;
        let mut content = vec![0; usize::try_from(open.file().metadata()?.size).unwrap()];
        let count = open.file().read_at(0, &mut IoDst::kernel(&mut content))?;
        content.truncate(count);
        Ok(content)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.vfs().unlink(self.vfs().root(), path.as_bytes())
    }

    fn rename(&self, from: &str, to: &str, how: Rename) -> Result<()> {
        let root = self.vfs().root();
        self.vfs()
            .rename((root, from.as_bytes()), (root, to.as_bytes()), how)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let open = self.open(path, g::O_RDONLY | g::O_DIRECTORY).unwrap();
        let mut names = Vec::new();
        open.file()
            .read_directory(0, &mut |entry| {
                names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                true
            })
            .unwrap();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }
}

fn write(open: &OpenFile, at: u64, content: &[u8]) -> Result<usize> {
    let mut done = 0;
    while done < content.len() {
        let mut src = IoSrc::kernel(&content[done..]);
        let (count, _) = open.file().write_at(at + done as u64, false, &mut src)?;
        assert!(count > 0);
        done += count;
    }
    Ok(done)
}

fn sync(open: &OpenFile) {
    open.file().sync().unwrap();
}

/// Bytes that differ from place to place and from seed to seed.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
