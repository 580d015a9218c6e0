// SPDX-License-Identifier: Apache-2.0
//! Starts QEMU so that it inherits its sockets and cannot outlive the process that watches it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::command::{Endpoint, Spec, Streams};

/// A started VMM and the host's ends of its sockets.
pub(crate) struct Started {
    pub(crate) child: Child,
    /// The application's console, when it is shown here.
    pub(crate) console: Option<UnixStream>,
    pub(crate) control: UnixStream,
}

/// Starts the VMM of `spec`. Without `console_log` the console ends in a socket, with it in that file.
///
/// The death signal belongs to the calling *thread*, which must therefore live as long as the VMM shall.
pub(crate) fn spawn(
    spec: &Spec,
    console_log: Option<Endpoint>,
    serial: Endpoint,
    messages: File,
) -> io::Result<Started> {
    let (control, control_guest) = UnixStream::pair()?;
    let mut inherited = vec![control_guest.as_raw_fd()];
    let (console, console_guest) = match console_log {
        Some(_) => (None, None),
        None => {
            let (ours, guest) = UnixStream::pair()?;
            inherited.push(guest.as_raw_fd());
            (Some(ours), Some(guest))
        }
    };
    let streams = Streams {
        console: match (&console_guest, console_log) {
            (Some(guest), _) => Endpoint::Fd(guest.as_raw_fd()),
            (None, log) => log.expect("without a socket there is a log"),
        },
        control: Endpoint::Fd(control_guest.as_raw_fd()),
        serial,
    };
    let mut command = Command::new(&spec.qemu);
    command
        .args(spec.arguments(&streams))
        .stdin(Stdio::null())
        .stdout(messages.try_clone()?)
        .stderr(messages)
        // A terminal's Ctrl-C is for the application, not for QEMU.
        .process_group(0);
    let watcher = nix::unistd::getpid();
    // SAFETY: between fork and exec the closure makes system calls only; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || prepare(&inherited, watcher));
    }
    let child = command.spawn()?;
    Ok(Started {
        child,
        console,
        control,
    })
}

/// Runs in the child before QEMU replaces it.
fn prepare(inherited: &[RawFd], watcher: nix::unistd::Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::SIGKILL)?;
    if nix::unistd::getppid() != watcher {
        return Err(io::ErrorKind::Interrupted.into()); // it died before the line above
    }
    nix::sys::prctl::set_no_new_privs()?;
    for &fd in inherited {
        // SAFETY: the descriptors belong to sockets the parent keeps open until this child has been started.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        nix::fcntl::fcntl(
            fd,
            nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
        )?;
    }
    Ok(())
}
