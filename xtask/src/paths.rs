// SPDX-License-Identifier: Apache-2.0

//! Where things lie: the repository, its `build` folder, the compiler's target folder and the user's cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies one folder below the root")
}

/// A file or folder of the repository.
pub(crate) fn in_root(path: &str) -> PathBuf {
    root().join(path)
}

/// The folder of finished products, created on demand.
pub(crate) fn build() -> Result<PathBuf> {
    created(in_root("build"))
}

/// The compiler's output folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| in_root("target"), |folder| root().join(folder))
}

/// Our folder in the user's cache (`$XDG_CACHE_HOME`, else `~/.cache`), created on demand.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => std::env::home_dir()
            .context("neither XDG_CACHE_HOME nor HOME is set")?
            .join(".cache"),
    };
    created(base.join("coracle"))
}

/// `folder`, which exists afterwards.
pub(crate) fn created(folder: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}
