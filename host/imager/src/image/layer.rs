// SPDX-License-Identifier: Apache-2.0
//! Tar archives as changes to a tree: the layers of an image, and root file systems packed with tar.
//!
//! Source: OCI image specification 1.1, `layer.md`; POSIX `pax`, "pax Interchange Format"; `SCHILY.xattr.` as written by
//! GNU tar, Go and libarchive.

use std::io::{self, Read, Seek, Write};

use tar::{Archive, Entry, EntryType};

use crate::erofs::{Data, Writer};
use crate::tree::{DeviceNumber, Inode, Kind, Meta, Tree, TreeError, Xattrs};

/// What marks the name of a file that removes another.
const WHITEOUT: &[u8] = b".wh.";
/// The name of the file that removes all others in its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other files of AUFS, which mean nothing outside of it.
const AUFS: &[u8] = b".wh..wh.";

/// Why a tar archive cannot be taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// The archive cannot be read, or the image not written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// An entry is unfit.
    #[error("entry {name:?}: {source}")]
    Entry {
        /// Its path in the archive.
        name: String,
        /// What is wrong.
        source: TreeError,
    },
    /// An entry of a kind that is not read.
    #[error("entry {name:?}: {problem}")]
    Kind {
        /// Its path in the archive.
        name: String,
        /// What is wrong.
        problem: String,
    },
}

/// Whether `.wh.` files remove others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whiteouts {
    /// In layers.
    Apply,
    /// In an archive of a whole root they are files like others.
    Keep,
}

/// Applies an uncompressed archive to `tree` as its next layer; contents go to `image`. The archive is read to its end.
///
/// # Errors
/// [`LayerError`].
pub fn apply<W: Write + Seek>(
    archive: impl Read,
    whiteouts: Whiteouts,
    tree: &mut Tree<Data>,
    image: &mut Writer<W>,
) -> Result<(), LayerError> {
    tree.next_layer();
    let mut archive = Archive::new(archive);
    archive.set_ignore_zeros(false);
    for entry in archive.entries()? {
        add(entry?, whiteouts, tree, image)?;
    }
    // The padding behind the end belongs to what digests are taken of.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

fn add<W: Write + Seek>(
    mut entry: Entry<'_, impl Read>,
    whiteouts: Whiteouts,
    tree: &mut Tree<Data>,
    image: &mut Writer<W>,
) -> Result<(), LayerError> {
    let path = entry.path_bytes().into_owned();
    let shown = || String::from_utf8_lossy(&path).into_owned();
    let unfit = |source| LayerError::Entry {
        name: shown(),
        source,
    };
    let problem = |problem: &str| LayerError::Kind {
        name: shown(),
        problem: problem.into(),
    };
    if whiteouts == Whiteouts::Apply && remove(&path, tree).map_err(unfit)? {
        return Ok(());
    }

    let link = entry.link_name_bytes().map(std::borrow::Cow::into_owned);
    let link = || link.clone().ok_or_else(|| problem("a link to nothing"));
    let (meta, xattrs) = describe(&mut entry)?;
    let header = entry.header();
    let device = || -> Result<DeviceNumber, LayerError> {
        Ok(DeviceNumber {
            major: header.device_major()?.unwrap_or(0),
            minor: header.device_minor()?.unwrap_or(0),
        })
    };
    let kind = match header.entry_type() {
        EntryType::Directory => Kind::Directory(Default::default()),
        // Archives older than POSIX mark folders by their names.
        EntryType::Regular if path.ends_with(b"/") => Kind::Directory(Default::default()),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            Kind::File(image.data(entry.size(), &mut entry)?)
        }
        EntryType::Symlink => Kind::Symlink(link()?),
        EntryType::Link => return tree.link(&path, &link()?).map_err(unfit),
        EntryType::Char => Kind::Character(device()?),
        EntryType::Block => Kind::Block(device()?),
        EntryType::Fifo => Kind::Fifo,
        // Facts about all that follows: comments in practice.
        EntryType::XGlobalHeader => return Ok(()),
        _ => return Err(problem("of a kind that is unknown")),
    };
    let added = tree.add(&path, Inode { meta, xattrs, kind });
    added.map(drop).map_err(unfit)
}

/// Does what a whiteout says; whether the entry was one.
fn remove(path: &[u8], tree: &mut Tree<Data>) -> Result<bool, TreeError> {
    let start = path
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |at| at + 1);
    let (folder, name) = path.split_at(start);
    if name == OPAQUE {
        tree.opaque(folder)?;
    } else if name.starts_with(AUFS) {
        // Nothing to do.
    } else if let Some(removed) = name.strip_prefix(WHITEOUT) {
        tree.whiteout(&[folder, removed].concat())?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Owner, mode, time and attributes of an entry; its extended header beats the plain one.
fn describe(entry: &mut Entry<'_, impl Read>) -> Result<(Meta, Xattrs), LayerError> {
    let header = entry.header();
    let old = header.as_old();
    // A blank field is a zero, as other readers take it.
    let is_blank = |field: &[u8]| field.iter().all(|byte| matches!(byte, 0 | b' '));
    let number = |field: &[u8], value: io::Result<u64>| match is_blank(field) {
        true => Ok(0),
        false => value,
    };
    let identity = |id: u64| u32::try_from(id).unwrap_or(0);
    let mode = number(&old.mode, header.mode().map(u64::from))?;
    let mut meta = Meta {
        permissions: u16::try_from(mode & 0o7777).unwrap_or_default(),
        uid: identity(number(&old.uid, header.uid())?),
        gid: identity(number(&old.gid, header.gid())?),
        mtime_s: i64::try_from(number(&old.mtime, header.mtime())?).unwrap_or(0),
        mtime_ns: 0,
    };
    let mut xattrs = Xattrs::new();
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        let extension = extension?;
        let (key, value) = (extension.key_bytes(), extension.value_bytes());
        if key == b"mtime" {
            let time = std::str::from_utf8(value).ok().and_then(seconds);
            (meta.mtime_s, meta.mtime_ns) = time.unwrap_or((meta.mtime_s, 0));
        } else if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            xattrs.insert(name.to_vec(), value.to_vec());
        }
    }
    Ok((meta, xattrs))
}

/// A decimal number of seconds, such as `1700000000.25`, as whole seconds and nanoseconds.
fn seconds(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole_s: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let fraction_ns: u32 = digits.parse().ok()?;
    // Before 1970 the fraction goes the other way.
    if whole.starts_with('-') && fraction_ns > 0 {
        return Some((whole_s.checked_sub(1)?, 1_000_000_000 - fraction_ns));
    }
    Some((whole_s, fraction_ns))
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_have_fractions() {
        assert_eq!(seconds("12"), Some((12, 0)));
        assert_eq!(seconds("12.25"), Some((12, 250_000_000)));
        assert_eq!(seconds("12.0000000019"), Some((12, 1)));
        assert_eq!(seconds("-1.5"), Some((-2, 500_000_000)));
        for wrong in ["", "x", "1.x", "99999999999999999999"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
