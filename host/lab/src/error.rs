// SPDX-License-Identifier: Apache-2.0

//! What can go wrong, in one line a person can act on.

/// A result of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// An error. Its text names the file or tool, the value, and the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Something in an experiment or a result that cannot be used.
    #[error("{0}")]
    Input(String),
    /// The host lacks something: a tool, a right, a kernel feature.
    #[error("{0}")]
    Host(String),
    /// A platform did not start, or ended before its time. Kept as a failed sample; the others go on.
    #[error("{what}")]
    Platform {
        /// What happened.
        what: String,
        /// What it said.
        log: String,
    },
    /// The result cannot be written. The run ends.
    #[error("{0}")]
    Record(String),
    /// The user wants the run to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Whether nothing further can be measured; other errors concern one measurement.
    #[must_use]
    pub fn ends_run(&self) -> bool {
        matches!(self, Error::Interrupted | Error::Record(_))
    }

    /// An error of the file `path`.
    pub fn file(path: impl Into<std::path::PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }
}
