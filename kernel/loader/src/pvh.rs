// SPDX-License-Identifier: Apache-2.0
//! The PVH boot protocol's start info: memory map, boot modules, command line.
//!
//! Structures as in Xen's public header `arch-x86/hvm/start_info.h`, versions 0 and 1. Physical memory is read through
//! a closure, so this runs before there are page tables of our own or a heap, and under tests without memory at all.

use crate::bytes::{u32_at, u64_at};
use core::fmt;
use core::ops::Range;

/// `XEN_HVM_START_MAGIC_VALUE`
pub const MAGIC: u32 = 0x336e_c578;
const START_INFO_V0_SIZE: usize = 40;
const START_INFO_V1_SIZE: usize = 56;
const MODULE_SIZE: usize = 32;
const MEMORY_SIZE: usize = 24;
/// More modules or memory ranges than any VMM has is taken for damage.
const ENTRIES_MAX: u32 = 1024;
/// Longest command line in bytes; twice what Linux on x86 takes.
const CMDLINE_MAX: usize = 4096;

/// What a range of physical memory is (the E820 types of the ACPI specification, section 15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Ordinary memory.
    Ram,
    /// Not to be touched.
    Reserved,
    /// ACPI tables; memory once they are read.
    Acpi,
    /// ACPI non-volatile storage.
    Nvs,
    /// Broken memory.
    Unusable,
    /// Any other type.
    Other(u32),
}

/// A range of the memory map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRange {
    /// Physical addresses.
    pub range: Range<u64>,
    /// Their kind.
    pub kind: MemoryKind,
}

/// A boot module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Where it lies in physical memory.
    pub range: Range<u64>,
    /// Physical address of its command line; 0 if it has none.
    pub cmdline: u64,
}

/// What the VMM told; borrows from physical memory.
#[derive(Debug, Clone, Copy)]
pub struct StartInfo<'m> {
    /// Protocol version, 0 or later. Version 0 has no memory map.
    pub version: u32,
    /// `SIF_*` flags.
    pub flags: u32,
    /// Physical address of the ACPI root pointer, if there is one.
    pub rsdp: Option<u64>,
    /// The kernel command line without its NUL.
    pub cmdline: &'m [u8],
    modules: &'m [u8],
    memory: &'m [u8],
}

/// Why the start info cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PvhError {
    /// Not at an address that can be read.
    Unreadable {
        /// Which part.
        what: &'static str,
        /// Its physical address.
        paddr: u64,
    },
    /// Wrong first word: not booted by PVH.
    BadMagic {
        /// The word found.
        found: u32,
    },
    /// An absurd number of entries.
    TooMany {
        /// Of which list.
        what: &'static str,
        /// How many.
        count: u32,
    },
    /// A module or memory range that ends beyond 64 bits.
    BadRange {
        /// Of which list.
        what: &'static str,
        /// Its place in the list.
        index: usize,
    },
    /// No NUL within 4096 bytes.
    CmdlineTooLong,
}

impl fmt::Display for PvhError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unreadable { what, paddr } => {
                write!(f, "PVH start info: cannot read {what} at {paddr:#x}")
            }
            Self::BadMagic { found } => {
                write!(f, "PVH start info: magic is {found:#x}, not {MAGIC:#x}")
            }
            Self::TooMany { what, count } => write!(f, "PVH start info: {count} entries in {what}"),
            Self::BadRange { what, index } => write!(
                f,
                "PVH start info: {what} entry {index} ends beyond 64 bits"
            ),
            Self::CmdlineTooLong => write!(
                f,
                "PVH start info: command line longer than {CMDLINE_MAX} bytes"
            ),
        }
    }
}

impl core::error::Error for PvhError {}

/// Reads the start info at physical address `paddr`. `read(paddr, len)` returns that many bytes of physical memory or
/// `None` if they cannot be read; it must tolerate any arguments.
///
/// # Errors
/// [`PvhError`]
pub fn parse<'m>(
    paddr: u64,
    read: impl Fn(u64, usize) -> Option<&'m [u8]>,
) -> Result<StartInfo<'m>, PvhError> {
    let get = |what, paddr, len| match read(paddr, len) {
        Some(bytes) if bytes.len() >= len => Ok(&bytes[..len]),
        _ => Err(PvhError::Unreadable { what, paddr }),
    };
    let unreadable = PvhError::Unreadable {
        what: "the header",
        paddr,
    };
    let head = get("the header", paddr, START_INFO_V0_SIZE)?;
    let word = |at| u32_at(head, at).ok_or(unreadable);
    let long = |at| u64_at(head, at).ok_or(unreadable);
    let found = word(0)?;
    if found != MAGIC {
        return Err(PvhError::BadMagic { found });
    }
    let list = |what, paddr, count: u32, size: usize| match count {
        0 => Ok(&[][..]),
        ENTRIES_MAX.. => Err(PvhError::TooMany { what, count }),
        _ => get(what, paddr, count as usize * size),
    };
    let version = word(4)?;
    let memory = if version >= 1 {
        let whole = get("the header", paddr, START_INFO_V1_SIZE)?;
        let (at, count) = (
            u64_at(whole, 40).ok_or(unreadable)?,
            u32_at(whole, 48).ok_or(unreadable)?,
        );
        list("the memory map", at, count, MEMORY_SIZE)?
    } else {
        &[]
    };
    let info = StartInfo {
        version,
        flags: word(8)?,
        rsdp: Some(long(32)?).filter(|addr| *addr != 0),
        cmdline: c_string(long(24)?, &get)?,
        modules: list("the module list", long(16)?, word(12)?, MODULE_SIZE)?,
        memory,
    };
    info.check()?;
    Ok(info)
}

impl StartInfo<'_> {
    /// The boot modules.
    pub fn modules(&self) -> impl Iterator<Item = Module> {
        self.modules.chunks_exact(MODULE_SIZE).filter_map(|entry| {
            Some(Module {
                range: range(entry)?,
                cmdline: u64_at(entry, 16)?,
            })
        })
    }

    /// The memory map in the VMM's order; ranges may touch or overlap.
    pub fn memory(&self) -> impl Iterator<Item = MemoryRange> {
        self.memory.chunks_exact(MEMORY_SIZE).filter_map(|entry| {
            let kind = match u32_at(entry, 16)? {
                1 => MemoryKind::Ram,
                2 => MemoryKind::Reserved,
                3 => MemoryKind::Acpi,
                4 => MemoryKind::Nvs,
                5 => MemoryKind::Unusable,
                other => MemoryKind::Other(other),
            };
            Some(MemoryRange {
                range: range(entry)?,
                kind,
            })
        })
    }

    /// Makes sure that the iterators above leave nothing out.
    fn check(&self) -> Result<(), PvhError> {
        let lists = [
            ("the module list", self.modules.chunks_exact(MODULE_SIZE)),
            ("the memory map", self.memory.chunks_exact(MEMORY_SIZE)),
        ];
        for (what, mut entries) in lists {
            if let Some(index) = entries.position(|entry| range(entry).is_none()) {
                return Err(PvhError::BadRange { what, index });
            }
        }
        Ok(())
    }
}

/// Address and size, the first two fields of both kinds of entry.
fn range(entry: &[u8]) -> Option<Range<u64>> {
    let start = u64_at(entry, 0)?;
    Some(start..start.checked_add(u64_at(entry, 8)?)?)
}

/// The NUL-terminated text at `paddr`, which may lie directly before unreadable memory. 0 means there is none.
fn c_string<'m>(
    paddr: u64,
    get: &impl Fn(&'static str, u64, usize) -> Result<&'m [u8], PvhError>,
) -> Result<&'m [u8], PvhError> {
    if paddr == 0 {
        return Ok(&[]);
    }
    for len in 0..=CMDLINE_MAX {
        let bytes = get("the command line", paddr, len + 1)?;
        if bytes[len] == 0 {
            return Ok(&bytes[..len]);
        }
    }
    Err(PvhError::CmdlineTooLong)
}

#[cfg(test)]
mod tests {
    use super::{MAGIC, MemoryKind, PvhError, StartInfo, parse};
    use proptest::prelude::{any, proptest};

    /// Memory that starts at physical address 0x1000.
    const BASE: u64 = 0x1000;

    fn boot(memory: &[u8]) -> Result<StartInfo<'_>, PvhError> {
        parse(BASE, |paddr, len| {
            let at = usize::try_from(paddr.checked_sub(BASE)?).ok()?;
            memory.get(at..at.checked_add(len)?)
        })
    }

    /// Header, then at offset 64 a module, at 96 two memory ranges, at 144 the command line.
    fn memory(version: u32) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend([MAGIC, version, 0, 1].iter().flat_map(|v| v.to_le_bytes()));
        out.extend(
            [BASE + 64, BASE + 144, 0xe_0000, BASE + 96]
                .iter()
                .flat_map(|v| v.to_le_bytes()),
        );
        out.extend([2u32, 0].iter().flat_map(|v| v.to_le_bytes()));
        out.resize(64, 0);
        out.extend(
            [0x20_0000u64, 0x1234, 0, 0]
                .iter()
                .flat_map(|v| v.to_le_bytes()),
        );
        out.extend(
            [0u64, 0x9_fc00, 1, 0xfff0_0000, 0x1000, 9]
                .iter()
                .flat_map(|v| v.to_le_bytes()),
        );
        out.extend(b"tsc_khz=1\0");
        out
    }

    #[test]
    fn version_one() {
        let memory = memory(1);
        let info = boot(&memory).unwrap();
        assert_eq!(
            (info.version, info.rsdp, info.cmdline),
            (1, Some(0xe_0000), &b"tsc_khz=1"[..])
        );
        let modules: Vec<_> = info.modules().collect();
        assert_eq!(
            (modules.len(), modules[0].range.clone()),
            (1, 0x20_0000..0x20_1234)
        );
        let map: Vec<_> = info.memory().map(|m| (m.range, m.kind)).collect();
        assert_eq!(
            map,
            [
                (0..0x9_fc00, MemoryKind::Ram),
                (0xfff0_0000..0xfff0_1000, MemoryKind::Other(9))
            ]
        );
    }

    #[test]
    fn version_zero_has_no_memory_map() {
        let memory = memory(0);
        assert_eq!(boot(&memory).unwrap().memory().count(), 0);
        assert_eq!(boot(&memory).unwrap().modules().count(), 1);
    }

    #[test]
    fn damage_is_named() {
        let with = |at: usize, value: u64| {
            let mut memory = memory(1);
            memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
            boot(&memory).unwrap_err()
        };
        assert_eq!(with(0, 7), PvhError::BadMagic { found: 7 });
        assert_eq!(
            with(16, 7),
            PvhError::Unreadable {
                what: "the module list",
                paddr: 7
            }
        );
        assert_eq!(
            with(24, u64::MAX),
            PvhError::Unreadable {
                what: "the command line",
                paddr: u64::MAX
            }
        );
        assert_eq!(
            with(40, 1 << 40),
            PvhError::Unreadable {
                what: "the memory map",
                paddr: 1 << 40
            }
        );
        assert_eq!(
            with(48, 5000),
            PvhError::TooMany {
                what: "the memory map",
                count: 5000
            }
        );
        assert_eq!(
            with(72, u64::MAX),
            PvhError::BadRange {
                what: "the module list",
                index: 0
            }
        );
        assert_eq!(
            with(128, u64::MAX),
            PvhError::BadRange {
                what: "the memory map",
                index: 1
            }
        );
        assert_eq!(
            boot(&[]).unwrap_err(),
            PvhError::Unreadable {
                what: "the header",
                paddr: BASE
            }
        );
        let mut long = memory(1);
        long.pop();
        long.resize(6000, b'x');
        assert_eq!(boot(&long).unwrap_err(), PvhError::CmdlineTooLong);
    }

    proptest! {
        #[test]
        fn damaged_memory_never_panics(edits in proptest::collection::vec((0..154usize, any::<u8>()), 0..8), len in 0..154usize) {
            let mut memory = memory(1);
            for (at, value) in edits {
                memory[at] = value;
            }
            if let Ok(info) = boot(&memory[..len]) {
                let _ = (info.modules().count(), info.memory().count());
            }
        }
    }
}
