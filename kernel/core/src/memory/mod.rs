// SPDX-License-Identifier: Apache-2.0
//! Physical frames, pages with owners, device memory, and the application's address space.

mod mmio;
mod page;

pub use mmio::Mmio;
pub use page::Page;

#[cfg(not(target_os = "none"))]
mod hosted;
#[cfg(not(target_os = "none"))]
pub use hosted::{fault_in, physical_address};
