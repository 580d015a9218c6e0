// SPDX-License-Identifier: Apache-2.0
//! A file system tree in memory: what the layers of an image, a tar archive or a folder come to.
//!
//! Paths are resolved inside the tree, as a container would see them: `..` of the root is the root, and a link never leads
//! out. File contents are not here; a file holds a handle `F` to wherever they went.
//!
//! Source: OCI image specification 1.1, `layer.md` (changesets, whiteouts, opaque whiteouts).

use std::collections::BTreeMap;

/// How many links a path may go through, `path_resolution(7)`.
const MAX_LINKS: u32 = 40;
/// Longest path, `limits.h`.
const PATH_MAX: usize = 4096;
/// Longest name, `limits.h`.
const NAME_MAX: usize = 255;
/// How deep folders may lie in each other. Paths of [`PATH_MAX`] cannot name anything deeper.
const DEPTH_MAX: usize = PATH_MAX / 2;
/// Most bytes of all extended attributes of one file; Linux's own limit for one value is 64 KiB.
const XATTRS_MAX: usize = 128 << 10;

/// Names and values of extended attributes, `xattr(7)`.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// An inode of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(usize);

impl InodeId {
    /// A number below [`Tree::capacity`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// Permissions, owner and time of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// Permission bits with set-id and sticky bits: `07777` at most.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime_s: i64,
    /// Its fraction, nanoseconds.
    pub mtime_ns: u32,
}

/// A folder nobody described: one that a path goes through.
const IMPLIED: Meta = Meta {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    mtime_s: 0,
    mtime_ns: 0,
};

/// A file of whatever kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode<F> {
    /// Permissions, owner and time.
    pub meta: Meta,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// What it is.
    pub kind: Kind<F>,
}

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind<F> {
    /// A folder and what is in it.
    Directory(BTreeMap<Vec<u8>, Entry>),
    /// A regular file.
    File(F),
    /// A symbolic link and where it leads.
    Symlink(Vec<u8>),
    /// A character device.
    Character(DeviceNumber),
    /// A block device.
    Block(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A UNIX socket.
    Socket,
}

/// Number of a device, `makedev(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNumber {
    /// The driver: 12 bits.
    pub major: u32,
    /// The device: 20 bits.
    pub minor: u32,
}

/// A name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What has the name.
    pub inode: InodeId,
    /// The layer that gave it the name.
    layer: u32,
}

/// Why an entry cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// `..` in a path.
    #[error("the path leads out of the image")]
    Outside,
    /// A name or path no Linux file system takes.
    #[error("the path is empty, too long or too deep, or contains a NUL")]
    BadPath,
    /// A file where the path needs a folder.
    #[error("a part of the path is not a folder")]
    NotADirectory,
    /// The links on the way go in a circle.
    #[error("too many symbolic links on the way")]
    Loop,
    /// A hard link to nothing.
    #[error("a hard link to a file that is not there")]
    NoTarget,
    /// A hard link to a folder.
    #[error("a hard link to a folder")]
    DirectoryLink,
    /// More extended attributes than a file can have.
    #[error("its extended attributes are larger than 128 KiB or have bad names")]
    Xattrs,
}

/// The tree. Its root is a folder.
#[derive(Debug, Clone)]
pub struct Tree<F> {
    inodes: Vec<Inode<F>>,
    /// The layer whose entries are being added.
    layer: u32,
}

impl<F> Default for Tree<F> {
    fn default() -> Self {
        Self {
            inodes: vec![directory(IMPLIED)],
            layer: 0,
        }
    }
}

fn directory<F>(meta: Meta) -> Inode<F> {
    Inode {
        meta,
        xattrs: Xattrs::new(),
        kind: Kind::Directory(BTreeMap::new()),
    }
}

impl<F> Tree<F> {
    /// The root folder.
    pub const ROOT: InodeId = InodeId(0);

    /// Begins the next layer: whiteouts remove only what earlier layers brought.
    pub fn next_layer(&mut self) {
        self.layer += 1;
    }

    /// The inode.
    #[must_use]
    pub fn get(&self, id: InodeId) -> &Inode<F> {
        &self.inodes[id.0]
    }

    /// How many inodes there have been, with those that lost their last name.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.inodes.len()
    }

    /// Adds a file or folder. What had the name before is replaced, but a folder keeps what is in it when another folder
    /// comes; folders missing on the way are made.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn add(&mut self, path: &[u8], inode: Inode<F>) -> Result<InodeId, TreeError> {
        let bytes = |(name, value): (&Vec<u8>, &Vec<u8>)| name.len() + value.len();
        let good = |name: &[u8]| !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&0);
        if inode.xattrs.iter().map(bytes).sum::<usize>() > XATTRS_MAX
            || inode
                .xattrs
                .values()
                .any(|value| value.len() > usize::from(u16::MAX))
            || !inode.xattrs.keys().all(|name| good(name))
        {
            return Err(TreeError::Xattrs);
        }
        if let Kind::Symlink(target) = &inode.kind
            && (target.is_empty() || target.len() >= PATH_MAX || target.contains(&0))
        {
            return Err(TreeError::BadPath);
        }
        let Some((parent, name)) = self.place(path)? else {
            // The root itself: it cannot be replaced, but described.
            let Kind::Directory(_) = inode.kind else {
                return Err(TreeError::NotADirectory);
            };
            self.describe(Self::ROOT, inode);
            return Ok(Self::ROOT);
        };
        if let Some(known) = self.child(parent, &name)
            && matches!(inode.kind, Kind::Directory(_))
            && self.is_directory(known)
        {
            self.describe(known, inode);
            self.name(parent, name, known);
            return Ok(known);
        }
        let id = self.push(inode);
        self.name(parent, name, id);
        Ok(id)
    }

    /// Gives the file at `target` a further name.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), TreeError> {
        let id = self.lookup(target, false)?.ok_or(TreeError::NoTarget)?;
        if self.is_directory(id) {
            return Err(TreeError::DirectoryLink);
        }
        let (parent, name) = self.place(path)?.ok_or(TreeError::BadPath)?;
        self.name(parent, name, id);
        Ok(())
    }

    /// Removes what earlier layers have at `path`; nothing there is no error.
    ///
    /// # Errors
    /// [`TreeError`] if `path` is none.
    pub fn whiteout(&mut self, path: &[u8]) -> Result<(), TreeError> {
        let names = components(path)?;
        let Some((last, before)) = names.split_last() else {
            return Err(TreeError::BadPath);
        };
        let Some(parent) = self.existing(before)? else {
            return Ok(());
        };
        self.remove_lower(parent, Some(last));
        Ok(())
    }

    /// Removes what earlier layers have in the folder `path`; nothing there is no error.
    ///
    /// # Errors
    /// [`TreeError`] if `path` is none.
    pub fn opaque(&mut self, path: &[u8]) -> Result<(), TreeError> {
        let names = components(path)?;
        if let Some(folder) = self.existing(&names)? {
            self.remove_lower(folder, None);
        }
        Ok(())
    }

    /// The file at `path`, whose last link is followed or is what is asked for. `None`: nothing there.
    ///
    /// # Errors
    /// [`TreeError`] if `path` is none.
    pub fn lookup(&self, path: &[u8], follow: bool) -> Result<Option<InodeId>, TreeError> {
        let names = components(path)?;
        let Some((last, before)) = names.split_last() else {
            return Ok(Some(Self::ROOT));
        };
        if follow {
            return self.existing(&names);
        }
        let parent = self.existing(before)?;
        Ok(parent.and_then(|parent| self.child(parent, last)))
    }

    /// What is in the folder `id`; nothing if it is none.
    pub fn children(&self, id: InodeId) -> impl Iterator<Item = (&[u8], InodeId)> {
        let children = match &self.get(id).kind {
            Kind::Directory(children) => Some(children),
            _ => None,
        };
        let entries = children.into_iter().flatten();
        entries.map(|(name, entry)| (name.as_slice(), entry.inode))
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_directory(&self, id: InodeId) -> bool {
        matches!(self.get(id).kind, Kind::Directory(_))
    }

    fn push(&mut self, inode: Inode<F>) -> InodeId {
        self.inodes.push(inode);
        InodeId(self.inodes.len() - 1)
    }

    /// Takes over what `inode` says of the folder `id`, but not its content.
    fn describe(&mut self, id: InodeId, inode: Inode<F>) {
        let known = &mut self.inodes[id.0];
        (known.meta, known.xattrs) = (inode.meta, inode.xattrs);
    }

    fn child(&self, folder: InodeId, name: &[u8]) -> Option<InodeId> {
        match &self.get(folder).kind {
            Kind::Directory(children) => children.get(name).map(|entry| entry.inode),
            _ => None,
        }
    }

    fn name(&mut self, folder: InodeId, name: Vec<u8>, inode: InodeId) {
        let layer = self.layer;
        if let Kind::Directory(children) = &mut self.inodes[folder.0].kind {
            children.insert(name, Entry { inode, layer });
        }
    }

    /// The folder a new entry goes into, made if missing, and the entry's name there. `None` for the root.
    fn place(&mut self, path: &[u8]) -> Result<Option<(InodeId, Vec<u8>)>, TreeError> {
        let names = components(path)?;
        let Some((last, before)) = names.split_last() else {
            return Ok(None);
        };
        let mut way = Way::to(before);
        loop {
            self.walk(&mut way)?;
            let Some(name) = way.missing.pop() else { break };
            if name.len() > NAME_MAX {
                return Err(TreeError::BadPath);
            }
            let made = self.push(directory(IMPLIED));
            self.name(way.last(), name, made);
            way.folders.push(made);
            if way.folders.len() > DEPTH_MAX {
                return Err(TreeError::BadPath);
            }
        }
        let parent = way.last();
        if !self.is_directory(parent) {
            return Err(TreeError::NotADirectory);
        }
        Ok(Some((parent, last.clone())))
    }

    /// The folder or file at the end of existing names, links followed.
    fn existing(&self, names: &[Vec<u8>]) -> Result<Option<InodeId>, TreeError> {
        let mut way = Way::to(names);
        match self.walk(&mut way) {
            Ok(()) => Ok(way.missing.is_empty().then(|| way.last())),
            // Nothing can be there.
            Err(TreeError::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Goes on as far as there are files.
    fn walk(&self, way: &mut Way) -> Result<(), TreeError> {
        while let Some(name) = way.missing.pop() {
            if !self.is_directory(way.last()) {
                return Err(TreeError::NotADirectory);
            }
            if name == b".." {
                way.folders.pop();
                continue;
            }
            let Some(next) = self.child(way.last(), &name) else {
                way.missing.push(name);
                break;
            };
            if let Kind::Symlink(target) = &self.get(next).kind {
                way.links += 1;
                if way.links > MAX_LINKS {
                    return Err(TreeError::Loop);
                }
                if target.starts_with(b"/") {
                    way.folders.clear();
                }
                let steps = target.split(|&byte| byte == b'/').rev();
                let steps = steps.filter(|step| !step.is_empty() && *step != b".");
                way.missing.extend(steps.map(<[u8]>::to_vec));
                continue;
            }
            if way.folders.len() >= DEPTH_MAX {
                return Err(TreeError::BadPath);
            }
            way.folders.push(next);
        }
        Ok(())
    }

    /// Removes from `folder` what earlier layers brought: the entry `only`, or all. A folder in which the present layer has
    /// something stays, with that. Folders are at most [`DEPTH_MAX`] deep, so this may call itself.
    fn remove_lower(&mut self, folder: InodeId, only: Option<&[u8]>) {
        let layer = self.layer;
        let mut inner = Vec::new();
        let Kind::Directory(children) = &self.get(folder).kind else {
            return;
        };
        for (name, entry) in children {
            if only.is_none_or(|only| only == name) {
                inner.push((name.clone(), *entry));
            }
        }
        for (name, entry) in inner {
            let mut stays = entry.layer == layer;
            if self.is_directory(entry.inode) {
                self.remove_lower(entry.inode, None);
                stays |= self.children(entry.inode).next().is_some();
            }
            if !stays && let Kind::Directory(children) = &mut self.inodes[folder.0].kind {
                children.remove(&name);
            }
        }
    }
}

/// A path on its way through the tree.
struct Way {
    /// What it has gone through below the root; the last may be a file.
    folders: Vec<InodeId>,
    /// The names still to go, last first.
    missing: Vec<Vec<u8>>,
    /// Links followed.
    links: u32,
}

impl Way {
    fn to(names: &[Vec<u8>]) -> Self {
        Self {
            folders: Vec::new(),
            missing: names.iter().rev().cloned().collect(),
            links: 0,
        }
    }

    /// Where it has come to: the root is number 0 in every tree.
    fn last(&self) -> InodeId {
        self.folders.last().copied().unwrap_or(InodeId(0))
    }
}

/// The names of a path as archives write them: `a/b`, `./a/b`, `/a/b`, `a/b/`.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
    if path.len() > PATH_MAX || path.contains(&0) {
        return Err(TreeError::BadPath);
    }
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<Vec<u8>> = names
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .collect();
    if names.iter().any(|name| name == b"..") {
        return Err(TreeError::Outside);
    }
    if names.iter().any(|name| name.len() > NAME_MAX) {
        return Err(TreeError::BadPath);
    }
    Ok(names)
}
