// SPDX-License-Identifier: Apache-2.0
//! Names for places in an executable, from its own symbol table, for the report of a crash.
//!
//! Follows the System V gABI (chapters "Sections" and "Symbol Table"). The table can be larger than the memory that is
//! left when a program dies, so it is read piece by piece, once for all places that are asked for.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::bytes::{u16_at, u32_at, u64_at};

const EHDR_BYTES: usize = 64;
const PHDR_BYTES: usize = 56;
const SHDR_BYTES: usize = 64;
const SYM_BYTES: usize = 24;

/// Symbols read at a time: somewhat less than a page.
const SYMBOLS_AT_ONCE: usize = 170;

/// Longest name that is shown, in bytes.
const NAME_MAX: usize = 512;

const PT_LOAD: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const SHN_UNDEF: u16 = 0;
const SHN_LORESERVE: u16 = 0xff00;
const STT_NOTYPE: u8 = 0;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// Reads a file: fills the slice from a position on and returns how many bytes there were.
pub type Read<'a> = dyn FnMut(u64, &mut [u8]) -> usize + 'a;

/// The function that holds a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// As in the table: not demangled. Bytes that are no text are shown as `?`.
    pub name: String,
    /// Bytes from its beginning to the place.
    pub offset: u64,
}

/// What an executable says of a byte in it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its address as linked; `None` if no segment holds it.
    pub vaddr: Option<u64>,
    /// The function that spans it, else the nearest one before it that does not say how long it is.
    pub symbol: Option<Symbol>,
}

/// Looks positions in an ELF file up. Where the file has no names or makes no sense, nothing is found.
pub fn resolve(read: &mut Read<'_>, positions: &[u64]) -> Vec<Found> {
    let mut places: Vec<Place> = positions.iter().map(|_| Place::default()).collect();
    let names = search(read, positions, &mut places);
    let mut symbol = |place: &Place| {
        let (best, names) = (place.best.as_ref()?, names.as_ref()?);
        Some(Symbol {
            name: read_name(read, names, best.name)?,
            offset: place.vaddr?.checked_sub(best.value)?,
        })
    };
    places
        .iter()
        .map(|place| Found {
            vaddr: place.vaddr,
            symbol: symbol(place),
        })
        .collect()
}

#[derive(Default)]
struct Place {
    vaddr: Option<u64>,
    best: Option<Candidate>,
}

struct Candidate {
    value: u64,
    name: u32,
    /// Of two the greater is chosen.
    rank: (bool, u64, bool, bool),
}

/// Finds the best symbol of every place, and where in the file the names are.
fn search(read: &mut Read<'_>, positions: &[u64], places: &mut [Place]) -> Option<Range<u64>> {
    let header: [u8; EHDR_BYTES] = read_array(read, 0)?;
    // 64 bits, little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let phdrs = Table {
        start: u64_at(&header, 32)?,
        count: u16_at(&header, 56)?,
        stride: u16_at(&header, 54)?,
    };
    let shdrs = Table {
        start: u64_at(&header, 40)?,
        count: u16_at(&header, 60)?,
        stride: u16_at(&header, 58)?,
    };
    for index in 0..phdrs.count {
        let phdr: [u8; PHDR_BYTES] = phdrs.read(read, index)?;
        let (offset, vaddr, filesz) = (u64_at(&phdr, 8)?, u64_at(&phdr, 16)?, u64_at(&phdr, 32)?);
        if u32_at(&phdr, 0)? != PT_LOAD {
            continue;
        }
        for (position, place) in positions.iter().zip(&mut *places) {
            let within = position.checked_sub(offset).filter(|at| *at < filesz);
            if let Some(at) = within {
                place.vaddr = vaddr.checked_add(at);
            }
        }
    }
    let table = symbol_table(read, &shdrs)?;
    let strings: [u8; SHDR_BYTES] = shdrs.read(read, u16::try_from(table.strings).ok()?)?;
    let mut at = table.range.start;
    let mut piece = alloc::vec![0; SYMBOLS_AT_ONCE * SYM_BYTES];
    while at < table.range.end {
        let wanted =
            usize::try_from(table.range.end - at).map_or(piece.len(), |left| left.min(piece.len()));
        let got = read(at, &mut piece[..wanted]);
        for symbol in piece[..got.min(wanted)].chunks_exact(SYM_BYTES) {
            for place in &mut *places {
                consider(symbol, place)?;
            }
        }
        if got < wanted {
            break; // a file that was cut
        }
        at += wanted as u64;
    }
    section_range(&strings)
}

/// A table of headers.
struct Table {
    start: u64,
    count: u16,
    stride: u16,
}

impl Table {
    /// The first bytes of an entry.
    fn read<const N: usize>(&self, read: &mut Read<'_>, index: u16) -> Option<[u8; N]> {
        if index >= self.count || usize::from(self.stride) < N {
            return None;
        }
        let at = u64::from(index) * u64::from(self.stride);
        read_array(read, self.start.checked_add(at)?)
    }
}

struct SymbolTable {
    range: Range<u64>,
    /// Section of the names.
    strings: u32,
}

/// The full table, or without one that of the dynamic loader.
fn symbol_table(read: &mut Read<'_>, sections: &Table) -> Option<SymbolTable> {
    let mut dynamic = None;
    for index in 0..sections.count {
        let section: [u8; SHDR_BYTES] = sections.read(read, index)?;
        let kind = u32_at(&section, 4)?;
        if !matches!(kind, SHT_SYMTAB | SHT_DYNSYM) || u64_at(&section, 56)? != SYM_BYTES as u64 {
            continue;
        }
        let table = SymbolTable {
            range: section_range(&section)?,
            strings: u32_at(&section, 40)?,
        };
        if kind == SHT_SYMTAB {
            return Some(table);
        }
        dynamic = Some(table);
    }
    dynamic
}

/// Where in the file a section lies.
fn section_range(section: &[u8]) -> Option<Range<u64>> {
    let start = u64_at(section, 24)?;
    Some(start..start.checked_add(u64_at(section, 32)?)?)
}

/// Takes a symbol for a place if it is better than the one found before.
fn consider(symbol: &[u8], place: &mut Place) -> Option<()> {
    let info = *symbol.get(4)?;
    let (section, value, size) = (u16_at(symbol, 6)?, u64_at(symbol, 8)?, u64_at(symbol, 16)?);
    let (kind, binding) = (info & 15, info >> 4);
    let is_code = matches!(kind, STT_NOTYPE | STT_FUNC | STT_GNU_IFUNC)
        && section != SHN_UNDEF
        && section < SHN_LORESERVE;
    let Some(offset) = place.vaddr.and_then(|at| at.checked_sub(value)) else {
        return Some(());
    };
    if !is_code || size != 0 && offset >= size {
        return Some(());
    }
    // One that spans the place, then the nearest, then functions before labels and global names before local ones.
    let rank = (size != 0, value, kind != STT_NOTYPE, binding != 0);
    if place.best.as_ref().is_none_or(|best| rank > best.rank) {
        let name = u32_at(symbol, 0)?;
        place.best = Some(Candidate { value, name, rank });
    }
    Some(())
}

/// The string at `offset` of a string table; `None` if it is empty or not there.
fn read_name(read: &mut Read<'_>, names: &Range<u64>, offset: u32) -> Option<String> {
    let at = names.start.checked_add(offset.into())?;
    let room = usize::try_from(names.end.checked_sub(at)?).unwrap_or(NAME_MAX);
    let mut bytes = alloc::vec![0; room.min(NAME_MAX)];
    let got = read(at, &mut bytes);
    let name = bytes.get(..got)?.split(|byte| *byte == 0).next()?;
    let text: String = String::from_utf8_lossy(name)
        .chars()
        .map(|c| {
            if c.is_control() || c == '\u{fffd}' {
                '?'
            } else {
                c
            }
        })
        .collect();
    (!text.is_empty()).then_some(text)
}

fn read_array<const N: usize>(read: &mut Read<'_>, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (read(at, &mut bytes) == N).then_some(bytes)
}
