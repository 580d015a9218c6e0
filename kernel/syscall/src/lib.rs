// SPDX-License-Identifier: Apache-2.0
//! The system-call interface: one dispatcher made from the list in `abi`, and handlers by family.
//!
//! A handler reads like its manual page: parse flags, refuse unknown ones, check, act, return. Handlers block only in
//! `wait`, and touch application memory only through the types of `coracle_core::user` and `coracle_core::io`.

#![cfg_attr(target_os = "none", no_std)]
#![cfg(target_os = "none")]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod argument;
mod dispatch;
pub mod exec;
mod fd;
pub mod info;
mod mem;
mod path;
pub mod process;
pub mod procfs;
mod signal;
pub mod socket;
pub mod symbols;
mod thread;
mod time;
mod trace;
mod wait;

pub use dispatch::{dispatch, may_wait};
pub use trace::{Show, set_trace, set_trace_sink, show, show_nothing};
