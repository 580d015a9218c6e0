// SPDX-License-Identifier: Apache-2.0
//! Container images: where they come from, how they are kept, and the root file system they come to.

pub mod archive;
pub mod decompress;
pub mod digest;
mod docker;
pub mod document;
mod error;
pub mod layer;
pub mod root;
pub mod save;
pub mod source;
pub mod store;

pub use digest::Digest;
pub use error::ImageError;
pub use store::Store;
