// SPDX-License-Identifier: Apache-2.0
//! The JSON documents of images: index, manifest and configuration. What is accepted keeps the promises of its type.

use coracle_imager::image::document::{Document, document, image_config};

pub(crate) fn run(data: &[u8]) {
    match document("image", data) {
        Ok(Document::Manifest(manifest)) => assert!(manifest.layers.len() <= 1024),
        Ok(Document::Index(index)) => match index.select("image") {
            Ok(chosen) => assert_eq!(chosen.digest.hex().len(), 64),
            Err(error) => assert!(error.to_string().starts_with("image: ")),
        },
        Err(error) => assert!(error.to_string().starts_with("image: ")),
    }
    match image_config("image", data) {
        Ok(config) => assert_eq!(
            (config.os.as_str(), config.architecture.as_str()),
            ("linux", "amd64")
        ),
        Err(error) => assert!(error.to_string().starts_with("image: ")),
    }
}
