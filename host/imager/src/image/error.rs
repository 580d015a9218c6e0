// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with an image or on the way to it: each says which, what, and what to do.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use super::digest::Digest;

/// Why an image cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file of the host.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
    /// The disk of the image store is full.
    #[error(
        "disk full while writing to {}; free space there (coracle rmi), or set XDG_DATA_HOME to a folder on another disk",
        path.display()
    )]
    Full {
        /// The folder.
        path: PathBuf,
    },
    /// Content has another digest than it should.
    #[error(
        "{name}: wrong digest: {expected} was expected, the content has {found}; the image is damaged or was tampered with: fetch it again"
    )]
    Digest {
        /// What has it.
        name: String,
        /// The digest by which it is known.
        expected: Digest,
        /// The digest of what there is.
        found: Digest,
    },
    /// Content could not be read to its end.
    #[error("{name}: cannot be fetched: {source}; try again")]
    Fetch {
        /// What was being fetched.
        name: String,
        /// What went wrong.
        source: io::Error,
    },
    /// Content contradicts the specification or itself.
    #[error("{name}: damaged image: {problem}; fetch or build it again")]
    Damaged {
        /// The image, or what of it.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// Content of a kind Coracle does not read.
    #[error("{name}: {problem}")]
    Unsupported {
        /// The image, or what of it.
        name: String,
        /// What is not read, and what to do.
        problem: String,
    },
    /// The image is for another CPU or system.
    #[error(
        "{name}: for {found}; Coracle runs linux/amd64: get or build the image for that (--platform linux/amd64)"
    )]
    Platform {
        /// The image.
        name: String,
        /// What it is for.
        found: String,
    },
    /// A registry does not do what it is asked to.
    #[error("{name}: {problem}")]
    Registry {
        /// The image.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// There is no such image.
    #[error("{name}: no such image; {remedy}")]
    Missing {
        /// The image as asked for.
        name: String,
        /// What to do.
        remedy: String,
    },
}

impl ImageError {
    pub(crate) fn damaged(name: &str, problem: impl Display) -> Self {
        Self::Damaged {
            name: name.into(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn unsupported(name: &str, problem: impl Display) -> Self {
        Self::Unsupported {
            name: name.into(),
            problem: problem.to_string(),
        }
    }

    /// For `map_err` where a file is read.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing: "read",
            path: path.clone(),
            source,
        }
    }

    /// For `map_err` where a file is written.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match is_full(&source) {
            true => Self::Full { path: path.clone() },
            false => Self::Io {
                doing: "write",
                path: path.clone(),
                source,
            },
        }
    }
}

/// Whether there is no room where something should be written.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
