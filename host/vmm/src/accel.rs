// SPDX-License-Identifier: Apache-2.0
//! Chooses how guest code runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::kvm::Verdict;
use crate::qemu::{Qemu, QemuError};

/// How guest code runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// On the CPU, by KVM.
    Kvm,
    /// Translated by QEMU.
    Tcg,
}

/// What a user asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccelChoice {
    /// KVM if it works, else software emulation with a warning.
    #[default]
    Auto,
    /// KVM or nothing.
    Kvm,
    /// Software emulation.
    Tcg,
}

/// A choice made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// How guest code will run.
    pub accel: Accel,
    /// The one line to show when `auto` had to fall back.
    pub warning: Option<String>,
}

/// Why there is no accelerator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccelError {
    /// KVM was asked for.
    #[error("--accel kvm: {}; {}", verdict.reason(), verdict.remedy())]
    NoKvm {
        /// What the probe found.
        verdict: Verdict,
    },
    /// QEMU could not even be asked.
    #[error(transparent)]
    Qemu(#[from] QemuError),
}

impl AccelChoice {
    /// Makes the choice on this host.
    ///
    /// # Errors
    /// [`AccelError::NoKvm`] when KVM is asked for and does not work.
    pub fn choose(self, host: &mut Host, qemu: &Qemu) -> Result<Chosen, AccelError> {
        let chosen = |accel, warning| Ok(Chosen { accel, warning });
        if self == Self::Tcg {
            return chosen(Accel::Tcg, None);
        }
        match (host.kvm(qemu)?, self) {
            (Verdict::Works, _) => chosen(Accel::Kvm, None),
            (verdict, Self::Kvm) => Err(AccelError::NoKvm { verdict }),
            (verdict, _) => {
                let warning = format!(
                    "{}; using software emulation, which is slower (--accel tcg says so silently)",
                    verdict.reason()
                );
                chosen(Accel::Tcg, Some(warning))
            }
        }
    }
}

impl FromStr for AccelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(format!("{text:?}: use auto, kvm or tcg")),
        }
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

impl fmt::Display for AccelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}
