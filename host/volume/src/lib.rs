// SPDX-License-Identifier: Apache-2.0
//! Persistent volumes: disks in files, formatted so that Linux can mount them as well (decision 0013).
//!
//! [`format()`] writes an empty file system.

mod format;

pub use format::{BLOCK, FormatError, Geometry, LARGEST, SMALLEST, format};
