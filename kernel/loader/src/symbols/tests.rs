// SPDX-License-Identifier: Apache-2.0
//! A small file with a symbol table made here, broken in places; and the running test program itself.

use super::NAME_MAX;
use super::{Symbol, resolve};

/// Type and binding, section, value, size.
type Sym = (&'static str, u8, u16, u64, u64);

const FUNC: u8 = 0x12;
const LOCAL_FUNC: u8 = 0x02;
const LABEL: u8 = 0x00;
const OBJECT: u8 = 0x11;

/// One segment of 0x1000 bytes from file position 0x1000 at 0x40_1000; symbols of `kind`.
fn file(kind: u32, symbols: &[Sym]) -> Vec<u8> {
    let mut strings = vec![0];
    let mut table = vec![0; 24];
    for (name, info, section, value, size) in symbols {
        table.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
        table.extend([*info, 0]);
        table.extend(section.to_le_bytes());
        table.extend([*value, *size].iter().flat_map(|v| v.to_le_bytes()));
        strings.extend(name.bytes().chain([0]));
    }
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(40, 0);
    out[32] = 64;
    out.extend(0x3000u64.to_le_bytes());
    out.extend([0; 4]);
    out.extend(
        [64u16, 56, 1, 64, 3, 0]
            .iter()
            .flat_map(|v| v.to_le_bytes()),
    );
    out.extend([1u32, 5].iter().flat_map(|v| v.to_le_bytes()));
    out.extend(
        [0x1000u64, 0x40_1000, 0x40_1000, 0x1000, 0x1000, 0x1000]
            .iter()
            .flat_map(|v| v.to_le_bytes()),
    );
    out.resize(0x3000 + 64, 0);
    let strings_at = 0x4000 + table.len();
    for (kind, at, len, link) in [
        (kind, 0x4000, table.len(), 2u32),
        (3, strings_at, strings.len(), 0),
    ] {
        out.extend([0, kind].iter().flat_map(|v| v.to_le_bytes()));
        out.extend(
            [0, 0, at as u64, len as u64]
                .iter()
                .flat_map(|v| v.to_le_bytes()),
        );
        out.extend([link, 0].iter().flat_map(|v| v.to_le_bytes()));
        out.extend([8u64, 24].iter().flat_map(|v| v.to_le_bytes()));
    }
    out.resize(0x4000, 0);
    out.extend(table);
    out.extend(strings);
    out
}

fn names(file: &[u8], positions: &[u64]) -> Vec<Option<(String, u64)>> {
    let mut read = |at: u64, out: &mut [u8]| {
        let rest = usize::try_from(at)
            .ok()
            .and_then(|at| file.get(at..))
            .unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        count
    };
    let found = resolve(&mut read, positions);
    found
        .into_iter()
        .map(|found| found.symbol.map(|Symbol { name, offset }| (name, offset)))
        .collect()
}

fn some(name: &str, offset: u64) -> Option<(String, u64)> {
    Some((name.into(), offset))
}

const SYMBOLS: [Sym; 8] = [
    ("variable", OBJECT, 1, 0x40_1000, 0x1000),
    ("elsewhere", FUNC, 0, 0x40_1000, 0x1000),
    ("absolute", FUNC, 0xfff1, 0x40_1000, 0x1000),
    ("first", FUNC, 1, 0x40_1100, 0x80),
    ("label", LABEL, 1, 0x40_1120, 0),
    ("second", LOCAL_FUNC, 1, 0x40_1200, 0x10),
    ("alias", FUNC, 1, 0x40_1200, 0x10),
    ("assembly", LABEL, 1, 0x40_1300, 0),
];

#[test]
fn the_function_that_spans_a_place_is_found() {
    for kind in [2, 11] {
        let file = file(kind, &SYMBOLS);
        assert_eq!(
            names(&file, &[0x1100, 0x1130, 0x117f]),
            [some("first", 0), some("first", 0x30), some("first", 0x7f)]
        );
        assert_eq!(
            names(&file, &[0x1204]),
            [some("alias", 4)],
            "a global name before a local one"
        );
        assert_eq!(
            names(&file, &[0x1180]),
            [some("label", 0x60)],
            "beyond the function only the label is left"
        );
        assert_eq!(names(&file, &[0x1340]), [some("assembly", 0x40)]);
        assert_eq!(
            names(&file, &[0x1010, 0x2000, 0, u64::MAX]),
            [None, None, None, None]
        );
    }
}

#[test]
fn many_symbols_are_read_piece_by_piece() {
    let symbols: Vec<Sym> = (0..1000)
        .map(|n| ("f", FUNC, 1, 0x40_1000 + n * 2, 2))
        .collect();
    let file = file(2, &symbols);
    let positions: Vec<u64> = (0..1000).map(|n| 0x1000 + n * 2 + n % 2).collect();
    let found = names(&file, &positions);
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(n, name)| *name == some("f", n as u64 % 2))
    );
}

#[test]
fn a_file_without_names_or_sense_has_none() {
    let whole = file(2, &SYMBOLS);
    assert_eq!(
        names(&file(1, &SYMBOLS), &[0x1100]),
        [None],
        "no symbol table"
    );
    for end in 0..whole.len() {
        let found = names(&whole[..end], &[0x1100]);
        assert!(
            found == [None]
                || end > 0x4000
                    && found[0]
                        .as_ref()
                        .is_some_and(|(name, _)| "first".starts_with(name))
        );
    }
    for at in 0..whole.len().min(0x100) {
        let mut broken = whole.clone();
        broken[at] ^= 0xff;
        names(&broken, &[0x1100]);
    }
}

/// This test finds itself in its own executable.
#[test]
fn a_real_file_names_its_own_code() {
    use object::{Object, ObjectSection, ObjectSymbol};
    let path = std::env::current_exe().unwrap();
    let bytes = std::fs::read(path).unwrap();
    let parsed = object::File::parse(&*bytes).unwrap();
    let text = parsed.section_by_name(".text").unwrap();
    let (start, _) = text.file_range().unwrap();
    let wanted: Vec<_> = parsed
        .symbols()
        .filter(|s| {
            s.kind() == object::SymbolKind::Text
                && s.size() > 8
                && s.section_index() == Some(text.index())
        })
        .step_by(97)
        .take(50)
        .collect();
    assert!(!wanted.is_empty());
    let positions: Vec<u64> = wanted
        .iter()
        .map(|s| s.address() - text.address() + start + 4)
        .collect();
    for (symbol, found) in wanted.iter().zip(names(&bytes, &positions)) {
        let (name, offset) = found.unwrap();
        // Identical functions may be folded under several names, and those of generics may be longer than what is kept.
        let fits = |full: &str| full == name || name.len() == NAME_MAX && full.starts_with(&name);
        let same = parsed
            .symbols()
            .any(|s| s.name().is_ok_and(fits) && s.address() + offset == symbol.address() + 4);
        assert!(same, "{name}+{offset:#x} for {:?}", symbol.name());
    }
}
