// SPDX-License-Identifier: Apache-2.0

//! Disks with ext4 for the Linux VM, made by `mke2fs` without mounting anything.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::root::{Root, in_cache};
use super::super::tool::{output, tool};
use crate::{Error, Result};

/// Free space on the root's disk, MiB.
const FREE_MIB: u64 = 256;
/// Size of a volume. The host stores what is written.
const VOLUME_MIB: u64 = 4096;

/// A disk with the files of a root. Guests write to it as if it were theirs; nothing of that is kept.
pub(super) fn of_root(root: &Root) -> Result<PathBuf> {
    let made = in_cache("disks", &root.key, |folder| {
        let used = output(
            Command::new("du")
                .args(["-s", "--block-size=1M"])
                .arg(&root.folder),
        )?;
        let used_mib: u64 = used
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| Error::Host(format!("`du` said {used:?}")))?;
        // Tables and journal take a part of it.
        let size_mib = used_mib * 5 / 4 + FREE_MIB;
        make(
            &folder.join("root.ext4"),
            size_mib,
            &["-d".as_ref(), root.folder.as_os_str()],
        )
    })?;
    Ok(made.join("root.ext4"))
}

/// A disk with what the image has at `path` or nothing, to be copied for each start.
pub(super) fn volume_template(root: &Root, path: &str) -> Result<PathBuf> {
    let (uid, gid) = root.volume_owner(path);
    let origin = root.volume_origin(path);
    let key = match &origin {
        Some(_) => format!("{}{}", root.key, path.replace('/', "-")),
        None => format!("volume-{uid}-{gid}"),
    };
    let made = in_cache("disks", &key, |folder| {
        let owner = format!("root_owner={uid}:{gid}");
        let mut options: Vec<&OsStr> = vec!["-E".as_ref(), owner.as_ref()];
        if let Some(origin) = &origin {
            options.extend(["-d".as_ref(), origin.as_os_str()]);
        }
        make(&folder.join("volume.ext4"), VOLUME_MIB, &options)
    })?;
    Ok(made.join("volume.ext4"))
}

fn make(disk: &Path, size_mib: u64, options: &[&OsStr]) -> Result<()> {
    let mut command = Command::new(tool("mke2fs", "e2fsprogs")?);
    command.args(["-q", "-t", "ext4"]).args(options);
    output(command.arg(disk).arg(format!("{size_mib}M"))).map(drop)
}

/// A copy that takes no more room than the original: holes stay holes.
pub(super) fn copy(template: &Path, to: &Path) -> Result<()> {
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::AsFd;
    let copied = || -> std::io::Result<()> {
        let mut from = File::open(template)?;
        let mut into = File::create_new(to)?;
        let size = from.metadata()?.len();
        into.set_len(size)?;
        let seek = |at: u64, whence| {
            let at = i64::try_from(at).map_err(std::io::Error::other)?;
            match nix::unistd::lseek(from.as_fd(), at, whence) {
                Ok(found) => u64::try_from(found)
                    .map(Some)
                    .map_err(std::io::Error::other),
                Err(nix::errno::Errno::ENXIO) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(start) = seek(at, nix::unistd::Whence::SeekData)? {
            let end = seek(start, nix::unistd::Whence::SeekHole)?.unwrap_or(size);
            parts.push((start, end));
            at = end;
        }
        for (start, end) in parts {
            from.seek(SeekFrom::Start(start))?;
            into.seek(SeekFrom::Start(start))?;
            std::io::copy(&mut (&mut from).take(end - start), &mut into)?;
        }
        into.flush()
    };
    let result = copied().map_err(Error::file(to));
    if result.is_err() {
        drop(fs::remove_file(to));
    }
    result
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn copies_keep_content_and_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        let file = std::fs::File::create(&from).unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(b"middle", 4 << 20).unwrap();
        super::copy(&from, &to).unwrap();
        assert_eq!(std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
        assert!(to.metadata().unwrap().blocks() * 512 < 1 << 20);
        assert!(super::copy(&from, &to).is_err(), "never over something");
        assert!(!to.exists() || to.metadata().unwrap().len() == 8 << 20);
    }
}
