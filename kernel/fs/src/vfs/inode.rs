// SPDX-License-Identifier: Apache-2.0
//! What a file system implements for each of its objects.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use coracle_abi::raw::general as g;
use coracle_core::file::{File, Metadata};
use coracle_core::sync::Once;

use super::Place;
use crate::pipe::Pipe;
use crate::{Errno, Result};

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Name of a UNIX-domain socket.
    Socket,
}

impl Kind {
    /// The type in `S_IFMT` of a mode; `None` if it is no valid type.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & g::S_IFMT {
            g::S_IFREG => Self::File,
            g::S_IFDIR => Self::Directory,
            g::S_IFLNK => Self::Symlink,
            g::S_IFCHR => Self::CharDevice,
            g::S_IFBLK => Self::BlockDevice,
            g::S_IFIFO => Self::Fifo,
            g::S_IFSOCK => Self::Socket,
            _ => return None,
        })
    }

    /// The `S_IF*` bits.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::File => g::S_IFREG,
            Self::Directory => g::S_IFDIR,
            Self::Symlink => g::S_IFLNK,
            Self::CharDevice => g::S_IFCHR,
            Self::BlockDevice => g::S_IFBLK,
            Self::Fifo => g::S_IFIFO,
            Self::Socket => g::S_IFSOCK,
        }
    }

    /// The `DT_*` value of getdents(2), which is the type's part of the mode.
    #[must_use]
    pub const fn dirent_type(self) -> u8 {
        coracle_abi::convert::low_u8((self.mode_bits() >> 12) as u64)
    }
}

/// What to create.
#[derive(Clone, Copy, Debug)]
pub enum NewKind<'a> {
    /// Empty regular file.
    File,
    /// Empty directory.
    Directory,
    /// Symbolic link with this text.
    Symlink(&'a [u8]),
    /// Character device with this number.
    CharDevice(u64),
    /// Block device with this number.
    BlockDevice(u64),
    /// Named pipe.
    Fifo,
    /// Name of a UNIX-domain socket.
    Socket,
}

impl NewKind<'_> {
    /// The type without its data.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::File => Kind::File,
            Self::Directory => Kind::Directory,
            Self::Symlink(_) => Kind::Symlink,
            Self::CharDevice(_) => Kind::CharDevice,
            Self::BlockDevice(_) => Kind::BlockDevice,
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
        }
    }
}

/// A node to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewNode<'a> {
    /// Type and its data.
    pub kind: NewKind<'a>,
    /// Permission bits, the umask already applied.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Changes of `chmod(2)`, `chown(2)` and `utimensat(2)`; `None` leaves the attribute.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read, nanoseconds since 1970.
    pub accessed_ns: Option<u64>,
    /// Last write, nanoseconds since 1970.
    pub modified_ns: Option<u64>,
}

/// What `renameat2(2)` does with an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// Replaces it.
    Replace,
    /// Fails with `EEXIST` (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two names (`RENAME_EXCHANGE`).
    Exchange,
}

/// The directory and the name in it under which an object was opened.
pub type Named = (Place, Vec<u8>);

/// What `setxattr(2)` expects to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetExtended {
    /// The attribute may be there or not.
    Any,
    /// It must not (`XATTR_CREATE`, `EEXIST`).
    Create,
    /// It must (`XATTR_REPLACE`, `ENODATA`).
    Replace,
}

/// Whether a file system that keeps extended attributes keeps this one: the kinds are `user.`, `trusted.` and
/// `security.`. `EINVAL` if nothing follows, `EOPNOTSUPP` for other kinds, of which `system.` (access control lists) is
/// one.
pub(crate) fn check_extended_name(name: &[u8]) -> Result<()> {
    let kinds: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match kinds.into_iter().find(|kind| name.starts_with(kind)) {
        None => Err(Errno::EOPNOTSUPP),
        Some(kind) if kind.len() == name.len() => Err(Errno::EINVAL),
        Some(_) => Ok(()),
    }
}

/// Where a symbolic link leads.
pub enum Target {
    /// To a path, resolved from the link's directory.
    Path(Vec<u8>),
    /// Straight to an object, whatever its name (the "magic links" of proc(5)); with the name it was opened under.
    Jump(Place, Option<Named>),
}

/// An object of a file system. The defaults are what Linux answers for objects that do not have the operation.
///
/// Names passed in are single components: not empty, without `/`, not `.` or `..`, at most `NAME_MAX` bytes.
pub trait Inode: Send + Sync + 'static {
    /// For access to the concrete type.
    fn as_any(&self) -> &dyn Any;

    /// The type; never changes.
    fn kind(&self) -> Kind;

    /// `stat(2)`.
    fn metadata(&self) -> Result<Metadata>;

    /// Changes attributes; updates the time of change.
    fn change(&self, _change: &AttributeChange) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// The entry of that name; `ENOENT`.
    fn lookup(&self, _name: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(Errno::ENOTDIR)
    }

    /// Adds a node; `EEXIST` if the name is taken, `ENOENT` if the directory itself was removed.
    fn create(&self, _name: &[u8], _node: &NewNode<'_>) -> Result<Arc<dyn Inode>> {
        Err(Errno::EPERM)
    }

    /// A regular file without a name (`O_TMPFILE`); `linkable` if it may get one later.
    fn create_unnamed(&self, _node: &NewNode<'_>, _linkable: bool) -> Result<Arc<dyn Inode>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Gives a node of the same file system another name; `ENOENT` if it lost its last one.
    fn link(&self, _name: &[u8], _target: &Arc<dyn Inode>) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Removes a name that is not a directory's; `EISDIR`.
    fn unlink(&self, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Removes an empty directory; `ENOTDIR`, `ENOTEMPTY`.
    fn remove_directory(&self, _name: &[u8]) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// Moves an entry to a directory of the same file system.
    fn rename(
        &self,
        _name: &[u8],
        _to: &Arc<dyn Inode>,
        _new_name: &[u8],
        _how: Rename,
    ) -> Result<()> {
        Err(Errno::EPERM)
    }

    /// For directories: the directory this one is in, and its name there. `None` for a root and for a removed one.
    fn parent(&self) -> Option<(Arc<dyn Inode>, Vec<u8>)> {
        None
    }

    /// Where this symbolic link leads; `EINVAL` if it is none.
    fn follow(&self) -> Result<Target> {
        self.read_link().map(Target::Path)
    }

    /// The text of this symbolic link; `EINVAL` if it is none.
    fn read_link(&self) -> Result<Vec<u8>> {
        Err(Errno::EINVAL)
    }

    /// `truncate(2)`.
    fn truncate(&self, _size: u64) -> Result<()> {
        Err(Errno::EINVAL)
    }

    /// What [`File::content_id`] is of files opened here.
    fn content_id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// The next byte at or after `offset` that is in a hole (`hole`) or in data; `ENXIO` behind the end (lseek(2)).
    fn seek_content(&self, offset: u64, hole: bool) -> Result<u64> {
        let size = self.metadata()?.size;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        Ok(if hole { size } else { offset })
    }

    /// The object for a new descriptor of a regular file or directory. Devices, named pipes and sockets are opened
    /// by the name space.
    fn open(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>>;

    /// The pipe of a FIFO.
    fn pipe(&self) -> Option<Arc<Pipe>> {
        None
    }

    /// For the name of a UNIX-domain socket: the socket, kept by whoever bound it.
    fn socket(&self) -> Option<&Once<Arc<dyn Any + Send + Sync>>> {
        None
    }

    /// `getxattr(2)`: the value of an extended attribute; `ENODATA` if there is none, `EOPNOTSUPP` if this file system
    /// keeps none of that kind.
    fn extended(&self, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `listxattr(2)`: the names of all extended attributes.
    fn extended_names(&self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// `setxattr(2)`, and without a value `removexattr(2)`.
    fn change_extended(
        &self,
        _name: &[u8],
        _value: Option<&[u8]>,
        _how: SetExtended,
    ) -> Result<()> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `F_SEAL_*` of fcntl(2): adds `add` and returns all; `EINVAL` if the file cannot be sealed.
    fn seals(&self, _add: u32) -> Result<u32> {
        Err(Errno::EINVAL)
    }
}

/// Whether both are the same object.
#[must_use]
pub fn same_inode(a: &Arc<dyn Inode>, b: &Arc<dyn Inode>) -> bool {
    core::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}
