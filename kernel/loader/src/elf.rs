// SPDX-License-Identifier: Apache-2.0
//! ELF executables: from the first bytes of a file to a plan of what to map where.
//!
//! Follows the System V gABI (chapters "ELF Header" and "Program Header") and elf(5). It is stricter than Linux where
//! Linux would map nonsense and let the program crash: segments must not share a page, must lie inside the file, and
//! the entry point must be in code.

mod error;
#[cfg(test)]
mod tests;

pub use error::ElfError;

use crate::bytes::{u16_at, u32_at, u64_at};
use alloc::string::String;
use alloc::vec::Vec;
use coracle_abi::{PAGE_SIZE, USER_END};
use core::ops::Range;

/// Bytes of the ELF64 file header.
const EHDR_SIZE: usize = 64;
/// Bytes of an ELF64 program header.
const PHDR_SIZE: usize = 56;
/// Linux's bound too: the table fits in 64 KiB.
const PHDRS_MAX: usize = 65536 / PHDR_SIZE;
/// `PATH_MAX`, for the interpreter.
const INTERP_MAX: u64 = 4096;

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_TLS: u32 = 7;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

/// Instruction sets the kernel knows, as `e_machine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// `EM_X86_64`
    X86_64,
    /// `EM_AARCH64`
    Aarch64,
}

impl Machine {
    /// The value of `e_machine`.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    /// The usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        machine_name(self.number())
    }
}

/// The usual name of an `e_machine` value.
#[must_use]
pub const fn machine_name(number: u16) -> &'static str {
    match number {
        2 => "SPARC",
        3 => "32-bit x86",
        8 => "MIPS",
        20 => "32-bit PowerPC",
        21 => "PowerPC64",
        22 => "s390x",
        40 => "32-bit Arm",
        43 => "SPARC V9",
        62 => "x86-64",
        183 => "aarch64",
        243 => "RISC-V",
        247 => "BPF",
        258 => "LoongArch",
        _ => "an unknown machine",
    }
}

/// What starts the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Linked to fixed addresses, complete.
    Static,
    /// Complete, and relocates itself to wherever it is loaded. The dynamic loader itself is of this kind.
    StaticPie,
    /// Needs the program interpreter at this path, which is loaded beside it and started first.
    Dynamic {
        /// Path of the interpreter, for example `/lib64/ld-linux-x86-64.so.2`.
        interp: String,
    },
}

/// A part of the file to be mapped. All addresses are as in the file: a position-independent program's base is to be
/// added by whoever chooses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// First address; not necessarily at the start of a page.
    pub vaddr: u64,
    /// Bytes in memory, at least 1; what exceeds `filesz` is zero.
    pub memsz: u64,
    /// Where in the file the first byte is; equal to `vaddr` modulo the page size if `filesz` is not 0.
    pub file_offset: u64,
    /// Bytes that come from the file; they lie inside it.
    pub filesz: u64,
    /// May be read (`PF_R`).
    pub read: bool,
    /// May be written (`PF_W`).
    pub write: bool,
    /// May be executed (`PF_X`).
    pub execute: bool,
    /// Wanted alignment in bytes, a power of two, at least a page.
    pub align: u64,
}

impl Segment {
    /// The whole pages that the segment touches.
    #[must_use]
    pub const fn pages(&self) -> Range<u64> {
        let page = PAGE_SIZE as u64;
        // Cannot overflow: the end was checked to lie below USER_END.
        self.vaddr / page * page..(self.vaddr + self.memsz).next_multiple_of(page)
    }
}

/// The template of thread-local storage (`PT_TLS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tls {
    /// Where the initial contents lie in memory.
    pub vaddr: u64,
    /// Bytes of initial contents.
    pub filesz: u64,
    /// Bytes of each thread's copy.
    pub memsz: u64,
    /// Alignment in bytes.
    pub align: u64,
}

/// Everything the kernel needs to load a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadPlan {
    /// The instruction set. [`LoadPlan::require`] compares it.
    pub machine: Machine,
    /// What starts it.
    pub kind: Kind,
    /// Whether the addresses are relative to a base that the kernel chooses (`ET_DYN`).
    pub position_independent: bool,
    /// Address of the first instruction.
    pub entry: u64,
    /// What to map, by rising address; pages never shared between two; at least one.
    pub segments: Vec<Segment>,
    /// Address of the program headers in memory (`AT_PHDR`), if a segment contains them.
    pub phdr_vaddr: Option<u64>,
    /// Number of program headers (`AT_PHNUM`).
    pub phnum: u16,
    /// Bytes of each (`AT_PHENT`).
    pub phentsize: u16,
    /// Thread-local storage, for information: the program sets it up itself.
    pub tls: Option<Tls>,
    /// Whether the program asks for an executable stack (`PT_GNU_STACK` with `PF_X`).
    pub gnu_stack_exec: bool,
    /// Start of the first page to map.
    pub min_vaddr: u64,
    /// End of the last page to map.
    pub max_vaddr: u64,
}

impl LoadPlan {
    /// Checks that the program is for `machine`.
    ///
    /// # Errors
    /// [`ElfError::WrongMachine`]
    pub fn require(&self, machine: Machine) -> Result<(), ElfError> {
        if self.machine == machine {
            Ok(())
        } else {
            Err(ElfError::WrongMachine {
                found: self.machine.number(),
            })
        }
    }

    /// The first segment that is both writable and executable, if any.
    #[must_use]
    pub fn write_execute(&self) -> Option<&Segment> {
        self.segments.iter().find(|s| s.write && s.execute)
    }

    /// The alignment, in bytes, that the base of a position-independent program needs.
    #[must_use]
    pub fn base_align(&self) -> u64 {
        self.segments
            .iter()
            .map(|s| s.align)
            .max()
            .unwrap_or(PAGE_SIZE as u64)
    }
}

/// Makes the plan from `head`, the first bytes of a file of `file_len` bytes.
///
/// # Errors
/// [`ElfError`]. [`ElfError::NeedBytes`] says that a table lies behind `head`: call again with that many bytes.
pub fn parse(head: &[u8], file_len: u64) -> Result<LoadPlan, ElfError> {
    let (header, machine) = FileHeader::parse(head, file_len)?;
    let table_len = usize::from(header.phnum) * PHDR_SIZE;
    let table = slice(
        head,
        file_len,
        "program headers",
        header.phoff,
        table_len as u64,
    )?;

    let mut segments = Vec::new();
    let mut interp = None;
    let mut tls = None;
    let mut gnu_stack_exec = false;
    let mut phdr_vaddr = None;
    for (index, bytes) in table.chunks_exact(PHDR_SIZE).enumerate() {
        let header_at = ProgramHeader::parse(bytes).ok_or(ElfError::Truncated {
            what: "program headers",
        })?;
        match header_at.kind {
            PT_LOAD if header_at.memsz > 0 => {
                let segment = header_at.to_segment(index, file_len)?;
                let covers = header.phoff >= segment.file_offset
                    && header.phoff - segment.file_offset <= segment.filesz
                    && segment.filesz - (header.phoff - segment.file_offset) >= table_len as u64;
                if covers && phdr_vaddr.is_none() {
                    phdr_vaddr = Some(segment.vaddr + (header.phoff - segment.file_offset));
                }
                segments.push(segment);
            }
            PT_INTERP if interp.is_none() => {
                interp = Some(read_interp(head, file_len, &header_at)?)
            }
            PT_TLS => {
                let (vaddr, filesz, memsz) = (header_at.vaddr, header_at.filesz, header_at.memsz);
                tls = Some(Tls {
                    vaddr,
                    filesz,
                    memsz,
                    align: header_at.align.max(1),
                });
            }
            PT_GNU_STACK => gnu_stack_exec = header_at.flags & PF_X != 0,
            _ => {}
        }
    }
    check_order(&segments)?;
    let min_vaddr = segments.first().ok_or(ElfError::NoSegments)?.pages().start;
    let max_vaddr = segments.last().ok_or(ElfError::NoSegments)?.pages().end;
    let in_code = |s: &Segment| s.execute && (s.vaddr..s.vaddr + s.memsz).contains(&header.entry);
    if !segments.iter().any(in_code) {
        return Err(ElfError::EntryOutsideCode {
            entry: header.entry,
        });
    }
    Ok(LoadPlan {
        machine,
        kind: match (interp, header.position_independent) {
            (Some(interp), _) => Kind::Dynamic { interp },
            (None, true) => Kind::StaticPie,
            (None, false) => Kind::Static,
        },
        position_independent: header.position_independent,
        entry: header.entry,
        segments,
        phdr_vaddr,
        phnum: header.phnum,
        phentsize: header.phentsize,
        tls,
        gnu_stack_exec,
        min_vaddr,
        max_vaddr,
    })
}

/// What is used of `Elf64_Ehdr`.
struct FileHeader {
    position_independent: bool,
    entry: u64,
    phoff: u64,
    phnum: u16,
    phentsize: u16,
}

impl FileHeader {
    fn parse(head: &[u8], file_len: u64) -> Result<(Self, Machine), ElfError> {
        if head.starts_with(b"#!") {
            return Err(ElfError::Script);
        }
        if !head.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        let truncated = ElfError::Truncated {
            what: "file header",
        };
        let ident = head.first_chunk::<20>().ok_or(truncated)?;
        let number = u16::from_le_bytes([ident[18], ident[19]]);
        match (ident[4], ident[5]) {
            (1, _) => return Err(ElfError::Bits32 { machine: number }),
            (2, 1) => {}
            (2, 2) => return Err(ElfError::BigEndian),
            _ => return Err(ElfError::NotElf),
        }
        let machine = [Machine::X86_64, Machine::Aarch64]
            .into_iter()
            .find(|m| m.number() == number)
            .ok_or(ElfError::WrongMachine { found: number })?;
        let header = slice(head, file_len, "file header", 0, EHDR_SIZE as u64)?;
        let half = |at| u16_at(header, at).ok_or(truncated);
        let word = |at| u64_at(header, at).ok_or(truncated);
        let position_independent = match half(16)? {
            ET_EXEC => false,
            ET_DYN => true,
            found => return Err(ElfError::WrongType { found }),
        };
        let phnum = half(56)?;
        if phnum == 0 {
            return Err(ElfError::NoSegments);
        }
        let phentsize = half(54)?;
        if usize::from(phnum) > PHDRS_MAX || usize::from(phentsize) != PHDR_SIZE {
            return Err(ElfError::BadProgramHeaders {
                count: phnum,
                size: phentsize,
            });
        }
        Ok((
            Self {
                position_independent,
                entry: word(24)?,
                phoff: word(32)?,
                phnum,
                phentsize,
            },
            machine,
        ))
    }
}

/// `Elf64_Phdr`
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

impl ProgramHeader {
    fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32_at(bytes, 0)?,
            flags: u32_at(bytes, 4)?,
            offset: u64_at(bytes, 8)?,
            vaddr: u64_at(bytes, 16)?,
            filesz: u64_at(bytes, 32)?,
            memsz: u64_at(bytes, 40)?,
            align: u64_at(bytes, 48)?,
        })
    }

    fn to_segment(&self, index: usize, file_len: u64) -> Result<Segment, ElfError> {
        let bad = |why| ElfError::BadSegment { index, why };
        let page = PAGE_SIZE as u64;
        if self.filesz > self.memsz {
            return Err(bad("has more bytes in the file than in memory"));
        }
        let end = self
            .vaddr
            .checked_add(self.memsz)
            .ok_or(bad("ends beyond 64 bits of address"))?;
        if end > USER_END as u64 {
            return Err(bad("ends beyond the addresses an application may use"));
        }
        let file_end = self
            .offset
            .checked_add(self.filesz)
            .ok_or(bad("ends beyond 64 bits of file offset"))?;
        if self.filesz > 0 {
            if file_end > file_len {
                return Err(ElfError::TruncatedSegment {
                    index,
                    end: file_end,
                    file_len,
                });
            }
            if self.vaddr % page != self.offset % page {
                return Err(bad(
                    "has an address and a file offset that differ within a page",
                ));
            }
        }
        if self.align > 1 && !self.align.is_power_of_two() {
            return Err(bad("has an alignment that is not a power of two"));
        }
        Ok(Segment {
            vaddr: self.vaddr,
            memsz: self.memsz,
            file_offset: self.offset,
            filesz: self.filesz,
            read: self.flags & PF_R != 0,
            write: self.flags & PF_W != 0,
            execute: self.flags & PF_X != 0,
            align: self.align.max(page),
        })
    }
}

/// `head[offset..offset + len]`, telling a short file from a short head.
fn slice<'a>(
    head: &'a [u8],
    file_len: u64,
    what: &'static str,
    offset: u64,
    len: u64,
) -> Result<&'a [u8], ElfError> {
    let truncated = ElfError::Truncated { what };
    let end = offset
        .checked_add(len)
        .filter(|end| *end <= file_len)
        .ok_or(truncated)?;
    let range = usize::try_from(offset).map_err(|_| truncated)?
        ..usize::try_from(end).map_err(|_| truncated)?;
    head.get(range)
        .ok_or(ElfError::NeedBytes { what, bytes: end })
}

/// The path in `PT_INTERP`: NUL-terminated, absolute or not, text.
fn read_interp(head: &[u8], file_len: u64, header: &ProgramHeader) -> Result<String, ElfError> {
    if header.filesz > INTERP_MAX {
        return Err(ElfError::BadInterpreter);
    }
    let bytes = slice(
        head,
        file_len,
        "interpreter path",
        header.offset,
        header.filesz,
    )?;
    let path = bytes.split(|b| *b == 0).next().unwrap_or_default();
    match core::str::from_utf8(path) {
        Ok(path) if !path.is_empty() && path.len() < bytes.len() => Ok(path.into()),
        _ => Err(ElfError::BadInterpreter),
    }
}

/// Segments must rise and must not share a page, or mapping one would undo another.
fn check_order(segments: &[Segment]) -> Result<(), ElfError> {
    for (index, pair) in segments.windows(2).enumerate() {
        if pair[0].pages().end > pair[1].pages().start {
            return Err(ElfError::SegmentsOverlap {
                first: index,
                second: index + 1,
            });
        }
    }
    Ok(())
}
