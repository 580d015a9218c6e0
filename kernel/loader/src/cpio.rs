// SPDX-License-Identifier: Apache-2.0
//! The boot module's container: a cpio archive in *newc* format (decision 0001).
//!
//! Format as in the Linux kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`: an ASCII header of 110
//! bytes, the name, padding to four bytes, the data, padding to four bytes. The reader hands out offsets into the
//! archive, so that file pages can be mapped where they lie.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

const HEADER_SIZE: usize = 110;
const TRAILER: &[u8] = b"TRAILER!!!";
/// Bits of `mode` that tell the kind of file (inode(7)), and the value for regular files.
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

/// One file, directory, link or device of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The path, up to the first NUL; usually relative.
    pub name: &'a [u8],
    /// Kind and permissions, as in inode(7).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names of the file.
    pub nlink: u32,
    /// Last change, in seconds since 1970.
    pub mtime_s: u32,
    /// Number that names of the same file have in common, with `dev`.
    pub ino: u32,
    /// Device the file was on: (major, minor).
    pub dev: (u32, u32),
    /// For device files: (major, minor).
    pub rdev: (u32, u32),
    /// Where the contents (or the target of a symbolic link) lie in the archive, in bytes.
    pub data: Range<usize>,
}

impl Entry<'_> {
    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }
}

/// What is wrong with an archive, and at which byte the entry in question begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpioError {
    /// Byte offset of the entry's header.
    pub offset: usize,
    /// What is wrong.
    pub problem: CpioProblem,
}

/// See [`CpioError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpioProblem {
    /// The archive ends before the entry named `TRAILER!!!`.
    NoTrailer,
    /// No newc magic.
    BadMagic,
    /// A header field that is not hexadecimal.
    BadField {
        /// Which.
        field: &'static str,
    },
    /// The name does not fit in the archive, or is not NUL-terminated, or is empty.
    BadName,
    /// The data does not fit in the archive.
    DataTruncated {
        /// How many bytes it should have.
        size: u32,
    },
}

impl fmt::Display for CpioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpio archive, entry at byte {}: ", self.offset)?;
        match self.problem {
            CpioProblem::NoTrailer => f.write_str("the archive ends without its trailer"),
            CpioProblem::BadMagic => f.write_str("not in newc format (magic 070701)"),
            CpioProblem::BadField { field } => write!(f, "{field} is not a hexadecimal number"),
            CpioProblem::BadName => {
                f.write_str("the name is empty, not terminated or longer than the archive")
            }
            CpioProblem::DataTruncated { size } => {
                write!(f, "the archive ends before its {size} bytes of data")
            }
        }
    }
}

impl core::error::Error for CpioError {}

/// An archive in memory.
#[derive(Debug, Clone, Copy)]
pub struct Archive<'a> {
    bytes: &'a [u8],
}

impl<'a> Archive<'a> {
    /// Wraps the bytes; nothing is read yet. What follows the trailer is ignored.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The entries in order, without the trailer. Nothing follows an error.
    #[must_use]
    pub const fn iter(&self) -> Entries<'a> {
        Entries {
            bytes: self.bytes,
            at: 0,
            done: false,
        }
    }

    /// The contents of an entry, or what exists of them.
    #[must_use]
    pub fn data(&self, entry: &Entry<'_>) -> &'a [u8] {
        self.bytes.get(entry.data.clone()).unwrap_or_default()
    }

    /// The first entry with this name.
    ///
    /// # Errors
    /// [`CpioError`] if the archive is damaged before the name is found.
    pub fn find(&self, name: &[u8]) -> Result<Option<Entry<'a>>, CpioError> {
        self.iter()
            .find(|entry| entry.as_ref().map_or(true, |e| e.name == name))
            .transpose()
    }

    /// All entries, with hard links resolved: newc stores the contents with the last name of a file only, here every
    /// name has them.
    ///
    /// # Errors
    /// [`CpioError`]
    pub fn entries(&self) -> Result<Vec<Entry<'a>>, CpioError> {
        let mut entries = self.iter().collect::<Result<Vec<_>, _>>()?;
        let linked = |e: &Entry<'_>| e.nlink > 1 && e.is_file();
        let mut contents = BTreeMap::new();
        for entry in entries.iter().filter(|e| linked(e) && !e.data.is_empty()) {
            contents.insert((entry.dev, entry.ino), entry.data.clone());
        }
        for entry in entries
            .iter_mut()
            .filter(|e| linked(e) && e.data.is_empty())
        {
            if let Some(data) = contents.get(&(entry.dev, entry.ino)) {
                entry.data = data.clone();
            }
        }
        Ok(entries)
    }
}

/// See [`Archive::iter`].
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    done: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, CpioError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let offset = self.at;
        match self.read_entry() {
            Ok(entry) if entry.name == TRAILER => {
                self.done = true;
                None
            }
            Ok(entry) => Some(Ok(entry)),
            Err(problem) => {
                self.done = true;
                Some(Err(CpioError { offset, problem }))
            }
        }
    }
}

impl<'a> Entries<'a> {
    fn read_entry(&mut self) -> Result<Entry<'a>, CpioProblem> {
        let start = self.at;
        let header = self
            .bytes
            .get(start..)
            .and_then(|rest| rest.get(..HEADER_SIZE))
            .ok_or(CpioProblem::NoTrailer)?;
        if !matches!(&header[..6], b"070701" | b"070702") {
            return Err(CpioProblem::BadMagic);
        }
        let field = |index: usize, field| {
            hex(&header[6 + 8 * index..][..8]).ok_or(CpioProblem::BadField { field })
        };
        let size = field(6, "file size")?;
        let name_size = field(11, "name size")? as usize;

        let name_at = start + HEADER_SIZE;
        let padded = self.bytes[name_at..]
            .get(..name_size)
            .ok_or(CpioProblem::BadName)?;
        let name_len = padded
            .iter()
            .position(|b| *b == 0)
            .ok_or(CpioProblem::BadName)?;
        if name_len == 0 {
            return Err(CpioProblem::BadName);
        }
        // Both sums stay below twice the slice's length, which isize bounds.
        let data_at = (name_at + name_size).next_multiple_of(4);
        let truncated = CpioProblem::DataTruncated { size };
        let data_end = data_at.checked_add(size as usize).ok_or(truncated)?;
        if data_end > self.bytes.len() && size > 0 {
            return Err(truncated);
        }
        self.at = data_end.next_multiple_of(4);
        Ok(Entry {
            name: &padded[..name_len],
            mode: field(1, "mode")?,
            uid: field(2, "uid")?,
            gid: field(3, "gid")?,
            nlink: field(4, "link count")?,
            mtime_s: field(5, "modification time")?,
            ino: field(0, "inode number")?,
            dev: (field(7, "device major")?, field(8, "device minor")?),
            rdev: (
                field(9, "special device major")?,
                field(10, "special device minor")?,
            ),
            data: data_at..data_end,
        })
    }
}

/// Eight hexadecimal digits of either case.
fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| {
        Some(value << 4 | char::from(*digit).to_digit(16)?)
    })
}

#[cfg(test)]
mod tests {
    use super::{Archive, CpioError, CpioProblem};
    use proptest::prelude::{any, proptest};

    struct File<'a> {
        name: &'a [u8],
        mode: u32,
        ino: u32,
        nlink: u32,
        data: &'a [u8],
    }

    fn archive(files: &[File<'_>]) -> Vec<u8> {
        let trailer = File {
            name: b"TRAILER!!!",
            mode: 0,
            ino: 0,
            nlink: 1,
            data: b"",
        };
        let mut out = Vec::new();
        for file in files.iter().chain([&trailer]) {
            let size = u32::try_from(file.data.len()).unwrap();
            let name_size = u32::try_from(file.name.len() + 1).unwrap();
            out.extend(b"070701");
            for field in [
                file.ino, file.mode, 7, 8, file.nlink, 9, size, 1, 2, 3, 4, name_size, 0,
            ] {
                out.extend(format!("{field:08X}").bytes());
            }
            out.extend(file.name);
            out.push(0);
            out.resize(out.len().next_multiple_of(4), 0);
            out.extend(file.data);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    fn file<'a>(name: &'a [u8], data: &'a [u8]) -> File<'a> {
        File {
            name,
            mode: 0o100_644,
            ino: 1,
            nlink: 1,
            data,
        }
    }

    #[test]
    fn fields_and_data() {
        let bytes = archive(&[
            file(b"config.json", b"{}"),
            File {
                mode: 0o40_755,
                ..file(b"rootfs", b"")
            },
        ]);
        let archive = Archive::new(&bytes);
        let entries = archive.entries().unwrap();
        assert_eq!(entries.len(), 2);
        let first = &entries[0];
        assert_eq!(
            (first.name, first.mode, first.uid, first.gid),
            (&b"config.json"[..], 0o100_644, 7, 8)
        );
        assert_eq!((first.mtime_s, first.dev, first.rdev), (9, (1, 2), (3, 4)));
        assert_eq!(archive.data(first), b"{}");
        assert!(first.is_file() && !entries[1].is_file());
        assert_eq!(archive.find(b"rootfs").unwrap().as_ref(), Some(&entries[1]));
        assert_eq!(archive.find(b"nothing").unwrap(), None);
    }

    #[test]
    fn padded_names_align_the_data() {
        let mut name = b"rootfs/app".to_vec();
        name.resize(4096 - 110 - 1, 0);
        let bytes = archive(&[file(&name, b"ELF")]);
        let entries = Archive::new(&bytes).entries().unwrap();
        assert_eq!(
            (entries[0].name, entries[0].data.clone()),
            (&b"rootfs/app"[..], 4096..4099)
        );
    }

    #[test]
    fn every_name_of_a_file_has_its_contents() {
        let link = |name, data| File {
            nlink: 2,
            ino: 5,
            ..file(name, data)
        };
        let bytes = archive(&[link(b"a", b""), file(b"empty", b""), link(b"b", b"both")]);
        let archive = Archive::new(&bytes);
        let contents: Vec<_> = archive
            .entries()
            .unwrap()
            .iter()
            .map(|e| archive.data(e))
            .collect();
        assert_eq!(contents, [&b"both"[..], b"", b"both"]);
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let good = archive(&[file(b"one", b"1234"), file(b"two", b"x")]);
        let second = 110 + 6 + 4;
        let problem = |bytes: &[u8]| Archive::new(bytes).entries().unwrap_err();
        let with = |at: usize, text: &[u8]| {
            let mut bytes = good.clone();
            bytes[second + at..second + at + text.len()].copy_from_slice(text);
            problem(&bytes)
        };
        let at_second = |problem| CpioError {
            offset: second,
            problem,
        };
        assert_eq!(
            problem(b""),
            CpioError {
                offset: 0,
                problem: CpioProblem::NoTrailer
            }
        );
        assert_eq!(problem(&good[..second]), at_second(CpioProblem::NoTrailer));
        assert_eq!(with(0, b"070707"), at_second(CpioProblem::BadMagic));
        assert_eq!(
            with(14, b"000081G4"),
            at_second(CpioProblem::BadField { field: "mode" })
        );
        assert_eq!(
            with(54, b"FFFFFFFF"),
            at_second(CpioProblem::DataTruncated { size: u32::MAX })
        );
        assert_eq!(with(94, b"FFFFFFFF"), at_second(CpioProblem::BadName));
        assert_eq!(with(94, b"00000003"), at_second(CpioProblem::BadName));
        assert_eq!(with(110, b"\0"), at_second(CpioProblem::BadName));
        assert!(with(0, b"x").to_string().contains("120"));
    }

    proptest! {
        #[test]
        fn damage_never_panics(edits in proptest::collection::vec((0..400usize, any::<u8>()), 0..8), len in 0..400usize) {
            let mut bytes = archive(&[file(b"one", b"1234"), file(b"two", b"x")]);
            for (at, value) in edits {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(len);
            let archive = Archive::new(&bytes);
            for entry in archive.iter().flatten() {
                let _ = archive.data(&entry);
            }
        }
    }
}
