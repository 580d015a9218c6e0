// SPDX-License-Identifier: Apache-2.0
//! The XDG folders. Source: XDG Base Directory Specification 0.8; paths that are not absolute are ignored, as it asks.

use std::path::PathBuf;

use crate::error::Failure;

/// `$XDG_STATE_HOME/coracle`: instances.
pub(crate) fn state() -> Result<PathBuf, Failure> {
    folder("XDG_STATE_HOME", ".local/state")
}

/// `$XDG_CACHE_HOME/coracle`: what can be found out again.
pub(crate) fn cache() -> Result<PathBuf, Failure> {
    folder("XDG_CACHE_HOME", ".cache")
}

/// What belongs to the command line that `run --dry-run` showed last.
pub(crate) fn dry_run() -> Result<PathBuf, Failure> {
    Ok(cache()?.join("dry-run"))
}

/// `$XDG_DATA_HOME/coracle`: images and volumes.
pub(crate) fn data() -> Result<PathBuf, Failure> {
    folder("XDG_DATA_HOME", ".local/share")
}

/// `$XDG_CONFIG_HOME/coracle`: `config.toml`.
pub(crate) fn config() -> Result<PathBuf, Failure> {
    folder("XDG_CONFIG_HOME", ".config")
}

fn folder(variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)));
    let base = base.ok_or_else(|| {
        Failure::new(format!(
            "neither {variable} nor HOME is set; set one to an absolute path"
        ))
    })?;
    Ok(base.join("coracle"))
}
