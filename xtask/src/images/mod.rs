// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask images`: the recipes in `images/` as OCI archives in `build/images/`.
//!
//! One run of mmdebstrap makes the root of an image: its packages, then everything else of the recipe as a hook, so that
//! the files belong to whom they should without root too (mmdebstrap then works in a user namespace). An image without
//! packages starts as an empty folder, and all its files belong to root.

mod recipe;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use coracle_imager::image::{Store, save};

use crate::{paths, setup, sh};
use recipe::Chain;

/// Changes when the same recipe gives another image.
const BUILDER: &str = "1";
/// No file of an image is younger: 2026-01-01, seconds since 1970 (<https://reproducible-builds.org/specs/source-date-epoch/>).
const SOURCE_DATE_EPOCH: &str = "1767225600";
const CREATED: &str = "2026-01-01T00:00:00Z";
/// How long mmdebstrap may take.
const LIMIT: Duration = Duration::from_secs(1800);

/// Builds the recipes of that name, or all.
pub(crate) fn run(names: &[&str]) -> Result<()> {
    let all = match names {
        [] => recipe::all()?,
        names => names.iter().map(|&name| name.to_owned()).collect(),
    };
    for name in all {
        build(&name).with_context(|| format!("image {name}"))?;
    }
    Ok(())
}

/// The archive of an image, built now unless it is there and its recipe has not changed.
fn build(name: &str) -> Result<PathBuf> {
    let chain = Chain::read(name)?;
    let folder = paths::created(paths::build()?.join("images"))?;
    let archive = folder.join(format!("{name}.tar"));
    let key_file = folder.join(format!("{name}.key"));
    let key = chain.key(BUILDER)?;
    if archive.is_file() && fs::read_to_string(&key_file).is_ok_and(|known| known == key) {
        println!("{}: up to date", archive.display());
        return Ok(archive);
    }
    println!("{name}: {}", chain.top()?.description);
    let start = Instant::now();
    let work = tempfile::tempdir_in(&folder).context("make a folder to work in")?;
    let root = work.path().join("root.tar");
    make_root(&chain, work.path(), &root)?;

    let store = Store::new(&work.path().join("store"));
    let mut layer = File::open(&root).with_context(|| format!("open {}", root.display()))?;
    let made_by = format!("cargo xtask images {name}");
    let layers: &mut [&mut dyn Read] = &mut [&mut layer];
    let created = Some(CREATED.to_owned());
    let image = save::create(&store, layers, chain.execution(), created, &made_by)?;
    let aside = work.path().join("image.tar");
    let file = File::create(&aside).with_context(|| format!("create {}", aside.display()))?;
    save::archive(
        &store,
        &image,
        Some(&format!("localhost/{name}:latest")),
        &file,
    )?;
    fs::rename(&aside, &archive).with_context(|| format!("write {}", archive.display()))?;
    fs::write(&key_file, key).with_context(|| format!("write {}", key_file.display()))?;
    let size = archive.metadata()?.len() >> 20;
    let seconds = start.elapsed().as_secs();
    println!("{}: {size} MiB, {seconds} s", archive.display());
    Ok(archive)
}

/// Makes the root as a tar archive.
fn make_root(chain: &Chain, work: &Path, root: &Path) -> Result<()> {
    let hook = work.join("hook");
    fs::write(&hook, script(chain)?).context("write the hook")?;
    match chain.debian() {
        Some(debian) => {
            if !sh::installed("mmdebstrap") {
                bail!("mmdebstrap is missing; `cargo xtask setup` installs it");
            }
            // Where packages are only unpacked, mmdebstrap does not come to the later hooks.
            let stage = match debian.variant.as_str() {
                "extract" => "extract",
                _ => "customize",
            };
            let mut command = if rustix::process::geteuid().is_root() {
                // It mounts proc, sys and devices into the root. In a mount namespace of its own they go with it, also
                // when it is killed; a later `rm -r` of its folder would walk into them.
                sh::cmd("unshare", ["--mount", "--", "mmdebstrap"])
            } else {
                sh::cmd("mmdebstrap", [""; 0])
            };
            command
                .arg("--format=tar")
                .arg(format!("--variant={}", debian.variant))
                .arg(format!("--include={}", debian.packages.join(",")))
                .arg(format!("--{stage}-hook=sh '{}' \"$1\"", hook.display()))
                .arg(&debian.suite)
                .arg(root);
            step(&mut command)
        }
        None => {
            let folder = paths::created(work.join("root"))?;
            step(&mut sh::cmd("sh", [&hook, &folder]))?;
            step(
                sh::cmd("tar", ["--create", "--format=pax", "--sort=name"])
                    // Without the times of access and change, which differ from run to run.
                    .arg("--pax-option=delete=atime,delete=ctime")
                    .args(["--owner=0", "--group=0", "--numeric-owner"])
                    .args(["--mode=go-w", &format!("--mtime=@{SOURCE_DATE_EPOCH}")])
                    .arg("--file")
                    .arg(root)
                    .arg("--directory")
                    .args([&folder, Path::new(".")]),
            )
        }
    }
}

/// Runs a command that makes an image or a part of it. Steps may call Go.
fn step(command: &mut Command) -> Result<()> {
    if let Ok(path) = setup::path_with_go() {
        command.env("PATH", path);
    }
    command.env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH);
    let done = sh::output_within(command, LIMIT)?;
    if !done.success() {
        let lines: Vec<&str> = done.stderr.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        bail!("`{}` failed:\n{last}", sh::shown(command));
    }
    Ok(())
}

/// The shell script of everything a chain of recipes does to the root, which it gets as its argument.
fn script(chain: &Chain) -> Result<String> {
    let mut text = String::from("set -e\nexport ROOT=\"$1\"\n");
    for recipe in &chain.recipes {
        let folder = recipe.folder.to_str().context("a folder that is text")?;
        writeln!(text, "cd {}", quoted(folder))?;
        for hook in recipe.debian.iter().flat_map(|debian| &debian.hooks) {
            writeln!(text, "sh -ec {} hook \"$1\"", quoted(hook))?;
        }
        for copy in &recipe.copy {
            let to = quoted(&copy.to);
            writeln!(text, "mkdir -p \"$ROOT\"\"$(dirname {to})\"")?;
            let from = quoted(&copy.from);
            writeln!(text, "cp -RTL --preserve=mode -- {from} \"$ROOT\"{to}")?;
        }
        for step in &recipe.steps {
            writeln!(text, "sh -ec {} step \"$1\"", quoted(step))?;
        }
    }
    Ok(text)
}

/// A word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
