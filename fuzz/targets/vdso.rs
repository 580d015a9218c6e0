// SPDX-License-Identifier: Apache-2.0
//! The vDSO builder: a code length, then symbols as offset, size and name length. What comes out holds the code where
//! it was promised, and the ELF parser agrees about it up to the missing entry point.

use coracle_loader::elf::{ElfError, Machine, parse};
use coracle_loader::vdso::{TEXT_OFFSET, VdsoSpec, VdsoSymbol, build};

pub(crate) fn run(data: &[u8]) {
    let Some((&[low, high], mut rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let text = vec![0x90; usize::from(u16::from_le_bytes([low, high % 32]))];
    let mut symbols = Vec::new();
    while let Some((&[offset, size, name_len], more)) = rest.split_first_chunk::<3>() {
        let (name, after) = more.split_at(usize::from(name_len % 32).min(more.len()));
        rest = after;
        // A name with a NUL would end there, which the caller's literals never do.
        let Ok(name) = core::str::from_utf8(name) else {
            continue;
        };
        if !name.contains('\0') {
            symbols.push(VdsoSymbol {
                name,
                offset: u64::from(offset) << 3,
                size: u64::from(size),
            });
        }
    }
    let spec = VdsoSpec {
        machine: Machine::X86_64,
        version: "LINUX_2.6",
        text: &text,
        symbols: &symbols,
    };
    let Ok(image) = build(&spec) else { return };
    assert!(image.len().is_multiple_of(4096));
    assert_eq!(image[TEXT_OFFSET..TEXT_OFFSET + text.len()], text);
    match parse(&image, image.len() as u64) {
        Ok(plan) => assert_eq!(plan.max_vaddr, image.len() as u64),
        Err(error) => assert_eq!(error, ElfError::EntryOutsideCode { entry: 0 }),
    }
}
