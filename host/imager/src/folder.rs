// SPDX-License-Identifier: Apache-2.0
//! A folder of the host as a tree: everything in it, with owners, modes, times, links and extended attributes as they are.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::erofs::{Data, Writer};
use crate::tree::{DeviceNumber, Inode, Kind, Meta, Tree, TreeError, Xattrs};

/// Why a folder cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
    /// A file no tree can have.
    #[error("{}: {source}", path.display())]
    Tree {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TreeError,
    },
}

/// Takes in the folder at `path`; its contents go to `image`.
///
/// # Errors
/// [`FolderError`]; an error of writing is one of the file that was being copied.
pub fn read<W: Write + Seek>(
    path: &Path,
    image: &mut Writer<W>,
) -> Result<Tree<Data>, FolderError> {
    let mut tree = Tree::default();
    // Names of files with several, by device and inode.
    let mut known = HashMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(relative) = todo.pop() {
        let source = path.join(&relative);
        let failed = |error| FolderError::Read {
            path: source.clone(),
            source: error,
        };
        let unfit = |error| FolderError::Tree {
            path: source.clone(),
            source: error,
        };
        // The folder itself may be given through a link.
        let meta = match relative.as_os_str().is_empty() {
            true => fs::metadata(&source),
            false => fs::symlink_metadata(&source),
        };
        let meta = meta.map_err(failed)?;
        let name = relative.as_os_str().as_bytes();
        if !meta.is_dir() && meta.nlink() > 1 {
            let first = known.entry((meta.dev(), meta.ino()));
            let first: &Path = first.or_insert_with(|| relative.clone());
            if first != relative {
                let target = first.as_os_str().as_bytes();
                tree.link(name, target).map_err(unfit)?;
                continue;
            }
        }
        let inode = Inode {
            meta: inode_meta(&meta),
            xattrs: xattrs(&source).map_err(failed)?,
            kind: kind(&source, &meta, image).map_err(failed)?,
        };
        tree.add(name, inode).map_err(unfit)?;
        if meta.is_dir() {
            let entries = fs::read_dir(&source).map_err(failed)?;
            let names = entries.map(|entry| entry.map(|entry| relative.join(entry.file_name())));
            let mut names = names.collect::<io::Result<Vec<_>>>().map_err(failed)?;
            // Popped in the order of their names, whatever order the host has.
            names.sort_unstable_by(|a, b| b.cmp(a));
            todo.extend(names);
        }
    }
    Ok(tree)
}

fn inode_meta(meta: &Metadata) -> Meta {
    Meta {
        permissions: u16::try_from(meta.mode() & 0o7777).unwrap_or_default(),
        uid: meta.uid(),
        gid: meta.gid(),
        mtime_s: meta.mtime(),
        mtime_ns: u32::try_from(meta.mtime_nsec()).unwrap_or_default(),
    }
}

fn kind<W: Write + Seek>(
    source: &Path,
    meta: &Metadata,
    image: &mut Writer<W>,
) -> io::Result<Kind<Data>> {
    let kind = meta.file_type();
    let device = DeviceNumber {
        major: rustix::fs::major(meta.rdev()),
        minor: rustix::fs::minor(meta.rdev()),
    };
    Ok(if kind.is_dir() {
        Kind::Directory(Default::default())
    } else if kind.is_symlink() {
        Kind::Symlink(fs::read_link(source)?.as_os_str().as_bytes().to_vec())
    } else if kind.is_char_device() {
        Kind::Character(device)
    } else if kind.is_block_device() {
        Kind::Block(device)
    } else if kind.is_fifo() {
        Kind::Fifo
    } else if kind.is_socket() {
        Kind::Socket
    } else {
        Kind::File(image.data(meta.len(), File::open(source)?)?)
    })
}

fn xattrs(source: &Path) -> io::Result<Xattrs> {
    let names = match xattr::list(source) {
        Ok(names) => names,
        // Not every file system has them.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(Xattrs::new()),
        Err(error) => return Err(error),
    };
    let mut found = Xattrs::new();
    for name in names {
        if let Some(value) = xattr::get(source, &name)? {
            found.insert(name.as_bytes().to_vec(), value);
        }
    }
    Ok(found)
}
