// SPDX-License-Identifier: Apache-2.0

//! Programs of others: found, pinned, bounded in time, ended when the user wants to stop, and what they printed.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Job;
use crate::{Error, Result};

/// The most of an output that is kept. No load tool prints that much.
const OUTPUT_LIMIT: u64 = 64 << 20;

/// A program that a generator needs.
#[derive(Debug)]
pub(crate) struct Tool {
    /// Its file name.
    pub(crate) program: &'static str,
    /// The Debian package, if there is one.
    pub(crate) package: Option<&'static str>,
    /// How else to get it.
    pub(crate) otherwise: &'static str,
}

impl Tool {
    /// A program of a Debian package.
    pub(crate) const fn packaged(program: &'static str, package: &'static str) -> Tool {
        Tool {
            program,
            package: Some(package),
            otherwise: "",
        }
    }

    /// Its file, from PATH.
    pub(crate) fn path(&self) -> Result<PathBuf> {
        on_path(self.program).ok_or_else(|| {
            let mut ways = Vec::new();
            if let Some(package) = self.package {
                ways.push(format!(
                    "`apt-get install {package}`, or `coracle lab run --install`"
                ));
            }
            if !self.otherwise.is_empty() {
                ways.push(self.otherwise.to_owned());
            }
            Error::Host(format!(
                "{} is not installed: {}",
                self.program,
                ways.join("; or ")
            ))
        })
    }

    /// A command that runs it.
    pub(crate) fn command(&self) -> Result<Command> {
        Ok(Command::new(self.path()?))
    }

    /// What it prints with `argument`, which asks for the version. Its exit status says nothing: wrk answers 1.
    pub(crate) fn about(&self, argument: &str) -> Result<String> {
        let never = AtomicBool::new(false);
        let mut command = self.command()?;
        command.arg(argument);
        let printed = run(&mut command, None, Duration::from_secs(30), &never)?;
        Ok(printed.stdout + &printed.stderr)
    }
}

/// The file `program` in one of the folders of PATH.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| {
            file.metadata()
                .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        })
}

/// An error if `version` (such as "7.0.15") is before `least`.
pub(crate) fn at_least(tool: &str, version: &str, least: &[u64]) -> Result<()> {
    let numbers: Vec<u64> = version
        .split(['.', '-', '+', '~'])
        .map_while(|part| part.parse().ok())
        .collect();
    if numbers.is_empty() {
        return Err(Error::Host(format!(
            "{tool}: its version is not understood: `{version}`"
        )));
    }
    if numbers.as_slice() < least {
        let least: Vec<String> = least.iter().map(ToString::to_string).collect();
        return Err(Error::Host(format!(
            "{tool} {version} is too old: {} or newer is needed",
            least.join(".")
        )));
    }
    Ok(())
}

/// How a program ended and what it printed.
#[derive(Debug)]
pub(crate) struct Printed {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
}

impl Printed {
    /// Both outputs, for the record.
    pub(crate) fn raw(&self) -> String {
        if self.stderr.is_empty() {
            return self.stdout.clone();
        }
        format!("{}\n--- standard error ---\n{}", self.stdout, self.stderr)
    }

    /// An error if it did not end with 0.
    pub(crate) fn expect_success(&self, command: &Command) -> Result<()> {
        if self.status.success() {
            return Ok(());
        }
        Err(failed(
            format!("`{}` ended with {}", shown(command), self.status),
            self,
        ))
    }
}

/// An error of a tool, with the last line that it printed.
pub(crate) fn failed(what: String, printed: &Printed) -> Error {
    let last = |text: &str| {
        let line = text.lines().rfind(|line| !line.trim().is_empty());
        line.map(|line| line.trim().to_owned())
    };
    let last = last(&printed.stderr).or_else(|| last(&printed.stdout));
    Error::Platform {
        what: match last {
            Some(line) => format!("{what}: {line}"),
            None => what,
        },
        log: printed.raw(),
    }
}

/// An error for an output that is not understood: never a zero.
pub(crate) fn not_understood(tool: &str, why: &str, raw: &str) -> Error {
    Error::Platform {
        what: format!("the output of {tool} is not understood: {why}"),
        log: raw.to_owned(),
    }
}

/// Runs `command` on the processors of the job, for at most `limit`.
pub(crate) fn run_job(command: &mut Command, job: &Job<'_>, limit: Duration) -> Result<Printed> {
    run(command, job.pin, limit, job.cancel)
}

/// Runs `command` to its end. It is ended by force after `limit`, which is an error, or when `cancel` becomes true.
pub(crate) fn run(
    command: &mut Command,
    pin: Option<&[usize]>,
    limit: Duration,
    cancel: &AtomicBool,
) -> Result<Printed> {
    // A group of its own: Ctrl-C on the terminal reaches only the lab, which then ends the whole group.
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = spawn(command, pin)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(why) => {
                    end(&mut child);
                    break Err(Error::Host(format!("wait for `{}`: {why}", shown(command))));
                }
            }
            if cancel.load(Ordering::Relaxed) {
                end(&mut child);
                break Err(Error::Interrupted);
            }
            if begin.elapsed() > limit {
                end(&mut child);
                break Err(Error::Platform {
                    what: format!(
                        "`{}` did not end within {:.0} s",
                        shown(command),
                        limit.as_secs_f64()
                    ),
                    log: String::new(),
                });
            }
            sleep(Duration::from_millis(2));
        };
        // Whoever the program left behind must not keep our ends of the pipes open.
        kill_group(&child);
        let stdout = stdout.join().unwrap_or_default();
        let stderr = stderr.join().unwrap_or_default();
        match ended {
            Ok(status) => Ok(Printed {
                status,
                stdout,
                stderr,
            }),
            Err(Error::Platform { what, .. }) => Err(Error::Platform {
                what,
                log: format!("{stdout}\n{stderr}"),
            }),
            Err(other) => Err(other),
        }
    })
}

/// Starts it on the processors `pin`: a child inherits the affinity of the thread that starts it.
fn spawn(command: &mut Command, pin: Option<&[usize]>) -> Result<Child> {
    let shown = shown(command);
    let started = match pin {
        None => command.spawn(),
        Some(pin) => std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                pin_thread(pin)?;
                command.spawn()
            });
            thread
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("the starting thread panicked")))
        }),
    };
    started.map_err(|why| Error::Host(format!("start `{shown}`: {why}")))
}

/// Keeps the calling thread on the processors `pin`.
pub(crate) fn pin_thread(pin: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in pin {
        set.set(cpu)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

fn read(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is still worth keeping.
        let _ = stream.take(OUTPUT_LIMIT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn end(child: &mut Child) {
    kill_group(child);
    // It was killed; there is nothing to do about a failure to wait.
    let _ = child.wait();
}

fn kill_group(child: &Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // ESRCH: nobody is left.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// The same for a job, with the processors it is kept on.
pub(crate) fn shown_job(command: &Command, job: &Job<'_>) -> String {
    match job.pin {
        None => shown(command),
        Some(pin) => {
            let list: Vec<String> = pin.iter().map(ToString::to_string).collect();
            format!("taskset -c {} {}", list.join(","), shown(command))
        }
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let quoting = word.is_empty()
        || word.contains(|c: char| c.is_whitespace() || "'\"$*;&|<>()[]{}?\\`~#!".contains(c));
    if quoting {
        format!("'{}'", word.replace('\'', "'\\''"))
    } else {
        word.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::{at_least, run, shown};
    use crate::Error;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_outputs_are_kept() {
        let cancel = AtomicBool::new(false);
        let limit = Duration::from_secs(20);
        let printed = run(&mut sh("echo a; echo b >&2; exit 3"), None, limit, &cancel).unwrap();
        assert_eq!(
            (printed.stdout.as_str(), printed.stderr.as_str()),
            ("a\n", "b\n")
        );
        assert_eq!(printed.status.code(), Some(3));
        let why = printed.expect_success(&sh("x")).unwrap_err().to_string();
        assert!(
            why.contains("exit status: 3") && why.ends_with(": b"),
            "{why}"
        );
    }

    #[test]
    fn a_tool_that_hangs_is_ended_with_its_children() {
        let cancel = AtomicBool::new(false);
        let begin = Instant::now();
        // The child keeps the pipe open.
        let why = run(
            &mut sh("sleep 60 & echo before; sleep 60"),
            None,
            Duration::from_millis(300),
            &cancel,
        );
        let Err(Error::Platform { what, log }) = why else {
            panic!("{why:?}");
        };
        assert!(what.contains("did not end"), "{what}");
        assert!(log.contains("before"), "{log}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_user_who_stops_is_obeyed() {
        let cancel = AtomicBool::new(true);
        let result = run(&mut sh("sleep 60"), None, Duration::from_secs(60), &cancel);
        assert!(matches!(result, Err(Error::Interrupted)));
    }

    #[test]
    fn a_pinned_program_stays_where_it_was_put() {
        let cancel = AtomicBool::new(false);
        let limit = Duration::from_secs(20);
        let mut command = sh("grep Cpus_allowed_list /proc/self/status");
        let printed = run(&mut command, Some(&[0]), limit, &cancel).unwrap();
        assert_eq!(printed.stdout, "Cpus_allowed_list:\t0\n");
    }

    #[test]
    fn old_versions_are_refused() {
        assert!(at_least("wrk", "4.1.0-3+b2", &[4, 0]).is_ok());
        assert!(at_least("wrk", "10.0", &[4, 0]).is_ok());
        assert_eq!(
            at_least("wrk", "3.9.9", &[4, 0]).unwrap_err().to_string(),
            "wrk 3.9.9 is too old: 4.0 or newer is needed"
        );
        assert!(at_least("wrk", "unknown", &[4]).is_err());
    }

    #[test]
    fn commands_can_be_typed() {
        let mut command = Command::new("ab");
        command.args(["-n", "it's", "http://h/?a&b"]);
        assert_eq!(shown(&command), r"ab -n 'it'\''s' 'http://h/?a&b'");
    }
}
