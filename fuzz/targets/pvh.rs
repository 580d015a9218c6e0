// SPDX-License-Identifier: Apache-2.0
//! PVH start info: the input is physical memory from 0x1000 on, the start info at its beginning.

use coracle_loader::pvh::parse;

const BASE: u64 = 0x1000;

pub(crate) fn run(data: &[u8]) {
    let read = |paddr: u64, len: usize| {
        let at = usize::try_from(paddr.checked_sub(BASE)?).ok()?;
        data.get(at..at.checked_add(len)?)
    };
    match parse(BASE, read) {
        Ok(info) => {
            assert!(!info.cmdline.contains(&0));
            assert!(
                info.modules()
                    .all(|module| module.range.start <= module.range.end)
            );
            assert!(
                info.memory()
                    .all(|memory| memory.range.start <= memory.range.end)
            );
            assert!(info.version > 0 || info.memory().next().is_none());
            assert!(info.rsdp != Some(0));
        }
        Err(error) => assert!(error.to_string().starts_with("PVH start info: ")),
    }
}
