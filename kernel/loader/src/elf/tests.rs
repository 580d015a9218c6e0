// SPDX-License-Identifier: Apache-2.0
//! Small ELF files made here, broken one way at a time; and the real files of this machine.

use super::{ElfError, Kind, Machine, Tls, parse};
use proptest::prelude::{any, proptest};
use proptest::prop_assert;

/// One program header: type, flags, offset, address, size in file, size in memory, alignment.
type Phdr = (u32, u32, u64, u64, u64, u64, u64);

fn file(e_type: u16, machine: u16, entry: u64, headers: &[Phdr]) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend(e_type.to_le_bytes());
    out.extend(machine.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend([entry, 64, 0].iter().flat_map(|v| v.to_le_bytes()));
    out.extend([0u8; 4]);
    let count = u16::try_from(headers.len()).unwrap();
    out.extend(
        [64, 56, count, 0, 0, 0]
            .iter()
            .flat_map(|v| v.to_le_bytes()),
    );
    for (kind, flags, offset, vaddr, filesz, memsz, align) in headers {
        out.extend([*kind, *flags].iter().flat_map(|v| v.to_le_bytes()));
        out.extend(
            [*offset, *vaddr, *vaddr, *filesz, *memsz, *align]
                .iter()
                .flat_map(|v| v.to_le_bytes()),
        );
    }
    out.resize(0x3000, 0);
    out
}

const CODE: Phdr = (1, 5, 0, 0x40_0000, 0x1800, 0x1800, 0x1000);
const DATA: Phdr = (1, 6, 0x1800, 0x40_2800, 0x100, 0x2000, 0x1000);

fn parse_all(file: &[u8]) -> Result<super::LoadPlan, ElfError> {
    parse(file, file.len() as u64)
}

fn error_of(headers: &[Phdr]) -> ElfError {
    parse_all(&file(2, 62, 0x40_0100, headers)).unwrap_err()
}

#[test]
fn a_static_program() {
    let tls = (7, 4, 0x1800, 0x40_2800, 8, 24, 8);
    let stack = (0x6474_e551, 6, 0, 0, 0, 0, 16);
    let plan = parse_all(&file(2, 62, 0x40_0100, &[CODE, DATA, tls, stack])).unwrap();
    assert_eq!((plan.machine, &plan.kind), (Machine::X86_64, &Kind::Static));
    assert_eq!(
        (plan.entry, plan.phdr_vaddr, plan.phnum),
        (0x40_0100, Some(0x40_0040), 4)
    );
    assert_eq!((plan.min_vaddr, plan.max_vaddr), (0x40_0000, 0x40_5000));
    assert_eq!(
        plan.tls,
        Some(Tls {
            vaddr: 0x40_2800,
            filesz: 8,
            memsz: 24,
            align: 8
        })
    );
    assert!(!plan.gnu_stack_exec && !plan.position_independent && plan.write_execute().is_none());
    assert_eq!(plan.segments[1].pages(), 0x40_2000..0x40_5000);
    assert_eq!(
        plan.require(Machine::Aarch64),
        Err(ElfError::WrongMachine { found: 62 })
    );
}

#[test]
fn write_execute_and_executable_stacks_are_reported() {
    let headers = [
        (1, 7, 0, 0, 0x1000, 0x1000, 0x20_0000),
        (0x6474_e551, 7, 0, 0, 0, 0, 16),
    ];
    let plan = parse_all(&file(3, 183, 0x100, &headers)).unwrap();
    assert_eq!(
        (plan.machine, &plan.kind),
        (Machine::Aarch64, &Kind::StaticPie)
    );
    assert!(plan.gnu_stack_exec && plan.write_execute().is_some());
    assert_eq!(plan.base_align(), 0x20_0000);
}

#[test]
fn the_interpreter_is_read() {
    let interp = |len| (3, 4, 0x200, 0x40_0200, len, len, 1);
    let mut dynamic = file(3, 62, 0x40_0100, &[interp(8), CODE, DATA]);
    dynamic[0x200..0x208].copy_from_slice(b"/lib/ld\0");
    assert_eq!(
        parse_all(&dynamic).unwrap().kind,
        Kind::Dynamic {
            interp: "/lib/ld".into()
        }
    );
    assert_eq!(
        parse(&dynamic[..0x204], dynamic.len() as u64),
        Err(ElfError::NeedBytes {
            what: "interpreter path",
            bytes: 0x208
        })
    );
    dynamic[0x207] = b'!';
    assert_eq!(parse_all(&dynamic), Err(ElfError::BadInterpreter));
    assert_eq!(error_of(&[interp(5000), CODE]), ElfError::BadInterpreter);
    assert_eq!(error_of(&[interp(4), CODE]), ElfError::BadInterpreter);
}

#[test]
fn each_kind_of_wrong_file_has_its_name() {
    assert_eq!(parse_all(b""), Err(ElfError::NotElf));
    assert_eq!(parse_all(b"MZ\x90"), Err(ElfError::NotElf));
    assert_eq!(parse_all(b"#!/bin/sh\n"), Err(ElfError::Script));
    assert_eq!(
        parse_all(b"\x7fELF"),
        Err(ElfError::Truncated {
            what: "file header"
        })
    );
    let good = file(2, 62, 0x40_0100, &[CODE, DATA]);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse_all(&bytes).unwrap_err()
    };
    assert_eq!(with(4, 1), ElfError::Bits32 { machine: 62 });
    assert_eq!(with(5, 2), ElfError::BigEndian);
    assert_eq!(with(4, 9), ElfError::NotElf);
    assert_eq!(with(18, 243), ElfError::WrongMachine { found: 243 });
    assert_eq!(with(16, 1), ElfError::WrongType { found: 1 });
    assert_eq!(
        with(54, 32),
        ElfError::BadProgramHeaders { count: 2, size: 32 }
    );
    assert_eq!(
        with(57, 0xff),
        ElfError::BadProgramHeaders {
            count: 0xff02,
            size: 56
        }
    );
    assert_eq!(with(56, 0), ElfError::NoSegments);
    assert_eq!(
        with(38, 1),
        ElfError::Truncated {
            what: "program headers"
        }
    );
    assert_eq!(
        parse(&good[..100], good.len() as u64),
        Err(ElfError::NeedBytes {
            what: "program headers",
            bytes: 64 + 2 * 56
        })
    );
    assert_eq!(
        parse(&good[..100], 100),
        Err(ElfError::Truncated {
            what: "program headers"
        })
    );
    assert_eq!(
        parse(&good[..60], 60),
        Err(ElfError::Truncated {
            what: "file header"
        })
    );
    assert_eq!(
        parse(&good, 0x1000),
        Err(ElfError::TruncatedSegment {
            index: 0,
            end: 0x1800,
            file_len: 0x1000
        })
    );
}

#[test]
fn segments_that_cannot_be_mapped() {
    let change = |edit: fn(&mut Phdr)| {
        let mut data = DATA;
        edit(&mut data);
        error_of(&[CODE, data])
    };
    assert!(matches!(
        change(|s| s.5 = 8),
        ElfError::BadSegment { index: 1, .. }
    ));
    assert!(matches!(
        change(|s| s.5 = u64::MAX),
        ElfError::BadSegment { index: 1, .. }
    ));
    assert!(matches!(
        change(|s| s.5 = 1 << 47),
        ElfError::BadSegment { index: 1, .. }
    ));
    assert!(matches!(
        change(|s| s.2 = u64::MAX),
        ElfError::BadSegment { index: 1, .. }
    ));
    assert!(matches!(
        change(|s| s.2 += 1),
        ElfError::BadSegment { index: 1, .. }
    ));
    assert!(matches!(
        change(|s| s.6 = 24),
        ElfError::BadSegment { index: 1, .. }
    ));
    assert_eq!(
        change(|s| s.3 = 0x40_1800),
        ElfError::SegmentsOverlap {
            first: 0,
            second: 1
        }
    );
    assert_eq!(
        change(|s| s.3 = 0x800),
        ElfError::SegmentsOverlap {
            first: 0,
            second: 1
        }
    );
    assert_eq!(error_of(&[(1, 5, 0, 0, 0, 0, 0)]), ElfError::NoSegments);
    assert_eq!(
        error_of(&[DATA]),
        ElfError::EntryOutsideCode { entry: 0x40_0100 }
    );
}

#[test]
fn the_test_program_itself_agrees_with_another_parser() {
    use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
    let path = std::env::current_exe().unwrap();
    let bytes = std::fs::read(path).unwrap();
    let plan = parse(&bytes[..8192], bytes.len() as u64).unwrap();
    let other = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let endian = object::Endianness::Little;
    let loads: Vec<_> = other
        .elf_program_headers()
        .iter()
        .filter(|h| h.p_type(endian) == object::elf::PT_LOAD)
        .collect();
    assert_eq!(plan.segments.len(), loads.len());
    for (ours, theirs) in plan.segments.iter().zip(loads) {
        assert_eq!(ours.vaddr, theirs.p_vaddr(endian));
        assert_eq!(ours.memsz, theirs.p_memsz(endian));
        assert_eq!(ours.file_offset, theirs.p_offset(endian));
        assert_eq!(ours.filesz, theirs.p_filesz(endian));
    }
    assert_eq!(plan.entry, other.elf_header().e_entry(endian));
}

proptest! {
    /// Any bytes after the magic, and any damage to a good file: an answer, and one whose promises hold.
    #[test]
    fn damage_never_panics(
        edits in proptest::collection::vec((0..400usize, any::<u8>()), 0..6),
        len in 0..0x3000usize, file_len in 0..0x4000u64,
    ) {
        let mut bytes = file(2, 62, 0x40_0100, &[CODE, DATA, (3, 4, 0x200, 0, 8, 8, 1)]);
        bytes[0x200..0x208].copy_from_slice(b"/lib/ld\0");
        for (at, value) in edits {
            bytes[at] = value;
        }
        if let Ok(plan) = parse(&bytes[..len], file_len) {
            let mut reached = 0;
            for segment in &plan.segments {
                prop_assert!(segment.pages().start >= reached);
                prop_assert!(segment.filesz == 0 || segment.file_offset + segment.filesz <= file_len);
                reached = segment.pages().end;
            }
            prop_assert!(reached == plan.max_vaddr);
        }
    }
}
