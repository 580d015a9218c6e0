// SPDX-License-Identifier: Apache-2.0

//! A cpio archive in *newc* format, as the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst` has it:
//! the initial file system of the Linux VM.

use std::collections::BTreeSet;

use crate::{Error, Result};

/// The archive as it grows.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// A folder, unless it is there, after those it lies in.
    pub(super) fn folder(&mut self, path: &str) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        if self.folders.insert(path.to_owned()) {
            self.header(path, 0o040_755, 0);
        }
    }

    /// A file, after the folders it lies in.
    pub(super) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> Result<()> {
        let size = u32::try_from(content.len())
            .map_err(|_| Error::Input(format!("{path} is larger than 4 GiB")))?;
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
        self.header(path, 0o100_000 | permissions, size);
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn header(&mut self, path: &str, mode: u32, size: u32) {
        self.entries += 1;
        let name_bytes = path.len() + 1;
        // Magic, inode, mode, owner and group, links, time, size, two device numbers, length of the name, no checksum.
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{name_bytes:08x}{:08x}{path}\0",
            self.entries, 0, 0, 1, 0, 0, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn archives_have_the_published_layout() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.file("a", 0o644, b"hello").unwrap();
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[110..114], b"dev\0");
        // The second entry: 110 bytes of header, the name, padding to four, then the content.
        assert_eq!(&bytes[116 + 110..116 + 112], b"a\0");
        assert_eq!(&bytes[116 + 112..116 + 117], b"hello");
    }
}
