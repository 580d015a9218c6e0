// SPDX-License-Identifier: Apache-2.0
//! What an empty volume begins with: owner, permissions and content of the directory that it is mounted on, as container
//! runtimes do it. So a program that is not root can write to its new volume, and finds what its image has there.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use coracle_abi::raw::general as g;
use coracle_core::file::Metadata;
use coracle_core::io::{IoDst, IoSrc};

use crate::vfs::{AttributeChange, FileSystem, Inode, Kind, NewKind, NewNode};
use crate::{Errno, Result};

/// Bytes that are copied at a time.
const PIECE: usize = 64 << 10;

/// Gives `volume` what is in `directory`, if nothing is in the volume yet. Names of one file become files of their own;
/// devices, pipes and sockets are left out. Waits for both file systems. It is not synced, since that would delay the
/// start: it reaches the disk before anything that the program syncs. A guest that is killed before leaves the volume empty
/// or, if there was more to copy than is kept in memory, with a part of it.
///
/// # Errors
/// Those of both file systems, `ENOSPC` above all.
pub fn populate(volume: &dyn FileSystem, directory: &Arc<dyn Inode>) -> Result<()> {
    let root = volume.root();
    let is_used = |name: &Vec<u8>| name != b"lost+found";
    if names(&root)?.iter().any(is_used) {
        return Ok(());
    }
    let mut buffer = vec![0; PIECE];
    // A stack of its own: an image may nest its folders deeply.
    let mut open = vec![(directory.clone(), root)];
    while let Some((from, to)) = open.pop() {
        for name in names(&from)? {
            let child = from.lookup(&name)?;
            let metadata = child.metadata()?;
            match child.kind() {
                Kind::Directory => {
                    let copy = create(&to, &name, NewKind::Directory, &metadata)?;
                    open.push((child, copy));
                }
                Kind::File => {
                    let copy = create(&to, &name, NewKind::File, &metadata)?;
                    content(&child, &copy, &mut buffer)?;
                    copy.change(&times(&metadata))?;
                }
                Kind::Symlink => {
                    let text = child.read_link()?;
                    create(&to, &name, NewKind::Symlink(&text), &metadata)?;
                }
                Kind::CharDevice | Kind::BlockDevice | Kind::Fifo | Kind::Socket => {}
            }
        }
        // Behind the content, which changes the times.
        let metadata = from.metadata()?;
        to.change(&AttributeChange {
            mode: Some(metadata.mode & 0o7777),
            uid: Some(metadata.uid),
            gid: Some(metadata.gid),
            ..times(&metadata)
        })?;
    }
    Ok(())
}

fn create(
    to: &Arc<dyn Inode>,
    name: &[u8],
    kind: NewKind<'_>,
    metadata: &Metadata,
) -> Result<Arc<dyn Inode>> {
    let node = NewNode {
        kind,
        mode: metadata.mode & 0o7777,
        uid: metadata.uid,
        gid: metadata.gid,
    };
    to.create(name, &node)
}

fn times(metadata: &Metadata) -> AttributeChange {
    AttributeChange {
        modified_ns: Some(metadata.modified_ns),
        ..AttributeChange::default()
    }
}

fn content(from: &Arc<dyn Inode>, to: &Arc<dyn Inode>, buffer: &mut [u8]) -> Result<()> {
    let (from, to) = (
        from.clone().open(g::O_RDONLY)?,
        to.clone().open(g::O_WRONLY)?,
    );
    let mut at = 0;
    loop {
        let count = from.read_at(at, &mut IoDst::kernel(buffer))?;
        let mut rest = buffer.get(..count).ok_or(Errno::EIO)?;
        if rest.is_empty() {
            return Ok(());
        }
        while !rest.is_empty() {
            let (written, _) = to.write_at(at, false, &mut IoSrc::kernel(rest))?;
            rest = rest
                .get(written..)
                .filter(|_| written > 0)
                .ok_or(Errno::EIO)?;
            at += written as u64;
        }
    }
}

/// What a directory has, without itself and its parent.
fn names(directory: &Arc<dyn Inode>) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let open = directory.clone().open(g::O_RDONLY | g::O_DIRECTORY)?;
    let mut next = 0;
    loop {
        let before = next;
        open.read_directory(next, &mut |entry| {
            next = entry.next;
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        if next == before {
            return Ok(names);
        }
    }
}
