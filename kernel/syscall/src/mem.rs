// SPDX-License-Identifier: Apache-2.0
//! Memory: mmap(2) and its kind.

use coracle_abi::convert::u64_from;
use coracle_abi::raw::general as g;
use coracle_abi::{Errno, PAGE_SIZE};
use coracle_core::Result;
use coracle_core::memory::space::{self, Area, Backing, MapRequest, Protection};
use coracle_core::user::{self, User};

use crate::argument::Fd;
use crate::fd;
use crate::process::process;

/// `EINVAL` for unknown bits; `PROT_GROWSDOWN` and `PROT_GROWSUP` are for stacks and change nothing here.
fn protection(bits: u32) -> Result<Protection> {
    let known = g::PROT_READ
        | g::PROT_WRITE
        | g::PROT_EXEC
        | g::PROT_GROWSDOWN
        | g::PROT_GROWSUP
        | g::PROT_SEM;
    if bits & !known != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Protection::from_bits_truncate(bits))
}

/// `mmap(2)`
pub(crate) fn mmap(
    at: usize,
    len: usize,
    bits: u32,
    flags: u32,
    fd: Fd,
    offset: usize,
) -> Result<usize> {
    if !offset.is_multiple_of(PAGE_SIZE) || len == 0 {
        return Err(Errno::EINVAL);
    }
    let protection = Protection::from_bits_truncate(bits);
    let shared = match flags & g::MAP_TYPE {
        g::MAP_PRIVATE => false,
        g::MAP_SHARED | g::MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    if flags & g::MAP_HUGETLB != 0 {
        return Err(Errno::ENOMEM); // no pages are set aside for it
    }
    let backing = if flags & g::MAP_ANONYMOUS != 0 {
        if shared {
            // The memory belongs to an object of its own, which outlives advice and can be mapped again by mremap.
            let len = len
                .checked_next_multiple_of(PAGE_SIZE)
                .ok_or(Errno::ENOMEM)?;
            Backing::File {
                file: crate::fd::shared_memory(u64_from(len))?,
                offset: 0,
            }
        } else {
            Backing::Anonymous
        }
    } else {
        let file = process().file(fd)?;
        offset
            .checked_add(len)
            .filter(|end| isize::try_from(*end).is_ok())
            .ok_or(Errno::EOVERFLOW)?;
        file.check_readable().map_err(|_| Errno::EACCES)?;
        if shared && protection.contains(Protection::WRITE) {
            file.check_writable().map_err(|_| Errno::EACCES)?;
        }
        // An object that cannot be mapped says so now, not at the first touch.
        match file.file().page(u64_from(offset / PAGE_SIZE), false) {
            Err(error @ (Errno::ENODEV | Errno::EACCES | Errno::ENOMEM)) => return Err(error),
            _ => Backing::File {
                file,
                offset: u64_from(offset),
            },
        }
    };
    let fixed = if flags & g::MAP_FIXED_NOREPLACE != 0 {
        Some(false)
    } else if flags & g::MAP_FIXED != 0 {
        Some(true)
    } else {
        None
    };
    let is_stack = flags & g::MAP_GROWSDOWN != 0;
    let area = Area {
        protection,
        shared,
        backing,
        grows_down: is_stack,
        name: "",
    };
    // Large anonymous mappings begin where a huge page can.
    let align = if len >= HUGE_ALIGN && flags & g::MAP_ANONYMOUS != 0 {
        HUGE_ALIGN
    } else {
        PAGE_SIZE
    };
    let request = MapRequest {
        hint: at,
        len,
        fixed,
        low: flags & MAP_32BIT != 0,
        align,
        area,
    };
    let mapped = space::map(request)?;
    if flags & (g::MAP_POPULATE | g::MAP_LOCKED) != 0 && !protection.is_empty() {
        // A mapping that cannot be filled now is filled when it is touched.
        let _ = space::lock_pages(mapped, len);
    }
    Ok(mapped)
}

const HUGE_ALIGN: usize = 2 << 20;
/// `MAP_32BIT` of x86-64.
const MAP_32BIT: u32 = 0x40;

/// `munmap(2)`
pub(crate) fn munmap(at: usize, len: usize) -> Result<usize> {
    space::unmap(at, len)?;
    coracle_fs::ninep::write_back(false);
    Ok(0)
}

/// `mprotect(2)`
pub(crate) fn mprotect(at: usize, len: usize, bits: u32) -> Result<usize> {
    let protection = protection(bits)?;
    if bits & g::PROT_GROWSDOWN != 0 && bits & g::PROT_GROWSUP != 0 {
        return Err(Errno::EINVAL);
    }
    space::protect(at, len, protection).map(|()| 0)
}

/// `mremap(2)`
pub(crate) fn mremap(
    at: usize,
    old_len: usize,
    new_len: usize,
    flags: u32,
    new: usize,
) -> Result<usize> {
    if flags & !(g::MREMAP_MAYMOVE | g::MREMAP_FIXED | g::MREMAP_DONTUNMAP) != 0 {
        return Err(Errno::EINVAL);
    }
    let may_move = flags & g::MREMAP_MAYMOVE != 0;
    let fixed = (flags & g::MREMAP_FIXED != 0).then_some(new);
    let keep = flags & g::MREMAP_DONTUNMAP != 0;
    if (fixed.is_some() || keep) && !may_move {
        return Err(Errno::EINVAL);
    }
    space::remap(at, old_len, new_len, may_move, fixed, keep)
}

/// `madvise(2)`
pub(crate) fn madvise(at: usize, len: usize, advice: u32) -> Result<usize> {
    space::advise(at, len, advice)?;
    if advice == g::MADV_WILLNEED && len > 0 {
        for (open, range) in space::mapped_files(at, len)? {
            fd::fetch_ahead(&open, range.start, range.end - range.start);
        }
    }
    Ok(0)
}

/// `brk(2)`; as a system call it returns the end of the data segment, also when it did not move.
pub(crate) fn brk(end: usize) -> Result<usize> {
    Ok(space::brk(end))
}

/// `mincore(2)`
pub(crate) fn mincore(at: usize, len: usize, out: User) -> Result<usize> {
    space::residency(at, len, |n, present| {
        user::write_all(out.0.wrapping_add(n), &[u8::from(present)])
    })?;
    Ok(0)
}

/// `msync(2)`
pub(crate) fn msync(at: usize, len: usize, flags: u32) -> Result<usize> {
    let known = g::MS_ASYNC | g::MS_SYNC | g::MS_INVALIDATE;
    if flags & !known != 0 || flags & g::MS_ASYNC != 0 && flags & g::MS_SYNC != 0 {
        return Err(Errno::EINVAL);
    }
    for file in space::shared_files(at, len)? {
        if flags & g::MS_SYNC != 0 {
            match file.file().sync() {
                Ok(()) | Err(Errno::EINVAL) => {} // a device, which keeps nothing
                Err(error) => return Err(error),
            }
        }
    }
    Ok(0)
}

/// `mlock(2)`
pub(crate) fn mlock(at: usize, len: usize) -> Result<usize> {
    space::lock_pages(at, len).map(|()| 0)
}

/// `mlock2(2)`
pub(crate) fn mlock2(at: usize, len: usize, flags: u32) -> Result<usize> {
    match flags {
        0 => mlock(at, len),
        // Pages stay once they were touched anyway.
        g::MLOCK_ONFAULT => check_mapped(at, len),
        _ => Err(Errno::EINVAL),
    }
}

/// `munlock(2)`
pub(crate) fn munlock(at: usize, len: usize) -> Result<usize> {
    check_mapped(at, len)
}

/// `ENOMEM` if part of the range, which need not begin at a page, is not mapped.
fn check_mapped(at: usize, len: usize) -> Result<usize> {
    space::shared_files(
        at & !(PAGE_SIZE - 1),
        len.checked_add(at % PAGE_SIZE).ok_or(Errno::EINVAL)?,
    )?;
    Ok(0)
}

/// `mlockall(2)`: pages are never given up under the application, so there is nothing to do but check.
pub(crate) fn mlockall(flags: u32) -> Result<usize> {
    let known = g::MCL_CURRENT | g::MCL_FUTURE | g::MCL_ONFAULT;
    if flags & !known != 0 || flags & (g::MCL_CURRENT | g::MCL_FUTURE) == 0 {
        Err(Errno::EINVAL)
    } else {
        Ok(0)
    }
}

/// `munlockall(2)`
pub(crate) fn munlockall() -> Result<usize> {
    Ok(0)
}

const MEMBARRIER_CMD_QUERY: i32 = 0;
const MEMBARRIER_CMD_GLOBAL: i32 = 1;
const MEMBARRIER_CMD_PRIVATE_EXPEDITED: i32 = 1 << 3;
const MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// `membarrier(2)`
pub(crate) fn membarrier(command: i32, flags: u32, _cpu: i32) -> Result<usize> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        MEMBARRIER_CMD_QUERY => {
            let known = MEMBARRIER_CMD_GLOBAL
                | MEMBARRIER_CMD_PRIVATE_EXPEDITED
                | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
            Ok(coracle_abi::convert::usize_from_u32(known.cast_unsigned()))
        }
        MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED => Ok(0),
        MEMBARRIER_CMD_GLOBAL | MEMBARRIER_CMD_PRIVATE_EXPEDITED => {
            // Every CPU serves an interrupt and with it a full barrier.
            space::barrier();
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
