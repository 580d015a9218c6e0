// SPDX-License-Identifier: Apache-2.0
//! The files of an image, read and never executed. Links are followed as the guest will follow them: none leads out of
//! the root.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How many links a path may go through, path_resolution(7).
const MAX_LINKS: u32 = 40;

/// What is at a path, links not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File {
        /// Whether anybody may execute it.
        executable: bool,
    },
    /// A directory.
    Directory,
    /// A symbolic link with its text.
    Link(String),
    /// Anything else.
    Other,
}

/// A root file system. Paths are absolute and hold no `.`, `..` or double slashes; links in them are not followed by the
/// implementer.
pub trait Files {
    /// What is at `path`; `None` for nothing.
    fn node(&self, path: &str) -> Option<Node>;

    /// The first `limit` bytes of a regular file.
    fn read(&self, path: &str, limit: usize) -> Option<Cow<'_, [u8]>>;

    /// Names in a directory, in any order.
    fn list(&self, path: &str) -> Vec<String>;
}

/// The path of the file that `path` leads to, through links and `..`; `None` if there is none.
#[must_use]
pub fn resolve(files: &dyn Files, path: &str) -> Option<String> {
    let mut left: Vec<String> = path.split('/').rev().map(String::from).collect();
    let mut done = String::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        match part.as_str() {
            "" | "." => {}
            ".." => done.truncate(done.rfind('/').unwrap_or(0)),
            name => {
                let next = format!("{done}/{name}");
                match files.node(&next)? {
                    Node::Link(text) => {
                        links += 1;
                        if links > MAX_LINKS {
                            return None;
                        }
                        if text.starts_with('/') {
                            done.clear();
                        }
                        left.extend(text.split('/').rev().map(String::from));
                    }
                    _ => done = next,
                }
            }
        }
    }
    Some(if done.is_empty() { "/".into() } else { done })
}

/// Finds an executable as execvp(3) does: a name without a slash in the folders of `search`, else from `directory`.
#[must_use]
pub fn find_program(
    files: &dyn Files,
    name: &str,
    search: &str,
    directory: &str,
) -> Option<String> {
    let is_program = |path: &String| {
        resolve(files, path)
            .and_then(|real| files.node(&real))
            .is_some_and(|node| node == Node::File { executable: true })
    };
    if name.starts_with('/') {
        return Some(name.to_string()).filter(is_program);
    }
    if name.contains('/') {
        return Some(format!("{directory}/{name}")).filter(is_program);
    }
    search
        .split(':')
        .map(|folder| format!("{folder}/{name}"))
        .find(is_program)
}

/// A folder of the host taken as root.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder at `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.into())
    }

    fn host(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

impl Files for Folder {
    fn node(&self, path: &str) -> Option<Node> {
        let host = self.host(path);
        let meta = host.symlink_metadata().ok()?;
        Some(if meta.is_symlink() {
            Node::Link(std::fs::read_link(host).ok()?.to_str()?.to_string())
        } else if meta.is_dir() {
            Node::Directory
        } else if meta.is_file() {
            Node::File {
                executable: meta.permissions().mode() & 0o111 != 0,
            }
        } else {
            Node::Other
        })
    }

    fn read(&self, path: &str, limit: usize) -> Option<Cow<'_, [u8]>> {
        read_host(&self.host(path), limit)
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.host(path)).into_iter().flatten();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    }
}

/// One executable alone, as `/NAME`.
#[derive(Debug)]
pub struct Alone {
    host: PathBuf,
    path: String,
}

impl Alone {
    /// The executable at `path` of the host.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self {
            host: path.into(),
            path: format!("/{name}"),
        }
    }

    /// Its path in the guest.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Files for Alone {
    fn node(&self, path: &str) -> Option<Node> {
        (path == self.path).then_some(Node::File { executable: true })
    }

    fn read(&self, path: &str, limit: usize) -> Option<Cow<'_, [u8]>> {
        (path == self.path)
            .then(|| read_host(&self.host, limit))
            .flatten()
    }

    fn list(&self, _path: &str) -> Vec<String> {
        Vec::new()
    }
}

fn read_host(path: &Path, limit: usize) -> Option<Cow<'static, [u8]>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(limit).ok()?;
    File::open(path)
        .ok()?
        .take(limit)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(Cow::Owned(bytes))
}
