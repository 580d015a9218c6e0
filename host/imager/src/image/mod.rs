// SPDX-License-Identifier: Apache-2.0
//! Container images: where they come from, how they are kept, and the root file system they come to.

pub mod archive;
pub mod auth;
pub mod containerfile;
pub mod decompress;
pub mod digest;
mod docker;
pub mod document;
mod error;
pub mod folder_root;
pub mod import;
pub mod layer;
pub mod local;
pub mod reference;
pub mod registry;
pub mod root;
pub mod save;
pub mod source;
pub mod start;
pub mod store;

pub use digest::Digest;
pub use error::ImageError;
pub use reference::Reference;
pub use store::Store;
