// SPDX-License-Identifier: Apache-2.0

//! Where the lab and the `coracle` command keep things. Source: XDG Base Directory Specification 0.8.

use std::path::PathBuf;

use crate::{Error, Result};

/// `$XDG_CACHE_HOME/coracle`
pub(crate) fn cache() -> Result<PathBuf> {
    folder("XDG_CACHE_HOME", ".cache")
}

/// `$XDG_CACHE_HOME/coracle/lab`
pub(crate) fn lab_cache() -> Result<PathBuf> {
    Ok(cache()?.join("lab"))
}

/// `$XDG_STATE_HOME/coracle`
pub(crate) fn state() -> Result<PathBuf> {
    folder("XDG_STATE_HOME", ".local/state")
}

fn folder(variable: &str, below_home: &str) -> Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)));
    base.map(|base| base.join("coracle")).ok_or_else(|| {
        Error::Host(format!(
            "neither {variable} nor HOME is set; set one to an absolute path"
        ))
    })
}
