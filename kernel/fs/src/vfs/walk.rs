// SPDX-License-Identifier: Apache-2.0
//! From a path to an object: path_resolution(7).

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use coracle_logic::path::{Component, Components, LinkBudget, PathError};

use super::inode::same_inode;
use super::{Inode, Kind, Place, Target, Vfs};
use crate::{Errno, Result};
use alloc::sync::Arc;

/// Whether a symbolic link in the last place is followed. A slash behind it follows it in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The link's target is meant.
    Yes,
    /// The link itself is meant.
    No,
}

/// The last component of a path, for the calls that add or remove names.
pub(super) enum Last {
    /// An ordinary name.
    Name(Vec<u8>),
    /// `.`
    Current,
    /// `..`
    Parent,
    /// The path has no component: it is the root.
    Root,
}

/// A path resolved up to its last component.
pub(super) struct Entry {
    /// The directory.
    pub(super) directory: Place,
    /// The name in it.
    pub(super) last: Last,
    /// Whether slashes follow the name.
    pub(super) trailing_slash: bool,
}

pub(super) fn path_errno(error: PathError) -> Errno {
    match error {
        PathError::Empty => Errno::ENOENT,
        PathError::TooLong => Errno::ENAMETOOLONG,
        PathError::Loop => Errno::ELOOP,
    }
}

impl Vfs {
    /// The object a path names, from the directory `base` if the path is relative. Errors of path_resolution(7):
    /// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`.
    pub fn resolve(&self, base: &Place, path: &[u8], follow: Follow) -> Result<Place> {
        self.resolve_with(base, path, follow, &mut LinkBudget::default())
    }

    pub(super) fn resolve_with(
        &self,
        base: &Place,
        path: &[u8],
        follow: Follow,
        budget: &mut LinkBudget,
    ) -> Result<Place> {
        match self.walk(base, path, Stop::AtEnd(follow), budget)? {
            Walked::Place(place) => Ok(place),
            Walked::Entry(_) => Err(Errno::ENOENT), // not reached: the walk was to the end
        }
    }

    /// Resolves all but the last component.
    pub(super) fn resolve_entry(
        &self,
        base: &Place,
        path: &[u8],
        budget: &mut LinkBudget,
    ) -> Result<Entry> {
        match self.walk(base, path, Stop::BeforeLast, budget)? {
            Walked::Entry(entry) => Ok(entry),
            Walked::Place(_) => Err(Errno::ENOENT), // not reached: the walk was to the entry
        }
    }

    fn walk(
        &self,
        base: &Place,
        path: &[u8],
        stop: Stop,
        budget: &mut LinkBudget,
    ) -> Result<Walked> {
        let mut here = base.clone();
        // The text of a symbolic link with the rest of the path behind it, once a link was met.
        let mut expanded: Option<Vec<u8>> = None;
        'path: loop {
            let text = expanded.as_deref().unwrap_or(path);
            let mut components = Components::new(text).map_err(path_errno)?;
            let trailing_slash = text.last() == Some(&b'/');
            if components.is_absolute() {
                here = self.root().clone();
            }
            let mut seen_any = false;
            while let Some(component) = components.next() {
                seen_any = true;
                let is_last = components.is_done();
                let component = component.map_err(path_errno)?;
                if here.inode.kind() != Kind::Directory {
                    return Err(Errno::ENOTDIR);
                }
                if is_last && stop == Stop::BeforeLast {
                    let last = match component {
                        Component::Name(name) => Last::Name(name.to_vec()),
                        Component::Current => Last::Current,
                        Component::Parent => Last::Parent,
                    };
                    return Ok(Walked::Entry(Entry {
                        directory: here,
                        last,
                        trailing_slash,
                    }));
                }
                let name = match component {
                    Component::Current => continue,
                    Component::Parent => {
                        here = here.parent();
                        continue;
                    }
                    Component::Name(name) => name,
                };
                let next = self.enter(&here, name)?;
                let follow = !is_last || trailing_slash || stop == Stop::AtEnd(Follow::Yes);
                if next.inode.kind() != Kind::Symlink || !follow {
                    here = next;
                    continue;
                }
                budget.follow().map_err(path_errno)?;
                match next.inode.follow()? {
                    Target::Jump(place, _) => here = place,
                    Target::Path(mut target) => {
                        if target.is_empty() {
                            return Err(Errno::ENOENT);
                        }
                        if !is_last || trailing_slash {
                            target.push(b'/');
                            target.extend_from_slice(components.remaining());
                        }
                        expanded = Some(target);
                        continue 'path;
                    }
                }
            }
            if trailing_slash && here.inode.kind() != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            return Ok(match stop {
                Stop::BeforeLast if !seen_any => Walked::Entry(Entry {
                    directory: here,
                    last: Last::Root,
                    trailing_slash,
                }),
                _ => Walked::Place(here),
            });
        }
    }

    /// The entry `name` of a directory, or the root of what is mounted there.
    pub(super) fn enter(&self, directory: &Place, name: &[u8]) -> Result<Place> {
        let inode = directory.inode.lookup(name)?;
        Ok(self.cross(Place {
            mount: directory.mount.clone(),
            inode,
        }))
    }

    /// The root of the topmost file system mounted at `place`, or `place` itself.
    fn cross(&self, mut place: Place) -> Place {
        if place.inode.kind() != Kind::Directory && !self.has_file_mounts.load(Ordering::Relaxed) {
            return place;
        }
        let mounts = self.mounts.lock();
        while let Some(mount) = mounts.iter().rev().find(|mount| {
            mount
                .mount_point()
                .is_some_and(|at| Arc::ptr_eq(&at.mount, &place.mount) && same(at, &place.inode))
        }) {
            place = Place {
                mount: mount.clone(),
                inode: mount.root().clone(),
            };
        }
        place
    }

    /// Whether something is mounted at the entry `inode` of `directory`.
    pub(super) fn is_mount_point(&self, directory: &Place, inode: &Arc<dyn Inode>) -> bool {
        self.mounts.lock().iter().any(|mount| {
            mount
                .mount_point()
                .is_some_and(|at| Arc::ptr_eq(&at.mount, &directory.mount) && same(at, inode))
        })
    }
}

fn same(at: &Place, inode: &Arc<dyn Inode>) -> bool {
    same_inode(&at.inode, inode)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    AtEnd(Follow),
    BeforeLast,
}

enum Walked {
    Place(Place),
    Entry(Entry),
}
