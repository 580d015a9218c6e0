// SPDX-License-Identifier: Apache-2.0
//! Finds the entry point of a PVH kernel.
//!
//! Source: Xen `docs/misc/pvh.pandoc`; the ELF note `XEN_ELFNOTE_PHYS32_ENTRY` of `xen/include/public/elfnote.h`.

use std::io;
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::endian::AnyEndian;
use elf::note::Note;

/// Type of the note that holds the entry.
const XEN_ELFNOTE_PHYS32_ENTRY: u64 = 18;

/// Why a kernel cannot be booted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// It cannot be read.
    #[error("kernel {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
    /// It is no ELF file, or a damaged one.
    #[error("kernel {}: not a whole ELF file ({what}); build it again (cargo xtask build)", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It has no PVH note.
    #[error("kernel {}: not a PVH kernel (it has no entry note); set CORACLE_KERNEL to Coracle's kernel", path.display())]
    NotPvh {
        /// The file.
        path: PathBuf,
    },
}

/// The physical address at which the kernel is entered in 32-bit protected mode.
pub(super) fn pvh_entry(path: &Path) -> Result<u32, KernelError> {
    let file = std::fs::File::open(path).map_err(|source| KernelError::Read {
        path: path.into(),
        source,
    })?;
    let broken = |error: elf::ParseError| KernelError::NotElf {
        path: path.into(),
        what: error.to_string(),
    };
    let mut file = ElfStream::<AnyEndian, _>::open_stream(file).map_err(broken)?;
    let segments = file.segments().clone();
    for segment in segments
        .iter()
        .filter(|segment| segment.p_type == elf::abi::PT_NOTE)
    {
        for note in file.segment_data_as_notes(segment).map_err(broken)? {
            if let Note::Unknown(note) = note
                && note.n_type == XEN_ELFNOTE_PHYS32_ENTRY
                && note.name.strip_suffix(b"\0").unwrap_or(note.name) == b"Xen"
                && let Some(entry) = note.desc.first_chunk::<4>()
            {
                return Ok(u32::from_le_bytes(*entry));
            }
        }
    }
    Err(KernelError::NotPvh { path: path.into() })
}
