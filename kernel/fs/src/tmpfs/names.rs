// SPDX-License-Identifier: Apache-2.0
//! Changes of names. Each holds the lock of the tree, so what it has looked up stays true until it is done; look-ups by
//! others go on meanwhile, between its steps. The lock sleeps, because the lower layer may be on a disk.

use alloc::sync::Arc;

use coracle_core::time;

use super::directory::{Own, Parent};
use super::node::{Body, Node};
use crate::vfs::{Kind, Rename};
use crate::{Errno, Result};

impl Node {
    /// The node that a name means. `ENOENT`.
    pub(super) fn entry(&self, name: &[u8]) -> Result<Arc<Node>> {
        if let Some(known) = self.own_entry(name) {
            return known;
        }
        let node = self.lower_entry(name)?;
        // Somebody may have removed or replaced the name meanwhile.
        self.own_entry(name).unwrap_or(Ok(node))
    }

    /// The same as far as the directory itself knows; `None` if the lower layer decides.
    fn own_entry(&self, name: &[u8]) -> Option<Result<Arc<Node>>> {
        let entries = match self.directory() {
            Ok(directory) => directory.lock(),
            Err(error) => return Some(Err(error)),
        };
        match entries.get(name) {
            Own::Node(node) => Some(Ok(node.clone())),
            Own::Hidden => Some(Err(Errno::ENOENT)),
            Own::Unknown if self.origin.is_none() => Some(Err(Errno::ENOENT)),
            Own::Unknown => None,
        }
    }

    /// Whether a name is there. The tree lock is held.
    fn has(&self, name: &[u8]) -> Result<bool> {
        match self.entry(name) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Enters a node that has no other name; the tree lock is taken here.
    pub(super) fn insert_new(&self, name: &[u8], node: &Arc<Node>) -> Result<()> {
        let _tree = self.fs.tree.lock();
        if self.directory()?.lock().removed {
            return Err(Errno::ENOENT);
        }
        if self.has(name)? {
            return Err(Errno::EEXIST);
        }
        self.keep();
        self.directory()?.lock().insert(name, node.clone(), false);
        self.adopt(name, node);
        self.touch_modified();
        Ok(())
    }

    /// Tells a directory where it is now, and counts its `..`.
    fn adopt(&self, name: &[u8], node: &Node) {
        if let Body::Directory(inner) = &node.body {
            let mut inner = inner.lock();
            let old = core::mem::replace(&mut inner.parent, Parent::Holder(self.me.clone()));
            inner.name = Arc::from(name);
            drop(inner);
            drop(old);
            self.change_links(1);
        }
    }

    /// The opposite of [`Node::adopt`], for a directory that leaves this one.
    fn release(&self, node: &Node) {
        if node.kind == Kind::Directory {
            self.change_links(-1);
        }
    }

    /// Whether a directory has names besides `.` and `..`. The tree lock is held.
    fn has_names(&self) -> Result<bool> {
        let directory = self.directory()?;
        if !directory.lock().is_empty() {
            return Ok(true);
        }
        let mut found = false;
        self.read_lower(0, &mut |_| {
            found = true;
            false
        })?;
        Ok(found)
    }

    /// The node loses a name, the first half of a removal. The tree lock is held.
    fn lose_name(&self, node: &Node) -> Result<()> {
        if let Body::Directory(inner) = &node.body {
            if node.has_names()? {
                return Err(Errno::ENOTEMPTY);
            }
            let mut inner = inner.lock();
            inner.removed = true;
            let old = core::mem::replace(&mut inner.parent, Parent::Nowhere);
            drop(inner);
            drop(old);
            node.change_links(-2);
            self.change_links(-1);
        } else {
            node.change_links(-1);
        }
        Ok(())
    }

    pub(super) fn remove_entry(&self, name: &[u8], directory: bool) -> Result<()> {
        let tree = self.fs.tree.lock();
        let node = self.entry(name)?;
        match (directory, node.kind == Kind::Directory) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => {}
        }
        self.keep();
        self.lose_name(&node)?;
        let removed = self.directory()?.lock().remove(name);
        self.forget(name, &node);
        self.touch_modified();
        drop(tree);
        drop((removed, node)); // outside the locks: the last reference frees the content
        Ok(())
    }

    fn exchange(&self, name: &[u8], to: &Node, new_name: &[u8]) -> Result<()> {
        let a = self.entry(name)?;
        let b = to.entry(new_name)?;
        for node in [self, to, &a, &b] {
            node.keep();
        }
        self.release(&a);
        to.release(&b);
        if core::ptr::eq(self, to) {
            let mut entries = self.directory()?.lock();
            entries.insert(name, b.clone(), true);
            entries.insert(new_name, a.clone(), true);
        } else {
            let mut source = self.directory()?.lock();
            let mut target = to.directory()?.lock();
            source.insert(name, b.clone(), true);
            target.insert(new_name, a.clone(), true);
        }
        self.adopt(name, &b);
        to.adopt(new_name, &a);
        self.touch_modified();
        to.touch_modified();
        Ok(())
    }

    /// `rename(2)` to another name, here or in the directory `to`.
    pub(super) fn rename_entry(
        &self,
        name: &[u8],
        to: &Node,
        new_name: &[u8],
        how: Rename,
    ) -> Result<()> {
        let tree = self.fs.tree.lock();
        if how == Rename::Exchange {
            return self.exchange(name, to, new_name);
        }
        let replaced = self.move_entry(name, to, new_name, how)?;
        drop(tree);
        drop(replaced); // outside the lock, as in `remove_entry`
        Ok(())
    }

    /// The tree lock is held.
    fn move_entry(
        &self,
        name: &[u8],
        to: &Node,
        new_name: &[u8],
        how: Rename,
    ) -> Result<Option<Arc<Node>>> {
        let moved = self.entry(name)?;
        if to.directory()?.lock().removed {
            return Err(Errno::ENOENT);
        }
        let replaced = match to.entry(new_name) {
            Ok(replaced) => Some(replaced),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        if let Some(replaced) = &replaced {
            if how == Rename::NoReplace {
                return Err(Errno::EEXIST);
            }
            if Arc::ptr_eq(&moved, replaced) {
                return Ok(None); // two names of one file: rename(2) does nothing
            }
            match (
                moved.kind == Kind::Directory,
                replaced.kind == Kind::Directory,
            ) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                _ => {}
            }
            to.lose_name(replaced)?;
        }
        for node in [self, to, &moved] {
            node.keep();
        }
        self.release(&moved);
        let exists = replaced.is_some();
        // The target holds what it replaced no longer; `replaced` does.
        let _old = if core::ptr::eq(self, to) {
            let mut entries = self.directory()?.lock();
            let old = entries.insert(new_name, moved.clone(), exists);
            (entries.remove(name), old)
        } else {
            // Both locks, so that the name is never in neither directory. Only the holder of the tree lock takes two.
            let mut source = self.directory()?.lock();
            let mut target = to.directory()?.lock();
            (
                source.remove(name),
                target.insert(new_name, moved.clone(), exists),
            )
        };
        if let Some(replaced) = &replaced {
            to.forget(new_name, replaced);
        }
        to.adopt(new_name, &moved);
        moved.attributes.lock().changed_ns = time::wall();
        self.touch_modified();
        to.touch_modified();
        Ok(replaced)
    }
}
