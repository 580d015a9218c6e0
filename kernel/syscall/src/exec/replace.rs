// SPDX-License-Identifier: Apache-2.0
//! execve(2): the running program is replaced by another one.
//!
//! Everything that can be wrong is found before the point of no return. Behind it the other threads have ended and the
//! old memory is gone, so what fails there (memory, a disk) ends the program with SIGSEGV, as on Linux.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::raw::general as g;
use coracle_abi::signal::{SI_KERNEL, SigInfo, Signal};
use coracle_abi::{Errno, PAGE_SIZE};
use coracle_arch::TrapFrame;
use coracle_core::exit::{ExitReason, end_process};
use coracle_core::file::OpenFile;
use coracle_core::memory::space;
use coracle_core::user::{self, User, UserIn};
use coracle_core::{Result, futex, signal, thread};
use coracle_fs::vfs::{Follow, VnodeFile};
use coracle_loader::stack::{self, Strings};
use coracle_logic::path::PATH_MAX;

use super::map;
use super::open;
use crate::argument::Fd;
use crate::info;
use crate::process::{fd_errno, process};

/// `AT_EXECVE_CHECK`: only asks whether the file could be executed.
const AT_EXECVE_CHECK: u32 = 0x10000;

/// Longest argument with its NUL, `MAX_ARG_STRLEN`.
const STRING_MAX: usize = 32 * PAGE_SIZE;

/// What is to be executed.
struct Request {
    file: Arc<OpenFile>,
    /// As `AT_EXECFN` shows it.
    name: Vec<u8>,
    /// The name stops leading to the file: it goes through a descriptor that is closed.
    vanishes: bool,
    /// The thread is named after the file, since there is no path.
    is_unnamed: bool,
}

/// `execve(2)`
pub(crate) fn execve(path: User, arguments: User, environment: User) -> Result<usize> {
    let path = user::read_c_string(path.0, PATH_MAX)?;
    let request = request(Fd(g::AT_FDCWD), path, 0)?;
    replace(request, arguments, environment, false)
}

/// `execveat(2)`
pub(crate) fn execveat(
    directory: Fd,
    path: User,
    arguments: User,
    environment: User,
    flags: u32,
) -> Result<usize> {
    let path = user::read_c_string(path.0, PATH_MAX)?;
    let request = request(directory, path, flags)?;
    let only_checks = flags & AT_EXECVE_CHECK != 0;
    replace(request, arguments, environment, only_checks)
}

fn request(directory: Fd, path: Vec<u8>, flags: u32) -> Result<Request> {
    if flags & !(g::AT_EMPTY_PATH | g::AT_SYMLINK_NOFOLLOW | AT_EXECVE_CHECK) != 0 {
        return Err(Errno::EINVAL);
    }
    let follow = match flags & g::AT_SYMLINK_NOFOLLOW {
        0 => Follow::Yes,
        _ => Follow::No,
    };
    let process = process();
    let is_relative = path.first() != Some(&b'/');
    if directory.0 == g::AT_FDCWD || !is_relative {
        if path.is_empty() && flags & g::AT_EMPTY_PATH != 0 {
            return Err(Errno::EACCES); // the working directory
        }
        return Ok(Request {
            file: open::open_path(&process.working_directory(), &path, follow)?,
            name: path,
            vanishes: false,
            is_unnamed: false,
        });
    }
    let (file, name) = if path.is_empty() && flags & g::AT_EMPTY_PATH != 0 {
        let found = process.any_file(directory)?;
        let name = format!("/dev/fd/{}", directory.0).into_bytes();
        (open::open_found(&found)?, name)
    } else {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let file = open::open_path(&process.place_of(directory)?, &path, follow)?;
        let name = format!("/dev/fd/{}/", directory.0).into_bytes();
        (file, [name, path].concat())
    };
    let closes = process.fds.lock().close_on_exec(directory.index()?);
    Ok(Request {
        file,
        name,
        vanishes: closes.map_err(fd_errno)?,
        is_unnamed: true,
    })
}

/// The strings that an array of pointers leads to. NULL for the array is an empty one, as on Linux.
fn strings(array: User, limit: u64) -> Result<Strings> {
    let mut strings = Strings::default();
    let Some(array) = array.optional() else {
        return Ok(strings);
    };
    for n in 0.. {
        let at = UserIn::<usize>::new(array.0).at(n)?.read()?;
        if at == 0 {
            break;
        }
        let string = user::read_c_string(at, STRING_MAX).map_err(|error| match error {
            Errno::ENAMETOOLONG => Errno::E2BIG,
            other => other,
        })?;
        strings.push(&string)?;
        stack::check_size(&strings, &Strings::default(), &[], limit)?;
    }
    Ok(strings)
}

fn replace(
    request: Request,
    arguments: User,
    environment: User,
    only_checks: bool,
) -> Result<usize> {
    let limit = map::arguments_limit();
    let mut arguments = strings(arguments, limit)?;
    let environment = strings(environment, limit)?;
    stack::check_size(&arguments, &environment, &request.name, limit)?;
    if only_checks {
        return Ok(0);
    }
    if arguments.count() == 0 {
        arguments.push(b"")?; // programs take for granted that they have a name
    }
    let program = open::program(request.file, &request.name, arguments, request.vanishes)
        .map_err(|refusal| refusal.errno())?;
    stack::check_size(&program.arguments, &environment, &request.name, limit)?;

    thread::become_only()?; // the point of no return
    let name = if request.is_unnamed {
        let file = program.file.downcast::<VnodeFile>();
        file.and_then(VnodeFile::named)
            .map(|(_, name)| name.clone())
            .unwrap_or_default()
    } else {
        request.name.clone()
    };
    forget_program(&name);
    let is_secure = info::on_exec(&program.file);
    process().vfs.set_running(program.inodes());
    match map::map(&program, &request.name, &environment, is_secure) {
        Ok((loaded, info)) => {
            super::set_program(info);
            thread::replace_frame(TrapFrame::enter(loaded.entry, loaded.stack));
            Ok(0)
        }
        Err(error) => fail(&request.name, error),
    }
}

/// Ends what belonged to the old program. `name` is what the thread is called after.
fn forget_program(name: &[u8]) {
    let me = thread::current();
    futex::release_robust_locks(me);
    crate::time::forget_program();
    crate::thread::forget_program();
    signal::forget_program();
    thread::forget_program();
    let base = name.rsplit(|b| *b == b'/').next().unwrap_or_default();
    me.set_name(base);
    space::clear();
    // The files are dropped without the lock.
    while let Some(closed) = {
        let mut fds = process().fds.lock();
        fds.remove_first_close_on_exec()
    } {
        drop(closed);
    }
}

fn fail(name: &[u8], error: Errno) -> ! {
    log::error!(
        "{} could not be loaded ({error}), and the program it replaces is gone",
        name.escape_ascii()
    );
    if error == Errno::ENOMEM {
        end_process(ExitReason::OutOfMemory);
    }
    end_process(ExitReason::Signal {
        signal: Signal::SIGSEGV,
        info: SigInfo::new(Signal::SIGSEGV, SI_KERNEL),
        frame: thread::entry_frame(),
    })
}
