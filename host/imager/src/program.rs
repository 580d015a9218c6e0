// SPDX-License-Identifier: Apache-2.0
//! Looks at an executable before it is started, so that a user hears in plain words why it cannot run.
//!
//! Source: System V gABI chapters 4 and 5 (ELF header, program header).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use elf::abi::{
    EI_NIDENT, ELFCLASS64, ELFDATA2LSB, EM_X86_64, ET_DYN, ET_EXEC, PT_INTERP, PT_LOAD,
};
use elf::endian::AnyEndian;
use elf::file::{Class, FileHeader};
use elf::segment::SegmentTable;

/// Longest path of a dynamic loader that is read; Linux has the same limit.
const PATH_MAX: u64 = 4096;

/// What a look at an executable finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Path of the dynamic loader the program asks for; `None` for a static program.
    pub interpreter: Option<String>,
    /// The loader is given but the program is a position-independent one.
    pub position_independent: bool,
}

/// Why a file cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Opening or reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
    /// The magic number is missing.
    #[error("{}: not an ELF executable{hint}; give a Linux program built for x86-64", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What it seems to be.
        hint: &'static str,
    },
    /// The file ends before what its headers promise.
    #[error("{}: truncated: the headers speak of {needed} bytes, the file has {size}; copy or build it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes the headers need.
        needed: u64,
        /// Bytes there are.
        size: u64,
    },
    /// A 32-bit program.
    #[error("{}: 32-bit program; Coracle runs 64-bit programs: build it for x86-64", path.display())]
    Class32 {
        /// The file.
        path: PathBuf,
    },
    /// A program for another CPU.
    #[error("{}: built for {architecture}; build it for x86-64 (Go: GOARCH=amd64, Rust: --target x86_64-unknown-linux-musl)", path.display())]
    Architecture {
        /// The file.
        path: PathBuf,
        /// Name of that CPU.
        architecture: String,
    },
    /// An ELF file that is no program: an object, a core dump.
    #[error("{}: an ELF {kind}, not a program; link it first", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The headers contradict themselves.
    #[error("{}: damaged ELF headers ({what}); build it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        what: String,
    },
}

/// Reads the headers of the executable at `path`.
///
/// # Errors
/// One variant of [`ProgramError`] for each reason the program could not start.
pub fn inspect(path: &Path) -> Result<Program, ProgramError> {
    let read_error = |source| ProgramError::Read {
        path: path.into(),
        source,
    };
    let file = File::open(path).map_err(read_error)?;
    let meta = file.metadata().map_err(read_error)?;
    if meta.is_dir() {
        return Err(read_error(io::ErrorKind::IsADirectory.into()));
    }
    let read = |at: u64, most: u64| {
        let mut bytes = Vec::new();
        (&file).seek(SeekFrom::Start(at))?;
        (&file).take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    inspect_with(path, meta.len(), &read)
}

/// The same for an executable of `size` bytes that is read by `read(position, at most so many bytes)`; `path` is for
/// messages.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_with(
    path: &Path,
    size: u64,
    read: &dyn Fn(u64, u64) -> io::Result<Vec<u8>>,
) -> Result<Program, ProgramError> {
    let read_error = |source| ProgramError::Read {
        path: path.into(),
        source,
    };
    let damaged = |what: &dyn std::fmt::Display| ProgramError::Damaged {
        path: path.into(),
        what: what.to_string(),
    };
    let truncated = |needed| ProgramError::Truncated {
        path: path.into(),
        needed,
        size,
    };

    let head = read(0, 64).map_err(read_error)?;
    if !head.starts_with(&elf::abi::ELFMAGIC) {
        return Err(ProgramError::NotElf {
            path: path.into(),
            hint: looks_like(&head),
        });
    }
    if head.len() < EI_NIDENT {
        return Err(truncated(64));
    }
    if head[elf::abi::EI_CLASS] != ELFCLASS64 {
        return Err(ProgramError::Class32 { path: path.into() });
    }
    if head.len() < 64 {
        return Err(truncated(64));
    }
    let ident = elf::file::parse_ident::<AnyEndian>(&head[..EI_NIDENT]).map_err(|e| damaged(&e))?;
    let header = FileHeader::parse_tail(ident, &head[EI_NIDENT..]).map_err(|e| damaged(&e))?;
    let is_little = head[elf::abi::EI_DATA] == ELFDATA2LSB;
    if header.e_machine != EM_X86_64 || !is_little {
        let architecture = match architecture(header.e_machine) {
            name if is_little => name,
            name => format!("{name}, big-endian"),
        };
        return Err(ProgramError::Architecture {
            path: path.into(),
            architecture,
        });
    }
    match header.e_type {
        ET_EXEC | ET_DYN => {}
        other => {
            let kind = match other {
                elf::abi::ET_REL => "object file",
                elf::abi::ET_CORE => "core dump",
                _ => "file of unknown type",
            };
            return Err(ProgramError::NotExecutable {
                path: path.into(),
                kind,
            });
        }
    }
    if usize::from(header.e_phentsize) != 56 || header.e_phnum == 0 {
        return Err(damaged(&"no program headers"));
    }

    let table_bytes = usize::from(header.e_phnum) * 56;
    let table_end = header.e_phoff.saturating_add(table_bytes as u64);
    if table_end > size {
        return Err(truncated(table_end));
    }
    let table = read(header.e_phoff, table_bytes as u64).map_err(read_error)?;
    if table.len() < table_bytes {
        return Err(truncated(table_end));
    }

    let mut interpreter = None;
    let mut loads = 0;
    for segment in SegmentTable::new(AnyEndian::Little, Class::ELF64, &table) {
        let end = segment.p_offset.saturating_add(segment.p_filesz);
        match segment.p_type {
            PT_LOAD | PT_INTERP if end > size => return Err(truncated(end)),
            PT_LOAD => loads += 1,
            PT_INTERP if segment.p_filesz > PATH_MAX => {
                return Err(damaged(&"path of the loader is too long"));
            }
            PT_INTERP => {
                let bytes = read(segment.p_offset, segment.p_filesz).map_err(read_error)?;
                let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
                let text = std::str::from_utf8(text).map_err(|e| damaged(&e))?;
                interpreter = Some(text.to_owned());
            }
            _ => {}
        }
    }
    if loads == 0 {
        return Err(damaged(&"nothing to load"));
    }
    Ok(Program {
        interpreter,
        position_independent: header.e_type == ET_DYN,
    })
}

/// A guess for the message about a file that is not ELF.
fn looks_like(head: &[u8]) -> &'static str {
    match head {
        [] => " (the file is empty)",
        [b'#', b'!', ..] => " (a script: give a folder that has it and its interpreter)",
        [b'M', b'Z', ..] => " (a Windows program)",
        [0xcf, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => {
            " (a macOS program or Java class)"
        }
        [0x1f, 0x8b, ..] => " (a gzip archive)",
        _ => "",
    }
}

/// The usual name of an ELF machine number.
fn architecture(machine: u16) -> String {
    let name = match machine {
        elf::abi::EM_386 => "32-bit x86",
        elf::abi::EM_AARCH64 => "arm64",
        elf::abi::EM_ARM => "32-bit arm",
        elf::abi::EM_RISCV => "RISC-V",
        elf::abi::EM_PPC64 => "POWER",
        elf::abi::EM_S390 => "s390x",
        elf::abi::EM_MIPS => "MIPS",
        elf::abi::EM_LOONGARCH => "LoongArch",
        other => return format!("ELF machine {other}"),
    };
    name.to_owned()
}
