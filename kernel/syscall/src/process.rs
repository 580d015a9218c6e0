// SPDX-License-Identifier: Apache-2.0
//! What the one process of the guest owns besides its memory and threads.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use coracle_core::Result;
use coracle_core::file::OpenFile;
use coracle_core::memory;
use coracle_core::sync::{Once, SpinLock};
use coracle_fs::tmpfs::TmpFs;
use coracle_fs::vfs::{Mount, NewKind, NewNode, Place, Vfs};
use coracle_fs::{Errno, vfs};
use coracle_logic::fd_table::{FdError, FdTable};

use crate::argument::Fd;

/// Descriptors, name space and file creation attributes.
pub struct Process {
    /// Open descriptors. What is taken out is dropped after the lock is released: closing may run other code.
    pub fds: SpinLock<FdTable<Arc<OpenFile>>>,
    /// The name space.
    pub vfs: Vfs,
    /// The working directory.
    pub cwd: SpinLock<Place>,
    /// Where `memfd_create(2)` puts its files.
    pub memory_files: (Arc<TmpFs>, Arc<Mount>),
    umask: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
}

static PROCESS: Once<Process> = Once::new();

/// The process.
///
/// # Panics
/// Before [`Process::install`]: system calls come only after it.
pub fn process() -> &'static Process {
    PROCESS.get().expect("installed before the program starts")
}

/// The process, if it is set up already: for reports that may come before.
pub fn installed() -> Option<&'static Process> {
    PROCESS.get()
}

impl Process {
    /// A process in the root directory without open descriptors, umask 022. `memory_limit_bytes` limits the files of
    /// `memfd_create(2)`, `descriptors` is `RLIMIT_NOFILE`.
    #[must_use]
    pub fn new(vfs: Vfs, memory_limit_bytes: u64, descriptors: u32) -> Self {
        let memory_files = TmpFs::new(memory_limit_bytes, 0o700);
        let mount = Mount::detached(memory_files.clone());
        Self {
            fds: SpinLock::new(FdTable::new(descriptors)),
            cwd: SpinLock::new(vfs.root().clone()),
            vfs,
            memory_files: (memory_files, mount),
            umask: AtomicU32::new(0o022),
            uid: AtomicU32::new(0),
            gid: AtomicU32::new(0),
        }
    }

    /// Makes this the process. The first call wins; `EEXIST` afterwards.
    pub fn install(self) -> Result<()> {
        PROCESS.set(self).map_err(|_| Errno::EEXIST)
    }

    /// Bits that are cleared in the mode of new files (umask(2)).
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// Replaces the umask and returns the old one.
    pub fn set_umask(&self, mask: u32) -> u32 {
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }

    /// Owner and group of new files.
    pub fn owner(&self) -> (u32, u32) {
        (
            self.uid.load(Ordering::Relaxed),
            self.gid.load(Ordering::Relaxed),
        )
    }

    /// Sets owner and group of new files (the effective ids).
    pub fn set_owner(&self, uid: u32, gid: u32) {
        self.uid.store(uid, Ordering::Relaxed);
        self.gid.store(gid, Ordering::Relaxed);
    }

    /// A node to be created by the process with permission bits `mode`.
    pub fn new_node<'a>(&self, kind: NewKind<'a>, mode: u32) -> NewNode<'a> {
        let (uid, gid) = self.owner();
        NewNode {
            kind,
            mode: mode & 0o7777 & !self.umask(),
            uid,
            gid,
        }
    }

    /// The working directory.
    pub fn working_directory(&self) -> Place {
        self.cwd.lock().clone()
    }

    /// The file open as `fd`, also one opened with `O_PATH`. `EBADF`.
    pub fn any_file(&self, fd: Fd) -> Result<Arc<OpenFile>> {
        let fds = self.fds.lock();
        fds.get(fd.index()?).cloned().map_err(fd_errno)
    }

    /// The file open as `fd` for use. `EBADF` if it is not open, or only with `O_PATH`.
    pub fn file(&self, fd: Fd) -> Result<Arc<OpenFile>> {
        let open = self.any_file(fd)?;
        if open.flags() & coracle_abi::raw::general::O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        Ok(open)
    }

    /// Gives an open file the lowest free descriptor. `EMFILE`; `ENFILE` when little memory is left, as on Linux, whose
    /// limit of open files grows with the memory.
    pub fn add_file(&self, open: Arc<OpenFile>, close_on_exec: bool) -> Result<usize> {
        if memory::is_scarce() {
            return Err(Errno::ENFILE);
        }
        let keep = open.clone(); // a file that finds no place is dropped outside the lock
        let fd = self.fds.lock().insert(open, 0, close_on_exec);
        drop(keep);
        fd.map(coracle_abi::convert::usize_from_u32)
            .map_err(fd_errno)
    }

    /// The place of a file opened by path, for calls relative to a directory descriptor. `ENOTDIR` for others.
    pub fn place_of(&self, fd: Fd) -> Result<Place> {
        let open = self.any_file(fd)?;
        let file = open.downcast::<vfs::VnodeFile>().ok_or(Errno::ENOTDIR)?;
        Ok(file.place().clone())
    }
}

/// The error numbers of the descriptor table.
pub(crate) fn fd_errno(error: FdError) -> Errno {
    match error {
        FdError::BadFd => Errno::EBADF,
        FdError::TooMany => Errno::EMFILE,
        FdError::NoMemory => Errno::ENOMEM,
    }
}
