// SPDX-License-Identifier: Apache-2.0

//! Starts a process in its place: processors, control group, network namespace, and for a process without a runtime a
//! mount namespace with the root of its image.
//!
//! All of that is done in the child between fork and exec, by system calls alone: no wrapper (`ip netns exec`, `taskset`,
//! `chroot`) costs time that would count as the platform's, and mounts vanish with the last process of their namespace.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Pid, Uid, chdir, chroot, mkdir, setgid, setgroups, setsid, setuid};

use super::cgroup::Cgroup;
use crate::{Error, Result};

/// Open files a service may have, as container engines set it.
const OPEN_FILES: u64 = 65_536;

/// Where a process is put.
#[derive(Default)]
pub(crate) struct Place<'a> {
    /// Processors of the host; empty: all.
    pub(crate) cpus: &'a [usize],
    pub(crate) cgroup: Option<&'a Cgroup>,
    /// Name of a network namespace.
    pub(crate) namespace: Option<&'a str>,
    /// What is mounted in a mount namespace of its own, in this order; empty: none is made.
    pub(crate) mounts: Vec<Mount>,
    /// The root it is shut in, and who it is there.
    pub(crate) inside: Option<Inside>,
    /// Descriptors it keeps.
    pub(crate) inherited: Vec<OwnedFd>,
}

/// Something to mount. Folders on the way are made.
#[derive(Debug)]
pub(crate) struct Mount {
    what: CString,
    kind: Option<CString>,
    options: Option<CString>,
    flags: MsFlags,
    /// The folder itself is the last.
    folders: Vec<CString>,
}

/// A root, and the user, group and folder in it.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) root: CString,
    pub(crate) cwd: CString,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A path or text for a system call.
pub(crate) fn c_string(text: impl AsRef<OsStr>) -> Result<CString> {
    let text = text.as_ref();
    CString::new(text.as_bytes()).map_err(|_| Error::Input(format!("{text:?} contains a NUL")))
}

impl Mount {
    /// A file system of `kind` at `place`, of whose path the part below `above` is made where it is missing.
    pub(crate) fn of(kind: &str, options: &str, above: &Path, place: &Path) -> Result<Mount> {
        Ok(Mount {
            what: c_string(kind)?,
            kind: Some(c_string(kind)?),
            options: Some(c_string(options)?),
            flags: MsFlags::empty(),
            folders: folders(above, place)?,
        })
    }

    /// What is at `source` also at `place`.
    pub(crate) fn bind(source: &Path, above: &Path, place: &Path) -> Result<Mount> {
        Ok(Mount {
            what: c_string(source)?,
            kind: None,
            options: None,
            flags: MsFlags::MS_BIND | MsFlags::MS_REC,
            folders: folders(above, place)?,
        })
    }

    /// Makes these folders too, before it is mounted.
    pub(crate) fn after_folders(mut self, folders: &[&Path]) -> Result<Mount> {
        let texts = folders.iter().map(c_string).collect::<Result<Vec<_>>>()?;
        self.folders.splice(0..0, texts);
        Ok(self)
    }

    /// System calls only.
    fn carry_out(&self) -> nix::Result<()> {
        for folder in &self.folders {
            match mkdir(folder.as_c_str(), Mode::from_bits_truncate(0o755)) {
                Err(nix::errno::Errno::EEXIST) => {}
                other => other?,
            }
        }
        let place = self.folders.last().map(CString::as_c_str);
        let (kind, options) = (self.kind.as_deref(), self.options.as_deref());
        mount(
            Some(self.what.as_c_str()),
            place.ok_or(nix::errno::Errno::EINVAL)?,
            kind,
            self.flags,
            options,
        )
    }
}

/// The folders from below `above` down to `place`.
fn folders(above: &Path, place: &Path) -> Result<Vec<CString>> {
    let mut folders: Vec<CString> = Vec::new();
    for folder in place.ancestors().take_while(|folder| *folder != above) {
        folders.push(c_string(folder)?);
    }
    folders.reverse();
    if folders.is_empty() {
        folders.push(c_string(place)?);
    }
    Ok(folders)
}

/// What the child does, everything opened and allocated beforehand.
struct Steps {
    doors: Vec<File>,
    cpus: Option<CpuSet>,
    namespace: Option<File>,
    mounts: Vec<Mount>,
    inside: Option<Inside>,
    inherited: Vec<OwnedFd>,
}

/// Starts `command` in its place, its output in `stdout` and `stderr`. It is in a session of its own, so a
/// terminal's Ctrl-C does not reach it.
///
/// # Errors
/// When a file or the namespace cannot be opened, or the child cannot get to its place.
pub(crate) fn spawn(
    command: &mut Command,
    place: Place<'_>,
    stdout: File,
    stderr: File,
) -> Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    let cpus = (!place.cpus.is_empty())
        .then(|| {
            let mut set = CpuSet::new();
            place.cpus.iter().try_for_each(|cpu| set.set(*cpu))?;
            nix::Result::Ok(set)
        })
        .transpose()
        .map_err(|_| Error::Input("a processor with an impossible number".into()))?;
    let namespace = place.namespace.map(|name| {
        let path = format!("/run/netns/{name}");
        File::open(&path).map_err(Error::file(path))
    });
    let steps = Steps {
        doors: place.cgroup.map_or_else(|| Ok(Vec::new()), Cgroup::doors)?,
        cpus,
        namespace: namespace.transpose()?,
        mounts: place.mounts,
        inside: place.inside,
        inherited: place.inherited,
    };
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    // SAFETY: between fork and exec the closure makes system calls only; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || steps.carry_out().map_err(io::Error::from));
    }
    command.spawn().map_err(|error| Error::Platform {
        what: format!("{program} cannot be started: {error}"),
        log: String::new(),
    })
}

impl Steps {
    fn carry_out(&self) -> nix::Result<()> {
        // On a busy host Linux shares the processors out among sessions first (sched_autogroup_enabled, sched(7)), and
        // `coracle run -d` makes one: an instance in the session of the load generator would get more or less than that.
        setsid()?;
        for door in &self.doors {
            nix::unistd::write(door.as_fd(), b"0")?;
        }
        if let Some(cpus) = &self.cpus {
            sched_setaffinity(Pid::from_raw(0), cpus)?;
        }
        if let Some(namespace) = &self.namespace {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
        }
        for kept in &self.inherited {
            // SAFETY: the descriptor is owned by `self`, which lives until this process becomes another program.
            let fd = unsafe { BorrowedFd::borrow_raw(kept.as_raw_fd()) };
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        if !self.mounts.is_empty() {
            unshare(CloneFlags::CLONE_NEWNS)?;
            // Nothing that is mounted here is seen elsewhere.
            let none = None::<&std::ffi::CStr>;
            let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(none, c"/", none, flags, none)?;
            for mount in &self.mounts {
                mount.carry_out()?;
            }
        }
        let Some(inside) = &self.inside else {
            return Ok(());
        };
        // Above the hard limit only with CAP_SYS_RESOURCE; then it stays as it is.
        let limit = nix::sys::resource::Resource::RLIMIT_NOFILE;
        let (_, hard) = nix::sys::resource::getrlimit(limit)?;
        nix::sys::resource::setrlimit(limit, OPEN_FILES.min(hard), hard)?;
        chroot(inside.root.as_c_str())?;
        chdir(inside.cwd.as_c_str())?;
        setgroups(&[Gid::from_raw(inside.gid)])?;
        setgid(Gid::from_raw(inside.gid))?;
        setuid(Uid::from_raw(inside.uid))
    }
}

#[cfg(test)]
mod tests {
    use super::folders;
    use std::path::Path;

    #[test]
    fn folders_on_the_way_are_made_from_the_top() {
        let made = folders(Path::new("/a"), Path::new("/a/b/c")).unwrap();
        let texts: Vec<&str> = made.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(texts, ["/a/b", "/a/b/c"]);
    }
}
