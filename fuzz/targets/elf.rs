// SPDX-License-Identifier: Apache-2.0
//! Executables: any bytes give an error or a plan that can be mapped without further checks.

use coracle_loader::elf::{ElfError, parse};

/// The first byte says how much of the file the parser gets to see.
pub(crate) fn run(data: &[u8]) {
    let Some((seen, file)) = data.split_first() else {
        return;
    };
    let file_len = file.len() as u64;
    let head = &file[..file.len() * (usize::from(*seen) + 1) / 256];
    match parse(head, file_len) {
        Ok(plan) => {
            let mut reached = 0;
            for segment in &plan.segments {
                assert!(segment.memsz > 0 && segment.filesz <= segment.memsz);
                assert!(segment.filesz == 0 || segment.file_offset + segment.filesz <= file_len);
                assert!(segment.align.is_power_of_two());
                let pages = segment.pages();
                assert!(reached <= pages.start && pages.start < pages.end);
                reached = pages.end;
            }
            assert_eq!(
                (plan.min_vaddr, plan.max_vaddr),
                (plan.segments[0].pages().start, reached)
            );
            assert!((plan.min_vaddr..plan.max_vaddr).contains(&plan.entry));
            if head.len() < file.len() {
                assert_eq!(
                    parse(file, file_len).as_ref(),
                    Ok(&plan),
                    "seeing more changes nothing"
                );
            }
        }
        Err(ElfError::NeedBytes { bytes, .. }) => {
            assert!(
                bytes > head.len() as u64 && bytes <= file_len,
                "the caller can make progress"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
