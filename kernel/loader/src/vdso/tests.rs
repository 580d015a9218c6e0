// SPDX-License-Identifier: Apache-2.0
//! The image read by another ELF library, and by two look-ups written like those of Go and of musl.

use super::{TEXT_OFFSET, VdsoError, VdsoSpec, VdsoSymbol, build, gnu_hash, sysv_hash};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::elf::Machine;
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::collections::HashMap;

const SYMBOLS: [VdsoSymbol<'_>; 5] = [
    VdsoSymbol {
        name: "__vdso_clock_gettime",
        offset: 0,
        size: 40,
    },
    VdsoSymbol {
        name: "__vdso_gettimeofday",
        offset: 40,
        size: 20,
    },
    VdsoSymbol {
        name: "__vdso_time",
        offset: 60,
        size: 4,
    },
    VdsoSymbol {
        name: "__vdso_clock_getres",
        offset: 64,
        size: 8,
    },
    VdsoSymbol {
        name: "__vdso_getcpu",
        offset: 72,
        size: 8,
    },
];
const SPEC: VdsoSpec<'_> = VdsoSpec {
    machine: Machine::X86_64,
    version: "LINUX_2.6",
    text: &[0x90; 80],
    symbols: &SYMBOLS,
};

fn image() -> Vec<u8> {
    build(&SPEC).unwrap()
}

#[test]
fn one_page_that_another_library_understands() {
    let image = image();
    assert_eq!(image.len(), 4096);
    let file = ElfFile64::<object::Endianness>::parse(&*image).unwrap();
    assert_eq!(
        file.section_by_name(".text").unwrap().data().unwrap(),
        [0x90; 80]
    );
    let symbols: Vec<_> = file
        .dynamic_symbols()
        .map(|s| (s.name().unwrap(), s.address(), s.size()))
        .collect();
    let expected: Vec<_> = SYMBOLS
        .iter()
        .map(|s| (s.name, TEXT_OFFSET as u64 + s.offset, s.size))
        .collect();
    assert_eq!(symbols, expected);

    let endian = object::Endianness::Little;
    let sections = file.elf_header().sections(endian, &*image).unwrap();
    let (_, dynsym_index) = sections.gnu_hash(endian, &*image).unwrap().unwrap();
    let (hash_table, _) = sections.gnu_hash(endian, &*image).unwrap().unwrap();
    let (sysv_table, _) = sections.hash(endian, &*image).unwrap().unwrap();
    let symbols = sections
        .symbol_table_by_index(endian, &*image, dynsym_index)
        .unwrap();
    let versions = sections.versions(endian, &*image).unwrap().unwrap();
    for (index, wanted) in SYMBOLS.iter().enumerate() {
        let name = wanted.name.as_bytes();
        let named = versions
            .version(
                versions
                    .version_index(endian, object::SymbolIndex(index + 1))
                    .into(),
            )
            .unwrap()
            .unwrap();
        assert_eq!(named.name(), b"LINUX_2.6");
        let by_gnu = hash_table
            .find(
                endian,
                name,
                gnu_hash(wanted.name),
                Some(named),
                &symbols,
                &versions,
            )
            .unwrap();
        let by_sysv = sysv_table
            .find(
                endian,
                name,
                sysv_hash(wanted.name),
                Some(named),
                &symbols,
                &versions,
            )
            .unwrap();
        assert_eq!((by_gnu.0.0, by_sysv.0.0), (index + 1, index + 1));
    }
}

/// What both look-ups take from the program headers and the dynamic section: addresses of tables by tag.
fn dynamic(image: &[u8]) -> Option<HashMap<u64, usize>> {
    let (phoff, phnum) = (
        usize::try_from(u64_at(image, 32)?).ok()?,
        u16_at(image, 56)?,
    );
    let mut loaded = false;
    let mut dynamic = None;
    for index in 0..usize::from(phnum) {
        let header = &image[phoff + 56 * index..];
        match u32_at(header, 0)? {
            1 => loaded = u64_at(header, 8)? == u64_at(header, 16)?,
            2 => dynamic = Some(usize::try_from(u64_at(header, 8)?).ok()?),
            _ => {}
        }
    }
    let mut at = dynamic.filter(|_| loaded)?;
    let mut tags = HashMap::new();
    while u64_at(image, at)? != 0 {
        tags.insert(
            u64_at(image, at)?,
            usize::try_from(u64_at(image, at + 8)?).ok()?,
        );
        at += 16;
    }
    Some(tags)
}

fn string(image: &[u8], at: usize) -> &str {
    let end = at + image[at..].iter().position(|b| *b == 0).unwrap();
    std::str::from_utf8(&image[at..end]).unwrap()
}

/// The way of Go's runtime/vdso_linux.go: the version first (skipping the base definition), then the symbol by one of
/// the hash tables, with type, binding, section and version checked.
fn look_up_like_go(image: &[u8], name: &str, version: &str, gnu: bool) -> Option<u64> {
    let tags = dynamic(image)?;
    let (strtab, symtab, versym) = (tags[&5], tags[&6], tags[&0x6fff_fff0]);
    let mut def = tags[&0x6fff_fffc];
    let wanted_version = loop {
        let aux = def + u32_at(image, def + 12)? as usize;
        let found = string(image, strtab + u32_at(image, aux)? as usize) == version
            && u32_at(image, def + 8)? == sysv_hash(version);
        if u16_at(image, def + 2)? & 1 == 0 && found {
            break u16_at(image, def + 4)? & 0x7fff;
        }
        match u32_at(image, def + 16)? {
            0 => return None,
            next => def += next as usize,
        }
    };
    let matches = |index: u32| {
        let sym = symtab + 24 * index as usize;
        let info = image[sym + 4];
        let ok = info & 15 == 2
            && matches!(info >> 4, 1 | 2)
            && u16_at(image, sym + 6)? != 0
            && string(image, strtab + u32_at(image, sym)? as usize) == name
            && u16_at(image, versym + 2 * index as usize)? & 0x7fff == wanted_version;
        if ok { u64_at(image, sym + 8) } else { None }
    };
    if gnu {
        let table = tags[&0x6fff_fef5];
        let (buckets, first, bloom) = (
            u32_at(image, table)?,
            u32_at(image, table + 4)?,
            u32_at(image, table + 8)?,
        );
        let bucket_at = table + 16 + 8 * bloom as usize;
        let chain_at = bucket_at + 4 * buckets as usize;
        let hash = gnu_hash(name);
        let mut index = u32_at(image, bucket_at + 4 * (hash % buckets) as usize)?;
        while index >= first {
            let link = u32_at(image, chain_at + 4 * (index - first) as usize)?;
            if link | 1 == hash | 1
                && let Some(found) = matches(index)
            {
                return Some(found);
            }
            if link & 1 != 0 {
                break;
            }
            index += 1;
        }
        return None;
    }
    let table = tags[&4];
    let buckets = u32_at(image, table)?;
    let mut index = u32_at(image, table + 8 + 4 * (sysv_hash(name) % buckets) as usize)?;
    while index != 0 {
        if let Some(found) = matches(index) {
            return Some(found);
        }
        index = u32_at(image, table + 8 + 4 * (buckets + index) as usize)?;
    }
    None
}

#[test]
fn go_finds_each_function_in_both_tables() {
    let image = image();
    for gnu in [true, false] {
        for symbol in SYMBOLS {
            let found = look_up_like_go(&image, symbol.name, "LINUX_2.6", gnu);
            assert_eq!(
                found,
                Some(TEXT_OFFSET as u64 + symbol.offset),
                "{}",
                symbol.name
            );
        }
        assert_eq!(
            look_up_like_go(&image, "__vdso_missing", "LINUX_2.6", gnu),
            None
        );
        assert_eq!(
            look_up_like_go(&image, "__vdso_time", "LINUX_2.7", gnu),
            None
        );
    }
    assert_eq!(
        sysv_hash("LINUX_2.6"),
        0x3ae_75f6,
        "the constant that Go and glibc compare with"
    );
}

/// musl walks the whole symbol table, whose length it takes from `DT_HASH`.
#[test]
fn musl_knows_the_number_of_symbols() {
    let image = image();
    let tags = dynamic(&image).unwrap();
    assert_eq!(u32_at(&image, tags[&4] + 4), Some(6));
    assert_eq!(string(&image, tags[&5] + tags[&14]), "linux-vdso.so.1");
}

#[test]
fn edges() {
    let none = VdsoSpec {
        symbols: &[],
        ..SPEC
    };
    let image = build(&none).unwrap();
    assert_eq!(
        look_up_like_go(&image, "__vdso_time", "LINUX_2.6", true),
        None
    );
    assert_eq!(
        look_up_like_go(&image, "__vdso_time", "LINUX_2.6", false),
        None
    );
    let outside = [VdsoSymbol {
        name: "x",
        offset: 80,
        size: 1,
    }];
    assert_eq!(
        build(&VdsoSpec {
            symbols: &outside,
            ..SPEC
        }),
        Err(VdsoError::SymbolOutsideText(0))
    );
    let many = vec![SYMBOLS[0]; 60];
    assert_eq!(
        build(&VdsoSpec {
            symbols: &many,
            ..SPEC
        }),
        Err(VdsoError::TablesTooLarge)
    );
    let large = vec![0xc3; 5000];
    assert_eq!(
        build(&VdsoSpec {
            text: &large,
            ..SPEC
        })
        .unwrap()
        .len(),
        8192
    );
}
