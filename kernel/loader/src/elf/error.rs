// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with an executable, in words for the person who tried to run it.

use super::machine_name;
use coracle_abi::Errno;
use core::fmt;

/// Why a file cannot be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfError {
    /// No ELF magic.
    NotElf,
    /// Starts with `#!`; the interpreter it names is what should be loaded.
    Script,
    /// ELF for 32-bit machines.
    Bits32 {
        /// `e_machine`
        machine: u16,
    },
    /// ELF for big-endian machines.
    BigEndian,
    /// A machine that is not this one.
    WrongMachine {
        /// `e_machine`
        found: u16,
    },
    /// Neither an executable nor a position-independent one: an object file or a core dump.
    WrongType {
        /// `e_type`
        found: u16,
    },
    /// The file ends inside a table.
    Truncated {
        /// Which.
        what: &'static str,
    },
    /// The file ends inside a segment.
    TruncatedSegment {
        /// Number of the program header.
        index: usize,
        /// Where the segment would end, in bytes.
        end: u64,
        /// Where the file ends.
        file_len: u64,
    },
    /// Not wrong, but the bytes given to the parser are too few.
    NeedBytes {
        /// For what.
        what: &'static str,
        /// How many bytes from the start of the file are needed.
        bytes: u64,
    },
    /// Program headers of the wrong size, or too many.
    BadProgramHeaders {
        /// `e_phnum`
        count: u16,
        /// `e_phentsize`
        size: u16,
    },
    /// Nothing to load.
    NoSegments,
    /// A segment that cannot be mapped.
    BadSegment {
        /// Number of the program header.
        index: usize,
        /// Continues "segment N ...".
        why: &'static str,
    },
    /// Two segments overlap, share a page, or are not in rising order. The numbers count loadable segments.
    SegmentsOverlap {
        /// The one that comes first in the table.
        first: usize,
        /// The next.
        second: usize,
    },
    /// The path of the interpreter is empty, unterminated, too long or not text.
    BadInterpreter,
    /// The first instruction is not inside an executable segment.
    EntryOutsideCode {
        /// `e_entry`
        entry: u64,
    },
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotElf => f.write_str("not an ELF executable"),
            Self::Script => {
                f.write_str("a script, not an ELF executable; run its interpreter instead")
            }
            Self::Bits32 { machine } => {
                write!(
                    f,
                    "a 32-bit executable (for {}); only 64-bit ones run",
                    machine_name(machine)
                )
            }
            Self::BigEndian => f.write_str("an executable for a big-endian machine"),
            Self::WrongMachine { found } => {
                write!(f, "built for {} (machine {found})", machine_name(found))
            }
            Self::WrongType { found } => {
                let kind = match found {
                    1 => "an object file; link it first",
                    4 => "a core dump",
                    _ => "of an unknown ELF type",
                };
                write!(f, "not an executable but {kind} (type {found})")
            }
            Self::Truncated { what } => write!(f, "truncated: the file ends inside its {what}"),
            Self::TruncatedSegment {
                index,
                end,
                file_len,
            } => {
                write!(
                    f,
                    "truncated: segment {index} needs {end} bytes, the file has {file_len}"
                )
            }
            Self::NeedBytes { what, bytes } => {
                write!(
                    f,
                    "the {what} lies beyond the bytes read; the first {bytes} are needed"
                )
            }
            Self::BadProgramHeaders { count, size } => {
                write!(f, "damaged: {count} program headers of {size} bytes")
            }
            Self::NoSegments => f.write_str("nothing to load: no loadable segment"),
            Self::BadSegment { index, why } => write!(f, "damaged: segment {index} {why}"),
            Self::SegmentsOverlap { first, second } => {
                write!(
                    f,
                    "damaged: loadable segments {first} and {second} overlap or are out of order"
                )
            }
            Self::BadInterpreter => {
                f.write_str("damaged: the path of the dynamic loader cannot be read")
            }
            Self::EntryOutsideCode { entry } => {
                write!(
                    f,
                    "not runnable: the entry point {entry:#x} is outside its code (a shared library?)"
                )
            }
        }
    }
}

impl core::error::Error for ElfError {}

impl From<ElfError> for Errno {
    /// What `execve(2)` returns.
    fn from(_: ElfError) -> Self {
        Self::ENOEXEC
    }
}
