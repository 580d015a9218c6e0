// SPDX-License-Identifier: Apache-2.0
//! Makes boot bundles: from an executable or a directory to the one boot module the kernel reads.
//!
//! A bundle is a cpio archive (decision 0001): [`config`] holds the OCI `config.json` that comes first, [`cpio`] the
//! archive format with page-aligned file data, [`root`] what goes below `rootfs/`, [`program`] the checks that tell a
//! user before the start that an executable cannot run, and [`bundle`] puts the four together.

pub mod bundle;
pub mod config;
pub mod cpio;
pub mod erofs;
pub mod folder;
pub mod image;
pub mod program;
pub mod root;
pub mod tree;

pub use bundle::{Bundle, BundleError};
pub use config::Config;
pub use program::ProgramError;
pub use root::{Root, RootError};
