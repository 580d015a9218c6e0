// SPDX-License-Identifier: Apache-2.0
//! Files: the name space (VFS), the file systems in memory, and the objects that only have descriptors (pipes, event
//! counters, timers, epoll).
//!
//! Nothing here sleeps (decision 0003): an operation that would have to wait returns `EAGAIN`.
//!
//! Lock order inside this crate, on top of the one in `core::sync`: epoll nesting -> epoll interest list -> everything
//! below; file-system tree -> directory (two only under the tree lock) -> node attributes; file content -> node
//! attributes; epoll ready list last. No file system calls another one under a lock.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod anonymous;
pub mod archive;
pub mod dev;
pub mod epoll;
pub mod erofs;
pub mod etc;
pub mod eventfd;
pub mod ext;
pub mod inotify;
pub mod locks;
pub mod ninep;
pub mod pipe;
pub mod populate;
pub mod proc;
mod pseudo;
pub mod signalfd;
pub mod sys;
pub mod timerfd;
pub mod tmpfs;
pub mod vfs;

pub use coracle_core::{Errno, PollEvents, Result};
