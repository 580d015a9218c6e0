// SPDX-License-Identifier: Apache-2.0

//! Running a program in a guest for a bounded time, with everything it said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use crate::{paths, sh};

/// Guests that run at the same time: each takes a processor or more of the host.
const AT_ONCE: usize = 2;

/// The most of a log that is shown, lines.
const LOG_LINES: usize = 40;

/// The most a command on a guest in the background may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// How guest code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accel {
    Kvm,
    /// Software emulation.
    Tcg,
}

impl Accel {
    /// The word for it, QEMU's and ours.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }
}

/// The accelerator that `coracle run` chooses on this machine.
fn accelerator() -> Result<Accel> {
    let mut command = coracle(["run", "--network", "none", "--dry-run"])?;
    command.arg(paths::build()?.join("todo-go"));
    let line = sh::output(&mut command)?;
    Ok(if line.contains("-accel kvm") {
        Accel::Kvm
    } else {
        Accel::Tcg
    })
}

/// The `coracle` command that was built.
fn coracle<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    Ok(sh::cmd(paths::build()?.join("coracle"), args))
}

/// Where the guests of this run keep their state; removed when dropped.
pub(crate) struct Guests {
    state: PathBuf,
    pub(super) accel: Accel,
    count: AtomicU32,
}

/// What to run.
pub(crate) struct Job<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: &'a [&'a str],
    /// QEMU's machine type.
    pub(crate) machine: &'a str,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) limit: Duration,
}

/// What became of a guest.
pub(crate) struct Outcome {
    /// What the application wrote.
    pub(crate) output: String,
    /// The exit code of `coracle run`; `None` when the time was over or a signal ended it.
    pub(crate) code: Option<i32>,
    /// The `exit` object of `coracle inspect`: reason, signal, detail.
    pub(crate) exit: Value,
    /// How it ended, the command's own words, and the logs of console, serial port and VMM.
    pub(crate) story: String,
}

impl Guests {
    /// A place for the state of guests, apart from the user's own.
    pub(crate) fn new() -> Result<Guests> {
        let state = std::env::temp_dir().join(format!("coracle-test-{}", std::process::id()));
        let accel = accelerator()?;
        Ok(Guests {
            state: paths::created(state)?,
            accel,
            count: AtomicU32::new(0),
        })
    }

    /// Runs the program to its end, or to the limit.
    pub(crate) fn run(&self, job: &Job) -> Result<Outcome> {
        let name = format!("t{}", self.count.fetch_add(1, Ordering::Relaxed));
        let (memory, vcpus) = (format!("{}M", job.memory_mib), job.vcpus.to_string());
        let mut command = self.coracle(&["run", "--name", &name, "--accel", self.accel.name()])?;
        command
            .args(["-m", &memory, "--cpus", &vcpus, "--machine", job.machine])
            .arg(job.program)
            .args(job.args);
        let result = sh::output_within(&mut command, job.limit);
        let instance = self.state.join("coracle/instances").join(&name);
        let logs: String = ["serial.log", "vmm.log"]
            .map(|file| shown(file, &instance.join(file)))
            .concat();
        let exit = self
            .inspect(&name)
            .map_or(Value::Null, |mut state| state["exit"].take());
        // Ends the guest if it still runs.
        self.coracle(&["rm", "-f", "-v", &name])?.output()?;
        let result = result?;
        let ended = match result.status {
            Some(status) => format!("`coracle run` ended with {status}"),
            None => format!("still running after {:?}, ended", job.limit),
        };
        Ok(Outcome {
            story: format!(
                "{ended}, exit {exit}\n{}{}{logs}",
                last_lines("stderr", &result.stderr),
                last_lines("output", &result.stdout)
            ),
            output: result.stdout,
            exit,
            code: result.status.and_then(|status| status.code()),
        })
    }

    /// What `coracle inspect` says of one instance; nothing if it does not know it.
    fn inspect(&self, name: &str) -> Option<Value> {
        let output = self.coracle(&["inspect", name]).ok()?.output().ok()?;
        let mut list: Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(list.get_mut(0)?.take())
    }

    /// A command of `coracle` on the instances of this run.
    pub(crate) fn coracle(&self, args: &[&str]) -> Result<Command> {
        let mut command = coracle(args.iter().copied())?;
        command.env("XDG_STATE_HOME", &self.state);
        Ok(command)
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.state) {
            eprintln!("xtask: could not remove {}: {error}", self.state.display());
        }
    }
}

fn shown(name: &str, path: &Path) -> String {
    fs::read(path)
        .map(|bytes| last_lines(name, &String::from_utf8_lossy(&bytes)))
        .unwrap_or_default()
}

/// The end of a log under a heading; nothing for an empty log.
fn last_lines(name: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let tail = &lines[lines.len().saturating_sub(LOG_LINES)..];
    format!("--- {name} ---\n{}\n", tail.join("\n"))
}

/// Applies `work` to every item, [`AT_ONCE`] at a time; results come in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = Mutex::new(items.iter().enumerate());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let taken = next.lock().ok().and_then(|mut next| next.next());
                    let Some((index, item)) = taken else { break };
                    let result = work(item);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .map_err(|_| anyhow!("a test thread panicked"))?;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A guest in the background; removed when dropped.
pub(crate) struct Detached<'a> {
    guests: &'a Guests,
    name: String,
}

impl Guests {
    /// Starts a program in the background with further `flags` of `coracle run`.
    pub(crate) fn detached(
        &self,
        flags: &[&str],
        program: &Path,
        args: &[&str],
    ) -> Result<Detached<'_>> {
        self.detached_with(&[], flags, program, args)
    }

    /// The same with these variables in the environment of `coracle run`.
    pub(crate) fn detached_with(
        &self,
        environment: &[(&str, &Path)],
        flags: &[&str],
        program: &Path,
        args: &[&str],
    ) -> Result<Detached<'_>> {
        let name = format!("t{}", self.count.fetch_add(1, Ordering::Relaxed));
        let mut command =
            self.coracle(&["run", "-d", "--name", &name, "--accel", self.accel.name()])?;
        command.envs(environment.iter().copied());
        command.args(flags).arg(program).args(args);
        let guest = Detached { guests: self, name };
        sh::output(&mut command)?;
        Ok(guest)
    }
}

impl Detached<'_> {
    /// Runs a command of `coracle` on this guest and returns what it printed.
    pub(crate) fn output(&self, command: &[&str]) -> Result<String> {
        let mut command = self.guests.coracle(command)?;
        let result = sh::output_within(command.arg(&self.name), COMMAND_LIMIT)?;
        if !result.success() {
            bail!(
                "`{}` failed: {}{}",
                sh::shown(&command),
                result.stdout,
                result.stderr
            );
        }
        Ok(result.stdout)
    }

    /// Waits until the application has written `text`.
    pub(crate) fn says(&self, text: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !self.output(&["logs"])?.contains(text) {
            sh::check_interrupt()?;
            if let Some(exit) = self.ended() {
                bail!("it ended and never said {text:?}: {exit}");
            }
            if Instant::now() > deadline {
                bail!("it did not say {text:?} within {limit:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Process id of its VMM.
    pub(crate) fn vmm(&self) -> Option<u64> {
        self.guests.inspect(&self.name)?["vmm"]["pid"].as_u64()
    }

    /// How the guest ended, if it did.
    pub(crate) fn ended(&self) -> Option<String> {
        let state = self.guests.inspect(&self.name)?;
        (state["status"] == "exited").then(|| state["exit"].to_string())
    }

    /// Runs a test, whose error gets the guest's logs.
    pub(crate) fn explain(&self, test: impl FnOnce() -> Result<()>) -> Result<()> {
        test().map_err(|error| error.context(self.logs()))
    }

    fn logs(&self) -> String {
        let instance = self.guests.state.join("coracle/instances").join(&self.name);
        ["console.log", "serial.log", "vmm.log"]
            .map(|file| shown(file, &instance.join(file)))
            .concat()
    }
}

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        if let Ok(mut command) = self.guests.coracle(&["rm", "-f", "-v", &self.name])
            && let Err(error) = command.output()
        {
            eprintln!("xtask: could not remove the guest {}: {error}", self.name);
        }
    }
}
