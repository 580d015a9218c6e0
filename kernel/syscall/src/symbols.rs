// SPDX-License-Identifier: Apache-2.0
//! Names for addresses of the application, for the report of its crash.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::u64_from;
use coracle_core::file::OpenFile;
use coracle_core::io::IoDst;
use coracle_core::memory::space::{self, Backing};
use coracle_fs::vfs::VnodeFile;
use coracle_loader::symbols::{self, Found};

/// What lies at an address.
enum Content {
    Nothing,
    Memory(&'static str),
    /// A file and the position in it.
    File(Arc<OpenFile>, u64),
}

/// Describes addresses as `0x401136 main+0x10 (/bin/program)`. The first one is that of an instruction. The others are
/// return addresses: each belongs to the call before it, which may be the last instruction of its function.
///
/// Files are read only now: nothing is kept for this while the application runs.
#[must_use]
pub fn describe(addresses: &[usize]) -> Vec<String> {
    let back = |n: usize| u64_from(n.min(1));
    let contents: Vec<Content> = addresses.iter().map(|at| content(*at)).collect();
    let mut found: Vec<Found> = addresses.iter().map(|_| Found::default()).collect();
    let mut done: Vec<&Arc<OpenFile>> = Vec::new();
    for content in &contents {
        let Content::File(file, _) = content else {
            continue;
        };
        if done.iter().any(|other| Arc::ptr_eq(other, file)) {
            continue;
        }
        done.push(file);
        let here = |(n, content): (usize, &Content)| match content {
            Content::File(other, position) if Arc::ptr_eq(other, file) => {
                Some((n, position.saturating_sub(back(n))))
            }
            _ => None,
        };
        let (numbers, positions): (Vec<usize>, Vec<u64>) =
            contents.iter().enumerate().filter_map(here).unzip();
        let mut read = |at: u64, out: &mut [u8]| {
            let mut to = IoDst::kernel(out);
            file.file().read_at(at, &mut to).unwrap_or(0)
        };
        for (n, one) in numbers
            .into_iter()
            .zip(symbols::resolve(&mut read, &positions))
        {
            found[n] = one;
        }
    }
    let all = addresses.iter().zip(&contents).zip(&found).enumerate();
    all.map(|(n, ((at, content), found))| text(*at, content, found, back(n)))
        .collect()
}

fn content(at: usize) -> Content {
    let mut content = Content::Nothing;
    space::for_each_area(|range, area| {
        if range.contains(&at) {
            content = match &area.backing {
                Backing::File { file, offset } => {
                    Content::File(file.clone(), offset + u64_from(at - range.start))
                }
                _ => Content::Memory(area.name),
            };
        }
    });
    content
}

/// `back` is how far before the address the place is that was looked up.
fn text(at: usize, content: &Content, found: &Found, back: u64) -> String {
    let file = match content {
        Content::Nothing => return format!("{at:#x} (not mapped)"),
        Content::Memory("") => return format!("{at:#x} (not in a file)"),
        Content::Memory(name) => return format!("{at:#x} ({name})"),
        Content::File(file, _) => file,
    };
    let path = file.downcast::<VnodeFile>().map(VnodeFile::path);
    let path = String::from_utf8_lossy(path.as_deref().unwrap_or(b"?")).into_owned();
    let linked = match found.vaddr {
        // Where a program lies elsewhere than it was linked to, this is what other tools know.
        Some(vaddr) if vaddr + back != u64_from(at) => format!("+{:#x}", vaddr + back),
        _ => String::new(),
    };
    match &found.symbol {
        Some(symbol) => {
            let offset = symbol.offset + back;
            format!("{at:#x} {}+{offset:#x} ({path}{linked})", symbol.name)
        }
        None => format!("{at:#x} ({path}{linked})"),
    }
}
