// SPDX-License-Identifier: Apache-2.0

//! The root file system of an application, for both platforms: the unikernel takes the image as it is, the Linux VM the
//! same files on a disk with ext4.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::table::App;
use crate::{paths, sh};

/// Free space on the Linux VM's disk, MiB.
const FREE_MIB: u64 = 256;

/// The search path where an image names none.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is run, in the words of each platform.
pub(crate) struct Root {
    /// For `coracle run`: the image or folder, then arguments.
    pub(crate) coracle: Vec<OsString>,
    /// For the Linux VM: the disk's image.
    pub(crate) disk: PathBuf,
    pub(crate) workdir: String,
    /// Program and arguments.
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<String>,
}

/// Prepares the root from `build/images/NAME.tar`, as `cargo xtask images` writes it, or from a folder
/// `build/images/NAME`, which is used where there is no such file.
pub(crate) fn prepare(app: &App) -> Result<Root> {
    let images = paths::build()?.join("images");
    let archive = images.join(format!("{}.tar", app.image));
    let arguments = app.arguments.iter().map(ToString::to_string);
    let work = paths::created(paths::build()?.join("apps"))?;
    let disk = work.join(format!("{}.ext4", app.image));
    let command = |entry: Vec<String>| entry.into_iter().chain(arguments.clone()).collect();
    if archive.exists() {
        let image = Image::open(&archive, work.join(format!("{}.layout", app.image)))?;
        let entry = image.strings("Entrypoint");
        if entry.first().is_none_or(|program| program != app.program) {
            bail!(
                "{} starts {entry:?}, the table of applications says {}",
                archive.display(),
                app.program
            );
        }
        let folder = work.join(format!("{}.root", app.image));
        image.unpack(&folder)?;
        make_disk(&folder, &disk)?;
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
        let mut environment = image.strings("Env");
        if !environment
            .iter()
            .any(|variable| variable.starts_with("PATH="))
        {
            environment.push(DEFAULT_PATH.to_owned());
        }
        let workdir = image.config["config"]["WorkingDir"].as_str();
        return Ok(Root {
            coracle: [archive.into_os_string()]
                .into_iter()
                .chain(arguments.clone().map(OsString::from))
                .collect(),
            disk,
            workdir: workdir
                .filter(|folder| !folder.is_empty())
                .unwrap_or("/")
                .to_owned(),
            arguments: command(entry),
            environment,
        });
    }
    let folder = images.join(app.image);
    if !folder.is_dir() {
        bail!(
            "there is no {}: make it with `cargo xtask images {}`",
            archive.display(),
            app.image
        );
    }
    make_disk(&folder, &disk)?;
    let words: Vec<String> = command(vec![app.program.to_owned()]);
    Ok(Root {
        coracle: [folder.into_os_string()]
            .into_iter()
            .chain(words.iter().map(OsString::from))
            .collect(),
        disk,
        workdir: "/".to_owned(),
        arguments: words,
        environment: vec![DEFAULT_PATH.to_owned()],
    })
}

/// An OCI image in an archive, as far as it is needed here: one platform, layers without whiteouts.
struct Image {
    /// The archive unpacked: an OCI layout. Removed when this is dropped.
    layout: PathBuf,
    manifest: Value,
    config: Value,
}

impl Image {
    fn open(archive: &Path, layout: PathBuf) -> Result<Image> {
        fresh(&layout)?;
        let mut image = Image {
            layout,
            manifest: Value::Null,
            config: Value::Null,
        };
        sh::output(
            sh::cmd("tar", ["-xf"])
                .arg(archive)
                .arg("-C")
                .arg(&image.layout),
        )?;
        let index = json(&image.layout.join("index.json"))?;
        image.manifest = json(&image.blob(&index["manifests"][0])?)?;
        image.config = json(&image.blob(&image.manifest["config"])?)?;
        Ok(image)
    }

    /// The file a descriptor points to.
    fn blob(&self, descriptor: &Value) -> Result<PathBuf> {
        let digest = descriptor["digest"].as_str().context("no digest")?;
        let (algorithm, hash) = digest.split_once(':').context("not a digest")?;
        Ok(self.layout.join("blobs").join(algorithm).join(hash))
    }

    /// A list of strings of the image's configuration; empty if it is absent.
    fn strings(&self, key: &str) -> Vec<String> {
        let list = self.config["config"][key]
            .as_array()
            .cloned()
            .unwrap_or_default();
        list.iter()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect()
    }

    /// Unpacks the layers, one over the other, into a fresh folder.
    fn unpack(&self, folder: &Path) -> Result<()> {
        fresh(folder)?;
        let layers = self.manifest["layers"]
            .as_array()
            .context("the image has no layers")?;
        for layer in layers {
            sh::output(
                sh::cmd("tar", ["--numeric-owner", "-p", "-xf"])
                    .arg(self.blob(layer)?)
                    .arg("-C")
                    .arg(folder),
            )?;
        }
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.layout) {
            eprintln!("xtask: could not remove {}: {error}", self.layout.display());
        }
    }
}

/// Makes `folder`, empty.
fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// Writes the files of `folder` to a fresh ext4 in the file `disk`.
fn make_disk(folder: &Path, disk: &Path) -> Result<()> {
    let used = sh::output(sh::cmd("du", ["-s", "--block-size=1M"]).arg(folder))?;
    let used_mib: u64 = used
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("du said `{used}`"))?;
    // Tables and journal take a part of it.
    let size_mib = used_mib * 5 / 4 + FREE_MIB;
    if disk.exists() {
        fs::remove_file(disk).with_context(|| format!("replace {}", disk.display()))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    sh::output(
        sh::cmd("mke2fs", ["-q", "-t", "ext4", "-d"])
            .arg(folder)
            .arg(disk)
            .arg(format!("{size_mib}M"))
            .env("PATH", std::env::join_paths(folders).context("PATH")?),
    )
    .map(drop)
}
