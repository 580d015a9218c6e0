// SPDX-License-Identifier: Apache-2.0

//! Folders of the host in guests (`run -v`): what one side writes the other reads, also at the same time; the ABI tests
//! of files in such a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::guest::Guests;
use super::report::Report;
use crate::{paths, sh};

/// The most one guest may take.
const LIMIT: Duration = Duration::from_secs(180);

/// Cases of the ABI tests that QEMU's server cannot do (docs/folders.md).
const LIMITS: [&str; 4] = [
    "fallocate_extends_and_keeps_size",
    "fifo_in_the_file_system",
    "renameat2_flags",
    "umask_masks_every_kind",
];

type Test = fn(&Guests, &Folder) -> Result<()>;

/// Runs those that are wanted.
pub(super) fn run(
    report: &mut Report,
    guests: &Guests,
    wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    let tests: [(&str, Test); 6] = [
        ("folder of the host", exchange),
        ("folder of the host, read-only", refused),
        ("file of the host", one_file),
        ("folder of two guests", together),
        ("folder of the host that goes", goes),
        ("folder of the host, ABI", abi),
    ];
    for (name, test) in tests.into_iter().filter(|(name, _)| wanted(name)) {
        report.step(&format!("vm {name}"), || test(guests, &Folder::new()?))?;
    }
    Ok(())
}

/// A folder of the host, with a name that QEMU's options must not take apart.
struct Folder {
    outer: PathBuf,
    path: PathBuf,
}

impl Folder {
    fn new() -> Result<Self> {
        let outer = std::env::temp_dir().join(format!("coracle-folder-{}", std::process::id()));
        let path = paths::created(outer.join("a,b:c"))?;
        fs::write(path.join("from-host"), "hello\n")?;
        Ok(Self { outer, path })
    }

    fn volume(&self, rest: &str) -> String {
        format!("{}:{rest}", self.path.display())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.path.join(name);
        fs::read(&path).with_context(|| path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.outer);
    }
}

/// Runs a program with these flags to its end; what it wrote.
fn guest(guests: &Guests, flags: &[&str], program: &Path, args: &[&str]) -> Result<String> {
    let mut command = guests.coracle(&["run", "--rm", "--network", "none"])?;
    command.args(["--accel", guests.accel.name()]).args(flags);
    command.arg(program).args(args);
    let result = sh::output_within(&mut command, LIMIT)?;
    if !result.success() {
        bail!("{}{}", result.stdout, result.stderr);
    }
    Ok(result.stdout)
}

fn program() -> Result<PathBuf> {
    Ok(paths::build()?.join("programs/folders"))
}

fn exchange(guests: &Guests, folder: &Folder) -> Result<()> {
    for machine in ["microvm", "q35"] {
        let volume = folder.volume("/v");
        let flags = ["--machine", machine, "--cpus", "2", "-v", &volume];
        guest(guests, &flags, &program()?, &["exchange", "/v"])?;
        let made = folder.read("made/file")?;
        let at = |from: usize, len: usize| made.get(from..from + len);
        if made.len() != 8192
            || at(0, 6) != Some(b"ab2XY5")
            || at(5000, 6) != Some(b"mapped")
            || at(6000, 5) != Some(b"later")
            || at(7000, 10) != Some(b"at the end")
        {
            bail!("{machine}: made/file is not what the guest wrote");
        }
        fs::remove_dir_all(folder.path.join("made"))?;
        guest(guests, &flags, &program()?, &["big", "/v", "16"])?;
        if folder.read("big")?.len() != 16 << 20 {
            bail!("{machine}: big is too short");
        }
    }
    Ok(())
}

fn refused(guests: &Guests, folder: &Folder) -> Result<()> {
    let volume = folder.volume("/v:ro");
    guest(guests, &["-v", &volume], &program()?, &["refused", "/v"])?;
    let names = fs::read_dir(&folder.path)?.count();
    if names != 1 || folder.read("from-host")? != b"hello\n" {
        bail!("a read-only folder was changed");
    }
    Ok(())
}

/// A file alone: the guest sees it, and not its neighbours.
fn one_file(guests: &Guests, folder: &Folder) -> Result<()> {
    fs::write(folder.path.join("neighbour"), "secret")?;
    let volume = format!("{}/from-host:/v/from-host:ro", folder.path.display());
    guest(guests, &["-v", &volume], &program()?, &["alone", "/v"]).map(drop)
}

/// Two guests append to one file, and no line is lost or torn.
fn together(guests: &Guests, folder: &Folder) -> Result<()> {
    let volume = folder.volume("/v");
    std::thread::scope(|scope| {
        let run = |name: &'static str| {
            let volume = &volume;
            scope.spawn(move || {
                guest(
                    guests,
                    &["-v", volume],
                    &program()?,
                    &["append", "/v", name],
                )
            })
        };
        for thread in [run("a"), run("b")] {
            match thread.join() {
                Ok(result) => drop(result?),
                Err(_) => bail!("a test thread panicked"),
            }
        }
        Ok(())
    })?;
    let log = folder.read("log")?;
    let text = String::from_utf8_lossy(&log);
    for name in ["a", "b"] {
        let lines: Vec<&str> = text.lines().filter(|l| l.starts_with(name)).collect();
        let expected: Vec<String> = (0..200).map(|n| format!("{name} {n:03}")).collect();
        if lines != expected {
            bail!("lines of {name} are missing or torn:\n{text}");
        }
    }
    Ok(())
}

/// The folder is removed under a running guest, which gets errors and does not hang.
fn goes(guests: &Guests, folder: &Folder) -> Result<()> {
    fs::write(folder.path.join("f"), "x")?;
    let volume = folder.volume("/v");
    let flags = ["--network", "none", "-v", &volume];
    let guest = guests.detached(&flags, &program()?, &["gone", "/v"])?;
    guest.explain(|| {
        guest.says("waiting", Duration::from_secs(20))?;
        fs::remove_dir_all(&folder.path)?;
        let code = guest.output(&["wait"])?;
        if code.trim() != "0" {
            bail!("exit code {code}");
        }
        Ok(())
    })
}

fn abi(guests: &Guests, folder: &Folder) -> Result<()> {
    abi_in(
        || guests.coracle(&["run"]),
        guests,
        &folder.volume("/v"),
        &LIMITS,
    )
}

/// The ABI tests of files and names, in what `volume` (`-v`) puts at `/v`: what passes on Linux passes here, but for what
/// the documentation says, `limits`. `run` makes the beginning of the command.
pub(super) fn abi_in(
    run: impl Fn() -> Result<Command>,
    guests: &Guests,
    volume: &str,
    limits: &[&str],
) -> Result<()> {
    let build = paths::created(paths::build()?.join("abi"))?;
    let source = paths::in_root("tests/abi");
    let target = format!("BUILD={}", build.display());
    sh::output(sh::cmd("make", ["-s", "-C"]).arg(&source).arg(target))?;
    for family in ["files", "paths", "metadata"] {
        let mut command = run()?;
        command.args(["--rm", "--network", "none"]);
        command.args(["--accel", guests.accel.name(), "-e", "ABI_TMP=/v"]);
        command.args(["-e", "ABI_TIMEOUT_S=100", "-v", volume]);
        let result = sh::output_within(command.arg(build.join(family)), LIMIT)?;
        let failed = |line: &&str| {
            line.strip_prefix("FAIL ").is_some_and(|rest| {
                let name = rest.split(' ').next().unwrap_or_default();
                !limits.contains(&name)
            })
        };
        let wrong: Vec<&str> = result.stdout.lines().filter(failed).collect();
        if !wrong.is_empty() || !result.stdout.contains(" passed, ") {
            bail!("{family}: {}\n{}", wrong.join("\n"), result.stderr);
        }
    }
    Ok(())
}
