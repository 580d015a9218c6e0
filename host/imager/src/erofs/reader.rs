// SPDX-License-Identifier: Apache-2.0
//! A reader for single files of an image: what `run` must know of a root before it starts (`/etc/passwd`, the program, its
//! loader). It reads what [`super::Writer`] writes, and does not trust the file: it may have been damaged since.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{
    BLOCK, COMPACT, DIRENT, EXTENDED, FLAT_INLINE, FLAT_PLAIN, MAGIC, S_IFDIR, S_IFLNK, S_IFMT,
    S_IFREG, SLOT, SUPERBLOCK_AT, SUPERBLOCK_BYTES,
};

/// How many links a path may go through, `path_resolution(7)`.
const MAX_LINKS: u32 = 40;
/// Longest target of a link, `limits.h`.
const PATH_MAX: u64 = 4096;

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The host cannot read the image.
    #[error("cannot read the image: {0}")]
    Io(#[from] io::Error),
    /// It is no image of ours, or was changed.
    #[error("not an EROFS image as coracle writes them ({0})")]
    Damaged(&'static str),
}

/// An open image.
#[derive(Debug)]
pub struct Reader {
    file: File,
    meta_at: u64,
    root: u64,
    /// The time of inodes that record none.
    time: (i64, u32),
}

/// A file found in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// `st_mode`
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time: seconds since 1970, nanoseconds.
    pub mtime: (i64, u32),
    /// The inode's number. Two names of one file have the same.
    pub number: u64,
    /// Bytes of the content.
    pub size: u64,
    /// What a device file stands for, as Linux encodes it (`new_encode_dev`).
    pub(super) device: u32,
    /// Where the whole blocks of the content begin, bytes.
    blocks_at: u64,
    /// How many bytes of content are in whole blocks.
    in_blocks: u64,
    /// Where the rest is, bytes.
    rest_at: u64,
}

impl Found {
    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG.0
    }

    /// Whether it is a symbolic link; its text is its content.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.mode & S_IFMT == S_IFLNK.0
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR.0
    }
}

impl Reader {
    /// Opens an image.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn new(file: File) -> Result<Self, ReadError> {
        let mut block = [0; SUPERBLOCK_BYTES];
        match file.read_exact_at(&mut block, SUPERBLOCK_AT as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(ReadError::Damaged("too short"));
            }
            other => other?,
        }
        let long = |at: usize| u32::from_le_bytes(four(&block, at));
        if long(0) != MAGIC {
            return Err(ReadError::Damaged("no magic number"));
        }
        if file.metadata()?.len() < u64::from(long(36)) * BLOCK as u64 {
            return Err(ReadError::Damaged("cut short"));
        }
        Ok(Self {
            meta_at: u64::from(long(40)) * BLOCK as u64,
            root: u64::from(u16::from_le_bytes([block[14], block[15]])),
            time: (eight(&block, 24).cast_signed(), long(32)),
            file,
        })
    }

    /// The file at `path` as a program in the image would open it; `None` if there is none.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn find(&self, path: &str) -> Result<Option<Found>, ReadError> {
        let mut folders = vec![self.inode(self.root)?];
        let mut todo: Vec<Vec<u8>> = steps(path.as_bytes());
        let mut links = 0;
        while let Some(name) = todo.pop() {
            let Some(&at) = folders.last() else { break };
            if !at.is_directory() {
                return Ok(None);
            }
            if name == b".." {
                if folders.len() > 1 {
                    folders.pop();
                }
                continue;
            }
            let Some(number) = self.entry(&at, &name)? else {
                return Ok(None);
            };
            let next = self.inode(number)?;
            if next.mode & S_IFMT != S_IFLNK.0 {
                folders.push(next);
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Ok(None);
            }
            if next.size > PATH_MAX {
                return Err(ReadError::Damaged("a link of impossible length"));
            }
            let target = self.read(&next, 0, PATH_MAX)?;
            if target.starts_with(b"/") {
                folders.truncate(1);
            }
            todo.extend(steps(&target));
        }
        Ok(folders.pop())
    }

    /// At most `most` bytes of a file from `from` on.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, found: &Found, from: u64, most: u64) -> Result<Vec<u8>, ReadError> {
        let size = found.size.saturating_sub(from).min(most);
        // A size the image cannot have is met at its end.
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let at = from + bytes.len() as u64;
            let left = size - bytes.len() as u64;
            let (position, run) = if at < found.in_blocks {
                (found.blocks_at + at, left.min(found.in_blocks - at))
            } else {
                (found.rest_at + (at - found.in_blocks), left)
            };
            let run = run.min(1 << 16);
            let start = bytes.len();
            bytes.resize(start + usize::try_from(run).unwrap_or(0), 0);
            self.read_exact(&mut bytes[start..], position)?;
        }
        Ok(bytes)
    }

    fn read_exact(&self, bytes: &mut [u8], at: u64) -> Result<(), ReadError> {
        match self.file.read_exact_at(bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ReadError::Damaged("a part behind the end"))
            }
            other => Ok(other?),
        }
    }

    fn inode(&self, number: u64) -> Result<Found, ReadError> {
        let at = number
            .checked_mul(SLOT as u64)
            .and_then(|at| at.checked_add(self.meta_at))
            .filter(|at| *at < u64::MAX / 2)
            .ok_or(ReadError::Damaged("an inode behind the end"))?;
        let mut inode = [0; EXTENDED];
        self.read_exact(&mut inode[..COMPACT], at)?;
        let format = u16::from_le_bytes([inode[0], inode[1]]);
        let head = if format & 1 == 1 { EXTENDED } else { COMPACT };
        self.read_exact(&mut inode[..head], at)?;
        let size = match head {
            EXTENDED => eight(&inode, 8),
            _ => u64::from(u32::from_le_bytes(four(&inode, 8))),
        };
        let long = |at| u32::from_le_bytes(four(&inode, at));
        let short = |at: usize| u32::from(u16::from_le_bytes([inode[at], inode[at + 1]]));
        let (uid, gid, mtime) = match head {
            EXTENDED => {
                let time = (eight(&inode, 32).cast_signed(), long(40));
                (long(24), long(28), time)
            }
            _ => (short(24), short(26), self.time),
        };
        let xattr_units = u64::from(u16::from_le_bytes([inode[2], inode[3]]));
        let xattr_bytes = match xattr_units {
            0 => 0,
            units => 8 + units * 4,
        };
        let in_blocks = match format >> 1 {
            FLAT_PLAIN => size,
            FLAT_INLINE => size - size % BLOCK as u64,
            _ => return Err(ReadError::Damaged("compressed content")),
        };
        Ok(Found {
            mode: u16::from_le_bytes([inode[4], inode[5]]),
            uid,
            gid,
            mtime,
            number,
            device: long(16),
            size: size.min(i64::MAX.unsigned_abs()),
            blocks_at: u64::from(u32::from_le_bytes(four(&inode, 16))) * BLOCK as u64,
            in_blocks: in_blocks.min(i64::MAX.unsigned_abs()),
            rest_at: at + head as u64 + xattr_bytes,
        })
    }

    /// The number of the inode that has `name` in the folder.
    fn entry(&self, folder: &Found, name: &[u8]) -> Result<Option<u64>, ReadError> {
        let mut number = None;
        self.entries(folder, |found, inode| {
            number = (found == name).then_some(inode);
            number.is_none()
        })?;
        Ok(number)
    }

    /// Shows names and inode numbers of a folder to `each` until it returns `false`.
    fn entries(
        &self,
        folder: &Found,
        mut each: impl FnMut(&[u8], u64) -> bool,
    ) -> Result<(), ReadError> {
        const BAD: ReadError = ReadError::Damaged("a folder that contradicts itself");
        let mut at = 0;
        while at < folder.size {
            let block = self.read(folder, at, BLOCK as u64)?;
            let start = |entry: usize| {
                let at = entry * DIRENT + 8;
                let bytes = block.get(at..at + 2)?;
                Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
            };
            let count = start(0).ok_or(BAD)? / DIRENT;
            for entry in 0..count {
                let end = if entry + 1 < count {
                    start(entry + 1).ok_or(BAD)?
                } else {
                    block.len()
                };
                let found = block.get(start(entry).ok_or(BAD)?..end).ok_or(BAD)?;
                // The last name of a block may be followed by zeros.
                let found = found.split(|&byte| byte == 0).next().unwrap_or_default();
                let number = block.get(entry * DIRENT..).ok_or(BAD)?;
                let number = u64::from_le_bytes(std::array::from_fn(|byte| number[byte]));
                if !each(found, number) {
                    return Ok(());
                }
            }
            at += BLOCK as u64;
        }
        Ok(())
    }

    /// The root folder.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(super) fn root(&self) -> Result<Found, ReadError> {
        self.inode(self.root)
    }

    /// What is in a folder, by name, without `.` and `..`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(super) fn children(&self, folder: &Found) -> Result<Vec<(Vec<u8>, Found)>, ReadError> {
        let mut children = Vec::new();
        self.entries(folder, |name, number| {
            if name != b"." && name != b".." {
                children.push((name.to_vec(), number));
            }
            true
        })?;
        let found = |(name, number)| Ok((name, self.inode(number)?));
        children.into_iter().map(found).collect()
    }

    /// What is at `path`, which holds no `..`, without following links.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn look(&self, path: &str) -> Result<Option<Found>, ReadError> {
        let mut found = self.inode(self.root)?;
        for name in steps(path.as_bytes()).iter().rev() {
            if !found.is_directory() {
                return Ok(None);
            }
            match self.entry(&found, name)? {
                Some(number) => found = self.inode(number)?,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// The names in a folder, without `.` and `..`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn names(&self, folder: &Found) -> Result<Vec<Vec<u8>>, ReadError> {
        let mut names = Vec::new();
        self.entries(folder, |name, _| {
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
            true
        })?;
        Ok(names)
    }
}

fn four(bytes: &[u8], at: usize) -> [u8; 4] {
    std::array::from_fn(|byte| bytes[at + byte])
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// The names of a path, last first.
fn steps(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/').rev();
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names.map(<[u8]>::to_vec).collect()
}
