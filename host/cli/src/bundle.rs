// SPDX-License-Identifier: Apache-2.0
//! Writes the boot bundle of an instance, and keeps what a later start of the same executable can use again.
//!
//! The part of a bundle that holds the files depends on the files only. For an executable it is kept in
//! `$XDG_CACHE_HOME/coracle/roots/`, under a name made of everything that changes when the file does; the guest maps it
//! copy-on-write. That saves 5 ms of a start and 9 MB of writing for a Go program of that size, and several guests of
//! one program share its pages.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use coracle_imager::bundle::Written;
use coracle_imager::{BundleError, Root};
use coracle_vmm::boot;

use crate::error::Failure;
use crate::folders;
use crate::plan::Plan;

/// How many executables are kept.
const KEPT: usize = 16;

/// Writes the bundle to `path` and answers its parts: that file alone, or that file and one of the cache.
pub(crate) fn write(plan: &Plan, path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| told(error, path);
    let file = create(path).map_err(|error| failed(writing(path, error)))?;
    if let Root::Executable(program) = &plan.bundle.root
        && boot::takes_parts(plan.spec.machine, plan.spec.memory_bytes)
        && let Ok(root) = cached(&plan.bundle.root, program)
    {
        plan.bundle.write_config(&file).map_err(failed)?;
        return Ok(vec![path.into(), root]);
    }
    let written = plan.bundle.write(file).map_err(failed)?;
    warn_of_skipped(&written);
    Ok(vec![path.into()])
}

/// The part with the files of an executable, from the cache or made now. Without a usable cache the bundle is written
/// whole, so an error here needs no words.
fn cached(root: &Root, program: &Path) -> Result<PathBuf, BundleError> {
    let dir = folders::cache()
        .map_err(|_| writing(program, io::ErrorKind::NotFound.into()))?
        .join("roots");
    let at_cache = |error| writing(&dir, error);
    let key = key(program).map_err(at_cache)?;
    let path = dir.join(&key);
    if let Ok(file) = File::options().append(true).open(&path) {
        // Its time of change says when it was last used.
        file.set_modified(SystemTime::now()).map_err(at_cache)?;
        return Ok(path);
    }
    fs::create_dir_all(&dir).map_err(at_cache)?;
    // Written aside and renamed: what has the name is whole.
    let aside = dir.join(format!("{key}.{}", std::process::id()));
    let written = create(&aside)
        .map_err(at_cache)
        .and_then(|file| root.write(file))
        .and_then(|_| {
            // An executable that was changed meanwhile has another key.
            if self::key(program).map_err(at_cache)? == key {
                fs::rename(&aside, &path).map_err(at_cache)
            } else {
                Err(at_cache(io::ErrorKind::Interrupted.into()))
            }
        });
    if let Err(error) = written {
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    forget_oldest(&dir);
    Ok(path)
}

/// A file name that changes with the file's name, place, size and content.
fn key(program: &Path) -> io::Result<String> {
    let meta = program.metadata()?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let (device, inode, size) = (meta.dev(), meta.ino(), meta.size());
    let changed = (
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
    );
    Ok(format!(
        "{name}-{device:x}-{inode:x}-{size:x}-{:x}.{:x}-{:x}.{:x}",
        changed.0, changed.1, changed.2, changed.3
    ))
}

/// Removes what has not been used for longest. A guest that still has such a file mapped keeps it.
fn forget_oldest(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    let aged = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut files: Vec<_> = entries.flatten().filter_map(aged).collect();
    files.sort();
    let surplus = files.len().saturating_sub(KEPT);
    for (_, path) in &files[..surplus] {
        let _ = fs::remove_file(path);
    }
}

fn create(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

fn writing(path: &Path, source: io::Error) -> BundleError {
    BundleError::Write {
        entry: path.into(),
        source,
    }
}

fn told(error: BundleError, path: &Path) -> Failure {
    if error
        .io()
        .is_some_and(|io| io.kind() == io::ErrorKind::StorageFull)
    {
        let folder = path.parent().unwrap_or(path).display();
        return Failure::new(format!(
            "disk full while writing the boot bundle to {folder}; free space there, or set XDG_STATE_HOME to a folder on another disk"
        ));
    }
    error.into()
}

fn warn_of_skipped(written: &Written) {
    if let [first, rest @ ..] = &written.skipped[..] {
        let more = if rest.is_empty() {
            String::new()
        } else {
            format!(" and {} more", rest.len())
        };
        let first = first.display();
        eprintln!(
            "coracle: warning: {first}{more}: devices, sockets and pipes are not taken into the root"
        );
    }
}
