// SPDX-License-Identifier: Apache-2.0
//! A program put into the empty address space: segments, dynamic loader, stack, vDSO.

use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::auxvec as at;
use coracle_abi::raw::general as g;
use coracle_abi::{Errno, PAGE_SIZE, USER_END};
use coracle_core::file::OpenFile;
use coracle_core::memory::space::{self, Area, Backing, MapRequest, Protection};
use coracle_core::{Result, random, user, vdso};
use coracle_loader::elf::LoadPlan;
use coracle_loader::stack::{self, StackImage, StackInput, Strings};

use super::open::Program;
use super::{Loaded, ProgramInfo};
use crate::info;

/// Longest stack, `RLIMIT_STACK`'s usual value.
const STACK_BYTES: usize = 8 << 20;
/// Part of it that is mapped from the start, besides arguments and environment; it grows when it is touched below.
const STACK_START_BYTES: usize = 128 << 10;

/// How many bytes arguments and environment may have.
pub(super) fn arguments_limit() -> u64 {
    let (soft, _) = info::limit(g::RLIMIT_STACK).unwrap_or((u64::MAX, u64::MAX));
    stack::size_limit(soft)
}

/// A random multiple of the page size below `limit`.
fn random_pages(limit: u64) -> usize {
    usize_from(random::u64() % limit) & !(PAGE_SIZE - 1)
}

/// Puts the program into the address space, which must be empty. `name` is what it was asked for as. On failure the
/// space may hold a part of it.
pub(super) fn map(
    program: &Program,
    name: &[u8],
    env: &Strings,
    is_secure: bool,
) -> Result<(Loaded, ProgramInfo)> {
    let plan = &program.plan;
    // Where things go, each slid by a random amount.
    let stack_top = (USER_END - random_pages(1 << 34)) & !15;
    let map_top = stack_top - STACK_BYTES - (1 << 20) - random_pages(1 << 34);
    space::set_top(map_top & !(PAGE_SIZE - 1));
    let bias = if plan.position_independent {
        let align = usize_from(plan.base_align());
        (0x5555_5555_4000 + random_pages(1 << 40)).next_multiple_of(align)
            - usize_from(plan.min_vaddr)
    } else {
        0
    };
    map_segments(&program.file, plan, bias)?;
    let end = bias + usize_from(plan.max_vaddr);
    space::set_brk_start(end + PAGE_SIZE + random_pages(1 << 25));

    let (mut entry, mut loader_base) = (bias + usize_from(plan.entry), 0);
    if let Some((file, loader)) = &program.loader {
        let len = usize_from(loader.max_vaddr - loader.min_vaddr);
        // Room is found by mapping it once, and then filled segment by segment.
        let base = space::map(MapRequest {
            hint: 0,
            len,
            fixed: None,
            low: false,
            align: usize_from(loader.base_align()),
            area: Area::anonymous(Protection::empty(), ""),
        })?;
        loader_base = base - usize_from(loader.min_vaddr);
        map_segments(file, loader, loader_base)?;
        entry = loader_base + usize_from(loader.entry);
    }
    let vdso_at = vdso::map(0)?;
    let auxv = auxiliary_vector(plan, bias, loader_base, vdso_at, is_secure);
    let mut seed = [0; 16];
    random::fill(&mut seed);
    let image = stack::build(&StackInput {
        top: u64_from(stack_top),
        max_len: arguments_limit(),
        argv: &program.arguments,
        env,
        auxv: &auxv,
        random: seed,
        platform: b"x86_64",
        execfn: name,
    })?;
    map_stack(stack_top, &image, plan.gnu_stack_exec)?;
    let stack = usize_from(image.sp);
    let info = ProgramInfo {
        file: Some(program.file.clone()),
        arguments: image.arg_range,
        environment: image.env_range,
        auxiliary: image.auxv_range,
        stack,
        code: code_range(plan, bias),
    };
    Ok((Loaded { entry, stack }, info))
}

fn map_stack(top: usize, image: &StackImage, executable: bool) -> Result<()> {
    let mut area = Area {
        grows_down: true,
        ..Area::anonymous(Protection::READ | Protection::WRITE, "[stack]")
    };
    if executable {
        area.protection |= Protection::EXECUTE;
    }
    let end = top.next_multiple_of(PAGE_SIZE);
    let len = (STACK_START_BYTES + image.bytes.len()).next_multiple_of(PAGE_SIZE);
    map_at(end - len, len, area)?;
    user::write_all(usize_from(image.sp), &image.bytes)
}

fn code_range(plan: &LoadPlan, bias: usize) -> core::ops::Range<usize> {
    plan.segments.iter().find(|s| s.execute).map_or(0..0, |s| {
        bias + usize_from(s.vaddr)..bias + usize_from(s.vaddr + s.memsz)
    })
}

/// Maps the segments of a file, `bias` bytes above the addresses in it.
fn map_segments(file: &Arc<OpenFile>, plan: &LoadPlan, bias: usize) -> Result<()> {
    for segment in &plan.segments {
        let mut protection = Protection::empty();
        protection.set(Protection::READ, segment.read);
        protection.set(Protection::WRITE, segment.write);
        protection.set(Protection::EXECUTE, segment.execute);
        let pages = segment.pages();
        let (start, end) = (bias + usize_from(pages.start), bias + usize_from(pages.end));
        let lead = segment.vaddr - pages.start;
        let file_end = bias
            + usize_from((segment.vaddr + segment.filesz).next_multiple_of(u64_from(PAGE_SIZE)));
        if segment.filesz > 0 {
            let backing = Backing::File {
                file: file.clone(),
                offset: segment.file_offset - lead,
            };
            let area = Area {
                backing,
                ..Area::anonymous(protection, "")
            };
            map_at(start, file_end - start, area)?;
        }
        let zero_from = if segment.filesz > 0 { file_end } else { start };
        if zero_from < end {
            map_at(zero_from, end - zero_from, Area::anonymous(protection, ""))?;
        }
        // The rest of the last page from the file belongs to the zeroed part.
        let data_end = bias + usize_from(segment.vaddr + segment.filesz);
        if segment.filesz > 0 && segment.memsz > segment.filesz && data_end < file_end {
            user::zero_all(data_end, file_end - data_end)?;
        }
    }
    Ok(())
}

fn map_at(at: usize, len: usize, area: Area) -> Result<()> {
    let request = MapRequest {
        hint: at,
        len,
        fixed: Some(true),
        low: false,
        align: PAGE_SIZE,
        area,
    };
    match space::map(request) {
        Ok(_) => Ok(()),
        // A program linked to addresses that something else has.
        Err(Errno::EEXIST) => Err(Errno::ENOMEM),
        Err(error) => Err(error),
    }
}

fn auxiliary_vector(
    plan: &LoadPlan,
    bias: usize,
    loader_base: usize,
    vdso_at: usize,
    is_secure: bool,
) -> Vec<(u64, u64)> {
    let identity = info::identity();
    let mut auxv: Vec<(u64, u64)> = Vec::new();
    let mut add = |kind: u32, value: u64| auxv.push((u64::from(kind), value));
    add(at::AT_SYSINFO_EHDR, u64_from(vdso_at));
    add(
        at::AT_HWCAP,
        u64::from(coracle_core::thread::hardware_capabilities()),
    );
    add(
        at::AT_HWCAP2,
        if coracle_core::thread::has_fsgsbase() {
            2
        } else {
            0
        },
    );
    add(at::AT_PAGESZ, u64_from(PAGE_SIZE));
    add(at::AT_CLKTCK, 100);
    if let Some(phdr) = plan.phdr_vaddr {
        add(at::AT_PHDR, u64_from(bias) + phdr);
    }
    add(at::AT_PHENT, plan.phentsize.into());
    add(at::AT_PHNUM, plan.phnum.into());
    add(at::AT_BASE, u64_from(loader_base));
    add(at::AT_FLAGS, 0);
    add(at::AT_ENTRY, u64_from(bias) + plan.entry);
    add(at::AT_UID, identity.user.real.into());
    add(at::AT_EUID, identity.user.effective.into());
    add(at::AT_GID, identity.group.real.into());
    add(at::AT_EGID, identity.group.effective.into());
    add(at::AT_SECURE, is_secure.into());
    add(
        at::AT_MINSIGSTKSZ,
        u64_from(coracle_core::signal::frame_bytes()),
    );
    auxv
}
