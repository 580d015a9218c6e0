// SPDX-License-Identifier: Apache-2.0
//! What a command that fails says, and the exit code it says it with.

use std::fmt;

use coracle_imager::image::ImageError;
use coracle_imager::image::start::StartError;
use coracle_imager::{BundleError, ProgramError, RootError};
use coracle_vmm::accel::AccelError;
use coracle_vmm::boot::BootError;
use coracle_vmm::instance::StoreError;
use coracle_vmm::network::NetworkError;
use coracle_vmm::qemu::QemuError;
use coracle_volume::VolumeError;

/// An error of Coracle itself.
pub(crate) const OWN_ERROR: u8 = 125;
/// The program cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The program is not there.
pub(crate) const NOT_FOUND: u8 = 127;

/// One line for the user, naming file or value and remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    /// An error of Coracle itself.
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self {
            code: OWN_ERROR,
            message: message.to_string(),
        }
    }
}

impl From<RootError> for Failure {
    fn from(error: RootError) -> Self {
        let missing = |source: &std::io::Error| source.kind() == std::io::ErrorKind::NotFound;
        let code = match &error {
            RootError::NotFound { .. }
            | RootError::Missing { .. }
            | RootError::NoInterpreter { .. }
            | RootError::NoScriptInterpreter { .. } => NOT_FOUND,
            RootError::Read { source, .. }
            | RootError::Program(ProgramError::Read { source, .. })
                if missing(source) =>
            {
                NOT_FOUND
            }
            RootError::NoProgram { .. } | RootError::Name { .. } | RootError::Read { .. } => {
                OWN_ERROR
            }
            _ => NOT_EXECUTABLE,
        };
        let message = error.to_string();
        Self { code, message }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Program(error) => error.into(),
            error => Self::new(error),
        }
    }
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::Root(error) => error.into(),
            error => Self::new(error),
        }
    }
}

macro_rules! own_error {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error)
            }
        }
    )*};
}

own_error!(
    AccelError,
    BootError,
    ImageError,
    NetworkError,
    QemuError,
    coracle_vmm::supervise::StartError,
    StoreError,
    VolumeError
);
