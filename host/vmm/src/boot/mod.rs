// SPDX-License-Identifier: Apache-2.0
//! Boots the kernel on `microvm` without firmware and without a copy of the bundle.
//!
//! QEMU's `-kernel` and `-initrd` keep both files mapped and let the firmware copy them into the guest, so a bundle counts
//! twice in the VMM's memory and is read before anything starts. Here the bundle's files *are* the last part of the
//! guest's memory, mapped copy-on-write: only pages the guest touches are read and count, and guests of one program share
//! them. What the firmware does otherwise, to
//! enter protected mode and to leave the PVH start info, a boot ROM made for this one guest does ([`rom`]).
//!
//! Measured with QEMU 7.2, software emulation, 256 MiB, a bundle of 9 MB, a kernel that ends at its first instruction
//! (median of 15 on an idle 2-core machine): `-kernel -initrd` 30 ms and 59 MB resident, this way 24 ms and 40 MB.

mod kernel;
mod mp_table;
mod rom;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::command::{Machine, Spec};
use crate::instance::io_remedy;

pub use kernel::KernelError;

/// Bytes of a page of the guest.
const PAGE: u64 = 4096;
/// Guests above this have memory above 4 GiB, where the last part is not at its own offset (QEMU, `microvm_memory_init`).
const DIRECT_MAX: u64 = 0xc000_0000;
/// Memory the kernel and a small application need beside the bundle.
const BESIDE_BUNDLE: u64 = 4 << 20;

/// How kernel and bundle reach the guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Boot {
    /// QEMU's firmware copies them.
    #[default]
    Firmware,
    /// The bundle is a part of the guest's memory, the kernel is loaded by QEMU and entered by a boot ROM.
    Direct {
        /// The boot ROM.
        rom: PathBuf,
        /// Sizes of the bundle's parts, multiples of the page size.
        bundle_bytes: Vec<u64>,
    },
}

/// Why a guest cannot be booted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// The kernel is unfit.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The bundle does not fit.
    #[error(
        "{} MiB is too little memory: the program and its files take {} MiB of it; give at least -m {}M",
        memory_bytes >> 20, bundle_bytes.div_ceil(1 << 20), (bundle_bytes + BESIDE_BUNDLE).div_ceil(1 << 20)
    )]
    TooLittleMemory {
        /// Memory of the guest.
        memory_bytes: u64,
        /// Size of the bundle.
        bundle_bytes: u64,
    },
    /// The boot ROM could not be written, or the bundle not be measured.
    #[error("{}: {source}{}", path.display(), io_remedy(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
}

/// Whether such a guest can take a bundle in parts, each of whole pages.
#[must_use]
pub fn takes_parts(machine: Machine, memory_bytes: u64) -> bool {
    machine == Machine::Microvm && memory_bytes <= DIRECT_MAX && memory_bytes.is_multiple_of(PAGE)
}

/// Completes `spec`, whose bundle has been written, with what depends on its size, and writes the boot ROM to `rom` if one
/// is needed.
///
/// # Errors
/// [`BootError`].
pub fn prepare(spec: &mut Spec, rom: &Path) -> Result<(), BootError> {
    let failed = |path: &Path, source| BootError::Io {
        path: path.into(),
        source,
    };
    let size = |path: &PathBuf| {
        path.metadata()
            .map(|meta| meta.len())
            .map_err(|error| failed(path, error))
    };
    let parts = spec
        .bundle
        .iter()
        .map(size)
        .collect::<Result<Vec<u64>, _>>()?;
    let bundle_bytes = parts.iter().sum();
    let memory_bytes = spec.memory_bytes;
    if bundle_bytes + BESIDE_BUNDLE > memory_bytes {
        return Err(BootError::TooLittleMemory {
            memory_bytes,
            bundle_bytes,
        });
    }
    let roots = spec.disks.iter().filter(|disk| disk.read_only);
    let root_bytes: u64 = roots.map(|disk| size(&disk.path)).sum::<Result<u64, _>>()?;
    spec.tcg_buffer_mib = tcg_buffer_mib(bundle_bytes + root_bytes, memory_bytes, spec.cpus);
    let entry = kernel::pvh_entry(&spec.kernel)?;
    if !takes_parts(spec.machine, memory_bytes) {
        spec.boot = Boot::Firmware;
        return Ok(());
    }
    let image = rom::build(&rom::Guest {
        entry,
        memory_bytes,
        bundle_bytes,
        cpus: spec.cpus,
        command_line: &spec.whole_command_line(),
    });
    std::fs::write(rom, image.as_slice()).map_err(|error| failed(rom, error))?;
    spec.boot = Boot::Direct {
        rom: rom.into(),
        bundle_bytes: parts,
    };
    Ok(())
}

/// Size of QEMU's buffer of translated code, MiB.
///
/// What is translated stays until the buffer is full; then all goes and what is in use is translated again, which takes
/// 0.2 s. A Go service of 6 MB under load has 11 MiB of translated code in use, besides 9 MiB it ran once at its start: a
/// buffer of three times the program drops those once and keeps the VMM 6 MB smaller. Each vCPU fills a part of its own.
///
/// A run-time that compiles needs more than its files tell: a Java service filled 64 MiB five times before its first
/// answer. Such programs get memory, so a guest with much of it may have up to a quarter of that.
fn tcg_buffer_mib(program_bytes: u64, memory_bytes: u64, cpus: u32) -> u64 {
    let most = (memory_bytes >> 22).clamp(64, 256);
    let program = (3 * program_bytes).div_ceil(1 << 20).clamp(16, most);
    program + 4 * (u64::from(cpus) - 1)
}
