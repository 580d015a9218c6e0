// SPDX-License-Identifier: Apache-2.0
//! Pure algorithms of the kernel: no hardware, no locks, no clock, no `unsafe`.
//!
//! Everything here is tested on the host, so the crates above can be about hardware and Linux only. Time is a
//! parameter, errors are small enums that say what happened, and none of the structures knows who uses it.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bitset;
pub mod buddy;
pub mod fd_table;
pub mod id_alloc;
pub mod nice;
pub mod path;
pub mod range_map;
pub mod recent_calls;
pub mod ring;
pub mod run_queue;
pub mod timer_queue;
