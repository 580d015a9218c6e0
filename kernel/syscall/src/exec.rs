// SPDX-License-Identifier: Apache-2.0
//! Loading a program into the address space.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_abi::raw::auxvec as at;
use coracle_abi::raw::general as g;
use coracle_abi::{Errno, PAGE_SIZE, USER_END};
use coracle_core::file::OpenFile;
use coracle_core::io::IoDst;
use coracle_core::memory::space::{self, Area, Backing, MapRequest, Protection};
use coracle_core::sync::SpinLock;
use coracle_core::{Result, random, user, vdso};
use coracle_fs::vfs::OpenRequest;
use coracle_loader::elf::{self, ElfError, Kind, LoadPlan, Machine};
use coracle_loader::stack::{self, StackImage, StackInput};

use crate::process::process;

/// A program that is ready to run.
pub struct Loaded {
    /// First instruction.
    pub entry: usize,
    /// First stack pointer.
    pub stack: usize,
}

/// Why a program cannot run: exit status as shells and podman use it (126: found but not usable, 127: not found), and a
/// line that says it.
#[derive(Debug)]
pub struct ExecError {
    /// 126 or 127.
    pub status: u8,
    /// Without a newline.
    pub message: String,
}

/// What `/proc/self` shows of the program.
#[derive(Clone, Default)]
pub struct ProgramInfo {
    /// Path of the executable.
    pub path: Vec<u8>,
    /// Addresses of the arguments on the stack.
    pub arguments: core::ops::Range<u64>,
    /// Addresses of the environment.
    pub environment: core::ops::Range<u64>,
    /// Addresses of the auxiliary vector.
    pub auxiliary: core::ops::Range<u64>,
    /// First stack pointer.
    pub stack: usize,
    /// First and last address of the code.
    pub code: core::ops::Range<usize>,
}

static PROGRAM: SpinLock<Option<ProgramInfo>> = SpinLock::new(None);

/// What `/proc/self` shows of the program; empty before one is loaded.
#[must_use]
pub fn program() -> ProgramInfo {
    PROGRAM.lock().clone().unwrap_or_default()
}

/// Longest stack, `RLIMIT_STACK`'s usual value.
const STACK_BYTES: usize = 8 << 20;
/// Part of it that is mapped from the start; it grows when it is touched below.
const STACK_START_BYTES: usize = 128 << 10;

/// A random multiple of the page size below `limit`.
fn random_pages(limit: u64) -> usize {
    usize_from(random::u64() % limit) & !(PAGE_SIZE - 1)
}

/// Loads the program at `path` with its arguments and environment. The address space must be empty.
pub fn load(path: &str, args: &[&[u8]], env: &[&[u8]]) -> Result<Loaded, ExecError> {
    let name = find_program(path, env);
    let fail = |status: u8, why: String| ExecError {
        status,
        message: format!("{name}: {why}"),
    };
    let from_errno = |error: Errno, what: &str| {
        let status = if matches!(error, Errno::ENOENT | Errno::ENOTDIR) {
            127
        } else {
            126
        };
        fail(status, format!("{what}: {error}"))
    };
    let (file, plan) = open_program(&name).map_err(|error| match error {
        OpenError::Errno(Errno::ENOENT) => {
            fail(127, String::from("not found in the root file system"))
        }
        OpenError::Errno(error) => from_errno(error, "cannot be opened"),
        OpenError::Elf(error) => fail(126, format!("{error}")),
    })?;
    // Where things go, each slid by a random amount.
    let stack_top = USER_END - random_pages(1 << 34);
    let stack_top = stack_top & !15;
    let map_top = stack_top - STACK_BYTES - (1 << 20) - random_pages(1 << 34);
    space::set_top(map_top & !(PAGE_SIZE - 1));
    let bias = if plan.position_independent {
        let align = usize_from(plan.base_align());
        (0x5555_5555_4000 + random_pages(1 << 40)).next_multiple_of(align)
            - usize_from(plan.min_vaddr)
    } else {
        0
    };
    map_segments(&file, &plan, bias).map_err(|error| from_errno(error, "cannot be mapped"))?;
    let end = bias + usize_from(plan.max_vaddr);
    space::set_brk_start(end + PAGE_SIZE + random_pages(1 << 25));

    let (mut entry, mut interpreter_base) = (bias + usize_from(plan.entry), 0);
    if let Kind::Dynamic { interp } = &plan.kind {
        let (file, loader) = open_program(interp).map_err(|error| match error {
            OpenError::Errno(Errno::ENOENT) => fail(
                127,
                format!("its dynamic loader {interp} is not in the root file system"),
            ),
            OpenError::Errno(error) => from_errno(error, "its dynamic loader cannot be opened"),
            OpenError::Elf(error) => fail(126, format!("its dynamic loader {interp}: {error}")),
        })?;
        let len = usize_from(loader.max_vaddr - loader.min_vaddr);
        // Room is found by mapping it once, and then filled segment by segment.
        let request = MapRequest {
            hint: 0,
            len,
            fixed: None,
            low: false,
            align: usize_from(loader.base_align()),
            area: Area::anonymous(Protection::empty(), ""),
        };
        let base = space::map(request)
            .map_err(|error| from_errno(error, "its dynamic loader cannot be mapped"))?;
        interpreter_base = base - usize_from(loader.min_vaddr);
        map_segments(&file, &loader, interpreter_base)
            .map_err(|error| from_errno(error, "its dynamic loader cannot be mapped"))?;
        entry = interpreter_base + usize_from(loader.entry);
    }

    let mut stack_area = Area {
        grows_down: true,
        ..Area::anonymous(Protection::READ | Protection::WRITE, "[stack]")
    };
    if plan.gnu_stack_exec {
        stack_area.protection |= Protection::EXECUTE;
    }
    let stack_pages = stack_top.next_multiple_of(PAGE_SIZE);
    let request = MapRequest {
        hint: stack_pages - STACK_START_BYTES,
        len: STACK_START_BYTES,
        fixed: Some(true),
        low: false,
        align: PAGE_SIZE,
        area: stack_area,
    };
    space::map(request).map_err(|error| from_errno(error, "no stack"))?;
    let vdso_at = vdso::map(0).map_err(|error| from_errno(error, "no vDSO"))?;
    let image = build_stack(
        stack_top,
        &name,
        args,
        env,
        &plan,
        bias,
        interpreter_base,
        vdso_at,
    )
    .map_err(|error| fail(126, format!("{error}")))?;
    let stack = usize_from(image.sp);
    user::write_all(stack, &image.bytes).map_err(|error| from_errno(error, "its first stack"))?;
    *PROGRAM.lock() = Some(ProgramInfo {
        path: name.clone().into_bytes(),
        arguments: image.arg_range,
        environment: image.env_range,
        auxiliary: image.auxv_range,
        stack,
        code: code_range(&plan, bias),
    });
    Ok(Loaded { entry, stack })
}

fn code_range(plan: &LoadPlan, bias: usize) -> core::ops::Range<usize> {
    plan.segments.iter().find(|s| s.execute).map_or(0..0, |s| {
        bias + usize_from(s.vaddr)..bias + usize_from(s.vaddr + s.memsz)
    })
}

/// The path of the program: as given if it has a slash, else the first match in `PATH`.
fn find_program(path: &str, env: &[&[u8]]) -> String {
    if path.contains('/') {
        return path.into();
    }
    let default = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let search = env
        .iter()
        .find_map(|e| e.strip_prefix(b"PATH="))
        .and_then(|p| core::str::from_utf8(p).ok())
        .unwrap_or(default);
    search
        .split(':')
        .filter(|directory| !directory.is_empty())
        .map(|directory| format!("{directory}/{path}"))
        .find(|candidate| open_file(candidate).is_ok())
        .unwrap_or_else(|| path.into())
}

enum OpenError {
    Errno(Errno),
    Elf(ElfError),
}

fn open_file(path: &str) -> Result<Arc<OpenFile>> {
    let process = process();
    process.vfs.open(
        &process.working_directory(),
        path.as_bytes(),
        &OpenRequest::new(g::O_RDONLY),
    )
}

/// Opens an executable and reads what it wants.
fn open_program(path: &str) -> Result<(Arc<OpenFile>, LoadPlan), OpenError> {
    let file = open_file(path).map_err(OpenError::Errno)?;
    let metadata = file.file().metadata().map_err(OpenError::Errno)?;
    if metadata.mode & g::S_IFMT != g::S_IFREG || metadata.mode & 0o111 == 0 {
        return Err(OpenError::Errno(Errno::EACCES));
    }
    let mut wanted = PAGE_SIZE;
    loop {
        let mut head = alloc::vec![0; wanted];
        let got = file
            .file()
            .read_at(0, &mut IoDst::kernel(&mut head))
            .map_err(OpenError::Errno)?;
        match elf::parse(&head[..got], metadata.size) {
            Err(ElfError::NeedBytes { bytes, .. }) if usize_from(bytes) > wanted => {
                wanted = usize_from(bytes)
            }
            Err(error) => return Err(OpenError::Elf(error)),
            Ok(plan) => {
                plan.require(Machine::X86_64).map_err(OpenError::Elf)?;
                return Ok((file, plan));
            }
        }
    }
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
    space::map(request).map(|_| ())
}

#[expect(
    clippy::too_many_arguments,
    reason = "each is one fact for the auxiliary vector"
)]
fn build_stack(
    top: usize,
    name: &str,
    args: &[&[u8]],
    env: &[&[u8]],
    plan: &LoadPlan,
    bias: usize,
    interpreter_base: usize,
    vdso_at: usize,
) -> Result<StackImage, stack::StackError> {
    let (uid, gid) = process().owner();
    let mut seed = [0; 16];
    random::fill(&mut seed);
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
    add(at::AT_BASE, u64_from(interpreter_base));
    add(at::AT_FLAGS, 0);
    add(at::AT_ENTRY, u64_from(bias) + plan.entry);
    add(at::AT_UID, uid.into());
    add(at::AT_EUID, uid.into());
    add(at::AT_GID, gid.into());
    add(at::AT_EGID, gid.into());
    add(at::AT_SECURE, 0);
    add(
        at::AT_MINSIGSTKSZ,
        u64_from(coracle_core::signal::frame_bytes()),
    );
    stack::build(&StackInput {
        top: u64_from(top),
        max_len: u64_from(STACK_START_BYTES - 2 * PAGE_SIZE),
        argv: args,
        env,
        auxv: &auxv,
        random: seed,
        platform: b"x86_64",
        execfn: name.as_bytes(),
    })
}
