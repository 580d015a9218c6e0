// SPDX-License-Identifier: Apache-2.0
//! Finds QEMU and checks its version.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// The program's name.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// The oldest version that boots PVH kernels on `microvm` with two virtio-serial ports as used here.
pub const OLDEST: Version = Version { major: 7, minor: 0 };

/// A QEMU on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    /// Where it is.
    pub path: PathBuf,
}

/// Version of a QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

/// What identifies a file well enough to trust what was found out about it before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
    size_bytes: u64,
    changed_s: i64,
    changed_ns: i64,
}

/// Why there is no usable QEMU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QemuError {
    /// Not in any folder of `PATH`.
    #[error("no {PROGRAM} in PATH; install it: {}", install_line())]
    NotFound,
    /// The path that was given is not a program.
    #[error("{}: not a program; set qemu in config.toml or CORACLE_QEMU to {PROGRAM}", path.display())]
    NotAProgram {
        /// As given.
        path: PathBuf,
    },
    /// It does not tell its version.
    #[error("{}: cannot find out its version ({what}); install QEMU again: {}", path.display(), install_line())]
    NoVersion {
        /// The program.
        path: PathBuf,
        /// What happened.
        what: String,
    },
    /// Too old.
    #[error("{}: QEMU {}.{} is too old, {}.{} or newer is needed; {}", path.display(), found.major, found.minor, OLDEST.major, OLDEST.minor, install_line())]
    TooOld {
        /// The program.
        path: PathBuf,
        /// Its version.
        found: Version,
    },
}

impl Qemu {
    /// The QEMU at `given`, or the first one in `PATH`.
    ///
    /// # Errors
    /// [`QemuError::NotFound`], [`QemuError::NotAProgram`].
    pub fn find(given: Option<&Path>) -> Result<Self, QemuError> {
        let executable = |path: &Path| {
            path.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        if let Some(path) = given {
            if !executable(path) {
                return Err(QemuError::NotAProgram { path: path.into() });
            }
            return Ok(Self { path: path.into() });
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::split_paths(&folders)
            .map(|dir| dir.join(PROGRAM))
            .find(|path| executable(path));
        path.map(|path| Self { path }).ok_or(QemuError::NotFound)
    }

    /// Asks the program for its version. Takes about 20 ms; [`crate::Host`] remembers the answer.
    ///
    /// # Errors
    /// [`QemuError::NoVersion`].
    pub fn version(&self) -> Result<Version, QemuError> {
        let error = |what: String| QemuError::NoVersion {
            path: self.path.clone(),
            what,
        };
        let output = Command::new(&self.path)
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|e| error(e.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        parse_version(&text).ok_or_else(|| {
            error(format!(
                "it answered {:?}",
                text.lines().next().unwrap_or_default()
            ))
        })
    }

    /// Checks a version against [`OLDEST`].
    ///
    /// # Errors
    /// [`QemuError::TooOld`].
    pub fn check(&self, found: Version) -> Result<(), QemuError> {
        if found < OLDEST {
            return Err(QemuError::TooOld {
                path: self.path.clone(),
                found,
            });
        }
        Ok(())
    }

    /// Identity of the program file.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let meta = self.path.metadata().ok()?;
        Some(Identity {
            path: self.path.clone(),
            device: meta.dev(),
            inode: meta.ino(),
            size_bytes: meta.size(),
            changed_s: meta.ctime(),
            changed_ns: meta.ctime_nsec(),
        })
    }
}

/// `QEMU emulator version 7.2.22 (…)`
fn parse_version(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some(Version {
        major: numbers.next()?.parse().ok()?,
        minor: numbers.next()?.parse().ok()?,
    })
}

/// How to install QEMU here, by the package manager this host has.
#[must_use]
pub fn install_line() -> &'static str {
    let has = |program: &str| Path::new("/usr/bin").join(program).exists();
    if has("apt-get") {
        "sudo apt-get install qemu-system-x86"
    } else if has("dnf") {
        "sudo dnf install qemu-system-x86-core"
    } else if has("pacman") {
        "sudo pacman -S qemu-system-x86"
    } else if has("zypper") {
        "sudo zypper install qemu-x86"
    } else {
        "https://www.qemu.org/download/"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared() {
        let debian =
            parse_version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright").unwrap();
        assert_eq!(debian, Version { major: 7, minor: 2 });
        let old = parse_version("QEMU emulator version 6.2.0").unwrap();
        assert!(old < OLDEST && debian > OLDEST);
        assert!(parse_version("QEMU emulator version 10.0.0").unwrap() > OLDEST);
        assert!(parse_version("something else").is_none());
    }
}
