// SPDX-License-Identifier: Apache-2.0
//! From the layers of an image to its root: one EROFS image, made once and kept in the store.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use super::Digest;
use super::archive::Archive;
use super::decompress::decompress;
use super::digest::Hashing;
use super::document::{self, Descriptor, ImageConfig, Manifest};
use super::error::{ImageError, is_full};
use super::layer::{self, LayerError, Whiteouts};
use super::source::{Source, checked, parse_manifest};
use super::store::Store;
use crate::erofs::Writer;
use crate::folder::{self, FolderError};
use crate::tree::Tree;

type Result<T> = std::result::Result<T, ImageError>;

/// An image whose documents have been read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// What it is called in messages.
    pub name: String,
    /// What names its manifest.
    pub descriptor: Descriptor,
    /// Its parts.
    pub manifest: Manifest,
    /// How it is run.
    pub config: ImageConfig,
}

impl Image {
    /// Reads manifest and configuration.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn read(name: &str, manifest: &[u8], source: &dyn Source) -> Result<Self> {
        let parsed = parse_manifest(name, manifest)?;
        let config = checked(name, &parsed.config, source)?;
        let config = document::image_config(name, &config)?;
        if config.rootfs.diff_ids.len() != parsed.layers.len() {
            let problem = "its configuration lists other layers than its manifest";
            return Err(ImageError::damaged(name, problem));
        }
        let media_type = parsed.media_type.as_deref().unwrap_or(document::MANIFEST);
        Ok(Self {
            name: name.into(),
            descriptor: Descriptor::of(media_type, manifest),
            manifest: parsed,
            config,
        })
    }

    /// What users know an image by: the digest of its configuration.
    #[must_use]
    pub fn id(&self) -> &Digest {
        &self.manifest.config.digest
    }

    /// What its root is known by: the ChainID of its layers (OCI image specification, `config.md`), so that images with the
    /// same layers have the same root.
    #[must_use]
    pub fn root_key(&self) -> Digest {
        let mut layers = self.config.rootfs.diff_ids.iter();
        let first = layers.next().cloned();
        let first = first.unwrap_or_else(|| Digest::of(b""));
        layers.fold(first, |chain, layer| {
            Digest::of(format!("{chain} {layer}").as_bytes())
        })
    }

    /// The root of the image, from the store or made now from `source`.
    ///
    /// # Errors
    /// [`ImageError`]; nothing is kept then.
    pub fn root(&self, store: &Store, source: &dyn Source) -> Result<PathBuf> {
        let _guard = store.begin()?;
        store.root(&self.root_key(), |file| self.flatten(store, source, file))
    }

    fn flatten(&self, store: &Store, source: &dyn Source, to: &File) -> Result<()> {
        let failed = ImageError::writing(store.folder());
        let mut image = writer(to).map_err(&failed)?;
        let mut tree = Tree::default();
        let layers = self
            .manifest
            .layers
            .iter()
            .zip(&self.config.rootfs.diff_ids);
        for (number, (layer, diff_id)) in (1..).zip(layers) {
            let name = format!("{}: layer {number}", self.name);
            let unfit = |error| in_layer(store, &name, error);
            let from = decompress(source.open(layer)?).map_err(|error| unfit(error.into()))?;
            let mut from = Hashing::new(from);
            layer::apply(&mut from, Whiteouts::Apply, &mut tree, &mut image).map_err(unfit)?;
            let (found, _) = from.finish();
            if found != *diff_id {
                let expected = diff_id.clone();
                return Err(ImageError::Digest {
                    name,
                    expected,
                    found,
                });
            }
        }
        image.finish(&tree).map_err(failed)?;
        Ok(())
    }
}

/// The root that a tar archive of a whole file system holds, from the store or made now. It is known by all that changes
/// when the file does, as decision 0008 does it. `None`: that is no tar archive.
///
/// # Errors
/// [`ImageError`]; nothing is kept then.
pub fn from_tar(path: &Path, store: &Store) -> Result<Option<PathBuf>> {
    use std::os::unix::fs::MetadataExt;
    let reading = ImageError::reading(path);
    let meta = path.metadata().map_err(&reading)?;
    let absolute = std::path::absolute(path).map_err(&reading)?;
    let key = format!(
        "{} {} {} {} {}.{} {}.{}",
        absolute.display(),
        meta.dev(),
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec()
    );
    let key = Digest::of(key.as_bytes());
    if let Some(known) = store.known_root(&key) {
        return Ok(Some(known));
    }
    let Some(archive) = Archive::open(path, store)? else {
        return Ok(None);
    };
    let _guard = store.begin()?;
    let made = store.root(&key, |to| {
        let failed = ImageError::writing(store.folder());
        let name = path.display().to_string();
        let unfit = |error| in_layer(store, &name, error);
        let mut image = writer(to).map_err(&failed)?;
        let mut tree = Tree::default();
        let from = io::BufReader::with_capacity(128 << 10, archive.whole().map_err(&reading)?);
        layer::apply(from, Whiteouts::Keep, &mut tree, &mut image).map_err(unfit)?;
        image.finish(&tree).map_err(&failed)?;
        Ok(())
    });
    made.map(Some)
}

/// Writes the root that a folder holds.
///
/// # Errors
/// [`ImageError`].
pub fn from_folder(path: &Path, place: &Path, to: &File) -> Result<()> {
    let failed = ImageError::writing(place);
    let mut image = writer(to).map_err(&failed)?;
    let tree = folder::read(path, &mut image).map_err(|error| match error {
        FolderError::Read { source, .. } if is_full(&source) => failed(source),
        error => ImageError::unsupported(&path.display().to_string(), error),
    })?;
    image.finish(&tree).map_err(failed)?;
    Ok(())
}

fn writer(to: &File) -> io::Result<Writer<BufWriter<&File>>> {
    Writer::new(BufWriter::with_capacity(256 << 10, to))
}

fn in_layer(store: &Store, name: &str, error: LayerError) -> ImageError {
    match error {
        LayerError::Io(error) if is_full(&error) => ImageError::writing(store.folder())(error),
        error => ImageError::damaged(name, error),
    }
}
