// SPDX-License-Identifier: Apache-2.0
//! The root that a folder of the host holds: an EROFS file in a cache, made once and again when something in the folder has
//! changed.
//!
//! Whether something has changed is seen by a stamp of what lstat(2) says of everything in the folder. The time of status
//! change goes forward with every change of content, owner, mode or attributes, and nobody can set it back. Its resolution
//! is that of the host's clock tick, so a folder that was changed just now is looked at again after that time: what is
//! changed later has another stamp.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::NamedTempFile;

use super::digest::Digest;
use super::error::ImageError;
use super::root::from_folder;
use crate::erofs::is_whole;

type Result<T> = std::result::Result<T, ImageError>;

/// Version of the way roots are made; another version is another name.
const FORMAT: u32 = 1;
/// Longer than a tick of the clock that the host's file systems use.
const TICK: Duration = Duration::from_millis(20);
/// How often a folder is looked at until it comes to rest.
const LOOKS: u32 = 10;
/// How often a folder may change while it is read before that is an error.
const TRIES: u32 = 3;
/// Most bytes of a folder that goes into the boot bundle: packing so much at each start is quicker than a disk.
const SMALL: u64 = 4 << 20;
/// How many roots are kept.
const KEPT: usize = 16;
/// A root that was asked for so long ago has been opened by its guest, which keeps it.
const OPENED: Duration = Duration::from_secs(60);

/// The root of the folder at `path`, from `cache` or made now. Of each folder the newest is kept, and of all those that
/// were used last. `None`: it is so small that a disk would cost more than it saves.
///
/// # Errors
/// [`ImageError`]; nothing is kept then.
pub fn root(path: &Path, cache: &Path) -> Result<Option<PathBuf>> {
    let reading = ImageError::reading(path);
    let real = path.canonicalize().map_err(&reading)?;
    let name = Digest::of(real.as_os_str().as_bytes()).short().to_owned();
    for _ in 0..TRIES {
        let Some(seen) = settled(&mut || look(&real)).map_err(&reading)? else {
            break;
        };
        if seen.is_plain && seen.bytes <= SMALL {
            return Ok(None);
        }
        let root = cache.join(format!("{FORMAT}-{name}-{}.erofs", seen.stamp.hex()));
        if is_known(&root) {
            return Ok(Some(root));
        }
        fs::create_dir_all(cache).map_err(ImageError::writing(cache))?;
        let lock = cache.join(format!("{name}.lock"));
        let failed = ImageError::writing(&lock);
        let only = File::create(&lock).map_err(&failed)?;
        only.lock().map_err(&failed)?;
        if is_known(&root) {
            return Ok(Some(root));
        }
        let failed = ImageError::writing(cache);
        let file = NamedTempFile::new_in(cache).map_err(&failed)?;
        from_folder(&real, cache, file.as_file())?;
        if look(&real).map_err(&reading)?.stamp != seen.stamp {
            continue;
        }
        // What has a name must be whole after a power cut too.
        file.as_file().sync_data().map_err(&failed)?;
        file.persist(&root).map_err(|error| failed(error.error))?;
        forget(cache, &name, &root);
        return Ok(Some(root));
    }
    let what = "it changes while it is read; share what changes with -v instead";
    Err(ImageError::unsupported(&path.display().to_string(), what))
}

/// Whether the root is there; its time of change says when it was last used.
fn is_known(root: &Path) -> bool {
    let used = |file: File| file.set_modified(SystemTime::now());
    is_whole(root)
        && File::options()
            .append(true)
            .open(root)
            .and_then(used)
            .is_ok()
}

/// Looks at a folder whose last change is so long ago that the next one has a later time. `None`: it does not come to
/// rest.
fn settled(look: &mut dyn FnMut() -> io::Result<Seen>) -> io::Result<Option<Seen>> {
    for _ in 0..LOOKS {
        let seen = look()?;
        let age = SystemTime::now().duration_since(seen.changed);
        match age.ok().and_then(|age| TICK.checked_sub(age)) {
            Some(rest) if !rest.is_zero() => std::thread::sleep(rest),
            // Times in the future tell nothing.
            _ => return Ok(Some(seen)),
        }
    }
    Ok(None)
}

/// What a look at a folder tells.
struct Seen {
    /// Tells two states apart.
    stamp: Digest,
    /// When something was changed last.
    changed: SystemTime,
    /// Size of all files.
    bytes: u64,
    /// Whether there are only files of one name, folders and links.
    is_plain: bool,
}

fn look(path: &Path) -> io::Result<Seen> {
    let mut all = Vec::new();
    let (mut bytes, mut is_plain) = (0, true);
    let mut last = (0, 0);
    let mut todo = vec![path.to_owned()];
    while let Some(source) = todo.pop() {
        let meta = fs::symlink_metadata(&source)?;
        let (changed, nanoseconds) = (meta.ctime(), meta.ctime_nsec());
        last = last.max((changed, nanoseconds));
        let is_file = meta.is_file() && meta.nlink() == 1;
        is_plain &= is_file || meta.is_dir() || meta.is_symlink();
        bytes += meta.size();
        all.extend_from_slice(source.as_os_str().as_bytes());
        all.push(0);
        for number in [
            meta.dev(),
            meta.ino(),
            meta.size(),
            meta.mode().into(),
            meta.mtime().cast_unsigned(),
            meta.mtime_nsec().cast_unsigned(),
            changed.cast_unsigned(),
            nanoseconds.cast_unsigned(),
        ] {
            all.extend_from_slice(&number.to_le_bytes());
        }
        if meta.is_dir() {
            let entries = fs::read_dir(&source)?;
            let paths = entries.map(|entry| entry.map(|entry| entry.path()));
            let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
            // The host may list them in another order the next time.
            paths.sort_unstable();
            todo.extend(paths);
        }
    }
    let seconds = Duration::from_secs(last.0.try_into().unwrap_or(0));
    let nanoseconds = Duration::from_nanos(last.1.try_into().unwrap_or(0));
    Ok(Seen {
        stamp: Digest::of(&all),
        changed: UNIX_EPOCH + seconds + nanoseconds,
        bytes,
        is_plain,
    })
}

/// Removes earlier roots of the folder called `name`, and of all roots those that have not been used for longest. A guest
/// that still has one keeps it.
fn forget(cache: &Path, name: &str, newest: &Path) {
    let now = SystemTime::now();
    let aged = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut roots: Vec<_> = entries.filter_map(aged).collect();
    roots.retain(|(_, path)| path.extension().is_some_and(|end| end == "erofs"));
    roots.sort();
    let surplus = roots.len().saturating_sub(KEPT);
    for (at, (used, path)) in roots.iter().enumerate() {
        let same = path.to_string_lossy().contains(&format!("-{name}-"));
        let opened = now.duration_since(*used).is_ok_and(|age| age > OPENED);
        if path != newest && opened && (same || at < surplus) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn roots(cache: &Path) -> usize {
        let names = fs::read_dir(cache).unwrap().flatten();
        let is_root = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|e| e == "erofs");
        names.filter(is_root).count()
    }

    /// More than goes into a bundle, without taking space.
    fn large(folder: &Path) {
        let file = File::create(folder.join("large")).unwrap();
        file.set_len(SMALL + 1).unwrap();
    }

    #[test]
    fn every_change_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, cache) = (dir.path().join("folder"), dir.path().join("cache"));
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("sub/file"), "one").unwrap();
        assert_eq!(root(&folder, &cache).unwrap(), None, "small");
        large(&folder);
        let root = |why: &str| match self::root(&folder, &cache) {
            Ok(Some(root)) => root,
            other => panic!("{why}: {other:?}"),
        };
        let mut seen = vec![root("first")];
        assert_eq!(root("again"), seen[0]);
        let link = dir.path().join("link");
        symlink(&folder, &link).unwrap();
        let by_link = self::root(&link, &cache).unwrap();
        assert_eq!(by_link.as_ref(), Some(&seen[0]), "by another name");
        let file = folder.join("sub/file");
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        type Change<'a> = (&'a str, &'a dyn Fn());
        let changes: [Change<'_>; 6] = [
            ("content of the same length and time", &|| {
                fs::write(&file, "two").unwrap();
                File::open(&file).unwrap().set_modified(time).unwrap();
            }),
            ("mode", &|| {
                fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            }),
            ("a new name", &|| fs::write(folder.join("new"), "").unwrap()),
            ("a link", &|| symlink("x", folder.join("sub/link")).unwrap()),
            ("another name", &|| {
                fs::rename(folder.join("new"), folder.join("other")).unwrap();
            }),
            ("one less", &|| {
                fs::remove_file(folder.join("other")).unwrap()
            }),
        ];
        for (what, change) in changes {
            change();
            let now = root(what);
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        }
        assert_eq!(roots(&cache), seen.len(), "those of this minute stay");
    }

    #[test]
    fn what_never_comes_to_rest_is_given_up() {
        let seen = |changed| Seen {
            stamp: Digest::of(b""),
            changed,
            bytes: 0,
            is_plain: true,
        };
        let mut looks = 0;
        let restless = settled(&mut || {
            looks += 1;
            Ok(seen(SystemTime::now()))
        });
        assert!(restless.unwrap().is_none());
        assert_eq!(looks, LOOKS);
        let ahead = SystemTime::now() + Duration::from_secs(1000);
        assert!(settled(&mut || Ok(seen(ahead))).unwrap().is_some());
    }

    #[test]
    fn what_nobody_uses_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let old = |root: &Path| {
            let file = File::options().append(true).open(root).unwrap();
            file.set_modified(SystemTime::now() - 2 * OPENED).unwrap();
        };
        let folder = |n: usize| {
            let folder = dir.path().join(n.to_string());
            fs::create_dir_all(&folder).unwrap();
            large(&folder);
            folder
        };
        let root = |folder: &Path| root(folder, &cache).unwrap().unwrap();
        let first = root(&folder(0));
        old(&first);
        fs::write(folder(0).join("more"), "").unwrap();
        let second = root(&folder(0));
        assert!(!first.exists() && second.exists());
        for n in 1..KEPT + 4 {
            old(&root(&folder(n)));
        }
        assert_eq!(roots(&cache), KEPT);
    }

    #[test]
    fn a_root_cut_short_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, cache) = (dir.path().join("folder"), dir.path().join("cache"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("one"), vec![1; 100_000]).unwrap();
        fs::hard_link(folder.join("one"), folder.join("two")).unwrap();
        let root = || root(&folder, &cache).unwrap().unwrap();
        let made = root();
        let file = File::options().write(true).open(&made).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length / 2).unwrap();
        assert_eq!(root(), made);
        assert_eq!(fs::metadata(&made).unwrap().len(), length);
    }
}
