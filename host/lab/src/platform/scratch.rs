// SPDX-License-Identifier: Apache-2.0

//! A root folder that a service of the host may write to: a scratch layer over the files, which are never changed, and the
//! volumes in it. It is mounted in the namespace of the one process that is started, and is gone with it.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Order;
use super::root::Root;
use super::spawn::Mount;
use super::tool::output;
use crate::{Error, Result};

/// `OVERLAYFS_SUPER_MAGIC`, `linux/magic.h`. An overlay cannot have its scratch layer on another overlay.
const OVERLAYFS: i64 = 0x794c_7630;

/// What is to be mounted.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Where the root will be.
    pub(super) root: PathBuf,
    pub(super) mounts: Vec<Mount>,
    /// Folders of the host by where they are mounted in the root.
    pub(super) volumes: Vec<(PathBuf, String)>,
}

impl Scratch {
    /// Makes the folders that are needed; mounts nothing yet.
    pub(super) fn new(root: &Root, order: &Order<'_>) -> Result<Scratch> {
        let layer = order.folder.join("layer");
        let merged = order.folder.join("root");
        for folder in [&layer, &merged] {
            fs::create_dir(folder).map_err(Error::file(folder))?;
        }
        let mut mounts = Vec::new();
        let kind = nix::sys::statfs::statfs(&layer)
            .map_err(|error| Error::file(&layer)(error.into()))?
            .filesystem_type();
        if kind.0 == OVERLAYFS {
            mounts.push(Mount::of("tmpfs", "mode=0755", &order.folder, &layer)?);
        }
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        let lower = escaped(&root.folder)?;
        let options = format!(
            "lowerdir={lower},upperdir={},workdir={}",
            escaped(&upper)?,
            escaped(&work)?
        );
        let overlay = Mount::of("overlay", &options, &order.folder, &merged)?;
        mounts.push(overlay.after_folders(&[&upper, &work])?);
        let mut volumes = Vec::new();
        for (number, path) in root.volumes.iter().enumerate() {
            let folder = order.folder.join(format!("volume{number}"));
            match root.volume_origin(path) {
                Some(origin) => copy(&origin, &folder)?,
                None => fs::create_dir(&folder).map_err(Error::file(&folder))?,
            }
            let (uid, gid) = root.volume_owner(path);
            chown(&folder, Some(uid), Some(gid)).map_err(Error::file(&folder))?;
            volumes.push((folder, path.clone()));
        }
        Ok(Scratch {
            root: merged,
            mounts,
            volumes,
        })
    }

    /// Mounts the volumes and what programs expect of a system: the host's `/proc`, `/sys` and `/dev`, `/tmp` in memory.
    pub(super) fn with_system(mut self) -> Result<Scratch> {
        let root = self.root.clone();
        for folder in ["proc", "sys", "dev"] {
            let mount = Mount::bind(&Path::new("/").join(folder), &root, &root.join(folder))?;
            self.mounts.push(mount);
        }
        self.mounts
            .push(Mount::of("tmpfs", "mode=1777", &root, &root.join("tmp"))?);
        for (folder, path) in &self.volumes {
            let place = root.join(path.trim_start_matches('/'));
            self.mounts.push(Mount::bind(folder, &root, &place)?);
        }
        Ok(self)
    }
}

/// A copy of a folder with everything that is kept of files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    output(Command::new("cp").arg("-a").arg(from).arg(to)).map(drop)
}

/// A path in the options of an overlay, where commas and colons part paths.
fn escaped(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .ok_or_else(|| Error::Input(format!("{}: not UTF-8", path.display())))?;
    Ok(text
        .replace('\\', r"\\")
        .replace(',', r"\,")
        .replace(':', r"\:"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_parts_paths_is_escaped() {
        assert_eq!(super::escaped("/a:b,c".as_ref()).unwrap(), r"/a\:b\,c");
    }
}
