// SPDX-License-Identifier: Apache-2.0
//! `coracle images`, `rmi`, and how `inspect` shows an image.

use std::collections::BTreeMap;

use coracle_imager::image::Store;
use coracle_imager::image::document::Execution;
use coracle_imager::image::import::{self, Stored};
use coracle_vmm::{Status, Store as Instances};
use serde::Serialize;

use super::args::{ImagesArgs, RmiArgs};
use super::transfer::existing;
use super::{find, size, store};
use crate::args::Format;
use crate::error::Failure;
use crate::{folders, output};

/// An image as `inspect` shows it; the names of podman's.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ImageView {
    id: String,
    digest: String,
    repo_tags: Vec<String>,
    created: Option<String>,
    architecture: String,
    os: String,
    size: u64,
    config: Execution,
    layers: Vec<String>,
    /// Where the root is, once it has been made.
    root: Option<std::path::PathBuf>,
    labels: BTreeMap<String, String>,
}

/// One image, if there is one of that name in the store.
pub(crate) fn view(text: &str) -> Result<Option<ImageView>, Failure> {
    let store = store()?;
    let Some(found) = find::in_store(text, &store)? else {
        return Ok(None);
    };
    Ok(Some(ImageView::of(&found, &store)))
}

impl ImageView {
    fn of(stored: &Stored, store: &Store) -> Self {
        let image = &stored.image;
        let layers = image.config.rootfs.diff_ids.iter();
        Self {
            id: image.id().hex().into(),
            digest: image.descriptor.digest.to_string(),
            repo_tags: vec![stored.name.clone()],
            created: image.config.created.clone(),
            architecture: image.config.architecture.clone(),
            os: image.config.os.clone(),
            size: bytes(stored),
            config: image.config.config.clone(),
            layers: layers.map(ToString::to_string).collect(),
            root: store.known_root(&image.root_key()),
            labels: image.config.config.labels.clone(),
        }
    }
}

/// Bytes of an image's layers, as they are kept.
fn bytes(stored: &Stored) -> u64 {
    let layers = stored.image.manifest.layers.iter();
    layers.map(|layer| layer.size).sum()
}

/// Lists the images of the store.
pub(crate) fn images(args: &ImagesArgs) -> Result<u8, Failure> {
    let store = store()?;
    let filters = args.filter.iter().map(|text| Filter::parse(text));
    let filters = filters.collect::<Result<Vec<_>, _>>()?;
    let (mut found, damaged) = import::list(&store)?;
    for error in damaged {
        eprintln!("coracle: warning: {error}");
    }
    found.retain(|image| {
        let named = args.name.as_ref();
        named.is_none_or(|name| image.name.contains(name.as_str()))
            && filters.iter().all(|filter| filter.matches(image))
    });
    if args.quiet {
        let ids = found
            .iter()
            .map(|image| format!("{}\n", image.image.id().short()));
        output::print(&ids.collect::<String>());
        return Ok(0);
    }
    match args.output {
        Format::Json => {
            let views = found.iter().map(|image| ImageView::of(image, &store));
            output::json(&views.collect::<Vec<_>>())?;
        }
        Format::Name => {
            let names = found.iter().map(|image| format!("{}\n", image.name));
            output::print(&names.collect::<String>());
        }
        Format::Table => {
            let head = ["REPOSITORY", "TAG", "IMAGE ID", "CREATED", "SIZE"];
            output::table(&head, found.iter().map(row).collect());
        }
    }
    Ok(0)
}

fn row(stored: &Stored) -> Vec<String> {
    let (repository, tag) = split(&stored.name);
    let created = stored.image.config.created.as_deref().unwrap_or("-");
    vec![
        repository.into(),
        tag.into(),
        stored.image.id().short().into(),
        created.get(..10).unwrap_or(created).into(),
        size(bytes(stored)),
    ]
}

/// Repository and tag of a full name.
fn split(name: &str) -> (&str, &str) {
    let without_digest = name.split('@').next().unwrap_or(name);
    match without_digest.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (without_digest, "<none>"),
    }
}

/// `--filter`
enum Filter {
    Reference(String),
    Label(String, Option<String>),
}

impl Filter {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.split_once('=') {
            Some(("reference", part)) => Ok(Self::Reference(part.into())),
            Some(("label", label)) => Ok(match label.split_once('=') {
                Some((key, value)) => Self::Label(key.into(), Some(value.into())),
                None => Self::Label(label.into(), None),
            }),
            _ => Err(Failure::new(format!(
                "--filter {text}: use reference=PART or label=KEY[=VALUE]"
            ))),
        }
    }

    fn matches(&self, stored: &Stored) -> bool {
        match self {
            Self::Reference(part) => stored.name.contains(part.as_str()),
            Self::Label(key, value) => {
                let label = stored.image.config.config.labels.get(key);
                label.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            }
        }
    }
}

/// Takes names from images, and removes what then has none.
pub(crate) fn rmi(args: &RmiArgs) -> Result<u8, Failure> {
    let store = store()?;
    let guard = store.begin()?;
    let names = match args.all {
        true => import::names(&store)?,
        false => args.names.clone(),
    };
    if names.is_empty() && !args.all {
        return Err(Failure::new("name an image, or give --all"));
    }
    let mut removed = Vec::new();
    for name in &names {
        let full = match find::in_store(name, &store) {
            Ok(Some(found)) => {
                in_use(&found, &store, args.force)?;
                store.untag(&found.name)?;
                found.name
            }
            // One that is damaged can be removed by its full name.
            Err(_) if store.untag(name)? => name.clone(),
            Ok(None) if args.force => continue,
            _ => existing(name, &store)?.name,
        };
        removed.push(full);
    }
    drop(guard);
    let freed = import::collect(&store)?;
    for name in removed {
        output::line(&format!("Untagged: {name}"));
    }
    output::line(&format!("Freed: {}", size(freed)));
    Ok(0)
}

/// An error if an instance runs from the image's root. Without the file it would go on, but could not be started again.
fn in_use(found: &Stored, store: &Store, force: bool) -> Result<(), Failure> {
    let Some(root) = store.known_root(&found.image.root_key()) else {
        return Ok(());
    };
    if force {
        return Ok(());
    }
    for instance in Instances::new(&folders::state()?).list()? {
        let Ok(state) = instance.load() else { continue };
        let has_root = state.spec.disks.iter().any(|disk| disk.path == root);
        if has_root && state.status != Status::Exited {
            return Err(Failure::new(format!(
                "{}: in use by the instance {}; stop it first, or give --force",
                found.name, instance.name
            )));
        }
    }
    Ok(())
}
