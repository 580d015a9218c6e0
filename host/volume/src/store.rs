// SPDX-License-Identifier: Apache-2.0
//! The volumes of a user: one folder for each, with the disk in it.
//!
//! Who uses a volume is not written down, since a machine that is killed could not take it back. QEMU locks the files it
//! has open, and those locks go with it: they are what is asked here.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::format::{FormatError, LARGEST, SMALLEST, format};

/// Size of a volume that is made at its first use. The file is sparse: it takes what is written.
pub const DEFAULT_BYTES: u64 = 10 << 30;

const DISK: &str = "disk.img";
/// Marks a volume that was made for one instance and that nobody named.
const ANONYMOUS: &str = "anonymous";
/// Longest name.
const NAME_MAX: usize = 128;
/// QEMU's lock for writing, `RAW_LOCK_PERM_BASE + BLK_PERM_WRITE` (its `block/file-posix.c`).
const WRITE_LOCK: i64 = 101;

/// The folder with all volumes.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    dir: PathBuf,
}

/// Who uses a volume now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nobody.
    Free,
    /// Guests that only read it.
    Read,
    /// A guest that writes it.
    Written,
}

/// What cannot be done with volumes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The name cannot be a folder's.
    #[error(
        "volume {name:?}: a name has letters, digits, '-', '_' and '.', begins with a letter or digit, and has at most {NAME_MAX} characters"
    )]
    Name {
        /// As given.
        name: String,
    },
    /// There is one of that name.
    #[error("volume {name} exists; remove it with its content: coracle volume rm {name}")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is none of that name.
    #[error("no volume {name}; make it: coracle volume create {name}")]
    NotFound {
        /// The name.
        name: String,
    },
    /// It is in use.
    #[error("volume {name} is in use; stop the instance that has it (coracle ps)")]
    InUse {
        /// The name.
        name: String,
    },
    /// The size is out of range.
    #[error("volume {name}: {size_bytes} bytes are too {}; give --size from {} to {}", if *size_bytes < SMALLEST { "few" } else { "many" }, "16M", "8T")]
    Size {
        /// The name.
        name: String,
        /// As given.
        size_bytes: u64,
    },
    /// The host failed.
    #[error("volume {name}: {}: {source}", path.display())]
    Io {
        /// The name.
        name: String,
        /// Which file.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
}

impl Store {
    /// The volumes below `data`, the data folder of the user's `coracle`.
    #[must_use]
    pub fn new(data: &Path) -> Self {
        Self {
            dir: data.join("volumes"),
        }
    }

    /// Makes an empty volume.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn create(&self, name: &str, size_bytes: u64) -> Result<Volume, VolumeError> {
        let volume = self.volume(name)?;
        volume.make(size_bytes, false)?;
        Ok(volume)
    }

    /// A volume that nobody named. It is not there before [`Volume::make_anonymous`].
    #[must_use]
    pub fn unnamed(&self) -> Volume {
        let id = random_id();
        let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = self.dir.join(&name);
        Volume { name, dir }
    }

    /// The volume of that name.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`], [`VolumeError::Name`].
    pub fn open(&self, name: &str) -> Result<Volume, VolumeError> {
        let volume = self.volume(name)?;
        if volume.disk().is_file() {
            Ok(volume)
        } else {
            Err(VolumeError::NotFound { name: name.into() })
        }
    }

    /// The volume of that name, made now if there is none.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn open_or_create(&self, name: &str) -> Result<Volume, VolumeError> {
        match self.open(name) {
            Err(VolumeError::NotFound { .. }) => match self.create(name, DEFAULT_BYTES) {
                // Somebody else was quicker.
                Err(VolumeError::Exists { .. }) => self.open(name),
                made => made,
            },
            found => found,
        }
    }

    /// All volumes, by name.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn list(&self) -> Result<Vec<Volume>, VolumeError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                return Err(VolumeError::Io {
                    name: "list".into(),
                    path: self.dir.clone(),
                    source,
                });
            }
        };
        let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
        let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
        names.sort();
        Ok(names
            .iter()
            .filter_map(|name| self.open(name).ok())
            .collect())
    }

    fn volume(&self, name: &str) -> Result<Volume, VolumeError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let valid = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(allowed)
            && name.len() <= NAME_MAX;
        if !valid {
            return Err(VolumeError::Name { name: name.into() });
        }
        Ok(Volume {
            name: name.into(),
            dir: self.dir.join(name),
        })
    }
}

impl Volume {
    /// Makes an empty volume of a name that [`Store::unnamed`] chose. It reaches the host's disk with what the guest
    /// syncs first: before that nothing is in it that anybody was promised.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn make_anonymous(&self) -> Result<(), VolumeError> {
        self.make(DEFAULT_BYTES, true)
    }

    fn make(&self, size_bytes: u64, anonymous: bool) -> Result<(), VolumeError> {
        let name = &self.name;
        if !(SMALLEST..=LARGEST).contains(&size_bytes) {
            let name = name.clone();
            return Err(VolumeError::Size { name, size_bytes });
        }
        let exists = || VolumeError::Exists { name: name.clone() };
        if self.dir.exists() {
            return Err(exists());
        }
        // Made aside and renamed: what has the name is whole.
        let hidden = format!(".{name}.{}", std::process::id());
        let aside = Self {
            name: name.clone(),
            dir: self.dir.with_file_name(hidden),
        };
        let _ = fs::remove_dir_all(&aside.dir);
        let made = aside.fill(size_bytes, anonymous).and_then(|()| {
            fs::rename(&aside.dir, &self.dir).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => exists(),
                _ => self.failed(&self.dir, source),
            })
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&aside.dir);
        }
        made
    }

    /// The file that is the guest's disk.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// Whether it was made for one instance and nobody named it.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.dir.join(ANONYMOUS).exists()
    }

    /// Length of the disk, and what of it the host stores, in bytes.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn sizes(&self) -> Result<(u64, u64), VolumeError> {
        let meta = self.metadata()?;
        Ok((meta.len(), meta.blocks() * 512))
    }

    /// When it was made, in seconds since 1970; 0 if the host does not know.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn created_s(&self) -> Result<u64, VolumeError> {
        let created = self.metadata()?.created();
        Ok(created
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
            .map_or(0, |at| at.as_secs()))
    }

    fn metadata(&self) -> Result<fs::Metadata, VolumeError> {
        let disk = self.disk();
        disk.metadata().map_err(|source| self.failed(&disk, source))
    }

    /// Who uses it now.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn in_use(&self) -> Result<Use, VolumeError> {
        let disk = self.disk();
        let failed = |source| self.failed(&disk, source);
        let file = File::open(&disk).map_err(failed)?;
        let locked = |start, len| {
            let mut lock = lock(start, len);
            fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock))?;
            Ok::<_, Errno>(i32::from(lock.l_type) != libc::F_UNLCK)
        };
        let (written, any) = (locked(WRITE_LOCK, 1), locked(0, 0));
        match (written, any) {
            (Ok(true), _) => Ok(Use::Written),
            (_, Ok(true)) => Ok(Use::Read),
            (Ok(_), Ok(_)) => Ok(Use::Free),
            (Err(error), _) | (_, Err(error)) => Err(failed(error.into())),
        }
    }

    /// Checks that a guest may use it: to write alone, to read beside others that read. The VMM's own lock decides in the
    /// end; this says it in one clear line.
    ///
    /// # Errors
    /// [`VolumeError::InUse`], [`VolumeError::Io`].
    pub fn check_available(&self, read_only: bool) -> Result<(), VolumeError> {
        match self.in_use()? {
            Use::Free => Ok(()),
            Use::Read if read_only => Ok(()),
            Use::Read | Use::Written => Err(VolumeError::InUse {
                name: self.name.clone(),
            }),
        }
    }

    /// Removes it with its content.
    ///
    /// # Errors
    /// [`VolumeError::InUse`], [`VolumeError::Io`].
    pub fn remove(self) -> Result<(), VolumeError> {
        let disk = self.disk();
        let file = File::options().read(true).write(true).open(&disk);
        let file = file.map_err(|source| self.failed(&disk, source))?;
        // Held until it is gone, so that nobody can begin to use it meanwhile.
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&lock(0, 0))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => {
                return Err(VolumeError::InUse { name: self.name });
            }
            Err(error) => return Err(self.failed(&disk, error.into())),
        }
        fs::remove_dir_all(&self.dir).map_err(|source| self.failed(&self.dir, source))
    }

    fn fill(&self, size_bytes: u64, anonymous: bool) -> Result<(), VolumeError> {
        let at_dir = |source| self.failed(&self.dir, source);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(at_dir)?;
        if anonymous {
            File::create(self.dir.join(ANONYMOUS)).map_err(at_dir)?;
        }
        let disk = self.disk();
        let at_disk = |source| self.failed(&disk, source);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&disk)
            .map_err(at_disk)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_or(0, |now| u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
        format(&file, size_bytes, random_id(), now_s).map_err(|error| match error {
            FormatError::Size => VolumeError::Size {
                name: self.name.clone(),
                size_bytes,
            },
            FormatError::Write(source) => at_disk(source),
        })?;
        if anonymous {
            return Ok(());
        }
        file.sync_all().map_err(at_disk)
    }

    fn failed(&self, path: &Path, source: io::Error) -> VolumeError {
        VolumeError::Io {
            name: self.name.clone(),
            path: path.into(),
            source,
        }
    }
}

/// A lock to write `len` bytes from `start` on; 0 means up to the end.
fn lock(start: i64, len: i64) -> libc::flock {
    let short = |value: i32| i16::try_from(value).unwrap_or(0);
    libc::flock {
        l_type: short(libc::F_WRLCK),
        l_whence: short(libc::SEEK_SET),
        l_start: start,
        l_len: len,
        l_pid: 0,
    }
}

fn random_id() -> [u8; 16] {
    // The standard library seeds this hasher from the system's random numbers.
    let random = || RandomState::new().build_hasher().finish().to_le_bytes();
    let (a, b) = (random(), random());
    std::array::from_fn(|n| if n < 8 { a[n] } else { b[n - 8] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_made_listed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        assert!(store.list().unwrap().is_empty());
        let made = store.create("data", 32 << 20).unwrap();
        assert_eq!(made.sizes().unwrap().0, 32 << 20);
        assert!(made.sizes().unwrap().1 < 1 << 20, "sparse");
        let again = store.create("data", 32 << 20).unwrap_err().to_string();
        assert!(again.contains("coracle volume rm data"), "{again}");
        assert_eq!(store.open_or_create("data").unwrap(), made);
        let unnamed = store.unnamed();
        assert!(store.open(&unnamed.name).is_err(), "not made yet");
        unnamed.make_anonymous().unwrap();
        assert_eq!(store.open(&unnamed.name).unwrap(), unnamed);
        assert!(unnamed.is_anonymous() && !made.is_anonymous());
        assert_eq!(store.list().unwrap().len(), 2);
        unnamed.remove().unwrap();
        made.remove().unwrap();
        assert!(store.list().unwrap().is_empty());
        assert!(matches!(
            store.open("data"),
            Err(VolumeError::NotFound { .. })
        ));
        assert_eq!(fs::read_dir(dir.path().join("volumes")).unwrap().count(), 0);
    }

    #[test]
    fn names_and_sizes_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for name in ["", ".hidden", "a/b", "..", "-x", "ä", &"x".repeat(129)] {
            assert!(
                matches!(store.create(name, 32 << 20), Err(VolumeError::Name { .. })),
                "{name}"
            );
        }
        let small = store.create("small", 1 << 20).unwrap_err().to_string();
        assert!(small.contains("--size"), "{small}");
        assert!(store.create("large", 9 << 40).is_err());
        assert!(store.list().unwrap().is_empty());
    }

    #[test]
    fn a_volume_in_use_stays() {
        let dir = tempfile::tempdir().unwrap();
        let volume = Store::new(dir.path()).create("data", 16 << 20).unwrap();
        assert_eq!(volume.in_use().unwrap(), Use::Free);
        // As QEMU does: shared locks on single bytes.
        let file = File::options()
            .read(true)
            .write(true)
            .open(volume.disk())
            .unwrap();
        let read = |start| libc::flock {
            l_type: 0,
            ..lock(start, 1)
        };
        fcntl(&file, FcntlArg::F_OFD_SETLK(&read(100))).unwrap();
        assert_eq!(volume.in_use().unwrap(), Use::Read);
        assert!(volume.check_available(true).is_ok() && volume.check_available(false).is_err());
        fcntl(&file, FcntlArg::F_OFD_SETLK(&read(WRITE_LOCK))).unwrap();
        assert_eq!(volume.in_use().unwrap(), Use::Written);
        assert!(volume.check_available(true).is_err());
        assert!(matches!(
            volume.clone().remove(),
            Err(VolumeError::InUse { .. })
        ));
        drop(file);
        assert_eq!(volume.in_use().unwrap(), Use::Free);
        volume.remove().unwrap();
    }
}
