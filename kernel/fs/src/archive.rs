// SPDX-License-Identifier: Apache-2.0
//! The root file system from the boot module: a cpio archive becomes a file system in memory whose files refer to the
//! archive's bytes where they lie (decision 0001).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use coracle_core::memory::Page;
use coracle_loader::cpio::{Archive, CpioError, Entry};

use crate::tmpfs::{StaticBytes, TmpFs};
use crate::vfs::{AttributeChange, FileSystem, Inode, Kind, NewKind, NewNode, device_number};
use crate::{Errno, Result};

/// Why an archive cannot be the root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveError {
    /// The archive is damaged.
    Damaged(CpioError),
    /// An entry cannot be made: its path, and why.
    Entry(Vec<u8>, Errno),
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(error) => error.fmt(f),
            Self::Entry(path, error) => {
                write!(f, "archive entry {}: {error}", path.escape_ascii())
            }
        }
    }
}

impl core::error::Error for ArchiveError {}

impl From<CpioError> for ArchiveError {
    fn from(error: CpioError) -> Self {
        Self::Damaged(error)
    }
}

/// Fills `fs` with the entries of `archive` whose path begins with `prefix` (for example `rootfs/`). Directories that
/// are missing from the archive get mode 0755. `page` gives pages of the archive, as in [`StaticBytes::page`].
pub fn unpack(
    fs: &TmpFs,
    archive: &'static [u8],
    prefix: &[u8],
    page: fn(&'static [u8]) -> Option<Page>,
) -> Result<(), ArchiveError> {
    let archive = Archive::new(archive);
    // Names of one file find each other by its number in the archive.
    let mut linked: BTreeMap<((u32, u32), u32), Arc<dyn Inode>> = BTreeMap::new();
    let mut directories: Vec<(Arc<dyn Inode>, u32)> = Vec::new();
    for entry in archive.entries()? {
        let name = entry.name.strip_prefix(b"./").unwrap_or(entry.name);
        let Some(path) = name.strip_prefix(prefix) else {
            continue;
        };
        let content = StaticBytes {
            bytes: archive.data(&entry),
            page,
        };
        let id = (entry.dev, entry.ino);
        let is_linked = entry.nlink > 1 && entry.is_file();
        let first = linked.get(&id).filter(|_| is_linked);
        let made = add(fs, path, &entry, content, first)
            .map_err(|error| ArchiveError::Entry(entry.name.to_vec(), error))?;
        if is_linked {
            linked.insert(id, made.clone());
        }
        if made.kind() == Kind::Directory {
            directories.push((made, entry.mtime_s));
        }
    }
    // Filling a directory changed its time.
    for (directory, mtime_s) in directories {
        let _ = directory.change(&times(mtime_s));
    }
    Ok(())
}

fn times(mtime_s: u32) -> AttributeChange {
    let ns = u64::from(mtime_s) * 1_000_000_000;
    AttributeChange {
        accessed_ns: Some(ns),
        modified_ns: Some(ns),
        ..AttributeChange::default()
    }
}

/// Makes one entry, or finds it if it is a directory that exists.
fn add(
    fs: &TmpFs,
    path: &[u8],
    entry: &Entry<'_>,
    content: StaticBytes,
    first: Option<&Arc<dyn Inode>>,
) -> Result<Arc<dyn Inode>> {
    let mut names: Vec<&[u8]> = path
        .split(|b| *b == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .collect();
    if names.contains(&&b".."[..]) {
        return Err(Errno::EINVAL);
    }
    let attributes = AttributeChange {
        mode: Some(entry.mode & 0o7777),
        uid: Some(entry.uid),
        gid: Some(entry.gid),
        ..times(entry.mtime_s)
    };
    let Some(name) = names.pop() else {
        let root = fs.root();
        root.change(&attributes)?;
        return Ok(root);
    };
    let mut directory = fs.root();
    for parent in names {
        directory = match directory.lookup(parent) {
            Ok(found) => found,
            Err(Errno::ENOENT) => directory.create(parent, &missing_directory())?,
            Err(error) => return Err(error),
        };
    }
    let kind = match Kind::from_mode(entry.mode).ok_or(Errno::EINVAL)? {
        Kind::File => NewKind::File,
        Kind::Directory => NewKind::Directory,
        Kind::Symlink => NewKind::Symlink(content.bytes),
        Kind::CharDevice => NewKind::CharDevice(device_number(entry.rdev.0, entry.rdev.1)),
        Kind::BlockDevice => NewKind::BlockDevice(device_number(entry.rdev.0, entry.rdev.1)),
        Kind::Fifo => NewKind::Fifo,
        Kind::Socket => NewKind::Socket,
    };
    if kind.kind() == Kind::Directory
        && let Ok(found) = directory.lookup(name)
        && found.kind() == Kind::Directory
    {
        found.change(&attributes)?;
        return Ok(found);
    }
    if let Some(first) = first {
        directory.link(name, first)?;
        return Ok(first.clone());
    }
    let node = NewNode {
        kind,
        mode: entry.mode & 0o7777,
        uid: entry.uid,
        gid: entry.gid,
    };
    let made: Arc<dyn Inode> = match kind {
        NewKind::File => fs.add_static_file(&directory, name, &node, content)?,
        _ => directory.create(name, &node)?,
    };
    made.change(&times(entry.mtime_s))?;
    Ok(made)
}

fn missing_directory() -> NewNode<'static> {
    NewNode {
        kind: NewKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
    }
}

#[cfg(test)]
mod tests;
