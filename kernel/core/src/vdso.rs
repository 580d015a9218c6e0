// SPDX-License-Identifier: Apache-2.0
//! The vDSO as pages: made once at boot, mapped into the program, its data kept true.

use coracle_arch::{clock, vdso};
use coracle_loader::elf::Machine;
use coracle_loader::vdso::{VdsoSpec, VdsoSymbol, build};

use coracle_abi::PAGE_SIZE;
use coracle_abi::convert::u64_from;

use crate::memory::Page;
use crate::memory::space::{self, Area, Backing, MapRequest, Protection};
use crate::sync::Once;
use crate::{Errno, Result, time};

struct Vdso {
    data: Page,
    image: Page,
}

static VDSO: Once<Vdso> = Once::new();

/// Makes the pages. Panics if the image does not fit in one page, which the build decides, not the machine.
pub fn init() -> Result<()> {
    let symbols = vdso::functions().map(|(name, offset, size)| VdsoSymbol {
        name,
        offset: u64_from(offset),
        size: u64_from(size),
    });
    let spec = VdsoSpec {
        machine: Machine::X86_64,
        version: "LINUX_2.6",
        text: vdso::text(),
        symbols: &symbols,
    };
    let bytes = build(&spec).expect("the vDSO's few symbols fit");
    assert!(bytes.len() <= PAGE_SIZE, "the vDSO fits in a page");
    let (data, image) = (Page::zeroed()?, Page::zeroed()?);
    image.write(0, &bytes);
    let _ = VDSO.set(Vdso { data, image });
    update();
    Ok(())
}

/// Writes the clock's parameters for programs to see, after one changed.
pub fn update() {
    let Some(vdso) = VDSO.get() else { return };
    let (start, scale) = clock::parameters();
    let wall_offset = time::wall_offset();
    for (n, word) in [start, scale, wall_offset].into_iter().enumerate() {
        vdso.data.write(n * 8, &word.to_ne_bytes());
    }
}

/// Maps the pages into the program, near `hint`, and returns the address of the image (`AT_SYSINFO_EHDR`).
pub fn map(hint: usize) -> Result<usize> {
    let vdso = VDSO.get().ok_or(Errno::ENOENT)?;
    let area = |protection, page: &Page, name| Area {
        protection,
        shared: false,
        backing: Backing::Kernel { page: page.clone() },
        grows_down: false,
        name,
    };
    let data = area(Protection::READ, &vdso.data, "[vvar]");
    let request = MapRequest {
        hint,
        len: 2 * PAGE_SIZE,
        fixed: None,
        low: false,
        align: PAGE_SIZE,
        area: data,
    };
    let at = space::map(request)?;
    let image = area(
        Protection::READ | Protection::EXECUTE,
        &vdso.image,
        "[vdso]",
    );
    let request = MapRequest {
        hint: at + PAGE_SIZE,
        len: PAGE_SIZE,
        fixed: Some(true),
        low: false,
        align: PAGE_SIZE,
        area: image,
    };
    space::map(request)
}
