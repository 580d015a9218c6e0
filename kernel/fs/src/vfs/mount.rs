// SPDX-License-Identifier: Apache-2.0
//! File systems and where they are visible.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::inode::{Inode, same_inode};
use crate::{Errno, Result};

/// What `statfs(2)` reports of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStatus {
    /// `*_MAGIC` number.
    pub magic: u32,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// All blocks; 0 if there is no limit.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// All inodes; 0 if there is no limit.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// A file system that can be mounted.
pub trait FileSystem: Send + Sync {
    /// The type's name in `/proc/mounts`.
    fn type_name(&self) -> &'static str;

    /// What is mounted, in `/proc/mounts`: a device, a share; by default the type's name as for file systems without one.
    fn source(&self) -> &str {
        self.type_name()
    }

    /// Options of its own in `/proc/mounts`, each with a comma in front.
    fn options(&self) -> &'static str {
        ""
    }

    /// The root directory, or the only file.
    fn root(&self) -> Arc<dyn Inode>;

    /// Sizes.
    fn status(&self) -> FsStatus;

    /// `syncfs(2)`: returns when all that was written is on stable storage. `EIO`. Nothing to do in memory.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Whether what is written outlives the machine: then the program's end waits for [`FileSystem::settle`].
    fn is_persistent(&self) -> bool {
        false
    }

    /// Leaves the file system as after an orderly end: what was written is where it belongs. Called when the program has
    /// ended. Errors as [`FileSystem::sync`].
    fn settle(&self) -> Result<()> {
        self.sync()
    }
}

/// How a file system is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Changes are refused with `EROFS`.
    pub read_only: bool,
}

/// A file system at its place in the tree.
pub struct Mount {
    id: u32,
    file_system: Arc<dyn FileSystem>,
    root: Arc<dyn Inode>,
    options: MountOptions,
    at: Option<Place>,
    /// For a file that is mounted on a file: the directory and the name, which a file does not know of itself.
    named: Option<(Place, Vec<u8>)>,
}

impl Mount {
    pub(super) fn new(
        id: u32,
        file_system: Arc<dyn FileSystem>,
        options: MountOptions,
        at: Option<Place>,
        named: Option<(Place, Vec<u8>)>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            root: file_system.root(),
            file_system,
            options,
            at,
            named,
        })
    }

    /// A mount that is nowhere in the tree, for objects without a name.
    #[must_use]
    pub fn detached(file_system: Arc<dyn FileSystem>) -> Arc<Self> {
        Self::new(0, file_system, MountOptions::default(), None, None)
    }

    /// Number in `/proc/self/mountinfo` and of `STATX_MNT_ID`.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The file system.
    #[must_use]
    pub fn file_system(&self) -> &Arc<dyn FileSystem> {
        &self.file_system
    }

    /// Its root directory.
    #[must_use]
    pub fn root(&self) -> &Arc<dyn Inode> {
        &self.root
    }

    /// How it is mounted.
    #[must_use]
    pub fn options(&self) -> MountOptions {
        self.options
    }

    /// The absolute path where it is mounted. `ENOENT` if the directory was removed.
    pub fn path(&self) -> Result<Vec<u8>> {
        let Some((directory, name)) = &self.named else {
            return self
                .at
                .as_ref()
                .map_or(Ok(b"/".to_vec()), Place::directory_path);
        };
        let mut path = directory.directory_path()?;
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Ok(path)
    }

    /// The directory or file it hides; `None` for the root of the tree.
    #[must_use]
    pub fn mount_point(&self) -> Option<&Place> {
        self.at.as_ref()
    }
}

/// An object in the tree: an inode, seen through a mount.
#[derive(Clone)]
pub struct Place {
    /// The mount through which it was reached.
    pub mount: Arc<Mount>,
    /// The object.
    pub inode: Arc<dyn Inode>,
}

impl Place {
    /// Whether both are the same object in the same mount.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mount, &other.mount) && same_inode(&self.inode, &other.inode)
    }

    /// `EROFS` if the mount is read-only.
    pub fn check_changeable(&self) -> Result<()> {
        if self.mount.options.read_only {
            return Err(Errno::EROFS);
        }
        Ok(())
    }

    /// Whether this is the root directory of its mount.
    #[must_use]
    pub fn is_mount_root(&self) -> bool {
        same_inode(&self.inode, &self.mount.root)
    }

    /// The directory this directory is in; a root's parent is itself.
    #[must_use]
    pub(super) fn parent(&self) -> Self {
        let mut here = self;
        while here.is_mount_root() {
            match &here.mount.at {
                Some(at) => here = at,
                None => return here.clone(),
            }
        }
        match here.inode.parent() {
            Some((inode, _)) => Self {
                mount: here.mount.clone(),
                inode,
            },
            // A removed directory: there is no way up from it.
            None => here.clone(),
        }
    }

    /// The absolute path of this directory. `ENOENT` if it was removed.
    pub fn directory_path(&self) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut here = self.clone();
        loop {
            if here.is_mount_root() {
                match here.mount.at.clone() {
                    Some(at) => here = at,
                    None => break,
                }
                continue;
            }
            let (inode, name) = here.inode.parent().ok_or(Errno::ENOENT)?;
            names.push(name);
            here.inode = inode;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }
}
