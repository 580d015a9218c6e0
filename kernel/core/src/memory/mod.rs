// SPDX-License-Identifier: Apache-2.0
//! Physical frames, pages with owners, device memory, and the application's address space.

mod mmio;
mod page;

pub use mmio::Mmio;
pub use page::Page;

#[cfg(not(target_os = "none"))]
mod hosted;
#[cfg(not(target_os = "none"))]
pub use hosted::{fault_in, forget_beyond, is_tight, make_room, physical_address, replace_page};

#[cfg(target_os = "none")]
mod frames;
#[cfg(target_os = "none")]
mod heap;
#[cfg(target_os = "none")]
mod init;
#[cfg(target_os = "none")]
mod kernel_map;
#[cfg(target_os = "none")]
pub mod space;

#[cfg(target_os = "none")]
pub use frames::{free_frames, is_scarce, is_tight, make_room, total_frames, was_scarce};
#[cfg(target_os = "none")]
pub use heap::{KernelHeap, heap_bytes};
#[cfg(target_os = "none")]
pub use init::{add_low_memory, init, low_memory, static_page};
#[cfg(target_os = "none")]
pub use kernel_map::{STACK_SIZE, Stack, map_device};
#[cfg(target_os = "none")]
pub use space::{fault_in, forget_beyond, replace_page};

/// The address a device uses for kernel memory. Panics for memory that is not physically contiguous (kernel stacks).
#[cfg(target_os = "none")]
#[must_use]
pub fn physical_address(at: *const u8) -> u64 {
    coracle_arch::layout::physical(at)
}
