// SPDX-License-Identifier: Apache-2.0

//! Guests whose root is an image on a disk: a program that works on a file several times as large as the memory, against
//! the same program on Linux, and images that are damaged or lose their end while a guest runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::guest::{Guests, Job};
use super::report::Report;
use crate::{paths, sh};

/// The most one guest may take.
const LIMIT: Duration = Duration::from_secs(180);
/// The most a guest may take to its first line.
const BOOT_LIMIT: Duration = Duration::from_secs(20);

/// Length of the file, MiB.
const FILE_MIB: usize = 32;
/// Memory of the guests, MiB.
const MEMORY_MIB: u32 = 24;

/// Runs the tests whose names are wanted.
pub(super) fn run(
    report: &mut Report,
    guests: &Guests,
    programs: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<()> {
    const PRESSURE: &str = "a mapping larger than the memory";
    const DAMAGED: &str = "a damaged image is refused";
    const CUT: &str = "an image cut short under a guest";
    if ![PRESSURE, DAMAGED, CUT].into_iter().any(&wanted) {
        return Ok(());
    }
    let mut made = None;
    if !report.step("make a root image", || {
        made = Some(image(programs)?);
        Ok(())
    })? {
        return Ok(());
    }
    let Some((image, file)) = made else {
        return Ok(());
    };
    if wanted(PRESSURE) {
        let program = programs.join("map_large");
        let on_linux = sh::output(std::process::Command::new(&program).arg(&file))?;
        for (machine, vcpus) in [("microvm", 1), ("q35", 2)] {
            report.step(
                &format!("vm {PRESSURE}, {machine} with {vcpus} vCPUs"),
                || pressure(guests, &image, machine, vcpus, &on_linux),
            )?;
        }
    }
    if wanted(DAMAGED) {
        report.step(&format!("vm {DAMAGED}"), || damaged(guests, &image))?;
    }
    if wanted(CUT) {
        report.step(&format!("vm {CUT}"), || cut_short(guests, &image))?;
    }
    Ok(())
}

/// An image with the programs and the file, and the file.
fn image(programs: &Path) -> Result<(PathBuf, PathBuf)> {
    let root = paths::created(programs.join("disk.root"))?;
    for program in ["map_large", "crash"] {
        fs::copy(programs.join(program), root.join(program))?;
    }
    let file = root.join("file");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut content = Vec::with_capacity(FILE_MIB << 20);
    while content.len() < FILE_MIB << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend(state.to_le_bytes());
    }
    fs::write(&file, content)?;
    let image = programs.join("disk.erofs");
    let _ = fs::remove_file(&image);
    let mut command = sh::cmd("mkfs.erofs", ["--quiet"]);
    sh::output(command.arg(&image).arg(&root))?;
    Ok((image, file))
}

fn pressure(
    guests: &Guests,
    image: &Path,
    machine: &str,
    vcpus: u32,
    on_linux: &str,
) -> Result<()> {
    let outcome = guests.run(&Job {
        program: image,
        args: &["/map_large", "/file"],
        machine,
        vcpus,
        memory_mib: MEMORY_MIB,
        limit: LIMIT,
    })?;
    if outcome.code != Some(0) || outcome.output.trim() != on_linux.trim() {
        bail!("Linux says {on_linux}\n{}", outcome.story);
    }
    Ok(())
}

fn damaged(guests: &Guests, image: &Path) -> Result<()> {
    let whole = fs::read(image)?;
    let mut changed = whole.clone();
    changed[1024 + 70] ^= 1;
    let short = whole[..whole.len() - 8192].to_vec();
    // The guest finds what is wrong with the content, the command before it what is missing.
    for (bytes, code, line) in [
        (
            changed,
            126,
            "the checksum of the EROFS superblock is wrong",
        ),
        (short, 125, "(cut short)"),
    ] {
        let path = image.with_file_name("damaged.erofs");
        fs::write(&path, bytes)?;
        let outcome = guests.run(&Job {
            program: &path,
            args: &["/map_large", "/file"],
            machine: "microvm",
            vcpus: 1,
            memory_mib: MEMORY_MIB,
            limit: LIMIT,
        })?;
        fs::remove_file(&path)?;
        if outcome.code != Some(code) || !outcome.story.contains(line) {
            bail!(
                "exit code {code} and line {line:?} are not there\n{}",
                outcome.story
            );
        }
    }
    Ok(())
}

/// QEMU would answer with zeros where the end of the file was: the guest must end instead.
fn cut_short(guests: &Guests, image: &Path) -> Result<()> {
    let path = image.with_file_name("cut.erofs");
    fs::copy(image, &path)?;
    let memory = format!("{MEMORY_MIB}M");
    let flags = ["--network", "none", "-m", &memory];
    let guest = guests.detached(&flags, &path, &["/crash", "ignore-sigterm"])?;
    guest.explain(|| {
        let deadline = Instant::now() + BOOT_LIMIT;
        while !guest.output(&["logs"])?.contains("ignoring SIGTERM") {
            sh::check_interrupt()?;
            if Instant::now() > deadline {
                bail!("the program did not start in {BOOT_LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let file = fs::File::options().write(true).open(&path)?;
        file.set_len(file.metadata()?.len() / 2)?;
        let code = guest.output(&["wait"])?;
        let exit = guest.ended().unwrap_or_default();
        let says = |part: &str| exit.contains(part);
        if code.trim() != "125" || !says("cut short") || !says("cut.erofs") {
            bail!("`coracle wait` printed {code:?}, the exit is {exit}");
        }
        Ok(())
    })?;
    fs::remove_file(&path)?;
    Ok(())
}
