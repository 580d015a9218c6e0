// SPDX-License-Identifier: Apache-2.0
//! The image store: an OCI image layout on disk, so that other tools read it too, and beside it the root file systems made
//! from its images.
//!
//! - `index.json`, `oci-layout`, `blobs/sha256/`: the layout (OCI image specification 1.1, `image-layout.md`).
//! - `roots/`: EROFS images, named by what they are made of.
//! - `temporary/`: what is being written. A file gets its name when it is whole, never before.
//! - `locks/`: whoever makes a blob or root holds the lock of that name, so that it is made once.
//! - `lock`: shared while something is added, exclusive while what is not needed is removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::digest::{Digest, Hashing};
use super::document::{self, DOCUMENT_MAX, Descriptor, Document, Index, REF_NAME};
use super::error::ImageError;
use crate::erofs::is_whole;

type Result<T> = std::result::Result<T, ImageError>;

/// Version of the way roots are made; another version is another name.
const ROOT_FORMAT: u32 = 1;

/// A store in a folder of the host.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// What [`Store::collect`] leaves.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Digests of blobs.
    pub blobs: BTreeSet<Digest>,
    /// Keys of roots.
    pub roots: BTreeSet<Digest>,
}

/// Keeps others from removing what is being used.
#[derive(Debug)]
pub struct Guard {
    _file: File,
}

impl Store {
    /// The store in `folder`; made on the first write.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prepares the store for writing, and keeps [`Store::collect`] of other processes away while the guard lives.
    ///
    /// # Errors
    /// [`ImageError::Io`], [`ImageError::Full`].
    pub fn begin(&self) -> Result<Guard> {
        for name in ["blobs/sha256", "roots", "temporary", "locks"] {
            let folder = self.folder.join(name);
            fs::create_dir_all(&folder).map_err(ImageError::writing(&folder))?;
        }
        let path = self.folder.join("lock");
        let lock = open_lock(&path)?;
        if lock.try_lock().is_ok() {
            // Nobody writes: what is there was left by one who was killed.
            empty(&self.folder.join("temporary"));
            let version = self.folder.join("oci-layout");
            if !version.exists() {
                self.replace(&version, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
            }
        }
        // A lock that is held is changed, not taken twice.
        lock.lock_shared().map_err(ImageError::writing(&path))?;
        Ok(Guard { _file: lock })
    }

    /// Keeps other processes that make the same thing away until the guard is dropped.
    ///
    /// # Errors
    /// [`ImageError::Io`], [`ImageError::Full`].
    pub fn exclusive(&self, name: &str) -> Result<Guard> {
        let path = self.folder.join("locks").join(name);
        let lock = open_lock(&path)?;
        lock.lock().map_err(ImageError::writing(&path))?;
        Ok(Guard { _file: lock })
    }

    /// Where the content with that digest is.
    #[must_use]
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        self.folder.join("blobs/sha256").join(digest.hex())
    }

    /// Whether it is there.
    #[must_use]
    pub fn has(&self, digest: &Digest) -> bool {
        self.blob(digest).is_file()
    }

    /// A document of the store, checked against its digest: a disk may have changed it.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn document(&self, name: &str, digest: &Digest) -> Result<Vec<u8>> {
        let path = self.blob(digest);
        let file = File::open(&path).map_err(ImageError::reading(&path))?;
        let mut bytes = Vec::new();
        file.take(DOCUMENT_MAX)
            .read_to_end(&mut bytes)
            .map_err(ImageError::reading(&path))?;
        let found = Digest::of(&bytes);
        if found != *digest {
            let (name, expected) = (name.into(), digest.clone());
            return Err(ImageError::Digest {
                name,
                expected,
                found,
            });
        }
        Ok(bytes)
    }

    /// Adds a document.
    ///
    /// # Errors
    /// [`ImageError::Io`], [`ImageError::Full`].
    pub fn add_document(&self, media_type: &str, bytes: &[u8]) -> Result<Descriptor> {
        let descriptor = Descriptor::of(media_type, bytes);
        self.replace(&self.blob(&descriptor.digest), bytes)?;
        Ok(descriptor)
    }

    /// Adds content of unknown digest; `name` is for errors.
    ///
    /// # Errors
    /// [`ImageError::Fetch`], [`ImageError::Io`], [`ImageError::Full`].
    pub fn add(&self, name: &str, media_type: &str, from: impl Read) -> Result<Descriptor> {
        let (file, digest, size) = self.receive(name, from)?;
        self.keep(file, &self.blob(&digest))?;
        Ok(Descriptor {
            digest,
            size,
            ..Descriptor::of(media_type, b"")
        })
    }

    /// Adds the content a descriptor promises, unless it is there; `name` is for errors, and `from` is asked for the content
    /// when nobody else has added it.
    ///
    /// # Errors
    /// [`ImageError`]; nothing is added then.
    pub fn fetch<R: Read>(
        &self,
        name: &str,
        descriptor: &Descriptor,
        from: impl FnOnce() -> Result<R>,
    ) -> Result<()> {
        let digest = &descriptor.digest;
        let _only = self.exclusive(digest.hex())?;
        if self.has(digest) {
            return Ok(());
        }
        // One byte more shows that there is too much.
        let content = from()?.take(descriptor.size.saturating_add(1));
        let (file, found, size) = self.receive(name, content)?;
        if size < descriptor.size {
            let problem = format!("ends after {size} of {} bytes", descriptor.size);
            return Err(ImageError::damaged(name, problem));
        }
        if found != *digest {
            return Err(ImageError::Digest {
                name: name.into(),
                expected: digest.clone(),
                found,
            });
        }
        self.keep(file, &self.blob(digest))
    }

    /// Makes the root named `key`, unless it is there and whole: `make` writes it.
    ///
    /// # Errors
    /// What `make` answers, [`ImageError::Io`], [`ImageError::Full`]; nothing is added then.
    pub fn root(&self, key: &Digest, make: impl FnOnce(&File) -> Result<()>) -> Result<PathBuf> {
        let name = format!("{ROOT_FORMAT}-{}", key.hex());
        let path = self.folder.join("roots").join(format!("{name}.erofs"));
        if is_whole(&path) {
            return Ok(path);
        }
        let _only = self.exclusive(&name)?;
        if !is_whole(&path) {
            let file = self.temporary()?;
            make(file.as_file())?;
            self.keep(file, &path)?;
        }
        Ok(path)
    }

    /// The root named `key`, if it has been made and is whole.
    #[must_use]
    pub fn known_root(&self, key: &Digest) -> Option<PathBuf> {
        let name = format!("{ROOT_FORMAT}-{}.erofs", key.hex());
        let path = self.folder.join("roots").join(name);
        is_whole(&path).then_some(path)
    }

    /// A file that vanishes unless it is kept.
    ///
    /// # Errors
    /// [`ImageError::Io`], [`ImageError::Full`].
    pub fn temporary(&self) -> Result<NamedTempFile> {
        let folder = self.folder.join("temporary");
        NamedTempFile::new_in(&folder).map_err(ImageError::writing(&folder))
    }

    /// The images, in the order in which they were added.
    ///
    /// # Errors
    /// [`ImageError::Io`], [`ImageError::Damaged`].
    pub fn index(&self) -> Result<Index> {
        let path = self.folder.join("index.json");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Index::empty()),
            Err(error) => return Err(ImageError::reading(&path)(error)),
        };
        let name = path.display().to_string();
        match document::document(&name, &bytes)? {
            Document::Index(index) => Ok(index),
            Document::Manifest(_) => Err(ImageError::damaged(&name, "not an index")),
        }
    }

    /// Gives an image a name, which it loses if another has it.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn tag(&self, name: &str, manifest: &Descriptor) -> Result<()> {
        let mut manifest = manifest.clone();
        manifest.annotations.insert(REF_NAME.into(), name.into());
        self.change(|images| {
            images.retain(|known| name_of(known) != Some(name));
            images.push(manifest);
        })
    }

    /// Takes the name from the image that has it; whether there was one.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn untag(&self, name: &str) -> Result<bool> {
        let mut found = false;
        self.change(|images| {
            let before = images.len();
            images.retain(|known| name_of(known) != Some(name));
            found = images.len() != before;
        })?;
        Ok(found)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Descriptor>)) -> Result<()> {
        let _only = self.exclusive("index")?;
        let mut index = self.index()?;
        change(&mut index.manifests);
        let path = self.folder.join("index.json");
        let bytes = serde_json::to_vec_pretty(&index)
            .map_err(|error| ImageError::writing(&path)(error.into()))?;
        self.replace(&path, &bytes)
    }

    /// Waits for others to finish what they add, then removes all that is not `wanted`; bytes freed.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn collect(&self, wanted: impl FnOnce() -> Result<Wanted>) -> Result<u64> {
        let path = self.folder.join("lock");
        let lock = open_lock(&path)?;
        lock.lock().map_err(ImageError::writing(&path))?;
        let wanted = wanted()?;
        let mut freed = remove_others(&self.folder.join("blobs/sha256"), |name| {
            wanted.blobs.iter().any(|digest| digest.hex() == name)
        });
        freed += remove_others(&self.folder.join("roots"), |name| {
            let is = |key: &Digest| name == format!("{ROOT_FORMAT}-{}.erofs", key.hex());
            wanted.roots.iter().any(is)
        });
        empty(&self.folder.join("temporary"));
        empty(&self.folder.join("locks"));
        Ok(freed)
    }

    /// Copies everything into a temporary file.
    fn receive(&self, name: &str, mut from: impl Read) -> Result<(NamedTempFile, Digest, u64)> {
        let file = self.temporary()?;
        let failed = ImageError::writing(&self.folder);
        let mut target = Hashing::new(file.as_file());
        let mut buffer = vec![0; 128 << 10];
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    let name = name.into();
                    return Err(ImageError::Fetch { name, source });
                }
            };
            target.write_all(&buffer[..count]).map_err(&failed)?;
        }
        let (digest, size) = target.finish();
        Ok((file, digest, size))
    }

    /// Gives a temporary file its name.
    fn keep(&self, file: NamedTempFile, path: &Path) -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let failed = ImageError::writing(path);
        let readable = fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(readable).map_err(&failed)?;
        // What has a name must be whole after a power cut too.
        file.as_file().sync_data().map_err(&failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.temporary()?;
        file.write_all(bytes).map_err(ImageError::writing(path))?;
        self.keep(file, path)
    }
}

/// The name an index gives to an image.
#[must_use]
pub fn name_of(image: &Descriptor) -> Option<&str> {
    image.annotations.get(REF_NAME).map(String::as_str)
}

fn open_lock(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.create(true).append(true);
    options.open(path).map_err(ImageError::writing(path))
}

/// Removes the files of a folder that are not wanted, as far as that can be done; bytes freed.
fn remove_others(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> u64 {
    let mut freed = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(&is_wanted) {
            let size = entry.metadata().map_or(0, |meta| meta.len());
            freed += fs::remove_file(entry.path()).map_or(0, |()| size);
        }
    }
    freed
}

fn empty(folder: &Path) {
    remove_others(folder, |_| false);
}
