// SPDX-License-Identifier: Apache-2.0
//! What the first argument of `run` means.
//!
//! In this order: `oci:`, `oci-archive:`, `docker-archive:`, `docker://`, `containers-storage:` and `docker-daemon:` say it
//! themselves; what begins with `/`, `./` or `../`, or is there, is a file or folder; all else is the name of an image,
//! which is looked for in our store, then in the storage of podman and of docker, then on its registry.

use std::path::{Path, PathBuf};

use coracle_imager::Root;
use coracle_imager::image::auth::credentials;
use coracle_imager::image::import::{self, COPIED_FROM, Stored};
use coracle_imager::image::registry::{Access, Registry};
use coracle_imager::image::root::Image;
use coracle_imager::image::{ImageError, Reference, Store, local, source};

use super::args::{LookupArgs, Pull, RegistryArgs};
use super::progress::Progress;
use super::store;
use crate::error::Failure;

/// What is to be run.
#[derive(Debug)]
pub(crate) enum Subject {
    /// An executable, a folder or a bare root.
    Root(Root),
    /// An image, and the path of its root.
    Image(Box<Image>, PathBuf),
}

/// How images are looked for.
pub(crate) struct Lookup<'a> {
    pub(crate) pull: Pull,
    pub(crate) registry: &'a RegistryArgs,
    pub(crate) is_quiet: bool,
}

impl<'a> Lookup<'a> {
    /// As the command line says, telling what is done.
    pub(crate) fn new(args: &'a LookupArgs) -> Self {
        Self {
            pull: args.pull,
            registry: &args.registry,
            is_quiet: false,
        }
    }
}

/// Finds what `text` means.
pub(crate) fn subject(text: &str, lookup: &Lookup<'_>) -> Result<Subject, Failure> {
    let store = store()?;
    let progress = Progress::new(lookup.is_quiet);
    if let Some((transport, rest)) = text.split_once(':')
        && matches!(transport, "oci" | "oci-archive" | "docker-archive")
    {
        let (path, wanted) = path_and_name(rest);
        return in_file(path, wanted, &store)?.ok_or_else(|| {
            let path = path.display();
            Failure::new(format!(
                "{path}: no image: neither an OCI layout nor an archive"
            ))
        });
    }
    let path = Path::new(text);
    let is_path = ["/", "./", "../"]
        .iter()
        .any(|start| text.starts_with(start));
    if is_path || text == "." || text == ".." || path.exists() {
        let root = Root::at(path)?;
        if let Some(image) = in_file_like(path, &root, &store)? {
            return Ok(image);
        }
        return Ok(Subject::Root(root));
    }
    let found = image(text, lookup, &store, &progress)?;
    let root = found.image.root(&store, &store)?;
    Ok(Subject::Image(Box::new(found.image), root))
}

/// `PATH[:NAME]`; a colon in the path itself is not to be had this way.
fn path_and_name(text: &str) -> (&Path, Option<&str>) {
    match text.split_once(':') {
        Some((path, name)) => (Path::new(path), Some(name)),
        None => (Path::new(text), None),
    }
}

/// The image in a folder or file that may be something else.
fn in_file_like(path: &Path, root: &Root, store: &Store) -> Result<Option<Subject>, Failure> {
    match root {
        Root::Image(_) => Ok(None),
        Root::Directory(_) if !path.join("oci-layout").is_file() => Ok(None),
        Root::Executable(_) if is_elf(path) => Ok(None),
        _ => in_file(path, None, store),
    }
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok_and(|()| magic == *b"\x7fELF")
}

/// The image in a layout or archive, or the root in a tar archive. It is not taken into the store, but its root is kept.
fn in_file(path: &Path, wanted: Option<&str>, store: &Store) -> Result<Option<Subject>, Failure> {
    let Some(found) = source::find(path, store, wanted)? else {
        let root = coracle_imager::image::root::from_tar(path, store)?;
        return Ok(root.map(|root| Subject::Root(Root::Image(root))));
    };
    let name = found.name.clone();
    let name = name.unwrap_or_else(|| path.display().to_string());
    let image = Image::read(&name, &found.manifest, found.source.as_ref())?;
    let root = image.root(store, found.source.as_ref())?;
    Ok(Some(Subject::Image(Box::new(image), root)))
}

/// An image by name, copied into the store if it is not there.
pub(super) fn image(
    text: &str,
    lookup: &Lookup<'_>,
    store: &Store,
    progress: &Progress,
) -> Result<Stored, Failure> {
    let (text, only) = match text.split_once(':') {
        Some(("docker", rest)) => (rest.trim_start_matches("//"), Only::Registry),
        Some(("containers-storage" | "docker-daemon", rest)) => (rest, Only::Tools),
        _ => (text, Only::No),
    };
    let names = Reference::candidates(text).map_err(Failure::new)?;
    let full = names.last().expect("a name has a long form");
    let may_be_here = lookup.pull != Pull::Always;
    if may_be_here
        && only == Only::No
        && let Some(found) = stored(text, store)?
    {
        return Ok(found);
    }
    if may_be_here
        && only != Only::Registry
        && let Some(found) = from_tools(text, &names, store, progress)?
    {
        return Ok(found);
    }
    let is_local = full.registry == "localhost";
    if lookup.pull == Pull::Never || only == Only::Tools || is_local {
        return Err(Failure::new(ImageError::Missing {
            name: text.into(),
            remedy: "pull, load or build it first; coracle images lists those there are".into(),
        }));
    }
    let fetched = from_registry(full, lookup, store, progress);
    fetched.map_err(|failure| Failure {
        message: format!("{}{}", failure.message, no_file(text)),
        ..failure
    })
}

#[derive(PartialEq, Eq)]
enum Only {
    No,
    Tools,
    Registry,
}

/// Whoever meant a file hears that there is none.
fn no_file(text: &str) -> String {
    match text.contains(':') {
        true => String::new(),
        false => format!(" (there is no file or folder {text} either)"),
    }
}

/// An image of the store, by one of its names or its id.
pub(crate) fn in_store(text: &str, store: &Store) -> Result<Option<Stored>, Failure> {
    for name in Reference::candidates(text).unwrap_or_default() {
        if let Some(found) = import::find(store, &name.to_string())? {
            return Ok(Some(found));
        }
    }
    Ok(import::find(store, text)?)
}

/// The same, unless it is a copy of an image in another tool's storage that has changed there.
fn stored(text: &str, store: &Store) -> Result<Option<Stored>, Failure> {
    let found = in_store(text, store)?;
    Ok(found.filter(|found| {
        let is_copy = found.image.descriptor.annotations.contains_key(COPIED_FROM);
        let original = is_copy.then(|| local::find(text)).flatten();
        original.is_none_or(|original| original.id == *found.image.id())
    }))
}

fn from_tools(
    text: &str,
    names: &[Reference],
    store: &Store,
    progress: &Progress,
) -> Result<Option<Stored>, Failure> {
    let Some(original) = local::find(text) else {
        return Ok(None);
    };
    progress.say(&format!("Copying {text} from {}", original.tool()));
    let found = original.save(store)?;
    // The name it has there, if that is one of those meant.
    let is_meant = |name: &&String| names.iter().any(|known| known.to_string() == **name);
    let name = found.name.as_ref().filter(is_meant).cloned();
    let name = name.or_else(|| names.last().map(ToString::to_string));
    let name = name.unwrap_or_else(|| text.into());
    let image = import::import(store, &name, &found, Some(original.tool()))?;
    Ok(Some(Stored { name, image }))
}

fn from_registry(
    reference: &Reference,
    lookup: &Lookup<'_>,
    store: &Store,
    progress: &Progress,
) -> Result<Stored, Failure> {
    progress.say(&format!("Pulling {reference}"));
    let told = |content: &_, done, all| progress.blob(content, done, all);
    let registry = Registry::connect(reference, access(reference, lookup.registry)?, &told)?;
    let found = registry.find()?;
    let name = reference.to_string();
    let image = import::import(store, &name, &found, None)?;
    Ok(Stored { name, image })
}

/// Who we are to a registry, and how strict.
pub(super) fn access(reference: &Reference, args: &RegistryArgs) -> Result<Access, Failure> {
    Ok(Access {
        credentials: credentials(reference, args.authfile.clone())?,
        insecure: !args.tls_verify,
    })
}
