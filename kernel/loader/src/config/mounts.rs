// SPDX-License-Identifier: Apache-2.0
//! `mounts` of the configuration: what is mounted besides the root and the file systems that every guest has.

use alloc::string::String;

use super::node::Node;
use super::{ConfigError, absolute_path, c_string, list_or_empty};

/// A file system to be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountConfig {
    /// Where, absolute. It is made if it is not there.
    pub destination: String,
    /// What, and what it needs.
    pub kind: MountKind,
    /// Changes are refused.
    pub read_only: bool,
}

/// The kinds of file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountKind {
    /// A share of the host, by its tag; of a share of one file, the file's name in it.
    Share {
        /// The share's tag.
        tag: String,
        /// The only file, to be mounted on a file.
        file: Option<String>,
    },
    /// A file system on a disk.
    Ext {
        /// The disk, such as `/dev/vdb`.
        device: String,
    },
    /// A file system in memory.
    Memory {
        /// Most bytes of content; without it half of the memory.
        size_bytes: Option<u64>,
        /// Permission bits of its root.
        mode: u32,
    },
}

/// One entry of `mounts` (OCI runtime specification 1.0.2, `config.md`, "Mounts").
pub(super) fn mount(node: &Node<'_>) -> Result<MountConfig, ConfigError> {
    let destination = absolute_path(&node.required("destination")?)?;
    let (mut read_only, mut size_bytes, mut mode, mut file) = (false, None, 0o1777, None);
    for option in list_or_empty(node, "options", |option| {
        let text = c_string(option)?;
        let value = |key: &str| text.strip_prefix(key);
        if let Some(size) = value("size=") {
            let bytes = size_in_bytes(size)
                .ok_or_else(|| option.error("is not a size such as size=64m"))?;
            return Ok(Choice::Size(bytes));
        }
        if let Some(octal) = value("mode=") {
            return u32::from_str_radix(octal, 8)
                .ok()
                .filter(|mode| *mode <= 0o7777)
                .map(Choice::Mode)
                .ok_or_else(|| option.error("is not a mode such as mode=0755"));
        }
        if let Some(name) = value("file=") {
            return Ok(Choice::File(name.into()));
        }
        Ok(match &*text {
            "ro" => Choice::ReadOnly(true),
            "rw" => Choice::ReadOnly(false),
            _ => Choice::Other, // hints for other kernels
        })
    })? {
        match option {
            Choice::ReadOnly(yes) => read_only = yes,
            Choice::Size(bytes) => size_bytes = Some(bytes),
            Choice::Mode(bits) => mode = bits,
            Choice::File(name) => file = Some(name),
            Choice::Other => {}
        }
    }
    let source = || c_string(&node.required("source")?);
    let name = node.required("type")?;
    let kind = match name.str()? {
        "9p" => MountKind::Share {
            tag: source()?,
            file,
        },
        "ext4" => MountKind::Ext { device: source()? },
        "tmpfs" => MountKind::Memory { size_bytes, mode },
        _ => return Err(name.error("is not a file system that can be mounted (9p, ext4, tmpfs)")),
    };
    Ok(MountConfig {
        destination,
        kind,
        read_only,
    })
}

enum Choice {
    ReadOnly(bool),
    Size(u64),
    Mode(u32),
    File(String),
    Other,
}

/// A number of bytes, with `k`, `m` or `g` behind it as in tmpfs(5).
fn size_in_bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}
