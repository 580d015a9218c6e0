// SPDX-License-Identifier: Apache-2.0
//! A boot bundle: `config.json` and the root file system in one archive (decision 0001).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::cpio::{Meta, Writer};
use crate::root::{Root, RootError, cpio_meta};

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
    pub fn write(&self, target: File) -> Result<Written, BundleError> {
        let at = |entry: &Path| {
            let entry = entry.to_owned();
            move |source| BundleError::Write { entry, source }
        };
        let (entries, skipped) = self.root.entries()?;
        let mut archive = Writer::new(target);

        let config_name = Path::new("config.json");
        let json = serde_json::to_vec_pretty(&self.config)
            .map_err(io::Error::from)
            .map_err(at(config_name))?;
        let plain = Meta {
            permissions: 0o644,
            ..Meta::default()
        };
        archive
            .file("config.json", plain, json.len() as u64, json.as_slice())
            .map_err(at(config_name))?;
        archive
            .directory("rootfs", self.root_meta()?)
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
        let single = matches!(self.root, Root::Executable(_));
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

    fn root_meta(&self) -> Result<Meta, BundleError> {
        let plain = Meta {
            permissions: 0o755,
            ..Meta::default()
        };
        match &self.root {
            Root::Executable(_) => Ok(plain),
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
