// SPDX-License-Identifier: Apache-2.0
//! What the name space reports. Each function is one look at a counter as long as nothing is watched. The order of the
//! events of one change is that of Linux.
//!
//! An open file knows the name it was opened by, a path that was resolved is forgotten. Where the name is not known or
//! no longer true, the watched directories are searched for the object: there are few, and it is rare.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use coracle_abi::raw::general as g;

use super::{INSTANCES, Inotify, WATCHES};
use crate::vfs::{AttributeChange, Inode, Kind, inode::same_inode};

/// Joins the two events of a move.
static COOKIE: AtomicU32 = AtomicU32::new(0);

/// A directory, and a name in it.
pub(crate) type Entry<'a> = (&'a Arc<dyn Inode>, &'a [u8]);

fn nothing_is_watched() -> bool {
    WATCHES.load(Ordering::Relaxed) == 0
}

/// All instances. The registry's lock is not held while they are told, nor when one of them is dropped.
fn instances() -> Vec<Arc<Inotify>> {
    let registry = INSTANCES.lock();
    registry
        .iter()
        .filter_map(alloc::sync::Weak::upgrade)
        .collect()
}

fn tell(inode: &Arc<dyn Inode>, mask: u32, cookie: u32, name: &[u8]) {
    for instance in instances() {
        instance.tell(inode, mask, cookie, name);
    }
}

fn directory_bit(inode: &Arc<dyn Inode>) -> u32 {
    if inode.kind() == Kind::Directory {
        g::IN_ISDIR
    } else {
        0
    }
}

/// Something happened to `inode`, which may have been opened as `named`.
pub(crate) fn object(inode: &Arc<dyn Inode>, named: Option<Entry<'_>>, mask: u32) {
    if nothing_is_watched() {
        return;
    }
    let mask = mask | directory_bit(inode);
    if inode.kind() == Kind::Directory {
        if let Some((parent, name)) = inode.parent() {
            tell(&parent, mask, 0, &name);
        }
    } else {
        let is_there = |(directory, name): &Entry<'_>| {
            directory
                .lookup(name)
                .is_ok_and(|found| same_inode(&found, inode))
        };
        match named.filter(is_there) {
            Some((directory, name)) => tell(directory, mask, 0, name),
            None => tell_holders(inode, mask),
        }
    }
    tell(inode, mask, 0, b"");
}

/// Tells the watched directories in which the object has a name.
fn tell_holders(inode: &Arc<dyn Inode>, mask: u32) {
    let mut watched: Vec<Arc<dyn Inode>> = Vec::new();
    for instance in instances() {
        let state = instance.state.lock();
        let asked = state
            .watches
            .values()
            .filter(|watch| watch.mask & mask & g::IN_ALL_EVENTS != 0);
        for watch in asked {
            if watch.inode.kind() == Kind::Directory
                && !watched.iter().any(|known| same_inode(known, &watch.inode))
            {
                watched.push(watch.inode.clone());
            }
        }
    }
    for directory in watched {
        for name in names_of(inode, &directory) {
            tell(&directory, mask, 0, &name);
        }
    }
}

/// The names of an object in one directory.
fn names_of(inode: &Arc<dyn Inode>, directory: &Arc<dyn Inode>) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let Ok(number) = inode.metadata().map(|metadata| metadata.inode) else {
        return names;
    };
    let Ok(opened) = directory.clone().open(g::O_RDONLY | g::O_DIRECTORY) else {
        return names;
    };
    let read = opened.read_directory(0, &mut |entry| {
        if entry.inode == number {
            names.push(entry.name.to_vec());
        }
        true
    });
    if read.is_err() {
        return Vec::new();
    }
    names.retain(|name| {
        directory
            .lookup(name)
            .is_ok_and(|found| same_inode(&found, inode))
    });
    names
}

/// A name was added to a directory.
pub(crate) fn created(entry: Entry<'_>, inode: &Arc<dyn Inode>) {
    if !nothing_is_watched() {
        tell(entry.0, g::IN_CREATE | directory_bit(inode), 0, entry.1);
    }
}

/// An object got another name.
pub(crate) fn linked(entry: Entry<'_>, inode: &Arc<dyn Inode>) {
    if !nothing_is_watched() {
        tell(inode, g::IN_ATTRIB, 0, b"");
        created(entry, inode);
    }
}

/// A name that is not a directory's was removed.
pub(crate) fn unlinked(entry: Entry<'_>, inode: &Arc<dyn Inode>) {
    if !nothing_is_watched() {
        tell(inode, g::IN_ATTRIB, 0, b"");
        tell(entry.0, g::IN_DELETE, 0, entry.1);
        end_without_name(inode);
    }
}

/// A directory was removed.
pub(crate) fn removed(entry: Entry<'_>, inode: &Arc<dyn Inode>) {
    if !nothing_is_watched() {
        end(inode);
        tell(entry.0, g::IN_DELETE | g::IN_ISDIR, 0, entry.1);
    }
}

/// An entry was moved, and perhaps took the place of another.
pub(crate) fn moved(
    from: Entry<'_>,
    to: Entry<'_>,
    inode: &Arc<dyn Inode>,
    replaced: Option<&Arc<dyn Inode>>,
) {
    if nothing_is_watched() {
        return;
    }
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let directory = directory_bit(inode);
    tell(from.0, g::IN_MOVED_FROM | directory, cookie, from.1);
    tell(to.0, g::IN_MOVED_TO | directory, cookie, to.1);
    if let Some(replaced) = replaced {
        tell(replaced, g::IN_ATTRIB, 0, b"");
    }
    tell(inode, g::IN_MOVE_SELF, 0, b"");
    if let Some(replaced) = replaced {
        end_without_name(replaced);
    }
}

/// Attributes were changed.
pub(crate) fn changed(inode: &Arc<dyn Inode>, change: &AttributeChange) {
    let others = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
    let mask = match (change.accessed_ns, change.modified_ns) {
        (Some(_), None) if !others => g::IN_ACCESS,
        (None, Some(_)) if !others => g::IN_MODIFY,
        _ => g::IN_ATTRIB,
    };
    object(inode, None, mask);
}

/// The last name of an object is gone. Linux waits until it is no longer open either; here its watch ends at once.
fn end_without_name(inode: &Arc<dyn Inode>) {
    let directory = inode.kind() == Kind::Directory;
    if directory || inode.metadata().is_ok_and(|metadata| metadata.links == 0) {
        end(inode);
    }
}

fn end(inode: &Arc<dyn Inode>) {
    for instance in instances() {
        instance.tell(inode, g::IN_DELETE_SELF, 0, b"");
        instance.forget(inode);
    }
}
