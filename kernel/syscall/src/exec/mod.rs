// SPDX-License-Identifier: Apache-2.0
//! Programs: the one that boot starts, and those that replace it by execve(2).
//!
//! `open` finds out what is to be loaded and changes nothing; `map` fills an empty address space; `replace` is what
//! lies between when a program runs already.

mod map;
mod open;
mod replace;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use coracle_abi::Errno;
use coracle_core::file::OpenFile;
use coracle_core::sync::SpinLock;
use coracle_fs::vfs::{Follow, VnodeFile};
use coracle_loader::elf::ElfError;
use coracle_loader::stack::Strings;

use crate::process::process;
use open::{Reason, Refusal, Role};

pub(crate) use replace::{execve, execveat};

/// A program that is ready to run.
pub struct Loaded {
    /// First instruction.
    pub entry: usize,
    /// First stack pointer.
    pub stack: usize,
}

/// Why a program cannot run: exit status as shells and podman use it (126: found but not usable, 127: not found), and a
/// line that says it.
#[derive(Debug)]
pub struct ExecError {
    /// 126 or 127.
    pub status: u8,
    /// Without a newline.
    pub message: String,
}

/// What `/proc/self` shows of the program.
#[derive(Clone, Default)]
pub struct ProgramInfo {
    /// The executable; `None` before one is loaded.
    pub file: Option<Arc<OpenFile>>,
    /// Addresses of the arguments on the stack.
    pub arguments: Range<u64>,
    /// Addresses of the environment.
    pub environment: Range<u64>,
    /// Addresses of the auxiliary vector.
    pub auxiliary: Range<u64>,
    /// First stack pointer.
    pub stack: usize,
    /// First and last address of the code.
    pub code: Range<usize>,
}

impl ProgramInfo {
    /// Its path; empty before a program is loaded.
    #[must_use]
    pub fn path(&self) -> Vec<u8> {
        let file = self.file.as_ref().and_then(|file| file.downcast());
        file.map_or_else(Vec::new, VnodeFile::path)
    }
}

static PROGRAM: SpinLock<Option<ProgramInfo>> = SpinLock::new(None);

/// What `/proc/self` shows of the program; empty before one is loaded.
#[must_use]
pub fn program() -> ProgramInfo {
    PROGRAM.lock().clone().unwrap_or_default()
}

fn set_program(info: ProgramInfo) {
    let before = PROGRAM.lock().replace(info);
    drop(before);
}

/// Loads the program at `path`, or the first of that name in `PATH`, with its arguments and environment. The address
/// space must be empty.
pub fn load(path: &str, args: &[&[u8]], env: &[&[u8]]) -> Result<Loaded, ExecError> {
    let fail = |name: &str, error: Errno| ExecError {
        status: 126,
        message: format!("{name}: cannot be loaded: {error}"),
    };
    let strings = |all: &[&[u8]]| Strings::of(all.iter().copied());
    let arguments = strings(args).map_err(|e| fail(path, e.into()))?;
    let env = strings(env).map_err(|e| fail(path, e.into()))?;
    let name = open::search(path, &env);
    let program = open::open_path(&process().working_directory(), name.as_bytes(), Follow::Yes)
        .map_err(|error| Refusal {
            role: Role::Program,
            path: name.clone().into_bytes(),
            reason: Reason::Errno(error),
        })
        .and_then(|file| open::program(file, name.as_bytes(), arguments, false))
        .map_err(|refusal| explain(&name, &refusal))?;
    process().vfs.set_running(program.inodes());
    let (loaded, info) =
        map::map(&program, name.as_bytes(), &env, false).map_err(|e| fail(&name, e))?;
    set_program(info);
    Ok(loaded)
}

/// Whether a program of this name can be found and executed, by the `PATH` of this environment if it has no slash.
pub(crate) fn can_start<'a>(name: &str, env: impl Iterator<Item = &'a [u8]>) -> bool {
    let env = Strings::of(env.filter(|e| e.starts_with(b"PATH="))).unwrap_or_default();
    let path = open::search(name, &env);
    open::open_path(&process().working_directory(), path.as_bytes(), Follow::Yes).is_ok()
}

/// One line for the person who tried to run it.
fn explain(name: &str, refusal: &Refusal) -> ExecError {
    let path = String::from_utf8_lossy(&refusal.path);
    let of_other = |what: &str| match refusal.reason {
        Reason::Errno(Errno::ENOENT) => {
            format!("{name}: {what} {path} is not in the root file system")
        }
        reason => format!("{name}: {what} {path}: {reason}"),
    };
    let message = match refusal.role {
        Role::Program => format!("{name}: {}", refusal.reason),
        Role::Interpreter => of_other("its interpreter"),
        Role::Loader => of_other("its dynamic loader"),
    };
    let hint = match refusal.reason {
        Reason::Elf(ElfError::NotElf) if refusal.role == Role::Program => {
            "; a script must begin with #! and its interpreter"
        }
        _ => "",
    };
    let is_missing = matches!(
        refusal.reason,
        Reason::Errno(Errno::ENOENT | Errno::ENOTDIR)
    );
    ExecError {
        status: if is_missing { 127 } else { 126 },
        message: message + hint,
    }
}
