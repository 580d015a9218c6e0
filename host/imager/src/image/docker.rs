// SPDX-License-Identifier: Apache-2.0
//! Archives of `docker save` and `podman save`: layers and configuration under names that `manifest.json` lists.
//!
//! Source: moby `image/spec/v1.2.md`, "Combined Image JSON + Filesystem Changeset Format".

use std::collections::HashMap;
use std::io::Read;

use serde::Deserialize;

use super::Digest;
use super::document::{self, CONFIG, Descriptor, LAYER, MANIFEST, Manifest};
use super::error::ImageError;
use super::source::{Files, Found, Source, read};

type Result<T> = std::result::Result<T, ImageError>;

/// An image of `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The image in such an archive; `None` if it is none.
pub(super) fn find(
    name: &str,
    files: impl Files + 'static,
    wanted: Option<&str>,
) -> Result<Option<Found<'static>>> {
    if !files.file("manifest.json").is_ok_and(|file| file.is_some()) {
        return Ok(None);
    }
    let bytes = read(name, &files, "manifest.json")?;
    let entries: Vec<Entry> =
        serde_json::from_slice(&bytes).map_err(|error| ImageError::damaged(name, error))?;
    let entry = choose(name, &entries, wanted)?;
    let config = read(name, &files, &entry.config)?;
    let diff_ids = document::image_config(name, &config)?.rootfs.diff_ids;
    if diff_ids.len() != entry.layers.len() {
        let problem = "its configuration lists other layers than its manifest";
        return Err(ImageError::damaged(name, problem));
    }

    // The archive has no OCI manifest; this is the one its content would have.
    let config_descriptor = Descriptor::of(CONFIG, &config);
    let mut places = HashMap::from([(config_descriptor.digest.clone(), entry.config.clone())]);
    let mut layers = Vec::new();
    for (digest, file) in diff_ids.into_iter().zip(&entry.layers) {
        let found = files.file(file).map_err(|source| ImageError::Fetch {
            name: name.into(),
            source,
        })?;
        let (_, size) =
            found.ok_or_else(|| ImageError::damaged(name, format!("{file} is missing")))?;
        places.insert(digest.clone(), file.clone());
        layers.push(Descriptor {
            digest,
            size,
            ..Descriptor::of(LAYER, b"")
        });
    }
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(MANIFEST.into()),
        config: config_descriptor,
        layers,
    };
    let manifest =
        serde_json::to_vec(&manifest).map_err(|error| ImageError::damaged(name, error))?;
    let called = entry.repo_tags.iter().flatten().next().cloned();
    Ok(Some(Found {
        name: called,
        manifest,
        source: Box::new(Saved {
            name: name.into(),
            files: Box::new(files),
            places,
        }),
    }))
}

fn choose<'a>(name: &str, entries: &'a [Entry], wanted: Option<&str>) -> Result<&'a Entry> {
    let tags = |entry: &'a Entry| entry.repo_tags.iter().flatten();
    let all = || entries.iter().flat_map(tags).cloned().collect::<Vec<_>>();
    match (wanted, entries) {
        (Some(wanted), entries) => entries
            .iter()
            .find(|entry| tags(entry).any(|tag| tag == wanted))
            .ok_or_else(|| ImageError::Missing {
                name: format!("{name}:{wanted}"),
                remedy: format!("there are: {}", all().join(", ")),
            }),
        (None, [only]) => Ok(only),
        (None, []) => Err(ImageError::damaged(name, "manifest.json lists no image")),
        (None, _) => {
            let what = format!(
                "several images; name one behind a colon: {}",
                all().join(", ")
            );
            Err(ImageError::unsupported(name, what))
        }
    }
}

/// An archive whose files are known by the digests of their content.
struct Saved {
    name: String,
    files: Box<dyn Files>,
    places: HashMap<Digest, String>,
}

impl Source for Saved {
    fn open(&self, content: &Descriptor) -> Result<Box<dyn Read + '_>> {
        let missing = || ImageError::damaged(&self.name, "a file of it is missing");
        let file = self.places.get(&content.digest).ok_or_else(missing)?;
        match self.files.file(file) {
            Ok(found) => Ok(found.ok_or_else(missing)?.0),
            Err(source) => Err(ImageError::Fetch {
                name: self.name.clone(),
                source,
            }),
        }
    }
}
