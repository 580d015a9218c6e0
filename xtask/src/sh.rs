// SPDX-License-Identifier: Apache-2.0

//! Running other programs: errors that name the command, bounded waiting, and a clean end on Ctrl-C.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Turns SIGINT, SIGTERM and SIGHUP into an ordinary error at the next [`check_interrupt`], so that destructors remove
/// what was set up on the host. A second signal ends the process at once.
pub(crate) fn catch_interrupts() -> Result<()> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .context("set the Ctrl-C handler")
}

/// An error if the user asked to stop.
pub(crate) fn check_interrupt() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// A command with its arguments.
pub(crate) fn cmd<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| {
            let word = word.to_string_lossy();
            let quoting = word.is_empty()
                || word.contains(|c: char| c.is_whitespace() || "'\"$*;&|<>()".contains(c));
            if quoting {
                format!("'{word}'")
            } else {
                word.into_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs to the end with our standard streams; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let mut child = spawn(command)?;
    loop {
        if let Some(status) = child.try_wait()? {
            check_interrupt()?;
            return expect_success(command, status, "");
        }
        if let Err(interrupt) = check_interrupt() {
            end(&mut child);
            return Err(interrupt);
        }
        sleep(Duration::from_millis(10));
    }
}

/// Runs to the end and returns standard output; an exit status other than 0 is an error with standard error in it.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let result = command
        .output()
        .with_context(|| format!("start `{}`", shown(command)))?;
    check_interrupt()?;
    expect_success(
        command,
        result.status,
        &String::from_utf8_lossy(&result.stderr),
    )?;
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// What a bounded run gave.
pub(crate) struct Bounded {
    /// `None` when the time was over and the program had to be ended.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bounded {
    pub(crate) fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Runs for at most `limit`, collecting both outputs.
pub(crate) fn output_within(command: &mut Command, limit: Duration) -> Result<Bounded> {
    output_with_input(command, Stdio::null(), limit)
}

/// The same for a command with something on its standard input.
pub(crate) fn output_with_input(
    command: &mut Command,
    input: Stdio,
    limit: Duration,
) -> Result<Bounded> {
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(command)?;
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = wait_within(&mut child, limit)?;
    if status.is_none() {
        end(&mut child);
    }
    let join = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Bounded {
        status,
        stdout: join(out),
        stderr: join(err),
    })
}

fn collect(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // A read error ends the text early; the exit status still tells the outcome.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Starts the command.
pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .with_context(|| format!("start `{}`", shown(command)))
}

/// Waits until the child ends (its status), `limit` has passed (`None`), or the user interrupts (an error).
pub(crate) fn wait_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        check_interrupt().inspect_err(|_| end(child))?;
        if Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(Duration::from_millis(5));
    }
}

/// Kills the child if it still runs, and reaps it.
pub(crate) fn end(child: &mut Child) {
    // Both fail only for a child that has been reaped already.
    let _ = child.kill();
    let _ = child.wait();
}

fn expect_success(command: &Command, status: ExitStatus, stderr: &str) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let detail = stderr.trim();
    let separator = if detail.is_empty() { "" } else { ":\n" };
    bail!(
        "`{}` ended with {status}{separator}{detail}",
        shown(command)
    );
}

/// Whether a program of that name is on the search path or in one of the sbin folders.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = [Path::new("/usr/sbin"), Path::new("/sbin")].map(Path::to_path_buf);
    std::env::split_paths(&path)
        .chain(sbin)
        .any(|folder| folder.join(program).is_file())
}
