// SPDX-License-Identifier: Apache-2.0
//! Tar archives whose members are read in any order: images as `podman save` and `docker save` write them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use tar::EntryType;

use super::decompress::decompress;
use super::error::ImageError;
use super::store::Store;

/// How many links lead to a member at most.
const LINKS_MAX: u32 = 8;
/// Bytes of the smallest archive: one header.
const HEADER: usize = 512;

/// An archive and the places of its members.
#[derive(Debug)]
pub struct Archive {
    file: Arc<File>,
    members: HashMap<Vec<u8>, Place>,
}

#[derive(Debug)]
enum Place {
    Content { at: u64, size: u64 },
    Link(Vec<u8>),
}

/// A member, read from its beginning.
#[derive(Debug)]
pub struct Member {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Archive {
    /// Reads the table of contents of the archive at `path`, uncompressing it aside if it is compressed. `None` if that is no
    /// tar archive.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn open(path: &Path, store: &Store) -> Result<Option<Self>, ImageError> {
        let reading = ImageError::reading(path);
        let mut file = File::open(path).map_err(&reading)?;
        let mut head = Vec::new();
        let mut first = (&file).take(4);
        first.read_to_end(&mut head).map_err(&reading)?;
        file.rewind().map_err(&reading)?;
        let is_plain = !matches!(head[..], [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd]);
        if !is_plain {
            let fetching = |source| ImageError::Fetch {
                name: path.display().to_string(),
                source,
            };
            let _guard = store.begin()?;
            let mut aside = store.temporary()?;
            let mut from = decompress(file).map_err(fetching)?;
            let mut buffer = vec![0; 128 << 10];
            loop {
                let count = from.read(&mut buffer).map_err(fetching)?;
                if count == 0 {
                    break;
                }
                let writing = ImageError::writing(store.folder());
                aside.write_all(&buffer[..count]).map_err(writing)?;
            }
            // The name goes away, the content stays as long as it is open.
            file = aside.into_file();
        }
        if !is_tar(&file).map_err(&reading)? {
            return Ok(None);
        }
        let members = members(&file)
            .map_err(|error| ImageError::damaged(&path.display().to_string(), error))?;
        let file = Arc::new(file);
        Ok(Some(Self { file, members }))
    }

    /// A regular file of the archive, or one to which a link of that name leads.
    #[must_use]
    pub fn member(&self, name: &[u8]) -> Option<Member> {
        let mut name = clean(name);
        for _ in 0..LINKS_MAX {
            match self.members.get(&name)? {
                Place::Content { at, size } => {
                    return Some(Member {
                        file: Arc::clone(&self.file),
                        at: *at,
                        left: *size,
                    });
                }
                Place::Link(target) => name.clone_from(target),
            }
        }
        None
    }

    /// The whole archive, from its beginning.
    ///
    /// # Errors
    /// What the host answers.
    pub fn whole(&self) -> io::Result<Member> {
        let left = self.file.metadata()?.len();
        let file = Arc::clone(&self.file);
        Ok(Member { file, at: 0, left })
    }
}

impl Member {
    /// Bytes that have not been read yet.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.left
    }
}

impl Read for Member {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Whether the first header has the checksum that makes it one.
fn is_tar(file: &File) -> io::Result<bool> {
    let mut header = [0; HEADER];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        other => other?,
    }
    let header = tar::Header::from_byte_slice(&header);
    let sum = header.as_bytes().iter().enumerate().map(|(at, &byte)| {
        // The checksum is taken with blanks in its own place.
        if (148..156).contains(&at) {
            32
        } else {
            u32::from(byte)
        }
    });
    Ok(header.cksum().is_ok_and(|cksum| cksum == sum.sum::<u32>()))
}

fn members(mut file: &File) -> io::Result<HashMap<Vec<u8>, Place>> {
    file.rewind()?;
    let size = file.metadata()?.len();
    let mut members = HashMap::new();
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let name = clean(&entry.path_bytes());
        let link = || entry.link_name_bytes().unwrap_or_default().into_owned();
        let place = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => Place::Content {
                at: entry.raw_file_position(),
                size: entry.size(),
            },
            // Relative to the folder of the link.
            EntryType::Symlink => {
                let folder = name.iter().rposition(|&byte| byte == b'/');
                let folder = &name[..folder.map_or(0, |at| at + 1)];
                Place::Link(clean(&[folder, &link()].concat()))
            }
            EntryType::Link => Place::Link(clean(&link())),
            _ => continue,
        };
        if let Place::Content { at, size: bytes } = place
            && at.checked_add(bytes).is_none_or(|end| end > size)
        {
            let text = format!(
                "the archive was cut short in {:?}",
                String::from_utf8_lossy(&name)
            );
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        members.insert(name, place);
    }
    Ok(members)
}

/// A path without `.`, `..` and empty parts. It is looked up in a table, so `..` cannot lead anywhere.
fn clean(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            _ => names.push(name),
        }
    }
    names.join(&b'/')
}
