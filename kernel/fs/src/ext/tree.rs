// SPDX-License-Identifier: Apache-2.0
//! Names: creating, linking, moving and removing them, and what becomes of files that have lost their last one.
//!
//! A file without a name that is still open is an orphan: it is chained on the disk, so that the next mount frees it
//! should the machine end before it is closed.

use alloc::sync::Arc;

use coracle_abi::raw::general as g;
use coracle_core::time;

use super::Volume;
use super::directory::{type_byte, write_first};
use super::layout::{BLOCK, LINKS_MAX, ROOT, encode_time, get32, ino, put32, sb};
use super::node::Node;
use super::state::State;
use crate::vfs::{Kind, NewKind, NewNode, Rename};
use crate::{Errno, Result};

impl Node {
    /// The directory's names are in memory behind this. `ENOTDIR`, and `ENOENT` for one that was removed.
    pub(super) fn index(&self, st: &mut State) -> Result<()> {
        if !self.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let (size, links) = {
            let attributes = self.attributes.lock();
            (attributes.size, attributes.links)
        };
        if links == 0 {
            return Err(Errno::ENOENT);
        }
        st.index(self.number, size)
    }

    /// The inode of that name.
    fn entry(&self, st: &mut State, name: &[u8]) -> Result<Arc<Node>> {
        self.index(st)?;
        let entry = st
            .directories
            .get(&self.number)
            .and_then(|index| index.get(name))
            .ok_or(Errno::ENOENT)?;
        if entry.inode != ROOT && entry.inode < st.layout.first_inode {
            return Err(Errno::EUCLEAN);
        }
        if !st.is_inode_used(entry.inode)? {
            return Err(Errno::EUCLEAN);
        }
        let node = self.fs.node(st, entry.inode)?;
        if node.is_directory() {
            let home = node.home.lock().as_ref().map(|(parent, _)| parent.number);
            match home {
                None if node.number != ROOT => self.adopt(&node, name),
                // A directory with two names, or one that contains the root: a walk upwards would not end.
                other if other != Some(self.number) => return Err(Errno::EUCLEAN),
                _ => {}
            }
        } else if node.attributes.lock().links == 0 {
            return Err(Errno::EUCLEAN);
        }
        Ok(node)
    }

    /// Tells a directory where it is.
    fn adopt(&self, node: &Node, name: &[u8]) {
        if let Some(me) = self.me.upgrade() {
            *node.home.lock() = Some((me, name.into()));
        }
    }

    pub(super) fn find(&self, name: &[u8]) -> Result<Arc<Node>> {
        let found = self.entry(&mut self.fs.lock(), name);
        self.fs.noted(found)
    }

    /// Adds a name to the directory; grows it if it must. `EEXIST`, `ENOSPC` without any change but a larger directory.
    fn enter(&self, st: &mut State, name: &[u8], node: &Node) -> Result<()> {
        let place = self.place_for(st, name)?;
        st.add_entry(self.number, place, name, node.number, type_byte(node.kind))?;
        if node.is_directory() {
            self.adopt(node, name);
        }
        Ok(())
    }

    /// The block of the directory with room for a name.
    fn place_for(&self, st: &mut State, name: &[u8]) -> Result<usize> {
        if let Some(place) = st.room_for(self.number, name)? {
            return Ok(place);
        }
        let index = self.size() / BLOCK;
        let goal = match index.checked_sub(1) {
            Some(last) => st.directory_block(self.number, last)? + 1,
            None => 0,
        };
        let assigned = st.assign_block(self.number, index, goal)?;
        st.add_directory_block(self.number, assigned.block)?;
        self.add_sectors(assigned.taken);
        self.attributes.lock().size += BLOCK;
        self.store(st)?;
        self.resized(st);
        st.room_for(self.number, name)?.ok_or(Errno::EIO)
    }

    fn check_absent(&self, st: &mut State, name: &[u8]) -> Result<()> {
        self.index(st)?;
        let taken = st
            .directories
            .get(&self.number)
            .is_some_and(|index| index.get(name).is_some());
        if taken { Err(Errno::EEXIST) } else { Ok(()) }
    }

    fn with_group(&self, new: &NewNode<'_>) -> NewKindWith {
        // A directory with the set-group-ID bit passes its group on (inode(7)).
        let attributes = self.attributes.lock();
        if attributes.mode & g::S_ISGID == 0 {
            return NewKindWith {
                gid: new.gid,
                mode: new.mode,
            };
        }
        let bit = if matches!(new.kind, NewKind::Directory) {
            g::S_ISGID
        } else {
            0
        };
        NewKindWith {
            gid: attributes.gid,
            mode: new.mode | bit,
        }
    }

    pub(super) fn add(&self, name: &[u8], new: &NewNode<'_>) -> Result<Arc<Node>> {
        let NewKindWith { gid, mode } = self.with_group(new);
        let new = NewNode { gid, mode, ..*new };
        self.fs.change(|st| {
            self.check_absent(st, name)?;
            if matches!(new.kind, NewKind::Directory) && self.attributes.lock().links >= LINKS_MAX {
                return Err(Errno::EMLINK);
            }
            // Room for the name comes first: what fails behind it leaves a larger directory and nothing else.
            self.place_for(st, name)?;
            let node = self.fs.make_inode(st, self.number, &new)?;
            let made = self.fill(st, &node, &new);
            if let Err(error) = made {
                self.fs.discard(st, &node)?;
                return Err(error);
            }
            self.enter(st, name, &node)?;
            if node.is_directory() {
                self.change_links(1);
            }
            self.touch_modified();
            self.store(st)?;
            node.store(st)?;
            Ok(node)
        })
    }

    /// Gives a new inode its first content.
    fn fill(&self, st: &mut State, node: &Node, new: &NewNode<'_>) -> Result<()> {
        match new.kind {
            NewKind::Directory => {
                let goal = st.first_goal(node.number)?;
                let assigned = st.assign_block(node.number, 0, goal)?;
                let page = st.fresh(assigned.block)?;
                write_first(&page, node.number, self.number);
                node.add_sectors(assigned.taken);
                let mut attributes = node.attributes.lock();
                attributes.size = BLOCK;
                attributes.links = 2;
            }
            NewKind::Symlink(text) => {
                node.set_text(st, text)?;
                node.attributes.lock().links = 1;
            }
            _ => node.attributes.lock().links = 1,
        }
        node.store(st)
    }

    pub(super) fn add_unnamed(&self, new: &NewNode<'_>, linkable: bool) -> Result<Arc<Node>> {
        let NewKindWith { gid, mode } = self.with_group(new);
        let new = NewNode { gid, mode, ..*new };
        self.fs.change(|st| {
            let node = self.fs.make_inode(st, self.number, &new)?;
            node.linkable
                .store(linkable, core::sync::atomic::Ordering::Relaxed);
            self.fs.add_orphan(st, &node)?;
            Ok(node)
        })
    }

    pub(super) fn add_link(&self, name: &[u8], target: &Arc<Node>) -> Result<()> {
        use core::sync::atomic::Ordering;
        self.fs.change(|st| {
            self.check_absent(st, name)?;
            let links = target.attributes.lock().links;
            if links == 0 && !target.linkable.load(Ordering::Relaxed) {
                return Err(Errno::ENOENT);
            }
            if links >= LINKS_MAX {
                return Err(Errno::EMLINK);
            }
            self.enter(st, name, target)?;
            if links == 0 {
                self.fs.remove_orphan(st, target)?;
                target.linkable.store(false, Ordering::Relaxed);
            }
            target.change_links(1);
            target.store(st)?;
            self.touch_modified();
            self.store(st)
        })
    }

    pub(super) fn remove(&self, name: &[u8], directory: bool) -> Result<()> {
        self.fs.change(|st| {
            let node = self.entry(st, name)?;
            match (directory, node.is_directory()) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                _ => {}
            }
            self.check_empty(st, &node)?;
            st.remove_entry(self.number, name)?;
            self.lose(st, &node)?;
            self.touch_modified();
            self.store(st)
        })
    }

    fn check_empty(&self, st: &mut State, node: &Node) -> Result<()> {
        if !node.is_directory() {
            return Ok(());
        }
        node.index(st)?;
        let empty = st
            .directories
            .get(&node.number)
            .is_some_and(super::directory::Index::is_empty);
        if empty { Ok(()) } else { Err(Errno::ENOTEMPTY) }
    }

    /// The node has lost a name in this directory.
    fn lose(&self, st: &mut State, node: &Arc<Node>) -> Result<()> {
        if node.is_directory() {
            node.change_links(-2);
            node.attributes.lock().links = 0;
            *node.home.lock() = None;
            st.directories.remove(&node.number);
            self.change_links(-1);
        } else {
            node.change_links(-1);
        }
        node.store(st)?;
        if node.attributes.lock().links == 0 {
            self.fs.add_orphan(st, node)?;
        }
        Ok(())
    }

    pub(super) fn exchange(&self, name: &[u8], to: &Node, new_name: &[u8]) -> Result<()> {
        self.fs.change(|st| {
            let a = self.entry(st, name)?;
            let b = to.entry(st, new_name)?;
            if Arc::ptr_eq(&a, &b) {
                return Ok(());
            }
            st.set_entry(self.number, name, b.number, type_byte(b.kind))?;
            st.set_entry(to.number, new_name, a.number, type_byte(a.kind))?;
            for (node, from, into, name) in [(&a, self, to, new_name), (&b, to, self, name)] {
                if node.is_directory() {
                    from.change_links(-1);
                    into.change_links(1);
                    st.set_parent(node.number, into.number)?;
                    into.adopt(node, name);
                }
                node.attributes.lock().changed_ns = time::wall();
                node.store(st)?;
            }
            for directory in [self, to] {
                directory.touch_modified();
                directory.store(st)?;
            }
            Ok(())
        })
    }

    pub(super) fn move_entry(
        &self,
        name: &[u8],
        to: &Node,
        new_name: &[u8],
        how: Rename,
    ) -> Result<()> {
        self.fs.change(|st| {
            let node = self.entry(st, name)?;
            let replaced = match to.entry(st, new_name) {
                Ok(replaced) if how == Rename::NoReplace => {
                    drop(replaced);
                    return Err(Errno::EEXIST);
                }
                Ok(replaced) => Some(replaced),
                Err(Errno::ENOENT) if to.attributes.lock().links > 0 => None,
                Err(error) => return Err(error),
            };
            let kind = type_byte(node.kind);
            if let Some(replaced) = &replaced {
                if Arc::ptr_eq(&node, replaced) {
                    return Ok(()); // two names of one file: rename(2) does nothing
                }
                match (node.is_directory(), replaced.is_directory()) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ => {}
                }
                self.check_empty(st, replaced)?;
                st.set_entry(to.number, new_name, node.number, kind)?;
            } else {
                let moves = node.is_directory() && !core::ptr::eq(self, to);
                if moves && to.attributes.lock().links >= LINKS_MAX {
                    return Err(Errno::EMLINK);
                }
                let place = to.place_for(st, new_name)?;
                st.add_entry(to.number, place, new_name, node.number, kind)?;
            }
            st.remove_entry(self.number, name)?;
            if node.is_directory() {
                if !core::ptr::eq(self, to) {
                    st.set_parent(node.number, to.number)?;
                    self.change_links(-1);
                    to.change_links(1);
                }
                to.adopt(&node, new_name);
            }
            if let Some(replaced) = &replaced {
                to.lose(st, replaced)?;
            }
            node.attributes.lock().changed_ns = time::wall();
            node.store(st)?;
            for directory in [self, to] {
                directory.touch_modified();
                directory.store(st)?;
            }
            Ok(())
        })
    }
}

struct NewKindWith {
    gid: u32,
    mode: u32,
}

impl Volume {
    /// Chains a file that has no name.
    pub(super) fn add_orphan(&self, st: &mut State, node: &Node) -> Result<()> {
        if st.orphans.contains(&node.number) {
            return Ok(());
        }
        let (block, at) = st.inode_at(node.number)?;
        let next = st.orphans.first().copied().unwrap_or(0);
        put32(&st.change(block)?, at + ino::DELETED, next);
        put32(&st.change(0)?, sb::LAST_ORPHAN, node.number);
        st.orphans.insert(0, node.number);
        Ok(())
    }

    pub(super) fn remove_orphan(&self, st: &mut State, node: &Node) -> Result<()> {
        let Some(n) = st.orphans.iter().position(|number| *number == node.number) else {
            return Ok(());
        };
        let next = st.orphans.get(n + 1).copied().unwrap_or(0);
        match n.checked_sub(1).and_then(|n| st.orphans.get(n).copied()) {
            Some(before) => {
                let (block, at) = st.inode_at(before)?;
                put32(&st.change(block)?, at + ino::DELETED, next);
            }
            None => put32(&st.change(0)?, sb::LAST_ORPHAN, next),
        }
        st.orphans.remove(n);
        let (block, at) = st.inode_at(node.number)?;
        put32(&st.change(block)?, at + ino::DELETED, 0);
        Ok(())
    }

    /// Frees orphans that nobody has open any more. Large files take several transactions; `false` says that there is
    /// more to do after a commit.
    pub(super) fn reap(&self, st: &mut State) -> Result<bool> {
        let mut n = 0;
        while let Some(number) = st.orphans.get(n).copied() {
            let Some(node) = st.nodes.get(&number) else {
                n += 1;
                continue;
            };
            // The list of nodes has one reference; whoever has the file open or mapped has another.
            if Arc::strong_count(node) > 1 {
                n += 1;
                continue;
            }
            let node = node.clone();
            if !node.release_some(st)? {
                return Ok(false);
            }
            self.remove_orphan(st, &node)?;
            // One that has a name was only being cut.
            if node.attributes.lock().links == 0 {
                self.discard(st, &node)?;
            }
        }
        Ok(true)
    }

    /// Frees an inode, with the content of small ones.
    pub(super) fn discard(&self, st: &mut State, node: &Node) -> Result<()> {
        while !node.release_some(st)? {}
        let (block, at) = st.inode_at(node.number)?;
        let page = st.change(block)?;
        let attributes = get32(&page, at + 104);
        if attributes != 0 && st.is_data_block(attributes)? {
            // Extended attributes, which Linux may have put there; several inodes can share them.
            let shared = st.change(attributes)?;
            let count = get32(&shared, 4);
            if count > 1 {
                put32(&shared, 4, count - 1);
            } else {
                st.free_block(attributes)?;
            }
            put32(&page, at + 104, 0);
        }
        {
            let mut attributes = node.attributes.lock();
            attributes.links = 0;
            attributes.size = 0;
            attributes.sectors = 0;
        }
        node.store(st)?;
        let (seconds, _) = encode_time(time::wall());
        // A small number would look like a link in the chain of orphans to e2fsck.
        let deleted = seconds.max(st.layout.inodes.saturating_add(1));
        put32(&st.change(block)?, at + ino::DELETED, deleted);
        st.free_inode(node.number, node.is_directory())?;
        st.nodes.remove(&node.number);
        st.directories.remove(&node.number);
        Ok(())
    }
}

/// Whether a kind has blocks that hold its content.
pub(super) fn has_blocks(node: &Node) -> bool {
    match node.kind {
        Kind::File | Kind::Directory => true,
        Kind::Symlink => node.attributes.lock().sectors != 0,
        _ => false,
    }
}
