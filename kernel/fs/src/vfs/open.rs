// SPDX-License-Identifier: Apache-2.0
//! open(2) and openat2(2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::raw::general as g;
use coracle_core::file::{File, OpenFile};
use coracle_core::memory;
use coracle_logic::path::LinkBudget;

use super::walk::{Last, path_errno};
use super::{Follow, Inode, Kind, Named, NewKind, NewNode, Place, Target, Vfs, VnodeFile};
use crate::inotify::events;
use crate::{Errno, Result};

/// Limits of `openat2(2)` on how a path may be resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolve {
    /// `RESOLVE_NO_SYMLINKS`: a symbolic link anywhere gives `ELOOP`.
    pub no_symlinks: bool,
}

/// What to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest {
    /// `O_*` flags.
    pub flags: u32,
    /// Permission bits of a new file, the umask already applied.
    pub mode: u32,
    /// Owner of a new file.
    pub uid: u32,
    /// Group of a new file.
    pub gid: u32,
    /// Limits of the walk.
    pub resolve: Resolve,
}

impl OpenRequest {
    /// Opens with `flags`; a new file would belong to root with mode 0600.
    #[must_use]
    pub fn new(flags: u32) -> Self {
        Self {
            flags,
            mode: 0o600,
            uid: 0,
            gid: 0,
            resolve: Resolve::default(),
        }
    }

    fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    fn writes(&self) -> bool {
        self.flags & g::O_ACCMODE != g::O_RDONLY
    }

    fn follow(&self) -> Follow {
        if self.has(g::O_NOFOLLOW) || self.has(g::O_CREAT | g::O_EXCL) {
            Follow::No
        } else {
            Follow::Yes
        }
    }

    fn budget(&self) -> LinkBudget {
        let mut budget = LinkBudget::default();
        if self.resolve.no_symlinks {
            while budget.follow().is_ok() {}
        }
        budget
    }

    fn new_file(&self) -> NewNode<'static> {
        NewNode {
            kind: NewKind::File,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
        }
    }
}

/// What came of creating a file that was not there a moment ago.
enum Created {
    New(Place),
    Found(Place),
}

impl Vfs {
    /// `openat(2)`: opens `path`, from the directory `base` if it is relative.
    pub fn open(&self, base: &Place, path: &[u8], request: &OpenRequest) -> Result<Arc<OpenFile>> {
        let mut request = *request;
        if request.has(g::O_PATH) {
            request.flags &= g::O_PATH | g::O_DIRECTORY | g::O_NOFOLLOW | g::O_CLOEXEC;
        }
        if request.has(g::O_TMPFILE) {
            return self.open_unnamed(base, path, &request);
        }
        if request.has(g::O_CREAT | g::O_DIRECTORY) {
            return Err(Errno::EINVAL);
        }
        let mut budget = request.budget();
        let mut from = base.clone();
        let mut text: Option<Vec<u8>> = None;
        loop {
            let path = text.as_deref().unwrap_or(path);
            let entry = self.resolve_entry(&from, path, &mut budget)?;
            let slash = entry.trailing_slash;
            if request.has(g::O_CREAT) && (slash || !matches!(entry.last, Last::Name(_))) {
                let named = matches!(entry.last, Last::Name(_));
                return Err(match named || !request.has(g::O_EXCL) {
                    true => Errno::EISDIR,
                    false => Errno::EEXIST,
                });
            }
            let Last::Name(name) = entry.last else {
                // The root, `.` or `..`: a directory, which needs no name.
                let place = self.resolve_with(&from, path, Follow::No, &mut budget)?;
                return self.open_place(place, None, &request);
            };
            let directory = entry.directory;
            let found = match self.enter(&directory, &name) {
                Err(Errno::ENOENT) if request.has(g::O_CREAT) => {
                    match self.create_file(&directory, &name, &request)? {
                        Created::New(place) => {
                            return self.open_node(place, Some((directory, name)), &request);
                        }
                        Created::Found(place) => place,
                    }
                }
                result => result?,
            };
            if request.has(g::O_CREAT | g::O_EXCL) {
                return Err(Errno::EEXIST);
            }
            let follows = slash || request.follow() == Follow::Yes;
            if found.inode.kind() == Kind::Symlink && follows {
                budget.follow().map_err(path_errno)?;
                match found.inode.follow()? {
                    Target::Jump(place, named) => return self.open_place(place, named, &request),
                    Target::Path(mut target) => {
                        if slash {
                            target.push(b'/');
                        }
                        text = Some(target);
                    }
                }
                from = directory;
                continue;
            }
            if found.inode.kind() == Kind::Directory {
                if request.has(g::O_CREAT) {
                    return Err(Errno::EISDIR);
                }
            } else if slash {
                return Err(Errno::ENOTDIR);
            }
            return self.open_place(found, Some((directory, name)), &request);
        }
    }

    fn create_file(
        &self,
        directory: &Place,
        name: &[u8],
        request: &OpenRequest,
    ) -> Result<Created> {
        directory.check_changeable()?;
        match directory.inode.create(name, &request.new_file()) {
            Ok(inode) => {
                events::created((&directory.inode, name), &inode);
                Ok(Created::New(Place {
                    mount: directory.mount.clone(),
                    inode,
                }))
            }
            // Somebody else was quicker: what is there now is opened.
            Err(Errno::EEXIST) => self.enter(directory, name).map(Created::Found),
            Err(error) => Err(error),
        }
    }

    fn open_unnamed(
        &self,
        base: &Place,
        path: &[u8],
        request: &OpenRequest,
    ) -> Result<Arc<OpenFile>> {
        if !request.writes() || request.has(g::O_CREAT) {
            return Err(Errno::EINVAL);
        }
        let directory = self.resolve_with(base, path, request.follow(), &mut request.budget())?;
        if directory.inode.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        directory.check_changeable()?;
        let inode = directory
            .inode
            .create_unnamed(&request.new_file(), !request.has(g::O_EXCL))?;
        let place = Place {
            mount: directory.mount,
            inode,
        };
        self.open_node(place, None, request)
    }

    /// Opens an object that exists, after the checks of open(2).
    pub fn open_place(
        &self,
        place: Place,
        named: Option<Named>,
        request: &OpenRequest,
    ) -> Result<Arc<OpenFile>> {
        let kind = place.inode.kind();
        if request.has(g::O_DIRECTORY) && kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if request.has(g::O_PATH) {
            let file: Arc<dyn File> = Arc::new(VnodeFile::path_only(place, named));
            return Ok(OpenFile::new(file, request.flags));
        }
        let truncates = request.has(g::O_TRUNC);
        match kind {
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::Socket => return Err(Errno::ENXIO),
            Kind::Directory if request.writes() || truncates => return Err(Errno::EISDIR),
            Kind::File if request.writes() || truncates => {
                place.check_changeable()?;
                self.check_not_running(&place.inode)?;
            }
            _ => {}
        }
        let truncates = truncates && kind == Kind::File;
        if truncates {
            place.inode.truncate(0)?;
            memory::forget_beyond(place.inode.content_id(), 0);
        }
        let open = self.open_node(place, named, request)?;
        if truncates && let Some(file) = open.downcast::<VnodeFile>() {
            file.tell(g::IN_MODIFY);
        }
        Ok(open)
    }

    fn open_node(
        &self,
        place: Place,
        named: Option<Named>,
        request: &OpenRequest,
    ) -> Result<Arc<OpenFile>> {
        let inode = &place.inode;
        let inner = match inode.kind() {
            Kind::CharDevice | Kind::BlockDevice => {
                self.open_device(inode.metadata()?.special_device, request.flags)?
            }
            Kind::Fifo => inode
                .pipe()
                .ok_or(Errno::ENXIO)?
                .open_named(request.flags)?,
            _ => Inode::open(inode.clone(), request.flags)?,
        };
        let file = VnodeFile::new(place, named, inner, request.writes());
        file.tell(g::IN_OPEN);
        Ok(OpenFile::new(Arc::new(file), request.flags))
    }
}
