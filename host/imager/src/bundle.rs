// SPDX-License-Identifier: Apache-2.0
//! A boot bundle: `config.json` and the root file system in one archive (decision 0001).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::cpio::{Meta, Writer};
use crate::root::{Root, RootError, cpio_meta};

/// Bytes of a page of the guest.
const PAGE_BYTES: usize = 4096;

/// What goes into a bundle. The same input gives the same bytes.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The root file system.
    pub root: Root,
    /// How the program in it is run.
    pub config: Config,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the archive.
    pub size_bytes: u64,
    /// Devices, sockets and pipes of the source folder; they were left out.
    pub skipped: Vec<PathBuf>,
}

/// Why a bundle could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The root is unfit.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A file of the root could not be read, or the target not written.
    #[error("cannot write the boot bundle ({}): {source}", entry.display())]
    Write {
        /// The file that was being added.
        entry: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
}

impl BundleError {
    /// The host's answer, when the reason was one.
    #[must_use]
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Write { source, .. } | Self::Root(RootError::Read { source, .. }) => Some(source),
            Self::Root(_) => None,
        }
    }
}

impl Bundle {
    /// Writes the archive to `target`.
    ///
    /// # Errors
    /// [`BundleError`]; the target then holds an unfinished archive.
    pub fn write(&self, mut target: File) -> Result<Written, BundleError> {
        let config_bytes = self.write_config(&mut target)?;
        let root = self.root.write(target)?;
        Ok(Written {
            size_bytes: config_bytes + root.size_bytes,
            ..root
        })
    }

    /// Writes the first part of the archive: `config.json`. It ends on a page boundary, and [`Root::write`] writes the
    /// second part; one after the other they are the archive. Answers its size in bytes.
    ///
    /// # Errors
    /// [`BundleError`]; the target then holds an unfinished part.
    pub fn write_config(&self, target: impl Write) -> Result<u64, BundleError> {
        let failed = |source| BundleError::Write {
            entry: "config.json".into(),
            source,
        };
        let mut json =
            serde_json::to_vec_pretty(&self.config).map_err(|error| failed(error.into()))?;
        // Blanks behind the value mean nothing to JSON.
        json.push(b'\n');
        json.resize(json.len().next_multiple_of(PAGE_BYTES), b' ');
        let plain = Meta {
            permissions: 0o644,
            ..Meta::default()
        };
        let mut archive = Writer::new(target);
        archive
            .file("config.json", plain, json.len() as u64, json.as_slice())
            .map_err(failed)?;
        let (_, size_bytes) = archive.pause().map_err(failed)?;
        Ok(size_bytes)
    }
}

impl Root {
    /// Writes the second part of an archive: the root file system and the end. It depends on nothing but the files, so
    /// it can be kept for the next start.
    ///
    /// # Errors
    /// [`BundleError`]; the target then holds an unfinished part.
    pub fn write(&self, target: impl Write) -> Result<Written, BundleError> {
        let at = |entry: &Path| {
            let entry = entry.to_owned();
            move |source| BundleError::Write { entry, source }
        };
        let (entries, skipped) = self.entries()?;
        let mut archive = Writer::resume(target, 1);
        archive
            .directory("rootfs", self.meta()?)
            .map_err(at(Path::new("rootfs")))?;
        for entry in entries {
            self.add(&mut archive, &entry.source, &entry.name)
                .map_err(at(&entry.source))?;
        }
        let (_, size_bytes) = archive.finish().map_err(at(Path::new("end of archive")))?;
        Ok(Written {
            size_bytes,
            skipped,
        })
    }

    fn add<W: Write>(&self, archive: &mut Writer<W>, source: &Path, name: &str) -> io::Result<()> {
        let name = format!("rootfs/{name}");
        // The one executable may be given through a link; in a folder a link stays a link.
        let single = matches!(self, Root::Executable(_));
        let meta = if single {
            source.metadata()?
        } else {
            source.symlink_metadata()?
        };
        if meta.is_symlink() {
            use std::os::unix::ffi::OsStrExt as _;
            let target = std::fs::read_link(source)?;
            return archive.symlink(&name, target.as_os_str().as_bytes(), cpio_meta(&meta));
        }
        if meta.is_dir() {
            return archive.directory(&name, cpio_meta(&meta));
        }
        let mut recorded = cpio_meta(&meta);
        if single {
            recorded = Meta {
                permissions: 0o755,
                uid: 0,
                gid: 0,
                ..recorded
            };
        }
        archive.file(&name, recorded, meta.len(), File::open(source)?)
    }

    fn meta(&self) -> Result<Meta, BundleError> {
        let plain = Meta {
            permissions: 0o755,
            ..Meta::default()
        };
        match self {
            Root::Executable(_) | Root::Image(_) => Ok(plain),
            Root::Directory(path) => {
                let meta = path.metadata().map_err(|source| RootError::Read {
                    path: path.clone(),
                    source,
                })?;
                Ok(cpio_meta(&meta))
            }
        }
    }
}
