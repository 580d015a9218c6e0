// SPDX-License-Identifier: Apache-2.0
//! Detached instances: `coracle` runs itself again as the process that stays with the VMM.
//!
//! The two speak over a pipe, the monitor's standard output: `ok` when the program was started or the guest is still
//! silent after a while, else the exit code and the one line to show.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use coracle_vmm::supervise::{Mode, supervise};
use coracle_vmm::{Instance, Reason, Status, Store};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::Failure;
use crate::folders;

/// How long `run -d` waits for the guest's kernel, in milliseconds; it then leaves the guest alone.
const BOOT_LIMIT_MS: u16 = 10_000;

/// Starts the monitor and waits until the guest is up or has failed.
pub(crate) fn start(instance: &Instance) -> Result<(), Failure> {
    let cannot =
        |error: std::io::Error| Failure::new(format!("cannot start the monitor process: {error}"));
    let program = std::env::current_exe().map_err(cannot)?;
    let mut command = Command::new(program);
    command
        .args(["monitor", &instance.name])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into));
    }
    let mut child = command.spawn().map_err(cannot)?;
    let mut answer = String::new();
    if let Some(pipe) = child.stdout.take() {
        let mut waiting = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        if poll(&mut waiting, PollTimeout::from(BOOT_LIMIT_MS)) == Ok(0) {
            return Ok(());
        }
        BufReader::new(pipe)
            .read_line(&mut answer)
            .map_err(cannot)?;
    }
    match answer.trim_end().split_once(' ') {
        None if answer.trim_end() == "ok" => Ok(()),
        Some((code, message)) => Err(Failure {
            code: code.parse().unwrap_or(crate::error::OWN_ERROR),
            message: message.to_owned(),
        }),
        None => {
            let _ = child.wait();
            Err(Failure::new(
                "the monitor process ended without a word; look at its last message: dmesg",
            ))
        }
    }
}

/// The hidden subcommand: watches one instance until its end.
pub(crate) fn monitor(name: &str) -> Result<u8, Failure> {
    let instance = Store::new(&folders::state()?).open(name)?;
    let mut state = instance.load()?;
    if state.status != Status::Created {
        return Err(Failure::new(format!(
            "{name} was started before; coracle run starts instances"
        )));
    }
    let mut told = false;
    let result = supervise(&instance, &mut state, Mode::Detached, &mut || {
        told = true;
        answer("ok");
    });
    match result {
        Ok(exit) if !told && exit.reason == Reason::Exec => {
            let detail = exit.detail.unwrap_or_default();
            answer(&format!("{} {detail}", exit.code));
            state.remove_volumes();
            let _ = instance.remove();
        }
        Ok(_) if !told => answer("ok"),
        Ok(_) => {}
        Err(error) => {
            answer(&format!("{} {error}", crate::error::OWN_ERROR));
            state.remove_volumes();
            let _ = instance.remove();
        }
    }
    Ok(0)
}

/// Tells the waiting process; it may be gone, which does not matter to the instance.
fn answer(line: &str) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{}", line.replace('\n', " ")).and_then(|()| stdout.flush());
}
