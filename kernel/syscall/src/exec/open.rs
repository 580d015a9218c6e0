// SPDX-License-Identifier: Apache-2.0
//! From a path to a program that can be loaded: scripts lead to their interpreters, programs to their dynamic loaders.
//! Nothing is changed here, so whatever is wrong leaves the running program untouched.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::general as g;
use coracle_abi::{Errno, PAGE_SIZE};
use coracle_core::file::OpenFile;
use coracle_core::io::IoDst;
use coracle_fs::vfs::{Follow, Inode, Kind, OpenRequest, Place, VnodeFile, same_inode};
use coracle_loader::elf::{self, ElfError, LoadPlan, Machine};
use coracle_loader::script::{self, ScriptError};
use coracle_loader::stack::{StackError, Strings};

use crate::process::process;

/// Most scripts that lead to each other (Linux).
const MOST_SCRIPTS: usize = 5;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// What was asked for.
    Program,
    /// The interpreter of a script.
    Interpreter,
    /// The dynamic loader of a program.
    Loader,
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    Errno(Errno),
    Elf(ElfError),
    Script(ScriptError),
    Arguments(StackError),
}

/// Why a program cannot be run.
pub(super) struct Refusal {
    /// What the file at fault is for.
    pub role: Role,
    /// Its path.
    pub path: Vec<u8>,
    pub reason: Reason,
}

impl Refusal {
    /// What `execve(2)` returns.
    pub(super) fn errno(&self) -> Errno {
        match self.reason {
            Reason::Errno(error) => error,
            Reason::Elf(_) if self.role == Role::Loader => Errno::ELIBBAD,
            Reason::Elf(error) => error.into(),
            Reason::Script(_) => Errno::ENOEXEC,
            Reason::Arguments(error) => error.into(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(Errno::ENOENT) => f.write_str("not found in the root file system"),
            Self::Errno(Errno::EACCES) => f.write_str("not an executable file"),
            Self::Errno(Errno::ELOOP) => f.write_str("too many scripts that lead to each other"),
            Self::Errno(error) => write!(f, "cannot be opened: {error}"),
            Self::Elf(error) => error.fmt(f),
            Self::Script(error) => error.fmt(f),
            Self::Arguments(error) => error.fmt(f),
        }
    }
}

/// A program that can be loaded.
pub(super) struct Program {
    pub file: Arc<OpenFile>,
    pub plan: LoadPlan,
    /// Its dynamic loader.
    pub loader: Option<(Arc<OpenFile>, LoadPlan)>,
    /// Its arguments: those given, with what scripts put before them.
    pub arguments: Strings,
}

impl Program {
    /// The files that will be executed.
    pub(super) fn inodes(&self) -> Vec<Arc<dyn Inode>> {
        let loader = self.loader.as_ref().map(|(file, _)| file);
        let files = [Some(&self.file), loader].into_iter().flatten();
        files.filter_map(inode_of).collect()
    }
}

/// The inode of a file that was opened by path.
fn inode_of(file: &Arc<OpenFile>) -> Option<Arc<dyn Inode>> {
    let file = file.downcast::<VnodeFile>()?;
    Some(file.place().inode.clone())
}

/// Opens the file at `path` to execute it. `EACCES` if it is not a regular file with an execute bit, `ETXTBSY` if it is
/// open for writing.
pub(super) fn open_path(base: &Place, path: &[u8], follow: Follow) -> Result<Arc<OpenFile>, Errno> {
    let no_follow = match follow {
        Follow::Yes => 0,
        Follow::No => g::O_NOFOLLOW,
    };
    // Only looked at first: opening a pipe or a device can have effects.
    let request = OpenRequest::new(g::O_PATH | no_follow);
    let found = process().vfs.open(base, path, &request)?;
    open_found(&found)
}

/// As [`open_path`], for a file that is open already.
pub(super) fn open_found(found: &OpenFile) -> Result<Arc<OpenFile>, Errno> {
    let found = found.downcast::<VnodeFile>().ok_or(Errno::EACCES)?;
    let inode = &found.place().inode;
    match inode.kind() {
        Kind::File => {}
        Kind::Symlink => return Err(Errno::ELOOP),
        _ => return Err(Errno::EACCES),
    }
    if inode.metadata()?.mode & 0o111 == 0 {
        return Err(Errno::EACCES);
    }
    if is_being_written(inode) {
        return Err(Errno::ETXTBSY);
    }
    found.reopen(&process().vfs, &OpenRequest::new(g::O_RDONLY))
}

/// Whether a descriptor is open that could change the file.
fn is_being_written(inode: &Arc<dyn Inode>) -> bool {
    let fds = process().fds.lock();
    fds.iter().any(|(_, open)| {
        open.check_writable().is_ok()
            && open
                .downcast::<VnodeFile>()
                .is_some_and(|file| same_inode(&file.place().inode, inode))
    })
}

/// Finds out what runs `file`, which was opened as `name`, with `arguments`. With `vanishes` the name will not lead to
/// the file any more once the program runs, which a script's interpreter would need: `ENOENT`.
pub(super) fn program(
    file: Arc<OpenFile>,
    name: &[u8],
    arguments: Strings,
    vanishes: bool,
) -> Result<Program, Refusal> {
    let (mut file, mut path, mut role) = (file, name.to_vec(), Role::Program);
    let mut arguments = arguments;
    let mut scripts = 0;
    loop {
        let refuse = |reason| Refusal {
            role,
            path: path.clone(),
            reason,
        };
        if scripts > MOST_SCRIPTS {
            return Err(refuse(Reason::Errno(Errno::ELOOP)));
        }
        let mut head = [0; script::HEAD_BYTES];
        read_start(&file, &mut head).map_err(|e| refuse(Reason::Errno(e)))?;
        if !script::is_script(&head) {
            let plan = plan(&file).map_err(refuse)?;
            let loader = loader(&plan)?;
            return Ok(Program {
                file,
                plan,
                loader,
                arguments,
            });
        }
        let script = script::parse(&head).map_err(|e| refuse(Reason::Script(e)))?;
        if vanishes {
            return Err(refuse(Reason::Errno(Errno::ENOENT)));
        }
        let before = [
            Some(script.interpreter),
            script.argument,
            Some(path.as_slice()),
        ];
        let all = before.into_iter().flatten().chain(arguments.iter().skip(1));
        arguments = Strings::of(all).map_err(|e| refuse(Reason::Arguments(e)))?;
        path = script.interpreter.to_vec();
        role = Role::Interpreter;
        file = open_named(role, &path)?;
        scripts += 1;
    }
}

/// The dynamic loader that a program names.
fn loader(plan: &LoadPlan) -> Result<Option<(Arc<OpenFile>, LoadPlan)>, Refusal> {
    let elf::Kind::Dynamic { interp } = &plan.kind else {
        return Ok(None);
    };
    let file = open_named(Role::Loader, interp.as_bytes())?;
    let plan = self::plan(&file).map_err(|reason| Refusal {
        role: Role::Loader,
        path: interp.clone().into_bytes(),
        reason,
    })?;
    Ok(Some((file, plan)))
}

/// Opens a file that another one names. An empty path means the working directory, which cannot be executed.
fn open_named(role: Role, path: &[u8]) -> Result<Arc<OpenFile>, Refusal> {
    let found = if path.is_empty() {
        Err(Errno::EACCES)
    } else {
        open_path(&process().working_directory(), path, Follow::Yes)
    };
    found.map_err(|error| Refusal {
        role,
        path: path.to_vec(),
        reason: Reason::Errno(error),
    })
}

/// Fills `out` from the start of a file; returns how much the file had.
fn read_start(file: &OpenFile, out: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < out.len() {
        let mut to = IoDst::kernel(&mut out[done..]);
        match file.file().read_at(u64_from(done), &mut to)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Reads what an executable wants.
fn plan(file: &OpenFile) -> Result<LoadPlan, Reason> {
    let size = file.file().metadata().map_err(Reason::Errno)?.size;
    let mut wanted = PAGE_SIZE;
    loop {
        let mut head = Vec::new();
        head.try_reserve_exact(wanted)
            .map_err(|_| Reason::Errno(Errno::ENOMEM))?;
        head.resize(wanted, 0);
        let got = read_start(file, &mut head).map_err(Reason::Errno)?;
        match elf::parse(&head[..got], size) {
            Err(ElfError::NeedBytes { bytes, .. }) if usize_from(bytes) > wanted => {
                wanted = usize_from(bytes);
            }
            Err(error) => return Err(Reason::Elf(error)),
            Ok(plan) => {
                plan.require(Machine::X86_64).map_err(Reason::Elf)?;
                return Ok(plan);
            }
        }
    }
}

/// The path of the program: as given if it has a slash, else the first match in `PATH`.
pub(super) fn search(path: &str, env: &Strings) -> String {
    if path.contains('/') {
        return path.into();
    }
    let default = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let search = env
        .iter()
        .find_map(|e| e.strip_prefix(b"PATH="))
        .and_then(|p| core::str::from_utf8(p).ok())
        .unwrap_or(default);
    search
        .split(':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| alloc::format!("{directory}/{path}"))
        .find(|candidate| {
            open_path(process().vfs.root(), candidate.as_bytes(), Follow::Yes).is_ok()
        })
        .unwrap_or_else(|| path.into())
}
