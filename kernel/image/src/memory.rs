// SPDX-License-Identifier: Apache-2.0
//! From the PVH start info to a heap, and to what the VMM said.

use alloc::vec::Vec;
use core::ops::Range;

use coracle_abi::convert::{u64_from, usize_from};
use coracle_arch::{cpu, layout};
use coracle_core::memory;
use coracle_loader::cmdline::{self, KernelOption, LogLevel, VirtioMmioDevice};
use coracle_loader::config::{self, BootConfig};
use coracle_loader::cpio::Archive;
use coracle_loader::pvh::{self, MemoryKind};

#[global_allocator]
static HEAP: memory::KernelHeap = memory::KernelHeap;

/// What the VMM said, in memory of our own.
pub(crate) struct BootInfo {
    /// Virtio devices named on the command line.
    pub(crate) mmio_devices: Vec<VirtioMmioDevice>,
    /// Frequency of the time stamp counter, if the host knows it.
    pub(crate) tsc_khz: Option<u64>,
    /// The boot module.
    pub(crate) bundle: &'static [u8],
    memory_bytes: u64,
}

/// Physical memory below the first GiB as the entry code mapped it.
fn read(at: u64, len: usize) -> Option<&'static [u8]> {
    let end = at.checked_add(u64_from(len))?;
    // SAFETY: the low GiB is mapped one to one, and what the VMM left there does not change.
    (at != 0 && end <= 1 << 30)
        .then(|| unsafe { core::slice::from_raw_parts(layout::direct(at), len) })
}

/// Takes over the memory. Stops with a panic if the VMM's information cannot be used.
pub(crate) fn init(start_info: u64) -> BootInfo {
    let info =
        pvh::parse(start_info, read).unwrap_or_else(|error| panic!("PVH start info: {error}"));
    let ram = || {
        info.memory()
            .filter(|m| m.kind == MemoryKind::Ram)
            .map(|m| m.range)
    };
    let modules = || info.modules().map(|m| m.range);
    // What describes them lies below 1 MiB or is reserved here, until it has been copied.
    let described = |bytes: &[u8]| -> Range<u64> {
        let start = u64_from(bytes.as_ptr() as usize);
        start..start + u64_from(bytes.len())
    };
    let reserved = modules().chain([described(info.cmdline), start_info..start_info + 4096]);
    let random = cpu::hardware_random().unwrap_or_else(coracle_arch::clock::tsc);
    memory::init(ram(), reserved, random).unwrap_or_else(|why| panic!("memory: {why}"));

    // From here on there is a heap. The old window is gone; the new one shows the same memory.
    let again = |at: u64, len: usize| {
        // SAFETY: the first MiB and all memory are mapped in the window.
        (at != 0)
            .then(|| unsafe { core::slice::from_raw_parts(layout::direct(at).cast_const(), len) })
    };
    let info =
        pvh::parse(start_info, again).unwrap_or_else(|error| panic!("PVH start info: {error}"));
    let mut found = BootInfo {
        mmio_devices: Vec::new(),
        tsc_khz: None,
        bundle: &[],
        memory_bytes: 0,
    };
    for option in cmdline::options(info.cmdline) {
        match option {
            Ok(KernelOption::VirtioMmio(device)) => found.mmio_devices.push(device),
            Ok(KernelOption::TscKhz(khz)) => found.tsc_khz = Some(khz),
            Ok(KernelOption::LogLevel(level)) => crate::report::set_level(level_filter(level)),
            Err(error) => log::warn!("{error}"),
        }
    }
    if let Some(module) = info.modules().next() {
        let len = usize_from(module.range.end - module.range.start);
        // SAFETY: the module is reserved memory, mapped in the window, and nobody writes it.
        found.bundle =
            unsafe { core::slice::from_raw_parts(layout::direct(module.range.start), len) };
    }
    // All of what the VMM said is in `found` now, but for the module.
    if info.modules().all(|m| m.range.start >= 1 << 20) {
        memory::add_low_memory(
            info.memory()
                .filter(|m| m.kind == MemoryKind::Ram)
                .map(|m| m.range),
        );
    }
    found.memory_bytes = memory::total_frames() * u64_from(coracle_abi::PAGE_SIZE);
    found
}

fn level_filter(level: LogLevel) -> log::LevelFilter {
    match level {
        LogLevel::Error => log::LevelFilter::Error,
        LogLevel::Warn => log::LevelFilter::Warn,
        LogLevel::Info => log::LevelFilter::Info,
        LogLevel::Debug => log::LevelFilter::Debug,
        LogLevel::Trace => log::LevelFilter::Trace,
    }
}

impl BootInfo {
    /// Memory of the machine in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The configuration in the bundle. Stops with a panic if there is none or it makes no sense.
    pub(crate) fn config(&self) -> BootConfig {
        let archive = Archive::new(self.bundle);
        let entry = match archive.find(b"config.json") {
            Ok(Some(entry)) => entry,
            Ok(None) => panic!("the boot module has no config.json"),
            Err(error) => panic!("boot module: {error}"),
        };
        config::parse(archive.data(&entry)).unwrap_or_else(|error| panic!("{error}"))
    }
}
