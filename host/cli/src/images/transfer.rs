// SPDX-License-Identifier: Apache-2.0
//! `coracle pull`, `push`, `load` and `save`.

use std::fs::File;
use std::io::{IsTerminal, Write};

use coracle_imager::image::import::{self, Stored};
use coracle_imager::image::registry::Registry;
use coracle_imager::image::{ImageError, Reference, Store, save as saving, source};

use super::args::{LoadArgs, Pull, PullArgs, PushArgs, SaveArgs};
use super::find::{self, Lookup, access};
use super::progress::Progress;
use super::store;
use crate::error::Failure;
use crate::output;

/// Fetches an image into the store, and makes its root, so that the first run need not.
pub(crate) fn pull(args: &PullArgs) -> Result<u8, Failure> {
    let store = store()?;
    let progress = Progress::new(args.quiet);
    for name in &args.names {
        let has_transport =
            name.starts_with("containers-storage:") || name.starts_with("docker-daemon:");
        let lookup = Lookup {
            pull: match has_transport {
                true => Pull::Missing,
                false => Pull::Always,
            },
            registry: &args.registry,
            is_quiet: args.quiet,
        };
        let found = find::image(name, &lookup, &store, &progress)?;
        found.image.root(&store, &store)?;
        output::line(found.image.id().hex());
    }
    Ok(0)
}

/// Sends an image to a registry.
pub(crate) fn push(args: &PushArgs) -> Result<u8, Failure> {
    let store = store()?;
    let found = existing(&args.name, &store)?;
    let to = args.destination.as_ref().unwrap_or(&found.name);
    let to = to.strip_prefix("docker://").unwrap_or(to);
    let reference: Reference = to.parse().map_err(Failure::new)?;
    let progress = Progress::new(args.quiet);
    progress.say(&format!("Pushing {reference}"));
    let told = |content: &_, done, all| progress.blob(content, done, all);
    let registry = Registry::connect(&reference, access(&reference, &args.registry)?, &told)?;
    registry.push(&store, &found.image)?;
    Ok(0)
}

/// Takes an archive or layout into the store.
pub(crate) fn load(args: &LoadArgs) -> Result<u8, Failure> {
    let store = store()?;
    let _guard = store.begin()?;
    let mut aside = None;
    let path = match &args.input {
        Some(path) => path.clone(),
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::new(
                "give an archive with -i, or on standard input",
            ));
        }
        None => {
            let mut file = store.temporary()?;
            std::io::copy(&mut std::io::stdin(), &mut file)
                .map_err(|error| Failure::new(format!("cannot take in standard input: {error}")))?;
            let path = file.path().to_owned();
            aside = Some(file);
            path
        }
    };
    let shown = path.display().to_string();
    let found = source::find(&path, &store, None)?.ok_or_else(|| {
        Failure::new(format!(
            "{shown}: no image: neither an OCI layout nor an archive"
        ))
    })?;
    let name = match (&args.name, &found.name) {
        (Some(name), _) => name.parse::<Reference>().map_err(Failure::new)?,
        (None, Some(name)) => name.parse::<Reference>().map_err(Failure::new)?,
        (None, None) => {
            return Err(Failure::new(format!(
                "{shown}: the image has no name; give it one: coracle load -i {shown} NAME"
            )));
        }
    };
    let name = name.to_string();
    import::import(&store, &name, &found, None)?;
    drop(aside);
    output::line(&format!("Loaded image: {name}"));
    Ok(0)
}

/// Writes an image of the store as an OCI archive.
pub(crate) fn save(args: &SaveArgs) -> Result<u8, Failure> {
    let store = store()?;
    let found = existing(&args.name, &store)?;
    let write = |to: &File| {
        saving::archive(&store, &found.image.descriptor, Some(&found.name), to)
            .map_err(Failure::from)
    };
    let Some(path) = &args.output else {
        if std::io::stdout().is_terminal() {
            return Err(Failure::new(
                "an archive is nothing for a terminal; give a file with -o",
            ));
        }
        let file = tempfile::tempfile().map_err(Failure::new)?;
        write(&file)?;
        let mut file = file;
        let sent = std::io::Seek::rewind(&mut file)
            .and_then(|()| std::io::copy(&mut file, &mut std::io::stdout()))
            .and_then(|_| std::io::stdout().flush());
        return sent.map(|()| 0).map_err(Failure::new);
    };
    let file = File::create(path)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    let written = write(&file);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written.map(|()| 0)
}

/// An image of the store, or a line that says there is none.
pub(super) fn existing(text: &str, store: &Store) -> Result<Stored, Failure> {
    find::in_store(text, store)?.ok_or_else(|| {
        Failure::new(ImageError::Missing {
            name: text.into(),
            remedy: "coracle images lists those there are".into(),
        })
    })
}
