// SPDX-License-Identifier: Apache-2.0

//! Volumes (`run -v NAME:PATH`): what a guest synced is there after the VMM was killed, a full volume, one that is in use,
//! one that is damaged. Where e2fsck is installed, it looks at each disk.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::folders;
use super::guest::{Detached, Guests};
use super::report::Report;
use crate::{paths, sh};

/// The most one guest may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The most a guest may take to its first line.
const BOOT_LIMIT: Duration = Duration::from_secs(30);

/// Of each volume.
const SIZE: &str = "24M";

/// The case of the ABI tests that this file system cannot do (docs/volumes.md).
const LIMITS: [&str; 1] = ["fallocate_extends_and_keeps_size"];

type Test = fn(&Volume) -> Result<()>;

/// Runs those that are wanted.
pub(super) fn run(
    report: &mut Report,
    guests: &Guests,
    wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    let tests: [(&str, Test); 8] = [
        ("volume after coracle kill", killed),
        ("volume after the VMM was killed", vmm_killed),
        ("volume that is full", full),
        ("volume in use", in_use),
        ("volume that is damaged", damaged),
        ("volume with what the root has there", populated),
        ("volumes of an image", of_an_image),
        ("volume, ABI", abi),
    ];
    for (name, test) in tests.into_iter().filter(|(name, _)| wanted(name)) {
        report.step(&format!("vm {name}"), || test(&Volume::new(guests)?))?;
    }
    Ok(())
}

/// A volume named `data` in a store of its own.
struct Volume<'a> {
    guests: &'a Guests,
    /// The user's data folder, `XDG_DATA_HOME`.
    data: PathBuf,
    disk: PathBuf,
}

impl<'a> Volume<'a> {
    fn new(guests: &'a Guests) -> Result<Self> {
        let name = format!("coracle-volume-{}", std::process::id());
        let mut volume = Self {
            guests,
            data: paths::created(std::env::temp_dir().join(name))?,
            disk: PathBuf::new(),
        };
        sh::output(&mut volume.coracle(&["volume", "create", "--size", SIZE, "data"])?)?;
        let told = sh::output(&mut volume.coracle(&["volume", "inspect", "data"])?)?;
        let told: Value = serde_json::from_str(&told)?;
        volume.disk = told[0]["disk"].as_str().context("no disk")?.into();
        Ok(volume)
    }

    fn coracle(&self, args: &[&str]) -> Result<std::process::Command> {
        let mut command = self.guests.coracle(args)?;
        command.env("XDG_DATA_HOME", &self.data);
        Ok(command)
    }

    /// `coracle run` to its end, with `options` behind the volume's mount point.
    fn run(&self, machine: &str, options: &str, what: &str) -> Result<sh::Bounded> {
        let mount = format!("data:/data{options}");
        let mut command = self.coracle(&["run", "--rm", "--network", "none", "-v", &mount])?;
        command.args(["--accel", self.guests.accel.name(), "--machine", machine]);
        command.args(["-m", "64M", "--cpus", "2"]).arg(program()?);
        sh::output_within(command.args([what, "/data"]), LIMIT)
    }

    /// A guest that reads what `volume write` synced.
    fn has_what_was_synced(&self, machine: &str) -> Result<()> {
        let result = self.run(machine, "", "read")?;
        if !result.success() || result.stdout.trim() != "all is there" {
            bail!("{machine}: {}{}", result.stdout, result.stderr);
        }
        self.is_whole()
    }

    /// A guest in the background, once it has said `ready`.
    fn detached(&self, options: &str, what: &str, ready: &str) -> Result<Detached<'_>> {
        let mount = format!("data:/data{options}");
        let flags = [
            "--network",
            "none",
            "-m",
            "64M",
            "--cpus",
            "2",
            "-v",
            &mount,
        ];
        let data = [("XDG_DATA_HOME", self.data.as_path())];
        let guest = self
            .guests
            .detached_with(&data, &flags, &program()?, &[what, "/data"])?;
        guest.explain(|| guest.says(ready, BOOT_LIMIT))?;
        Ok(guest)
    }

    /// e2fsck finds nothing wrong; it changes nothing.
    fn is_whole(&self) -> Result<()> {
        if !sh::installed("e2fsck") {
            return Ok(());
        }
        let mut command = sh::cmd("e2fsck", ["-fn"]);
        let result = sh::output_within(command.arg(&self.disk), LIMIT)?;
        if !result.success() {
            bail!("e2fsck: {}{}", result.stdout, result.stderr);
        }
        Ok(())
    }
}

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.data) {
            eprintln!("xtask: could not remove {}: {error}", self.data.display());
        }
    }
}

fn program() -> Result<PathBuf> {
    Ok(paths::build()?.join("programs/volume"))
}

/// `coracle kill` ends the VMM at once, with writes under way.
fn killed(volume: &Volume) -> Result<()> {
    let guest = volume.detached("", "write", "synced")?;
    guest.output(&["kill"])?;
    guest.output(&["wait"])?;
    drop(guest);
    volume.has_what_was_synced("microvm")?;
    volume.has_what_was_synced("q35")
}

/// SIGKILL from outside, as when the host runs out of memory.
fn vmm_killed(volume: &Volume) -> Result<()> {
    let guest = volume.detached("", "write", "synced")?;
    let vmm = guest.vmm().context("the instance has no VMM")?;
    sh::output(&mut sh::cmd("kill", ["-KILL", &vmm.to_string()]))?;
    guest.explain(|| guest.output(&["wait"]).map(drop))?;
    drop(guest);
    volume.has_what_was_synced("microvm")
}

/// ENOSPC, and what was synced before stays.
fn full(volume: &Volume) -> Result<()> {
    let guest = volume.detached("", "write", "synced")?;
    guest.output(&["kill"])?;
    guest.output(&["wait"])?;
    drop(guest);
    let result = volume.run("microvm", "", "fill")?;
    if !result.success() || !result.stdout.starts_with("full after ") {
        bail!("{}{}", result.stdout, result.stderr);
    }
    volume.has_what_was_synced("microvm")
}

/// One guest writes or several read; neither lets the volume be removed.
fn in_use(volume: &Volume) -> Result<()> {
    let said = "volume data is in use; stop the instance that has it (coracle ps)";
    let refused = |what: &str, result: sh::Bounded| {
        if result.success() || result.stderr.trim_end() != format!("coracle: {said}") {
            bail!("{what}: {}{}", result.stdout, result.stderr);
        }
        Ok(())
    };
    let remove = || {
        let mut command = volume.coracle(&["volume", "rm", "data"])?;
        sh::output_within(&mut command, LIMIT)
    };
    let writer = volume.detached("", "write", "synced")?;
    refused("a second writer", volume.run("microvm", "", "read")?)?;
    refused("a reader", volume.run("microvm", ":ro", "read")?)?;
    refused("volume rm", remove()?)?;
    writer.output(&["stop"])?;
    drop(writer);

    let reader = volume.detached(":ro", "hold", "holding")?;
    let beside = volume.run("microvm", ":ro", "read")?;
    if !beside.success() {
        bail!("a second reader: {}{}", beside.stdout, beside.stderr);
    }
    refused("a writer", volume.run("microvm", "", "read")?)?;
    refused("volume rm", remove()?)?;
    drop(reader);
    let removed = remove()?;
    if !removed.success() || fs::exists(&volume.disk)? {
        bail!("volume rm: {}{}", removed.stdout, removed.stderr);
    }
    Ok(())
}

/// Damage is said in one line with what to do, and the guest does not start.
fn damaged(volume: &Volume) -> Result<()> {
    let refused = |line: &str| {
        let result = volume.run("microvm", "", "read")?;
        let code = result.status.and_then(|status| status.code());
        if code != Some(125) || !result.stderr.contains(line) {
            bail!("no {line:?} with code 125, but {code:?}: {}", result.stderr);
        }
        match result.stderr.trim_end().lines().count() {
            1 => Ok(()),
            lines => bail!("{lines} lines:\n{}", result.stderr),
        }
    };
    // The superblock begins at byte 1024. The number of blocks in a group, then the magic number.
    damage(&volume.disk, 1024 + 32, &[0xff; 4])?;
    refused("the file system is damaged")?;
    damage(&volume.disk, 1024 + 56, &[0; 2])?;
    refused("no ext3 or ext4 file system is on it")
}

fn damage(disk: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    let file = File::options().write(true).open(disk)?;
    Ok(file.write_all_at(bytes, at)?)
}

/// An empty volume gets content and mode of the folder that it is mounted on, and only then.
fn populated(volume: &Volume) -> Result<()> {
    let root = seeded_root(volume)?;
    for what in ["first", "second"] {
        let mut command = volume.coracle(&["run", "--rm", "--network", "none"])?;
        command.args(["--accel", volume.guests.accel.name(), "-v", "data:/data"]);
        command.arg(&root).args(["/volume", what, "/data"]);
        let result = sh::output_within(&mut command, LIMIT)?;
        if !result.success() {
            bail!("{what}: {}{}", result.stdout, result.stderr);
        }
        volume.is_whole()?;
    }
    Ok(())
}

/// A root folder with the program and something in `/data`.
fn seeded_root(volume: &Volume) -> Result<PathBuf> {
    let root = volume.data.join("root");
    let seed = paths::created(root.join("data/seed"))?;
    fs::copy(program()?, root.join("volume"))?;
    fs::write(seed.join("file"), "hello\n")?;
    symlink("file", seed.join("link"))?;
    for (path, mode) in [
        (seed.join("file"), 0o640),
        (seed, 0o750),
        (root.join("data"), 0o1777),
    ] {
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    let at = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(root.join("data/seed/file"))?.set_modified(at)?;
    Ok(root)
}

/// Each instance of an image with a VOLUME has a volume of its own, which begins with what the image has there. It goes with
/// `--rm` and `rm -v`; else it stays, and is a volume like others.
fn of_an_image(volume: &Volume) -> Result<()> {
    let root = seeded_root(volume)?;
    let file = "FROM scratch\nCOPY root /\nVOLUME /data\nENTRYPOINT [\"/volume\"]\n";
    fs::write(volume.data.join("Containerfile"), file)?;
    let context = root.parent().context("no context")?.display().to_string();
    let mut build = volume.coracle(&["build", "-t", "seeded", &context])?;
    // Without buildah and its like.
    sh::output(build.env("PATH", "/nonexistent"))?;
    let run = |flags: &[&str], what: &str| {
        let mut command = volume.coracle(&["run", "--network", "none", "-m", "64M"])?;
        command.args(["--accel", volume.guests.accel.name()]);
        command.args(flags).args(["seeded", what, "/data"]);
        let result = sh::output_within(&mut command, LIMIT)?;
        match result.success() {
            true => Ok(()),
            false => bail!("{flags:?} {what}: {}{}", result.stdout, result.stderr),
        }
    };
    let anonymous = || -> Result<Vec<(String, Value)>> {
        let told = sh::output(&mut volume.coracle(&["volume", "ls", "-o", "json"])?)?;
        let told: Vec<Value> = serde_json::from_str(&told)?;
        let new = told.into_iter().filter(|one| one["anonymous"] == true);
        let named = new.map(|one| (one["name"].as_str().unwrap_or_default().into(), one));
        Ok(named.collect())
    };
    let left = |wanted: usize, after: &str| {
        let found = anonymous()?;
        match found.len() == wanted {
            true => Ok(found),
            false => bail!("{} volumes after {after}, not {wanted}", found.len()),
        }
    };
    for _ in 0..2 {
        run(&["--rm"], "first")?;
    }
    left(0, "--rm")?;
    run(&["--name", "kept"], "first")?;
    let found = left(1, "an end without --rm")?;
    if found[0].1["instances"] != serde_json::json!(["kept"]) {
        bail!("whose is it: {}", found[0].1);
    }
    sh::output(&mut volume.coracle(&["rm", "kept"])?)?;
    left(1, "rm")?;
    let mount = format!("{}:/data", found[0].0);
    run(&["--rm", "-v", &mount], "second")?;
    left(1, "--rm of an instance that was given it by name")?;
    run(&["--name", "gone"], "first")?;
    left(2, "an end without --rm")?;
    sh::output(&mut volume.coracle(&["rm", "-v", "gone"])?)?;
    left(1, "rm -v")?;
    sh::output(&mut volume.coracle(&["volume", "prune", "--force"])?)?;
    left(0, "volume prune")?;

    let image = Path::new("seeded");
    let data = [("XDG_DATA_HOME", volume.data.as_path())];
    let flags = ["--network", "none", "-m", "64M"];
    let start = || {
        volume
            .guests
            .detached_with(&data, &flags, image, &["write", "/data"])
    };
    let (one, other) = (start()?, start()?);
    for guest in [&one, &other] {
        guest.explain(|| guest.says("synced", BOOT_LIMIT))?;
    }
    let found = left(2, "the start of two")?;
    if found.iter().any(|(_, one)| one["use"] != "written") {
        bail!("not in use: {found:?}");
    }
    one.output(&["kill"])?;
    other.output(&["rm", "-f", "-v"])?;
    let found = left(1, "rm -f -v")?;
    let mount = format!("{}:/data", found[0].0);
    run(&["--rm", "-v", &mount], "read")
}

/// The ABI tests of files, and what they leave behind is whole.
fn abi(volume: &Volume) -> Result<()> {
    folders::abi_in(
        || volume.coracle(&["run"]),
        volume.guests,
        "data:/v",
        &LIMITS,
    )?;
    volume.is_whole()
}
