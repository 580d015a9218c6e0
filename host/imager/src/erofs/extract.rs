// SPDX-License-Identifier: Apache-2.0
//! Writes the files of an image into a folder of the host, for programs that cannot mount it: so another runtime gets the
//! very root that a guest sees.
//!
//! Kept are contents, links of both kinds, modes, times, and for root owners and device files. Extended attributes are not.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat};

use super::{
    Found, ReadError, Reader, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG,
};

/// Bytes copied at a time.
const CHUNK: u64 = 1 << 20;
/// How deep folders may lie in each other: each is a call here.
const DEPTH_MAX: usize = 2048;

/// Why the files cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The image cannot be read.
    #[error(transparent)]
    Image(#[from] ReadError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
}

/// Writes everything in the image to `folder`, which must be there and empty.
///
/// # Errors
/// [`ExtractError`]; what was written so far is left.
pub fn extract(image: &Reader, folder: &Path) -> Result<(), ExtractError> {
    let mut extraction = Extraction {
        image,
        is_root: rustix::process::geteuid().is_root(),
        known: HashMap::new(),
        folders: HashSet::new(),
    };
    let root = image.root()?;
    extraction.fill(&root, folder, 0)?;
    extraction.describe(&root, folder)
}

struct Extraction<'a> {
    image: &'a Reader,
    is_root: bool,
    /// Where a file that is no folder was written first, by its inode number.
    known: HashMap<u64, PathBuf>,
    /// Numbers of the folders that were met. In a damaged image they may lead in circles.
    folders: HashSet<u64>,
}

fn writing(path: &Path) -> impl Fn(io::Error) -> ExtractError {
    let path = path.to_owned();
    move |source| ExtractError::Write {
        path: path.clone(),
        source,
    }
}

impl Extraction<'_> {
    fn fill(&mut self, folder: &Found, path: &Path, depth: usize) -> Result<(), ExtractError> {
        if depth > DEPTH_MAX || !self.folders.insert(folder.number) {
            return Err(ReadError::Damaged("a folder in itself, or in two others").into());
        }
        for (name, found) in self.image.children(folder)? {
            if name.is_empty() || name == b".." || name.contains(&b'/') || name.contains(&0) {
                return Err(ReadError::Damaged("a name that leads out of its folder").into());
            }
            let path = path.join(OsStr::from_bytes(&name));
            if !found.is_directory() {
                if let Some(first) = self.known.get(&found.number) {
                    fs::hard_link(first, &path).map_err(writing(&path))?;
                    continue;
                }
                self.known.insert(found.number, path.clone());
            }
            self.write(&found, &path, depth)?;
        }
        Ok(())
    }

    fn write(&mut self, found: &Found, path: &Path, depth: usize) -> Result<(), ExtractError> {
        let failed = writing(path);
        let kind = found.mode & S_IFMT;
        if kind == S_IFDIR.0 {
            // Open to its maker until everything is in it.
            let made = DirBuilder::new().mode(0o700).create(path);
            made.map_err(&failed)?;
            self.fill(found, path, depth + 1)?;
        } else if kind == S_IFREG.0 {
            let mut file = File::create_new(path).map_err(&failed)?;
            let mut at = 0;
            while at < found.size {
                let bytes = self.image.read(found, at, CHUNK)?;
                at += bytes.len() as u64;
                file.write_all(&bytes).map_err(&failed)?;
            }
        } else if kind == S_IFLNK.0 {
            let target = self.image.read(found, 0, 4096)?;
            symlink(OsStr::from_bytes(&target), path).map_err(&failed)?;
        } else {
            let kind = match kind {
                kind if kind == S_IFIFO.0 => FileType::Fifo,
                kind if kind == S_IFCHR.0 && self.is_root => FileType::CharacterDevice,
                kind if kind == S_IFBLK.0 && self.is_root => FileType::BlockDevice,
                // A socket without the program that listens means nothing, and who is not root makes no devices.
                _ => return Ok(()),
            };
            let mode = Mode::from_raw_mode(0o600);
            let device = match kind {
                FileType::Fifo => 0,
                _ => makedev(
                    (found.device >> 8) & 0xfff,
                    (found.device & 0xff) | ((found.device >> 12) & 0xf_ff00),
                ),
            };
            mknodat(CWD, path, kind, mode, device).map_err(|error| failed(error.into()))?;
        }
        self.describe(found, path)
    }

    /// Owner, mode and time; in this order, as a new owner takes set-id bits away.
    fn describe(&self, found: &Found, path: &Path) -> Result<(), ExtractError> {
        let failed = writing(path);
        if self.is_root {
            lchown(path, Some(found.uid), Some(found.gid)).map_err(&failed)?;
        }
        if !found.is_link() {
            let mode = Permissions::from_mode(u32::from(found.mode & 0o7777));
            fs::set_permissions(path, mode).map_err(&failed)?;
        }
        let (seconds, nanoseconds) = found.mtime;
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: i64::from(nanoseconds),
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| failed(error.into()))
    }
}
