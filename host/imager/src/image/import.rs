// SPDX-License-Identifier: Apache-2.0
//! Taking images into the store, finding them there, and removing them.

use std::collections::BTreeSet;

use super::Digest;
use super::document::{CONFIG, Descriptor, MANIFEST};
use super::error::ImageError;
use super::root::Image;
use super::source::Found;
use super::store::{Store, Wanted, name_of};

type Result<T> = std::result::Result<T, ImageError>;

/// Type of the configuration of Docker's images.
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// The annotation that says from which tool's storage an image was copied.
pub const COPIED_FROM: &str = "org.coracle.copied-from";

/// An image of the store with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Its name; an image may have several, each is listed.
    pub name: String,
    /// The image.
    pub image: Image,
}

/// Copies an image into the store under `name`. `copied_from` is the tool whose storage stays the original.
///
/// # Errors
/// [`ImageError`]; the store then has whole parts of the image at most, and no name for it.
pub fn import(
    store: &Store,
    name: &str,
    found: &Found<'_>,
    copied_from: Option<&str>,
) -> Result<Image> {
    let _guard = store.begin()?;
    let image = Image::read(name, &found.manifest, found.source.as_ref())?;
    let config = &image.manifest.config;
    if ![CONFIG, DOCKER_CONFIG, ""].contains(&config.media_type.as_str()) {
        let what = format!(
            "an artifact of type {}, not a container image",
            config.media_type
        );
        return Err(ImageError::unsupported(name, what));
    }
    for (number, layer) in (1..).zip(&image.manifest.layers) {
        if layer.media_type.contains("encrypted") {
            return Err(ImageError::unsupported(name, "its layers are encrypted"));
        }
        let part = format!("{name}: layer {number}");
        store.fetch(&part, layer, || found.source.open(layer))?;
    }
    store.fetch(name, config, || found.source.open(config))?;
    store.add_document(&image.descriptor.media_type, &found.manifest)?;
    let mut descriptor = image.descriptor.clone();
    if let Some(tool) = copied_from {
        descriptor
            .annotations
            .insert(COPIED_FROM.into(), tool.into());
    }
    store.tag(name, &descriptor)?;
    Ok(image)
}

/// All images of the store, the last that was added first, and what is wrong with those that cannot be read.
///
/// # Errors
/// [`ImageError`] if there is no telling which images there are.
pub fn list(store: &Store) -> Result<(Vec<Stored>, Vec<ImageError>)> {
    let index = store.index()?;
    let (mut images, mut errors) = (Vec::new(), Vec::new());
    for image in index.manifests.iter().rev() {
        let name = name_of(image).unwrap_or("<none>").to_owned();
        match open(store, &name, image) {
            Ok(image) => images.push(Stored { name, image }),
            Err(error) => errors.push(error),
        }
    }
    Ok((images, errors))
}

/// The names of all images, with those that cannot be read.
///
/// # Errors
/// [`ImageError`].
pub fn names(store: &Store) -> Result<Vec<String>> {
    let images = store.index()?.manifests;
    Ok(images
        .iter()
        .filter_map(name_of)
        .map(str::to_owned)
        .collect())
}

/// The image of that full name, or, when `text` is the beginning of one image's id, that one.
///
/// # Errors
/// [`ImageError`].
pub fn find(store: &Store, text: &str) -> Result<Option<Stored>> {
    let index = store.index()?;
    let named = index
        .manifests
        .iter()
        .find(|image| name_of(image) == Some(text));
    if let Some(found) = named {
        let name = text.to_owned();
        let image = open(store, &name, found)?;
        return Ok(Some(Stored { name, image }));
    }
    let is_id = text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Ok(None);
    }
    let has_id = |stored: &Stored| stored.image.id().hex().starts_with(text);
    let (images, _) = list(store)?;
    let found: Vec<Stored> = images.into_iter().filter(has_id).collect();
    let ids: BTreeSet<&Digest> = found.iter().map(|stored| stored.image.id()).collect();
    if ids.len() > 1 {
        let what = "several images have an id that begins so; give more of it";
        return Err(ImageError::unsupported(text, what));
    }
    Ok(found.into_iter().next())
}

/// Reads an image of the store.
fn open(store: &Store, name: &str, descriptor: &Descriptor) -> Result<Image> {
    let manifest = store.document(name, &descriptor.digest)?;
    let mut image = Image::read(name, &manifest, store)?;
    image.descriptor = Descriptor {
        media_type: match descriptor.media_type.as_str() {
            "" => MANIFEST.into(),
            known => known.to_owned(),
        },
        ..descriptor.clone()
    };
    Ok(image)
}

/// Removes everything that no image with a name needs; bytes freed.
///
/// # Errors
/// [`ImageError`].
pub fn collect(store: &Store) -> Result<u64> {
    store.collect(|| {
        let mut wanted = Wanted::default();
        let (images, _) = list(store)?;
        for Stored { image, .. } in images {
            wanted.roots.insert(image.root_key());
            let parts = image
                .manifest
                .layers
                .into_iter()
                .chain([image.manifest.config]);
            wanted.blobs.extend(parts.map(|part| part.digest));
            wanted.blobs.insert(image.descriptor.digest);
        }
        // What cannot be read keeps its manifest, so that it can be named and removed.
        let index = store.index()?;
        let manifests = index.manifests.into_iter().map(|image| image.digest);
        wanted.blobs.extend(manifests);
        Ok(wanted)
    })
}
