// SPDX-License-Identifier: Apache-2.0
//! Making images: from layers and a configuration into a store, and from a store into an OCI archive.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};

use serde_json::Value;

use super::document::{
    ARCHITECTURE, CONFIG, Descriptor, Execution, ImageConfig, Index, LAYER, MANIFEST, Manifest,
    REF_NAME, RootFs,
};
use super::error::ImageError;
use super::source::parse_manifest;
use super::store::Store;

type Result<T> = std::result::Result<T, ImageError>;

/// Adds an image of uncompressed layers to a store and answers its manifest; it has no name yet. `created` is a time as in
/// RFC 3339, if one shall be recorded.
///
/// # Errors
/// [`ImageError`].
pub fn create(
    store: &Store,
    layers: &mut [&mut dyn Read],
    execution: Execution,
    created: Option<String>,
    made_by: &str,
) -> Result<Descriptor> {
    let _guard = store.begin()?;
    let added = layers
        .iter_mut()
        .map(|layer| store.add("layer", LAYER, layer));
    let layers = added.collect::<Result<Vec<_>>>()?;
    let history = layers.iter().map(|_| {
        let mut step = serde_json::Map::new();
        step.insert("created_by".into(), Value::String(made_by.into()));
        if let Some(created) = &created {
            step.insert("created".into(), Value::String(created.clone()));
        }
        Value::Object(step)
    });
    let config = ImageConfig {
        created: created.clone(),
        author: None,
        architecture: ARCHITECTURE.into(),
        os: "linux".into(),
        config: execution,
        rootfs: RootFs {
            kind: "layers".into(),
            diff_ids: layers.iter().map(|layer| layer.digest.clone()).collect(),
        },
        history: history.collect(),
    };
    let manifest = Manifest {
        schema_version: 2,
        media_type: Some(MANIFEST.into()),
        config: store.add_document(CONFIG, &json(store, &config)?)?,
        layers,
    };
    store.add_document(MANIFEST, &json(store, &manifest)?)
}

/// Writes an image of a store as an OCI archive, the same bytes for the same image.
///
/// # Errors
/// [`ImageError`]; the target then holds an unfinished archive.
pub fn archive(store: &Store, image: &Descriptor, name: Option<&str>, to: &File) -> Result<()> {
    let shown = name.unwrap_or(image.digest.short());
    let bytes = store.document(shown, &image.digest)?;
    let manifest = parse_manifest(shown, &bytes)?;
    let mut listed = image.clone();
    listed.annotations.clear();
    if let Some(name) = name {
        listed.annotations.insert(REF_NAME.into(), name.into());
    }
    let index = Index {
        manifests: vec![listed],
        ..Index::empty()
    };
    let index = json(store, &index)?;

    let failed = ImageError::writing(store.folder());
    let mut archive = tar::Builder::new(BufWriter::with_capacity(128 << 10, to));
    let version: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
    member(&mut archive, "oci-layout", version.len() as u64, version).map_err(&failed)?;
    member(&mut archive, "index.json", index.len() as u64, &index[..]).map_err(&failed)?;
    let contents = [image, &manifest.config]
        .into_iter()
        .chain(&manifest.layers);
    let mut written = std::collections::BTreeSet::new();
    for content in contents.filter(|content| written.insert(content.digest.clone())) {
        let path = store.blob(&content.digest);
        let file = File::open(&path).map_err(ImageError::reading(&path))?;
        let name = format!("blobs/sha256/{}", content.digest.hex());
        member(&mut archive, &name, content.size, file).map_err(&failed)?;
    }
    let mut target = archive.into_inner().map_err(&failed)?;
    target.flush().map_err(&failed)
}

fn member<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    size: u64,
    from: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    archive.append_data(&mut header, name, from)
}

fn json(store: &Store, value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| ImageError::writing(store.folder())(error.into()))
}
