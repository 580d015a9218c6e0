// SPDX-License-Identifier: Apache-2.0
//! The name space: one tree of mounted file systems, and the calls that act on paths.
//!
//! A [`Place`] is an inode seen through a mount; every walk starts at one and ends at one. There is no cache of names:
//! all file systems are in memory and their directories are the cache.

mod file;
pub(crate) mod inode;
mod mount;
mod names;
mod open;
mod walk;

pub use file::VnodeFile;
pub(crate) use inode::check_extended_name;
pub use inode::{
    AttributeChange, Inode, Kind, Named, NewKind, NewNode, Rename, SetExtended, Target, same_inode,
};
pub use mount::{FileSystem, FsStatus, Mount, MountOptions, Place};
pub use open::{OpenRequest, Resolve};
pub use walk::Follow;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use coracle_core::file::File;
use coracle_core::sync::SpinLock;

use crate::Result;

/// Opens devices of one device number.
pub trait DeviceDriver: Send + Sync {
    /// The object behind a descriptor that was opened with `flags` (open(2)).
    fn open(&self, flags: u32) -> Result<Arc<dyn File>>;
}

/// The name space and what its device files mean.
pub struct Vfs {
    root: Place,
    mounts: SpinLock<Vec<Arc<Mount>>>,
    next_mount: AtomicU32,
    /// Something is mounted on a file: files are looked for in the list of mounts too.
    has_file_mounts: AtomicBool,
    devices: SpinLock<Vec<(u64, Arc<dyn DeviceDriver>)>>,
    running: SpinLock<Vec<Arc<dyn Inode>>>,
}

impl Vfs {
    /// A name space whose root directory is the root of `file_system`.
    #[must_use]
    pub fn new(file_system: Arc<dyn FileSystem>, options: MountOptions) -> Self {
        let mount = Mount::new(1, file_system, options, None, None);
        let root = Place {
            inode: mount.root().clone(),
            mount: mount.clone(),
        };
        Self {
            root,
            mounts: SpinLock::new(alloc::vec![mount]),
            next_mount: AtomicU32::new(2),
            has_file_mounts: AtomicBool::new(false),
            devices: SpinLock::new(Vec::new()),
            running: SpinLock::new(Vec::new()),
        }
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> &Place {
        &self.root
    }

    /// Makes `file_system` visible at the directory `at`, hiding what is there. `ENOTDIR` if either is none.
    pub fn mount(
        &self,
        at: &Place,
        file_system: Arc<dyn FileSystem>,
        options: MountOptions,
    ) -> Result<()> {
        let is_directory = |inode: &Arc<dyn Inode>| inode.kind() == Kind::Directory;
        if !is_directory(&at.inode) || !is_directory(&file_system.root()) {
            return Err(crate::Errno::ENOTDIR);
        }
        self.add_mount(at.clone(), None, file_system, options);
        Ok(())
    }

    /// Makes a file, the root of `file_system`, visible under a name that means a file. `EISDIR` if either is none.
    pub fn mount_file(
        &self,
        directory: &Place,
        name: &[u8],
        file_system: Arc<dyn FileSystem>,
        options: MountOptions,
    ) -> Result<()> {
        let at = self.enter(directory, name)?;
        let is_directory = |inode: &Arc<dyn Inode>| inode.kind() == Kind::Directory;
        if is_directory(&at.inode) || is_directory(&file_system.root()) {
            return Err(crate::Errno::EISDIR);
        }
        let named = Some((directory.clone(), name.to_vec()));
        self.add_mount(at, named, file_system, options);
        self.has_file_mounts.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn add_mount(
        &self,
        at: Place,
        named: Option<(Place, Vec<u8>)>,
        file_system: Arc<dyn FileSystem>,
        options: MountOptions,
    ) {
        let id = self.next_mount.fetch_add(1, Ordering::Relaxed);
        let mount = Mount::new(id, file_system, options, Some(at), named);
        self.mounts.lock().push(mount);
    }

    /// All mounts in the order in which they were made.
    #[must_use]
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        self.mounts.lock().clone()
    }

    /// Says what device files with this number open (see [`device_number`]). The first registration wins.
    pub fn register_device(&self, number: u64, driver: Arc<dyn DeviceDriver>) {
        self.devices.lock().push((number, driver));
    }

    /// Says which files are being executed now: they are not opened for writing (`ETXTBSY`, open(2)).
    pub fn set_running(&self, files: Vec<Arc<dyn Inode>>) {
        let before = core::mem::replace(&mut *self.running.lock(), files);
        drop(before);
    }

    /// `ETXTBSY` if the file is being executed.
    pub fn check_not_running(&self, inode: &Arc<dyn Inode>) -> Result<()> {
        let is_running = self.running.lock().iter().any(|r| same_inode(r, inode));
        if is_running {
            return Err(crate::Errno::ETXTBSY);
        }
        Ok(())
    }

    /// Opens the device; `ENXIO` if there is none.
    fn open_device(&self, number: u64, flags: u32) -> Result<Arc<dyn File>> {
        let driver = self
            .devices
            .lock()
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, driver)| driver.clone());
        driver.ok_or(crate::Errno::ENXIO)?.open(flags)
    }
}

/// A device number as `stat(2)` reports it (makedev(3)).
#[must_use]
pub const fn device_number(major: u32, minor: u32) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    ((major & 0xffff_f000) << 32)
        | ((major & 0xfff) << 8)
        | ((minor & 0xffff_ff00) << 12)
        | (minor & 0xff)
}

/// The major part of a device number (major(3)).
#[must_use]
pub const fn device_major(number: u64) -> u32 {
    coracle_abi::convert::low_u32(((number >> 32) & 0xffff_f000) | ((number >> 8) & 0xfff))
}

/// The minor part of a device number (minor(3)).
#[must_use]
pub const fn device_minor(number: u64) -> u32 {
    coracle_abi::convert::low_u32(((number >> 12) & 0xffff_ff00) | (number & 0xff))
}

#[cfg(test)]
mod tests;
