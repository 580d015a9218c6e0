// SPDX-License-Identifier: Apache-2.0
//! What the check needs to know of an ELF file: its dynamic section, its symbols, where its functions begin, and which
//! slots the dynamic loader will fill with which symbol.
//!
//! Sources: System V gABI chapter 5 (dynamic section, relocations), x86-64 psABI 4.4 (relocation types), LSB 5.0 core
//! 10.6.2 (`.eh_frame_hdr`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, EM_X86_64, ET_DYN, PF_X, PT_GNU_EH_FRAME,
    PT_INTERP, PT_LOAD, PT_NOTE, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT,
    R_X86_64_RELATIVE, STT_FUNC, STT_GNU_IFUNC,
};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags,
    RelocationTarget, SymbolFlags,
};

/// A piece of memory as the file fills it.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) memory_size: u64,
    pub(crate) executable: bool,
    pub(crate) writable: bool,
}

/// An ELF executable or library for x86-64.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    pub(crate) interpreter: Option<String>,
    pub(crate) needed: Vec<String>,
    pub(crate) soname: Option<String>,
    pub(crate) rpath: Vec<String>,
    pub(crate) runpath: Vec<String>,
    pub(crate) entry: u64,
    pub(crate) position_independent: bool,
    pub(crate) segments: Vec<Segment>,
    /// Functions by name that others can use.
    pub(crate) exports: HashMap<String, u64>,
    /// Names it takes from others.
    pub(crate) imports: BTreeSet<String>,
    /// Functions by address, from symbols of any kind.
    pub(crate) names: BTreeMap<u64, String>,
    /// Where functions begin, as far as the file says.
    pub(crate) starts: BTreeSet<u64>,
    /// Slots that the loader fills with the address of a symbol.
    pub(crate) slots: HashMap<u64, String>,
    /// Addresses that the loader puts into data.
    pub(crate) pointers: BTreeSet<u64>,
    /// Whether it is made by the Go tools.
    pub(crate) is_go: bool,
}

/// Why a file is no such object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotUsable {
    /// Not an ELF file.
    NotElf,
    /// Too short or damaged.
    Damaged(String),
    /// For another CPU.
    Machine(&'static str),
}

impl ObjectFile {
    /// Reads a file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NotUsable> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err(NotUsable::NotElf);
        }
        match bytes.get(4) {
            Some(2) => {}
            Some(1) => return Err(NotUsable::Machine("a 32-bit CPU")),
            _ => return Err(NotUsable::Damaged("unknown class".into())),
        }
        let damaged = |error: object::Error| NotUsable::Damaged(error.to_string());
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(damaged)?;
        let endian = file.endian();
        let header = file.elf_header();
        let machine = header.e_machine(endian);
        if machine != EM_X86_64 {
            return Err(NotUsable::Machine(machine_name(machine.0)));
        }
        let mut segments = Vec::new();
        let mut interpreter = None;
        let mut frame_index = None;
        let mut is_go = false;
        for part in file.elf_program_headers() {
            let data = part
                .data(endian, bytes)
                .map_err(|()| NotUsable::Damaged("a segment lies outside the file".into()))?;
            match part.p_type(endian) {
                PT_LOAD => segments.push(Segment {
                    address: part.p_vaddr(endian),
                    bytes: data.to_vec(),
                    memory_size: part.p_memsz(endian),
                    executable: part.p_flags(endian).0 & PF_X.0 != 0,
                    writable: part.p_flags(endian).0 & object::elf::PF_W.0 != 0,
                }),
                PT_INTERP => interpreter = Some(text_of(data)),
                PT_GNU_EH_FRAME => frame_index = Some((part.p_vaddr(endian), data)),
                PT_NOTE => is_go |= data.windows(4).any(|w| w == b"Go\0\0"),
                _ => {}
            }
        }
        let mut this = Self {
            interpreter,
            needed: Vec::new(),
            soname: None,
            rpath: Vec::new(),
            runpath: Vec::new(),
            entry: header.e_entry(endian),
            position_independent: header.e_type(endian) == ET_DYN,
            segments,
            exports: HashMap::new(),
            imports: BTreeSet::new(),
            names: BTreeMap::new(),
            starts: BTreeSet::new(),
            slots: HashMap::new(),
            pointers: BTreeSet::new(),
            is_go: is_go || file.section_by_name(".gopclntab").is_some(),
        };
        this.read_dynamic(&file);
        this.read_symbols(&file);
        this.read_relocations(&file);
        if let Some((address, data)) = frame_index {
            this.starts.extend(frame_starts(address, data));
        }
        Ok(this)
    }

    fn read_dynamic(&mut self, file: &ElfFile64<'_, Endianness>) {
        let endian = file.endian();
        let Some(section) = file.section_by_name(".dynamic") else {
            return;
        };
        let Ok(data) = section.data() else { return };
        let strings = file
            .section_by_name(".dynstr")
            .and_then(|s| s.data().ok())
            .unwrap_or_default();
        let (entries, _) =
            object::pod::slice_from_all_bytes::<object::elf::Dyn64<Endianness>>(data)
                .map_or((&[][..], ()), |e| (e, ()));
        for entry in entries {
            let text = || {
                usize::try_from(entry.d_val(endian))
                    .ok()
                    .and_then(|at| strings.get(at..))
                    .map(text_of)
            };
            match entry.d_tag(endian) {
                DT_NEEDED => self.needed.extend(text()),
                DT_SONAME => self.soname = text(),
                DT_RPATH => self.rpath = split_path(text()),
                DT_RUNPATH => self.runpath = split_path(text()),
                _ => {}
            }
        }
    }

    fn read_symbols(&mut self, file: &ElfFile64<'_, Endianness>) {
        for symbol in file.dynamic_symbols().chain(file.symbols()) {
            let SymbolFlags::Elf { st_info, .. } = symbol.flags() else {
                continue;
            };
            let Ok(name) = symbol.name() else { continue };
            if symbol.is_undefined() {
                if !name.is_empty() {
                    self.imports.insert(name.to_string());
                }
                continue;
            }
            let kind = st_info.0 & 0xf;
            if kind == STT_FUNC.0 || kind == STT_GNU_IFUNC.0 {
                self.starts.insert(symbol.address());
                // A function may have several names; the one without underscores says most.
                let known = self.names.entry(symbol.address()).or_default();
                if known.is_empty() || known.starts_with('_') && !name.starts_with('_') {
                    *known = name.to_string();
                }
                self.exports.insert(name.to_string(), symbol.address());
            }
        }
    }

    fn read_relocations(&mut self, file: &ElfFile64<'_, Endianness>) {
        let Some(relocations) = file.dynamic_relocations() else {
            return;
        };
        for (at, relocation) in relocations {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                continue;
            };
            let r_type = object::elf::RelocationType(r_type.0);
            if r_type == R_X86_64_RELATIVE {
                self.pointers.insert(relocation.addend().cast_unsigned());
            } else if [R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_64].contains(&r_type)
                && let RelocationTarget::Symbol(index) = relocation.target()
                && let Some(Ok(name)) = file
                    .dynamic_symbol_table()
                    .map(|table| object::ObjectSymbolTable::symbol_by_index(&table, index))
                    .map(|symbol| symbol.and_then(|s| s.name()))
            {
                self.slots.insert(at, name.to_string());
            }
        }
    }

    /// Whether code lies at `address`.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|s| {
            s.executable
                && (s.address..s.address + u64::try_from(s.bytes.len()).unwrap_or(0))
                    .contains(&address)
        })
    }

    /// Memory of its own that it needs, in bytes: data that can be written. Of zeroed data a program may have much more
    /// than it touches, so at most a mebibyte counts.
    pub(crate) fn private_bytes(&self) -> u64 {
        let writable = self.segments.iter().filter(|s| s.writable);
        writable
            .map(|s| {
                let filled = u64::try_from(s.bytes.len()).unwrap_or(u64::MAX);
                filled + s.memory_size.saturating_sub(filled).min(1 << 20)
            })
            .sum()
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn split_path(text: Option<String>) -> Vec<String> {
    text.map(|t| t.split(':').map(String::from).collect())
        .unwrap_or_default()
}

/// The sorted table of functions in `.eh_frame_hdr`, in the only encoding that linkers write: 32-bit offsets from the
/// section itself.
fn frame_starts(address: u64, data: &[u8]) -> Vec<u64> {
    const TABLE_DATAREL_SDATA4: u8 = 0x3b;
    const COUNT_UDATA4: u8 = 0x03;
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
    };
    if data.get(2) != Some(&COUNT_UDATA4) || data.get(3) != Some(&TABLE_DATAREL_SDATA4) {
        return Vec::new();
    }
    let count = usize::try_from(word(8).unwrap_or(0)).unwrap_or(0);
    (0..count.min(data.len() / 8))
        .map_while(|n| word(12 + 8 * n))
        .map(|offset| address.wrapping_add_signed(i64::from(offset.cast_signed())))
        .collect()
}

/// The usual name of a CPU by its `e_machine`.
fn machine_name(machine: u16) -> &'static str {
    match machine {
        3 => "i386",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        22 => "s390x",
        40 => "32-bit ARM",
        183 => "arm64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => "another CPU",
    }
}
