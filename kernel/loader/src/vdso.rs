// SPDX-License-Identifier: Apache-2.0
//! The vDSO: a small shared object that the kernel maps into the process, made from a piece of code.
//!
//! The C libraries and Go find `clock_gettime` in it by the usual dynamic symbol tables (vdso(7)), each with its own
//! simplified reader, so all the tables exist: both kinds of hash table, symbol versions, and section headers for
//! debuggers. Everything is one read-execute segment that starts at address 0 of the image; nothing in it needs
//! relocation. Layout: file header, program headers, tables, at [`TEXT_OFFSET`] the code, behind it section headers.

mod tables;
#[cfg(test)]
mod tests;

use crate::elf::Machine;
use alloc::vec::Vec;
use coracle_abi::PAGE_SIZE;
use core::fmt;
use tables::{StringTable, Writer, gnu_hash, sysv_hash};

/// Where the code lies in the image, in bytes, so that it can reach data beside the image by a fixed distance.
pub const TEXT_OFFSET: usize = 0x800;
/// `DT_SONAME`, the name that debuggers show.
const SONAME: &str = "linux-vdso.so.1";

const EHDR_SIZE: usize = 64;
const PHDR_SIZE: usize = 56;
const SHDR_SIZE: usize = 64;
const SYM_SIZE: u64 = 24;

const SHT_PROGBITS: u32 = 1;
const SHT_STRTAB: u32 = 3;
const SHT_HASH: u32 = 5;
const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_HASH: u32 = 0x6fff_fff6;
const SHT_GNU_VERDEF: u32 = 0x6fff_fffd;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PF_X: u32 = 1;
const PF_R: u32 = 4;

/// The symbol version that belongs to the object itself, and the one its functions have.
const VERSION_BASE: u16 = 1;
const VERSION_FUNCTIONS: u16 = 2;
/// Shift of the second bit in the Bloom filter of the GNU hash table.
const BLOOM_SHIFT: u32 = 6;

/// A function in the code.
#[derive(Debug, Clone, Copy)]
pub struct VdsoSymbol<'a> {
    /// For example `__vdso_clock_gettime`.
    pub name: &'a str,
    /// First byte, counted from the start of the code.
    pub offset: u64,
    /// Bytes of code.
    pub size: u64,
}

/// What the image is made of.
#[derive(Debug, Clone, Copy)]
pub struct VdsoSpec<'a> {
    /// For which CPU.
    pub machine: Machine,
    /// The symbol version: `LINUX_2.6` on x86-64, `LINUX_2.6.39` on arm64 (vdso(7)).
    pub version: &'a str,
    /// The code, position independent.
    pub text: &'a [u8],
    /// Its functions.
    pub symbols: &'a [VdsoSymbol<'a>],
}

/// Why there is no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VdsoError {
    /// The tables do not fit before the code: too many symbols or too long names.
    TablesTooLarge,
    /// A symbol that is not inside the code, by its place in the list.
    SymbolOutsideText(usize),
}

impl fmt::Display for VdsoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TablesTooLarge => f.write_str("the vDSO's tables do not fit before its code"),
            Self::SymbolOutsideText(index) => {
                write!(f, "vDSO symbol {index} lies outside the code")
            }
        }
    }
}

impl core::error::Error for VdsoError {}

/// Numbers of the sections that others refer to. The order is that of the calls of [`Layout::add`]; number 0 is
/// the empty section.
const DYNSYM: u16 = 3;
const DYNSTR: u16 = 4;
const TEXT: u16 = 8;
const SHSTRTAB: u16 = 9;

const SHF_ALLOC: u64 = 2;
const SHF_EXEC: u64 = 4;

/// What a section header says.
#[derive(Debug, Clone, Copy)]
struct Section {
    name: &'static str,
    /// `sh_type`
    kind: u32,
    flags: u64,
    align: u64,
    /// The section whose strings or symbols this one uses.
    link: u16,
    info: u32,
    entry_size: u64,
    /// Filled in by [`Layout::add`].
    at: usize,
    len: usize,
}

impl Section {
    /// A section of data that is loaded, aligned for words.
    const fn new(name: &'static str, kind: u32) -> Self {
        Self {
            name,
            kind,
            flags: SHF_ALLOC,
            align: 8,
            link: 0,
            info: 0,
            entry_size: 0,
            at: 0,
            len: 0,
        }
    }
}

/// The image in the making.
struct Layout {
    out: Writer,
    sections: Vec<Section>,
}

impl Layout {
    /// Appends a section and returns where it lies.
    fn add(&mut self, section: Section, contents: &[u8]) -> u64 {
        self.out.align(section.align);
        let at = self.out.len();
        self.out.bytes(contents);
        self.sections.push(Section {
            at,
            len: contents.len(),
            ..section
        });
        at as u64
    }
}

/// Builds the image: whole pages, to be mapped readable and executable, with `AT_SYSINFO_EHDR` at its start.
///
/// # Errors
/// [`VdsoError`]
pub fn build(spec: &VdsoSpec<'_>) -> Result<Vec<u8>, VdsoError> {
    for (index, symbol) in spec.symbols.iter().enumerate() {
        if symbol
            .offset
            .checked_add(symbol.size)
            .is_none_or(|end| end > spec.text.len() as u64)
        {
            return Err(VdsoError::SymbolOutsideText(index));
        }
    }
    let mut names = StringTable::new();
    let soname = names.add(SONAME);
    let version = names.add(spec.version);
    let dynsym = symbol_table(spec.symbols, &mut names);
    let names = names.as_bytes();

    let mut layout = Layout {
        out: Writer::new(EHDR_SIZE + 2 * PHDR_SIZE),
        sections: Vec::new(),
    };
    let of_symbols = |name, kind, entry_size| Section {
        link: DYNSYM,
        entry_size,
        ..Section::new(name, kind)
    };
    let of_strings = |name, kind, entry_size| Section {
        link: DYNSTR,
        entry_size,
        ..Section::new(name, kind)
    };
    let hash = layout.add(
        of_symbols(".hash", SHT_HASH, 4),
        &sysv_hash_table(spec.symbols)?,
    );
    let gnu = layout.add(
        of_symbols(".gnu.hash", SHT_GNU_HASH, 0),
        &gnu_hash_table(spec.symbols),
    );
    // `sh_info` of a symbol table is its first global symbol.
    let dynsym = layout.add(
        Section {
            info: 1,
            ..of_strings(".dynsym", SHT_DYNSYM, SYM_SIZE)
        },
        &dynsym,
    );
    let dynstr = layout.add(
        Section {
            align: 1,
            ..Section::new(".dynstr", SHT_STRTAB)
        },
        names,
    );
    let versym = layout.add(
        of_symbols(".gnu.version", SHT_GNU_VERSYM, 2),
        &symbol_versions(spec.symbols),
    );
    // `sh_info` of a version section is the number of its entries.
    let verdef = Section {
        info: 2,
        ..of_strings(".gnu.version_d", SHT_GNU_VERDEF, 0)
    };
    let verdef = layout.add(
        verdef,
        &version_definitions((SONAME, soname), (spec.version, version)),
    );
    let dynamic_section = dynamic_table(&[
        (DT_SONAME, u64::from(soname)),
        (DT_HASH, hash),
        (DT_GNU_HASH, gnu),
        (DT_STRTAB, dynstr),
        (DT_SYMTAB, dynsym),
        (DT_STRSZ, names.len() as u64),
        (DT_SYMENT, SYM_SIZE),
        (DT_VERSYM, versym),
        (DT_VERDEF, verdef),
        (DT_VERDEFNUM, 2),
        (DT_NULL, 0),
    ]);
    let dynamic = layout.add(of_strings(".dynamic", SHT_DYNAMIC, 16), &dynamic_section);
    if layout.out.len() > TEXT_OFFSET {
        return Err(VdsoError::TablesTooLarge);
    }
    let text = Section {
        flags: SHF_ALLOC | SHF_EXEC,
        align: TEXT_OFFSET as u64,
        ..Section::new(".text", SHT_PROGBITS)
    };
    layout.add(text, spec.text);

    let section_table = layout.finish_sections();
    let Layout { mut out, sections } = layout;
    out.align(PAGE_SIZE as u64);
    let mut image = file_header(spec.machine, section_table, sections.len() + 1)?;
    image.program_header(PT_LOAD, PF_R | PF_X, 0, out.len() as u64, PAGE_SIZE as u64);
    image.program_header(PT_DYNAMIC, PF_R, dynamic, dynamic_section.len() as u64, 8);
    let written = image.len();
    image.bytes(&out.into_bytes()[written..]);
    Ok(image.into_bytes())
}

impl Layout {
    /// Appends the section names and the section headers, the empty one in front. Returns where the headers lie.
    fn finish_sections(&mut self) -> usize {
        let mut names = StringTable::new();
        let mut name_offsets: Vec<u32> = self.sections.iter().map(|s| names.add(s.name)).collect();
        let own = Section {
            flags: 0,
            align: 1,
            ..Section::new(".shstrtab", SHT_STRTAB)
        };
        name_offsets.push(names.add(own.name));
        self.add(own, names.as_bytes());
        self.out.align(8);
        let table = self.out.len();
        self.out.zeros(SHDR_SIZE);
        for (section, name) in self.sections.iter().zip(name_offsets) {
            // Address and file offset are the same throughout; what is not loaded has no address.
            let address = if section.flags & SHF_ALLOC != 0 {
                section.at
            } else {
                0
            };
            self.out.u32(name);
            self.out.u32(section.kind);
            self.out.u64(section.flags);
            self.out.u64(address as u64);
            self.out.u64(section.at as u64);
            self.out.u64(section.len as u64);
            self.out.u32(u32::from(section.link));
            self.out.u32(section.info);
            self.out.u64(section.align);
            self.out.u64(section.entry_size);
        }
        table
    }
}

/// `Elf64_Ehdr`, followed by two program headers.
fn file_header(
    machine: Machine,
    section_table: usize,
    section_count: usize,
) -> Result<Writer, VdsoError> {
    let section_count = u16::try_from(section_count).map_err(|_| VdsoError::TablesTooLarge)?;
    let mut out = Writer::new(0);
    out.bytes(b"\x7fELF\x02\x01\x01");
    out.zeros(9);
    out.u16(3); // ET_DYN
    out.u16(machine.number());
    out.u32(1);
    out.u64(0); // no entry point
    out.u64(EHDR_SIZE as u64);
    out.u64(section_table as u64);
    out.u32(0);
    // Sizes and counts: file header; program headers; section headers; the section with their names.
    [64, 56, 2, 64, section_count, SHSTRTAB]
        .into_iter()
        .for_each(|half| out.u16(half));
    Ok(out)
}

/// The null symbol and one `Elf64_Sym` for each function.
fn symbol_table(symbols: &[VdsoSymbol<'_>], names: &mut StringTable) -> Vec<u8> {
    const STT_FUNC_GLOBAL: u8 = 1 << 4 | 2;
    let mut out = Writer::new(24);
    for symbol in symbols {
        out.u32(names.add(symbol.name));
        out.bytes(&[STT_FUNC_GLOBAL, 0]);
        out.u16(TEXT);
        out.u64(TEXT_OFFSET as u64 + symbol.offset);
        out.u64(symbol.size);
    }
    out.into_bytes()
}

/// The version of each symbol, the null symbol first.
fn symbol_versions(symbols: &[VdsoSymbol<'_>]) -> Vec<u8> {
    let mut out = Writer::new(2);
    symbols.iter().for_each(|_| out.u16(VERSION_FUNCTIONS));
    out.into_bytes()
}

/// `Elf64_Dyn` entries.
fn dynamic_table(entries: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Writer::new(0);
    entries
        .iter()
        .flat_map(|(tag, value)| [*tag, *value])
        .for_each(|word| out.u64(word));
    out.into_bytes()
}

/// `DT_HASH` (System V gABI, "Hash Table") with a single bucket: a chain of all symbols.
fn sysv_hash_table(symbols: &[VdsoSymbol<'_>]) -> Result<Vec<u8>, VdsoError> {
    let count = u32::try_from(symbols.len() + 1).map_err(|_| VdsoError::TablesTooLarge)?;
    let mut out = Writer::new(0);
    out.u32(1);
    out.u32(count);
    // The bucket begins the chain at symbol 1; after the null symbol's 0 it goes on 2, 3, ..., 0.
    out.u32(1 % count);
    out.u32(0);
    (1..count).for_each(|index| out.u32((index + 1) % count));
    Ok(out.into_bytes())
}

/// `DT_GNU_HASH` with a single bucket, so that the symbols need no order, and a Bloom filter of one word.
fn gnu_hash_table(symbols: &[VdsoSymbol<'_>]) -> Vec<u8> {
    let bits = |hash: u32| 1u64 << (hash % 64) | 1u64 << ((hash >> BLOOM_SHIFT) % 64);
    let bloom = symbols
        .iter()
        .map(|s| bits(gnu_hash(s.name)))
        .fold(0, |all, bits| all | bits);
    let mut out = Writer::new(0);
    // Buckets, first symbol that is hashed, words of the filter, shift.
    [1, 1, 1, BLOOM_SHIFT]
        .into_iter()
        .for_each(|word| out.u32(word));
    out.u64(bloom);
    out.u32(u32::from(!symbols.is_empty()));
    for (index, symbol) in symbols.iter().enumerate() {
        let last = index + 1 == symbols.len();
        out.u32(gnu_hash(symbol.name) & !1 | u32::from(last));
    }
    out.into_bytes()
}

/// Two `Elf64_Verdef`, each followed by its `Elf64_Verdaux`: the object's own version and the functions'.
fn version_definitions(base: (&str, u32), functions: (&str, u32)) -> Vec<u8> {
    const VERDEF_SIZE: u32 = 20;
    const VERDAUX_SIZE: u32 = 8;
    const VER_FLG_BASE: u16 = 1;
    let mut out = Writer::new(0);
    for (flags, index, (name, name_at), next) in [
        (VER_FLG_BASE, VERSION_BASE, base, VERDEF_SIZE + VERDAUX_SIZE),
        (0, VERSION_FUNCTIONS, functions, 0),
    ] {
        // Structure version, flags, index, number of names.
        [1, flags, index, 1]
            .into_iter()
            .for_each(|value| out.u16(value));
        [sysv_hash(name), VERDEF_SIZE, next]
            .into_iter()
            .for_each(|value| out.u32(value));
        [name_at, 0].into_iter().for_each(|value| out.u32(value));
    }
    out.into_bytes()
}
