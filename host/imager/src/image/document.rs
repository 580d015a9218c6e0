// SPDX-License-Identifier: Apache-2.0
//! The JSON documents of an image: index, manifest and configuration.
//!
//! Source: OCI image specification 1.1, `image-index.md`, `manifest.md`, `config.md`; Docker's *Image Manifest Version 2,
//! Schema 2*, whose documents have the same members. Unknown members are ignored, as the specification asks.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::digest::Digest;
use super::error::ImageError;

/// Media types of what Coracle writes.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// An image configuration.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// An uncompressed layer.
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Docker's manifest and its list of them.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's list of manifests.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// The annotation with the name of an image in an index.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Largest document that is read, bytes; registries refuse larger ones too.
pub const DOCUMENT_MAX: u64 = 4 << 20;
/// Most layers of an image. Docker's own limit is 127.
const LAYERS_MAX: usize = 1024;

/// What images can be run: of this architecture, and this system.
pub const ARCHITECTURE: &str = "amd64";
const OS: &str = "linux";

type Annotations = BTreeMap<String, String>;

/// Names content by type, digest and size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// What an image in an index is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Further facts.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "Annotations::is_empty"
    )]
    pub annotations: Annotations,
}

impl Descriptor {
    /// Names `bytes`.
    #[must_use]
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.into(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            platform: None,
            annotations: Annotations::new(),
        }
    }
}

/// What an image is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// CPU, in Go's spelling.
    #[serde(default)]
    pub architecture: String,
    /// System.
    #[serde(default)]
    pub os: String,
}

/// A list of images: for several platforms, or of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// [`INDEX`], or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The images.
    pub manifests: Vec<Descriptor>,
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// [`MANIFEST`] or [`DOCKER_MANIFEST`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// How an image is run and what it is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// When it was made, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// CPU.
    pub architecture: String,
    /// System.
    pub os: String,
    /// How it is run.
    #[serde(default, deserialize_with = "nullable")]
    pub config: Execution,
    /// What it is made of.
    pub rootfs: RootFs,
    /// How it was made.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub history: Vec<Value>,
}

/// The layers by the digests of their uncompressed archives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The lowest first.
    #[serde(default, deserialize_with = "nullable")]
    pub diff_ids: Vec<Digest>,
}

/// How an image is run. The names are those of the Containerfile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Execution {
    /// `USER`: name or number, and group behind a colon.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub user: String,
    /// `EXPOSE`: `80/tcp`.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub exposed_ports: BTreeMap<String, Value>,
    /// `ENV`: `NAME=value`.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub env: Vec<String>,
    /// `ENTRYPOINT`
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub entrypoint: Vec<String>,
    /// `CMD`
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub cmd: Vec<String>,
    /// `VOLUME`: paths.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub volumes: BTreeMap<String, Value>,
    /// `WORKDIR`
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub working_dir: String,
    /// `LABEL`
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// `STOPSIGNAL`
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "String::is_empty"
    )]
    pub stop_signal: String,
    /// `HEALTHCHECK`, as Docker records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Value>,
}

/// Go writes empty lists and maps as `null`.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// An index or a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// Several images.
    Index(Index),
    /// One image.
    Manifest(Manifest),
}

/// Reads an index or a manifest; `name` is for errors.
///
/// # Errors
/// [`ImageError::Damaged`], [`ImageError::Unsupported`].
pub fn document(name: &str, bytes: &[u8]) -> Result<Document, ImageError> {
    let value: Value = json(name, bytes)?;
    let has = |key: &str| value.get(key).is_some_and(Value::is_array);
    if value.get("schemaVersion").and_then(Value::as_u64) == Some(1) && !has("manifests") {
        let what =
            "a manifest of Docker's old schema 1; push the image again with a present-day tool";
        return Err(ImageError::unsupported(name, what));
    }
    if has("manifests") {
        return typed(name, value).map(Document::Index);
    }
    let manifest: Manifest = typed(name, value)?;
    if manifest.layers.len() > LAYERS_MAX {
        return Err(ImageError::damaged(name, "more than 1024 layers"));
    }
    Ok(Document::Manifest(manifest))
}

/// Reads an image's configuration and sees that Coracle can run such images.
///
/// # Errors
/// [`ImageError::Damaged`], [`ImageError::Platform`].
pub fn image_config(name: &str, bytes: &[u8]) -> Result<ImageConfig, ImageError> {
    let config: ImageConfig = json(name, bytes)?;
    if (config.os.as_str(), config.architecture.as_str()) != (OS, ARCHITECTURE) {
        return Err(ImageError::Platform {
            name: name.into(),
            found: format!("{}/{}", config.os, config.architecture),
        });
    }
    Ok(config)
}

impl Index {
    /// An index without images.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            schema_version: 2,
            media_type: Some(INDEX.into()),
            manifests: Vec::new(),
        }
    }

    /// The image for this machine; one that does not say what it is for, if there is no other.
    ///
    /// # Errors
    /// [`ImageError::Platform`], which lists what there is.
    pub fn select(&self, name: &str) -> Result<&Descriptor, ImageError> {
        let is_ours = |descriptor: &&Descriptor| {
            let platform = descriptor.platform.as_ref();
            platform.is_some_and(|p| p.os == OS && p.architecture == ARCHITECTURE)
        };
        if let Some(ours) = self.manifests.iter().find(is_ours) {
            return Ok(ours);
        }
        if let Some(any) = self.manifests.iter().find(|d| d.platform.is_none()) {
            return Ok(any);
        }
        let mut found: Vec<String> = Vec::new();
        for platform in self.manifests.iter().filter_map(|d| d.platform.as_ref()) {
            let text = format!("{}/{}", platform.os, platform.architecture);
            // Attestations say unknown/unknown.
            if !found.contains(&text) && platform.os != "unknown" {
                found.push(text);
            }
        }
        let found = match found.is_empty() {
            true => "nothing".to_owned(),
            false => found.join(", "),
        };
        let name = name.into();
        Err(ImageError::Platform { name, found })
    }
}

fn json<T: for<'de> Deserialize<'de>>(name: &str, bytes: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| ImageError::damaged(name, error))
}

fn typed<T: for<'de> Deserialize<'de>>(name: &str, value: Value) -> Result<T, ImageError> {
    serde_json::from_value(value).map_err(|error| ImageError::damaged(name, error))
}
