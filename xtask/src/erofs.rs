// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask erofs`: a folder or image as an EROFS image, to look at the format or to give a kernel something to read.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use coracle_imager::image::root::{Image, from_folder};
use coracle_imager::image::{Store, source};

/// Writes the root in the folder, layout or archive `from` to the file `to`.
pub(crate) fn write(from: &str, to: &str) -> Result<()> {
    let source = Path::new(from);
    let work = tempfile::tempdir().context("make a folder to work in")?;
    let store = Store::new(work.path());
    if let Some(found) = source::find(source, &store, None)? {
        let image = Image::read(from, &found.manifest, found.source.as_ref())?;
        let root = image.root(&store, found.source.as_ref())?;
        std::fs::copy(&root, to).with_context(|| format!("write {to}"))?;
    } else if source.is_dir() {
        let file = File::create(to).with_context(|| format!("create {to}"))?;
        from_folder(source, Path::new(to), &file)?;
    } else {
        bail!("{from}: neither a folder nor an image");
    }
    let size = std::fs::metadata(to).with_context(|| format!("look at {to}"))?;
    println!("{to}: {} bytes", size.len());
    Ok(())
}
