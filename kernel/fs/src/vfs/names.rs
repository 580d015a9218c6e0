// SPDX-License-Identifier: Apache-2.0
//! Adding, moving and removing names: mkdir(2), mknod(2), symlink(2), link(2), unlink(2), rmdir(2), rename(2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::raw::general as g;
use coracle_core::memory;
use coracle_logic::path::LinkBudget;

use super::inode::same_inode;
use super::walk::{Entry, Last};
use super::{AttributeChange, Inode, Kind, NewKind, NewNode, Place, Rename, SetExtended, Vfs};
use crate::inotify::events;
use crate::{Errno, Result};

impl Vfs {
    /// `mkdir(2)`, `mknod(2)` and `symlink(2)`. `EEXIST` if the name is taken, also by a dangling link.
    pub fn create(&self, base: &Place, path: &[u8], node: &NewNode<'_>) -> Result<Place> {
        let entry = self.resolve_entry(base, path, &mut LinkBudget::default())?;
        let name = new_name(&entry)?;
        if entry.directory.inode.lookup(name).is_ok() {
            return Err(Errno::EEXIST);
        }
        if entry.trailing_slash && !matches!(node.kind, NewKind::Directory) {
            return Err(Errno::ENOENT);
        }
        entry.directory.check_changeable()?;
        let inode = entry.directory.inode.create(name, node)?;
        events::created((&entry.directory.inode, name), &inode);
        Ok(Place {
            mount: entry.directory.mount,
            inode,
        })
    }

    /// `link(2)`: another name for `target`. `EPERM` for directories, `EXDEV` across mounts.
    pub fn link(&self, target: &Place, base: &Place, path: &[u8]) -> Result<()> {
        let entry = self.resolve_entry(base, path, &mut LinkBudget::default())?;
        let name = new_name(&entry)?;
        if entry.directory.inode.lookup(name).is_ok() {
            return Err(Errno::EEXIST);
        }
        if entry.trailing_slash {
            return Err(Errno::ENOENT);
        }
        if !Arc::ptr_eq(&target.mount, &entry.directory.mount) {
            return Err(Errno::EXDEV);
        }
        entry.directory.check_changeable()?;
        if target.inode.kind() == Kind::Directory {
            return Err(Errno::EPERM);
        }
        entry.directory.inode.link(name, &target.inode)?;
        events::linked((&entry.directory.inode, name), &target.inode);
        Ok(())
    }

    /// `unlink(2)`.
    pub fn unlink(&self, base: &Place, path: &[u8]) -> Result<()> {
        let entry = self.resolve_entry(base, path, &mut LinkBudget::default())?;
        let Last::Name(name) = &entry.last else {
            return Err(Errno::EISDIR);
        };
        let inode = entry.directory.inode.lookup(name)?;
        if inode.kind() == Kind::Directory {
            return Err(Errno::EISDIR);
        }
        if entry.trailing_slash {
            return Err(Errno::ENOTDIR);
        }
        entry.directory.check_changeable()?;
        if self.is_mount_point(&entry.directory, &inode) {
            return Err(Errno::EBUSY);
        }
        entry.directory.inode.unlink(name)?;
        events::unlinked((&entry.directory.inode, name), &inode);
        Ok(())
    }

    /// `rmdir(2)`.
    pub fn remove_directory(&self, base: &Place, path: &[u8]) -> Result<()> {
        let entry = self.resolve_entry(base, path, &mut LinkBudget::default())?;
        let name = match &entry.last {
            Last::Name(name) => name,
            Last::Current => return Err(Errno::EINVAL),
            Last::Parent => return Err(Errno::ENOTEMPTY),
            Last::Root => return Err(Errno::EBUSY),
        };
        let inode = entry.directory.inode.lookup(name)?;
        if inode.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        entry.directory.check_changeable()?;
        if self.is_mount_point(&entry.directory, &inode) {
            return Err(Errno::EBUSY);
        }
        entry.directory.inode.remove_directory(name)?;
        events::removed((&entry.directory.inode, name), &inode);
        Ok(())
    }

    /// `renameat2(2)`.
    pub fn rename(&self, from: (&Place, &[u8]), to: (&Place, &[u8]), how: Rename) -> Result<()> {
        let old = self.resolve_entry(from.0, from.1, &mut LinkBudget::default())?;
        let new = self.resolve_entry(to.0, to.1, &mut LinkBudget::default())?;
        if !Arc::ptr_eq(&old.directory.mount, &new.directory.mount) {
            return Err(Errno::EXDEV);
        }
        let Last::Name(old_name) = &old.last else {
            return Err(Errno::EBUSY);
        };
        let Last::Name(new_name) = &new.last else {
            return Err(match how {
                Rename::NoReplace => Errno::EEXIST,
                _ => Errno::EBUSY,
            });
        };
        let moved = old.directory.inode.lookup(old_name)?;
        let replaced = match new.directory.inode.lookup(new_name) {
            Ok(inode) => Some(inode),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        match (how, &replaced) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (Rename::Exchange, None) => return Err(Errno::ENOENT),
            _ => {}
        }
        let new_becomes = if how == Rename::Exchange {
            replaced.as_ref()
        } else {
            None
        };
        let not_a_directory = |inode: &Arc<dyn Inode>| inode.kind() != Kind::Directory;
        if not_a_directory(&moved)
            && (old.trailing_slash || (new.trailing_slash && how != Rename::Exchange))
            || new_becomes.is_some_and(|n| not_a_directory(n) && new.trailing_slash)
        {
            return Err(Errno::ENOTDIR);
        }
        self.check_rename_loop(&moved, &new.directory, Errno::EINVAL)?;
        if let Some(replaced) = &replaced {
            let loops = if how == Rename::Exchange {
                Errno::EINVAL
            } else {
                Errno::ENOTEMPTY
            };
            self.check_rename_loop(replaced, &old.directory, loops)?;
        }
        old.directory.check_changeable()?;
        if self.is_mount_point(&old.directory, &moved)
            || replaced
                .as_ref()
                .is_some_and(|r| self.is_mount_point(&new.directory, r))
        {
            return Err(Errno::EBUSY);
        }
        old.directory
            .inode
            .rename(old_name, &new.directory.inode, new_name, how)?;
        let from = (&old.directory.inode, &old_name[..]);
        let to = (&new.directory.inode, &new_name[..]);
        match (how, &replaced) {
            (Rename::Exchange, Some(other)) => {
                events::moved(from, to, &moved, None);
                events::moved(to, from, other, None);
            }
            // Two names of one object stay as they are (rename(2)).
            (_, Some(other)) if same_inode(other, &moved) => {}
            _ => events::moved(from, to, &moved, replaced.as_ref()),
        }
        Ok(())
    }

    /// Whether the directory `moved` contains (or is) `directory`: it cannot move into itself.
    fn check_rename_loop(
        &self,
        moved: &Arc<dyn Inode>,
        directory: &Place,
        error: Errno,
    ) -> Result<()> {
        if moved.kind() != Kind::Directory {
            return Ok(());
        }
        let mut here = Some(directory.inode.clone());
        while let Some(inode) = here {
            if same_inode(&inode, moved) {
                return Err(error);
            }
            here = inode.parent().map(|(parent, _)| parent);
        }
        Ok(())
    }

    /// `truncate(2)`.
    pub fn truncate(&self, base: &Place, path: &[u8], size: u64) -> Result<()> {
        let place = self.resolve(base, path, super::Follow::Yes)?;
        match place.inode.kind() {
            Kind::File => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        place.check_changeable()?;
        self.check_not_running(&place.inode)?;
        place.inode.truncate(size)?;
        memory::forget_beyond(place.inode.content_id(), size);
        events::object(&place.inode, None, g::IN_MODIFY);
        Ok(())
    }

    /// `chmod(2)`, `chown(2)`, `utimensat(2)` on an object that was looked up.
    pub fn change(&self, place: &Place, change: &AttributeChange) -> Result<()> {
        place.check_changeable()?;
        place.inode.change(change)?;
        events::changed(&place.inode, change);
        Ok(())
    }

    /// `setxattr(2)`, and without a value `removexattr(2)`, on an object that was looked up.
    pub fn change_extended(
        &self,
        place: &Place,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetExtended,
    ) -> Result<()> {
        place.check_changeable()?;
        place.inode.change_extended(name, value, how)?;
        events::changed(&place.inode, &AttributeChange::default());
        Ok(())
    }

    /// The path of an entry as it is now: the directory's path and the name.
    pub fn entry_path(&self, directory: &Place, name: &[u8]) -> Result<Vec<u8>> {
        let mut path = directory.directory_path()?;
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Ok(path)
    }
}

/// The name to be created; `.`, `..` and the root exist.
fn new_name(entry: &Entry) -> Result<&[u8]> {
    match &entry.last {
        Last::Name(name) => Ok(name),
        _ => Err(Errno::EEXIST),
    }
}
