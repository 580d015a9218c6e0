// SPDX-License-Identifier: Apache-2.0
//! Container images: `images`, `rmi`, `pull`, `push`, `load`, `save`, `build`, and how `run` finds one.

pub(crate) mod args;
mod build;
pub(crate) mod find;
mod list;
mod progress;
pub(crate) mod start;
mod transfer;

pub(crate) use build::build;
pub(crate) use list::{images, rmi, view};
pub(crate) use transfer::{load, pull, push, save};

use coracle_imager::image::Store;

use crate::error::Failure;
use crate::folders;

/// The image store of this user.
pub(crate) fn store() -> Result<Store, Failure> {
    Ok(Store::new(&folders::data()?.join("images")))
}

/// A number of bytes for people, as podman writes it.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => tenths(bytes, 1_000, "kB"),
        1_000_000..1_000_000_000 => tenths(bytes, 1_000_000, "MB"),
        _ => tenths(bytes, 1_000_000_000, "GB"),
    }
}

fn tenths(bytes: u64, unit: u64, name: &str) -> String {
    let tenths = bytes * 10 / unit;
    match tenths {
        0..1000 => format!("{}.{} {name}", tenths / 10, tenths % 10),
        _ => format!("{} {name}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_decimal() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_250), "1.2 kB");
        assert_eq!(size(31_400_000), "31.4 MB");
        assert_eq!(size(314_000_000), "314 MB");
        assert_eq!(size(2_500_000_000), "2.5 GB");
    }
}
