// SPDX-License-Identifier: Apache-2.0
//! Where the content of an image comes from: a store, a layout in a folder, an archive, a registry.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::archive::Archive;
use super::docker;
use super::document::{self, DOCUMENT_MAX, Descriptor, Document, Index, Manifest, REF_NAME};
use super::error::ImageError;
use super::store::Store;

/// Name of a whole image in an index, as containerd and docker write it; then [`REF_NAME`] is the tag alone.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// Most bytes of a file that is a folder's or archive's table of contents.
const TABLE_MAX: u64 = DOCUMENT_MAX;
/// How deep indexes may lie in each other.
const NESTED_MAX: u32 = 4;

type Result<T> = std::result::Result<T, ImageError>;

/// Gives the content that a descriptor names. What comes is not checked yet.
pub trait Source {
    /// The content.
    ///
    /// # Errors
    /// [`ImageError`].
    fn open(&self, content: &Descriptor) -> Result<Box<dyn Read + '_>>;
}

/// An image and where its content comes from.
pub struct Found<'a> {
    /// How it is called where it was found.
    pub name: Option<String>,
    /// Its manifest as it is recorded.
    pub manifest: Vec<u8>,
    /// Where the rest is.
    pub source: Box<dyn Source + 'a>,
}

impl Source for Store {
    fn open(&self, content: &Descriptor) -> Result<Box<dyn Read + '_>> {
        let path = self.blob(&content.digest);
        let file = File::open(&path).map_err(ImageError::reading(&path))?;
        Ok(Box::new(file))
    }
}

/// Files by name: in a folder, or in a tar archive.
pub(super) trait Files {
    /// Opens a file and answers its size; `None` if there is no such file.
    fn file(&self, name: &str) -> io::Result<Option<(Box<dyn Read + '_>, u64)>>;
}

impl Files for PathBuf {
    fn file(&self, name: &str) -> io::Result<Option<(Box<dyn Read + '_>, u64)>> {
        match File::open(self.join(name)) {
            Ok(file) => {
                let size = file.metadata()?.len();
                Ok(Some((Box::new(file), size)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Files for Archive {
    fn file(&self, name: &str) -> io::Result<Option<(Box<dyn Read + '_>, u64)>> {
        let member = self.member(name.as_bytes());
        Ok(member.map(|member| {
            let size = member.size();
            (Box::new(member) as Box<dyn Read>, size)
        }))
    }
}

/// The image in the layout or archive at `path`. Of several images the one called `wanted`, else the one for this machine.
/// `None`: that is neither; a folder or an archive of something else.
///
/// # Errors
/// [`ImageError`].
pub fn find(path: &Path, store: &Store, wanted: Option<&str>) -> Result<Option<Found<'static>>> {
    let name = path.display().to_string();
    if path.is_dir() {
        return in_files(&name, path.to_owned(), wanted);
    }
    match Archive::open(path, store)? {
        Some(archive) => in_files(&name, archive, wanted),
        None => Ok(None),
    }
}

fn in_files(
    name: &str,
    files: impl Files + 'static,
    wanted: Option<&str>,
) -> Result<Option<Found<'static>>> {
    if files.file("oci-layout").is_ok_and(|file| file.is_some()) {
        return in_layout(name, files, wanted).map(Some);
    }
    docker::find(name, files, wanted)
}

/// The image in an OCI layout.
fn in_layout(
    name: &str,
    files: impl Files + 'static,
    wanted: Option<&str>,
) -> Result<Found<'static>> {
    let layout = Layout {
        name: name.into(),
        files: Box::new(files),
    };
    let bytes = read(name, layout.files.as_ref(), "index.json")?;
    let Document::Index(index) = document::document(name, &bytes)? else {
        return Err(ImageError::damaged(name, "index.json is no index"));
    };
    let chosen = choose(name, &index, wanted)?;
    let full = chosen.annotations.get(CONTAINERD_NAME);
    let called = full.or_else(|| chosen.annotations.get(REF_NAME)).cloned();
    let manifest = manifest(name, chosen.clone(), &layout)?;
    Ok(Found {
        name: called,
        manifest,
        source: Box::new(layout),
    })
}

/// The entry that is asked for.
fn choose<'a>(name: &str, index: &'a Index, wanted: Option<&str>) -> Result<&'a Descriptor> {
    let names = |image: &Descriptor| {
        let full = image.annotations.get(CONTAINERD_NAME).cloned();
        full.into_iter()
            .chain(image.annotations.get(REF_NAME).cloned())
    };
    let all: Vec<String> = index.manifests.iter().flat_map(names).collect();
    match (wanted, &index.manifests[..]) {
        (Some(wanted), images) => {
            let found = images
                .iter()
                .find(|image| names(image).any(|name| name == wanted));
            found.ok_or_else(|| ImageError::Missing {
                name: format!("{name}:{wanted}"),
                remedy: format!("there are: {}", all.join(", ")),
            })
        }
        (None, [only]) => Ok(only),
        (None, images) => {
            let named: Vec<&Descriptor> = images
                .iter()
                .filter(|d| names(d).next().is_some())
                .collect();
            if named.len() > 1 {
                let what = format!(
                    "several images; name one behind a colon: {}",
                    all.join(", ")
                );
                return Err(ImageError::unsupported(name, what));
            }
            index.select(name)
        }
    }
}

/// Follows indexes to the manifest for this machine; every document is checked against its digest.
pub(super) fn manifest(name: &str, mut at: Descriptor, source: &dyn Source) -> Result<Vec<u8>> {
    for _ in 0..NESTED_MAX {
        let bytes = checked(name, &at, source)?;
        match document::document(name, &bytes)? {
            Document::Manifest(_) => return Ok(bytes),
            Document::Index(index) => at = index.select(name)?.clone(),
        }
    }
    Err(ImageError::damaged(name, "indexes in indexes without end"))
}

/// A document, if it has the digest it should have.
pub(super) fn checked(name: &str, content: &Descriptor, source: &dyn Source) -> Result<Vec<u8>> {
    if content.size > DOCUMENT_MAX {
        return Err(ImageError::damaged(name, "a document of more than 4 MiB"));
    }
    let mut bytes = Vec::new();
    let mut from = source.open(content)?.take(content.size + 1);
    from.read_to_end(&mut bytes)
        .map_err(|source| ImageError::Fetch {
            name: name.into(),
            source,
        })?;
    let found = super::Digest::of(&bytes);
    if found == content.digest {
        return Ok(bytes);
    }
    let (name, expected) = (name.to_owned(), content.digest.clone());
    Err(ImageError::Digest {
        name,
        expected,
        found,
    })
}

/// A manifest whose layers and configuration are named; nothing else is a manifest of an image that can be run.
///
/// # Errors
/// [`ImageError::Damaged`].
pub fn parse_manifest(name: &str, bytes: &[u8]) -> Result<Manifest> {
    match document::document(name, bytes)? {
        Document::Manifest(manifest) => Ok(manifest),
        Document::Index(_) => Err(ImageError::damaged(name, "an index instead of a manifest")),
    }
}

pub(super) fn read(name: &str, files: &dyn Files, file: &str) -> Result<Vec<u8>> {
    let fetching = |source| ImageError::Fetch {
        name: name.into(),
        source,
    };
    let (from, _) = files
        .file(file)
        .map_err(fetching)?
        .ok_or_else(|| ImageError::damaged(name, format!("{file} is missing")))?;
    let mut bytes = Vec::new();
    from.take(TABLE_MAX)
        .read_to_end(&mut bytes)
        .map_err(fetching)?;
    Ok(bytes)
}

/// An OCI layout.
struct Layout {
    name: String,
    files: Box<dyn Files>,
}

impl Source for Layout {
    fn open(&self, content: &Descriptor) -> Result<Box<dyn Read + '_>> {
        let file = format!("blobs/sha256/{}", content.digest.hex());
        match self.files.file(&file) {
            Ok(Some((from, _))) => Ok(from),
            Ok(None) => Err(ImageError::damaged(
                &self.name,
                format!("{file} is missing"),
            )),
            Err(source) => Err(ImageError::Fetch {
                name: self.name.clone(),
                source,
            }),
        }
    }
}
