// SPDX-License-Identifier: Apache-2.0

//! Guests whose root is an image on a disk: a program that works on a file several times as large as the memory, against
//! the same program on Linux, and images that are damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use super::guest::{Guests, Job};
use super::report::Report;
use crate::{paths, sh};

/// The most one guest may take.
const LIMIT: Duration = Duration::from_secs(180);

/// Length of the file, MiB.
const FILE_MIB: usize = 48;
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
    if !wanted(PRESSURE) && !wanted(DAMAGED) {
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
        for (machine, vcpus) in [("microvm", 1), ("microvm", 2), ("q35", 2)] {
            report.step(
                &format!("vm {PRESSURE}, {machine} with {vcpus} vCPUs"),
                || pressure(guests, &image, machine, vcpus, &on_linux),
            )?;
        }
    }
    if wanted(DAMAGED) {
        report.step(&format!("vm {DAMAGED}"), || damaged(guests, &image))?;
    }
    Ok(())
}

/// An image with the program and the file, and the file.
fn image(programs: &Path) -> Result<(PathBuf, PathBuf)> {
    let root = paths::created(programs.join("disk.root"))?;
    fs::copy(programs.join("map_large"), root.join("map_large"))?;
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
    for (bytes, line) in [
        (changed, "the checksum of the EROFS superblock is wrong"),
        (short, "the EROFS image is cut short"),
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
        if outcome.code != Some(126) || !outcome.exit.to_string().contains(line) {
            bail!(
                "exit code and line {line:?} are not there\n{}",
                outcome.story
            );
        }
    }
    Ok(())
}
