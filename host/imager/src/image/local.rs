// SPDX-License-Identifier: Apache-2.0
//! Images in the storage of podman or docker on this machine, had through the tools' own `save`.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Digest;
use super::error::ImageError;
use super::source::{self, Found};
use super::store::Store;

/// The tools, in the order in which they are asked.
const TOOLS: [&str; 2] = ["podman", "docker"];

/// An image one of the tools has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    tool: &'static str,
    /// The name by which the tool was asked.
    pub name: String,
    /// The digest of its configuration, by which a changed image is noticed.
    pub id: Digest,
}

/// The first tool that has an image of that name.
#[must_use]
pub fn find(name: &str) -> Option<Local> {
    TOOLS.iter().find_map(|&tool| {
        let mut command = Command::new(tool);
        command.args(["image", "inspect", "--format", "{{.Id}}", name]);
        let output = command.stdin(Stdio::null()).output().ok()?;
        let id = String::from_utf8(output.stdout).ok()?;
        let id = id.trim();
        let id = match id.starts_with("sha256:") {
            true => id.parse(),
            false => format!("sha256:{id}").parse(),
        };
        let name = name.to_owned();
        let id = id.ok().filter(|_| output.status.success())?;
        Some(Local { tool, name, id })
    })
}

impl Local {
    /// What the tool is called.
    #[must_use]
    pub fn tool(&self) -> &str {
        self.tool
    }

    /// Has the tool save the image into a file of the store that has no name.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn save(&self, store: &Store) -> Result<Found<'static>, ImageError> {
        let _guard = store.begin()?;
        let file = store.temporary()?;
        save(self.tool, &self.name, file.path())?;
        let found = source::find(file.path(), store, None)?;
        found
            .ok_or_else(|| ImageError::damaged(&self.name, format!("{} saved no image", self.tool)))
    }
}

fn save(tool: &str, name: &str, to: &Path) -> Result<(), ImageError> {
    let mut command = Command::new(tool);
    command.arg("save");
    if tool == "podman" {
        // It keeps the digests; docker-archive would not.
        command.args(["--format", "oci-archive"]);
    }
    command.arg("-o").arg(to).arg(name);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| ImageError::unsupported(name, error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.trim().lines().last().unwrap_or("no reason given");
    let problem = format!("{tool} cannot save it: {last}");
    Err(ImageError::unsupported(name, problem))
}
