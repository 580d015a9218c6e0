// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask erofs`: a folder as an EROFS image, to look at the format or to give a kernel something to read.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use coracle_imager::erofs::Writer;
use coracle_imager::folder;

/// Writes the image of the folder `from` to the file `to`.
pub(crate) fn write(from: &str, to: &str) -> Result<()> {
    let file = File::create(to).with_context(|| format!("create {to}"))?;
    let mut image = Writer::new(file).with_context(|| format!("write {to}"))?;
    let tree = folder::read(Path::new(from), &mut image)?;
    let (_, size) = image.finish(&tree).with_context(|| format!("write {to}"))?;
    println!("{to}: {size} bytes");
    Ok(())
}
