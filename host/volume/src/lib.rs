// SPDX-License-Identifier: Apache-2.0
//! Persistent volumes: disks in files, formatted so that Linux can mount them as well (decision 0013).
//!
//! [`format()`] writes an empty file system; [`Store`] keeps the files, one for each volume, and knows which are in use.

mod format;
mod store;

pub use format::{BLOCK, FormatError, Geometry, LARGEST, SMALLEST, format};
pub use store::{DEFAULT_BYTES, Store, Use, Volume, VolumeError};
