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
    let Unpacked { folder, config } = unpack(app.image)?;
    let strings = |key: &str| -> Vec<String> {
        let list = config[key].as_array().cloned().unwrap_or_default();
        list.iter()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect()
    };
    let mut entry = strings("Entrypoint");
    if entry.is_empty() {
        entry.push(app.program.to_owned());
    }
    if entry[0] != app.program {
        bail!(
            "the image {} starts {entry:?}, the table of applications says {}",
            app.image,
            app.program
        );
    }
    let disk = paths::build()?
        .join("apps")
        .join(format!("{}.ext4", app.image));
    make_disk(&folder, &disk)?;
    let mut environment = strings("Env");
    if !environment
        .iter()
        .any(|variable| variable.starts_with("PATH="))
    {
        environment.push(DEFAULT_PATH.to_owned());
    }
    let workdir = config["WorkingDir"].as_str();
    let workdir = workdir.filter(|folder| !folder.is_empty()).unwrap_or("/");
    let arguments: Vec<String> = entry
        .into_iter()
        .chain(app.arguments.iter().map(ToString::to_string))
        .collect();
    let mut coracle: Vec<OsString> = ["-w", workdir].map(OsString::from).to_vec();
    for variable in &environment {
        coracle.extend(["-e".into(), variable.into()]);
    }
    coracle.push(folder.into_os_string());
    coracle.extend(arguments.iter().map(OsString::from));
    Ok(Root {
        coracle,
        disk,
        workdir: workdir.to_owned(),
        arguments,
        environment,
    })
}

/// A root folder and how its image is run.
pub(crate) struct Unpacked {
    pub(crate) folder: PathBuf,
    /// The `config` object of the image; null for a folder without image.
    config: Value,
}

/// The root folder of an image, unpacked again if the archive is younger.
pub(crate) fn unpack(name: &str) -> Result<Unpacked> {
    let images = paths::build()?.join("images");
    let archive = images.join(format!("{name}.tar"));
    if !archive.exists() {
        let folder = images.join(name);
        if folder.is_dir() {
            return Ok(Unpacked {
                folder,
                config: Value::Null,
            });
        }
        bail!(
            "there is no {}: make it with `cargo xtask images {name}`",
            archive.display()
        );
    }
    let work = paths::created(paths::build()?.join("apps"))?;
    let image = Image::open(&archive, work.join(format!("{name}.layout")))?;
    let folder = work.join(format!("{name}.root"));
    let mark = work.join(format!("{name}.unpacked"));
    let digest = image.manifest["config"]["digest"].to_string();
    let known = fs::read_to_string(&mark).is_ok_and(|known| known == digest);
    if !known || !folder.is_dir() {
        image.unpack(&folder)?;
        fs::write(&mark, digest).with_context(|| format!("write {}", mark.display()))?;
    }
    let config = image.config["config"].clone();
    Ok(Unpacked { folder, config })
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
