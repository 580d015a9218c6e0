// SPDX-License-Identifier: Apache-2.0
//! File systems whose content is made up when it is read: the common part of `/proc` and `/sys`.
//!
//! A tree is described by [`Spec`] once; only lists that change (descriptors, threads) are asked each time.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_core::file::{DirEntry, File, Metadata};
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::sync::SpinLock;
use coracle_core::time;

use crate::vfs::{FileSystem, FsStatus, Inode, Kind, NewNode, Target};
use crate::{Errno, Result};

/// Makes the content of a file.
pub(crate) type Reader = Box<dyn Fn() -> Result<Vec<u8>> + Send + Sync>;

/// Takes what is written to a file.
pub(crate) type Writer = Box<dyn Fn(&[u8]) -> Result<()> + Send + Sync>;

/// Says where a link leads.
pub(crate) type Follower = Box<dyn Fn() -> Result<Target> + Send + Sync>;

/// Entries that come and go.
pub(crate) trait List: Send + Sync {
    /// The names now.
    fn names(&self) -> Vec<String>;

    /// The entry of that name.
    fn find(&self, name: &str) -> Option<Spec>;
}

/// Description of a node and what is below it.
pub(crate) enum Spec {
    /// A directory with fixed entries.
    Directory(Vec<(String, Spec)>),
    /// A directory whose entries come and go.
    List(Box<dyn List>),
    /// A file.
    File(Reader),
    /// A file that takes writes.
    Writable(Reader, Writer),
    /// A symbolic link: its text, and its target if that is not the path in the text.
    Link(Reader, Option<Follower>),
}

impl Spec {
    /// A file.
    pub(crate) fn file(read: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::File(Box::new(move || Ok(read())))
    }

    /// A file that never changes.
    pub(crate) fn constant(text: &'static str) -> Self {
        Self::file(move || text.as_bytes().to_vec())
    }

    /// A symbolic link to a path.
    pub(crate) fn link(text: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::Link(Box::new(move || Ok(text())), None)
    }

    /// A directory.
    pub(crate) fn directory<const N: usize>(entries: [(&str, Spec); N]) -> Self {
        let entries = entries.into_iter();
        Self::Directory(entries.map(|(name, spec)| (name.into(), spec)).collect())
    }
}

/// A file system made of a [`Spec`].
pub(crate) struct PseudoFs {
    type_name: &'static str,
    magic: u32,
    root: Arc<Node>,
}

impl PseudoFs {
    /// The file system; `type_name` and `magic` as Linux has them.
    pub(crate) fn new(type_name: &'static str, magic: u32, root: Spec) -> Arc<Self> {
        let place = Place {
            parent: Weak::new(),
            name: String::new(),
            device: crate::tmpfs::next_device(),
            number: 1,
        };
        Arc::new(Self {
            type_name,
            magic,
            root: Node::new(place, root),
        })
    }
}

impl FileSystem for PseudoFs {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn status(&self) -> FsStatus {
        FsStatus {
            magic: self.magic,
            block_bytes: 4096,
            ..FsStatus::default()
        }
    }
}

/// Where a node is.
struct Place {
    parent: Weak<Node>,
    name: String,
    device: u64,
    number: u64,
}

enum Body {
    Directory(Vec<Arc<Node>>),
    List(Box<dyn List>),
    File(Reader),
    Writable(Reader, Writer),
    Link(Reader, Option<Follower>),
}

struct Node {
    me: Weak<Node>,
    place: Place,
    made_ns: u64,
    body: Body,
}

/// A number for the entry `name` of the directory with number `parent` (FNV-1a).
fn number(parent: u64, name: &str) -> u64 {
    let start = parent ^ 0xcbf2_9ce4_8422_2325;
    let hash = name.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // 32 bits are what 32-bit programs can store, and 0 and 1 are taken.
    (hash >> 32 ^ hash & 0xffff_ffff).max(2)
}

impl Node {
    fn new(place: Place, spec: Spec) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            made_ns: time::wall(),
            body: match spec {
                Spec::Directory(entries) => Body::Directory(
                    entries
                        .into_iter()
                        .map(|(name, spec)| Self::new(place.entry(me, &name), spec))
                        .collect(),
                ),
                Spec::List(list) => Body::List(list),
                Spec::File(read) => Body::File(read),
                Spec::Writable(read, write) => Body::Writable(read, write),
                Spec::Link(text, follow) => Body::Link(text, follow),
            },
            place,
        })
    }
}

impl Place {
    fn entry(&self, parent: &Weak<Node>, name: &str) -> Self {
        Self {
            parent: parent.clone(),
            name: name.into(),
            device: self.device,
            number: number(self.number, name),
        }
    }
}

impl Inode for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        match self.body {
            Body::Directory(_) | Body::List(_) => Kind::Directory,
            Body::File(_) | Body::Writable(..) => Kind::File,
            Body::Link(..) => Kind::Symlink,
        }
    }

    fn metadata(&self) -> Result<Metadata> {
        let permissions = match self.body {
            Body::Directory(_) | Body::List(_) => 0o555,
            Body::File(_) => 0o444,
            Body::Writable(..) => 0o644,
            Body::Link(..) => 0o777,
        };
        let directories = match &self.body {
            Body::Directory(entries) => entries
                .iter()
                .filter(|entry| entry.kind() == Kind::Directory)
                .count(),
            _ => 0,
        };
        let is_directory = self.kind() == Kind::Directory;
        Ok(Metadata {
            device: self.place.device,
            inode: self.place.number,
            mode: self.kind().mode_bits() | permissions,
            links: if is_directory {
                u32::try_from(directories).unwrap_or(0) + 2
            } else {
                1
            },
            accessed_ns: self.made_ns,
            modified_ns: self.made_ns,
            changed_ns: self.made_ns,
            ..Metadata::default()
        })
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        match &self.body {
            Body::Directory(entries) => {
                let found = entries
                    .iter()
                    .find(|entry| entry.place.name.as_bytes() == name);
                Ok(found.ok_or(Errno::ENOENT)?.clone())
            }
            Body::List(list) => {
                let name = core::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
                let spec = list.find(name).ok_or(Errno::ENOENT)?;
                Ok(Node::new(self.place.entry(&self.me, name), spec))
            }
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn create(&self, _name: &[u8], _node: &NewNode<'_>) -> Result<Arc<dyn Inode>> {
        Err(Errno::ENOENT) // what Linux says of new names in /proc
    }

    fn parent(&self) -> Option<(Arc<dyn Inode>, Vec<u8>)> {
        let parent = self.place.parent.upgrade()?;
        Some((parent, self.place.name.clone().into_bytes()))
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.body {
            Body::Link(text, _) => text(),
            _ => Err(Errno::EINVAL),
        }
    }

    fn follow(&self) -> Result<Target> {
        match &self.body {
            Body::Link(_, Some(follow)) => follow(),
            _ => self.read_link().map(Target::Path),
        }
    }

    fn truncate(&self, _size: u64) -> Result<()> {
        match self.body {
            // Opening with O_TRUNC, as a shell's `>` does, changes nothing.
            Body::Writable(..) => Ok(()),
            _ => Err(Errno::EPERM),
        }
    }

    fn open(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        let access = flags & coracle_abi::raw::general::O_ACCMODE;
        if matches!(self.body, Body::File(_)) && access != coracle_abi::raw::general::O_RDONLY {
            return Err(Errno::EACCES);
        }
        Ok(Arc::new(Opened {
            node: self,
            text: SpinLock::default(),
        }))
    }
}

/// An open node. The text is made when reading begins, so that a program that reads in pieces sees one state.
struct Opened {
    node: Arc<Node>,
    text: SpinLock<Option<Arc<[u8]>>>,
}

impl File for Opened {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn read_at(&self, position: u64, dst: &mut IoDst<'_>) -> Result<usize> {
        let read = match &self.node.body {
            Body::File(read) | Body::Writable(read, _) => read,
            _ => return Err(Errno::EISDIR),
        };
        let kept = self.text.lock().clone().filter(|_| position > 0);
        let text = match kept {
            Some(text) => text,
            None => {
                let text: Arc<[u8]> = read()?.into();
                *self.text.lock() = Some(text.clone());
                text
            }
        };
        let start = usize_from(position).min(text.len());
        dst.write(&text[start..])
    }

    fn write_at(&self, position: u64, _append: bool, src: &mut IoSrc<'_>) -> Result<(usize, u64)> {
        let Body::Writable(_, write) = &self.node.body else {
            return Err(Errno::EBADF);
        };
        let mut bytes = [0; 256];
        let len = src.remaining();
        if len > bytes.len() {
            return Err(Errno::EINVAL);
        }
        let before = src.done();
        if src.read(&mut bytes[..len])? < len {
            src.rewind(before);
            return Err(Errno::EFAULT);
        }
        write(&bytes[..len])?;
        Ok((len, position + u64_from(len)))
    }

    fn metadata(&self) -> Result<Metadata> {
        self.node.metadata()
    }

    fn truncate(&self, size: u64) -> Result<()> {
        Inode::truncate(&*self.node, size)
    }

    fn read_directory(
        &self,
        cursor: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let node = &self.node;
        let parent = node.place.parent.upgrade();
        let above = parent.map_or(node.place.number, |parent| parent.place.number);
        let directory = Kind::Directory.dirent_type();
        let mut entries: Vec<(u64, u8, String)> = alloc::vec![
            (node.place.number, directory, ".".into()),
            (above, directory, "..".into()),
        ];
        match &node.body {
            Body::Directory(nodes) => entries.extend(nodes.iter().map(|entry| {
                let kind = entry.kind().dirent_type();
                (entry.place.number, kind, entry.place.name.clone())
            })),
            Body::List(list) => entries.extend(list.names().into_iter().map(|name| {
                let kind = match list.find(&name) {
                    Some(Spec::Link(..)) => Kind::Symlink,
                    Some(Spec::Directory(_) | Spec::List(_)) => Kind::Directory,
                    _ => Kind::File,
                };
                (number(node.place.number, &name), kind.dirent_type(), name)
            })),
            _ => return Err(Errno::ENOTDIR),
        }
        for (next, (inode, kind, name)) in (1..).zip(&entries).skip(usize_from(cursor)) {
            let entry = DirEntry {
                inode: *inode,
                next,
                kind: *kind,
                name: name.as_bytes(),
            };
            if !emit(entry) {
                break;
            }
        }
        Ok(())
    }
}
