// SPDX-License-Identifier: Apache-2.0
//! The OCI runtime configuration, as far as the kernel reads it, and Coracle's own key.
//!
//! Source: OCI runtime specification 1.0.2, `config.md`; the `coracle` key is defined by decision 0001.

use serde::{Deserialize, Serialize};

/// `config.json` of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Version of the specification this file follows.
    pub oci_version: String,
    /// What runs.
    pub process: Process,
    /// Where its files are, relative to the bundle.
    pub root: RootConfig,
    /// What `gethostname(2)` answers.
    pub hostname: String,
    /// What is mounted besides the root and what every guest has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// What only Coracle's kernel reads.
    pub coracle: Coracle,
}

/// The `process` object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Whether the process has a terminal.
    pub terminal: bool,
    /// Identity of the process.
    pub user: User,
    /// Argument vector; `args[0]` is the path of the program in the root.
    pub args: Vec<String>,
    /// Environment, each `NAME=VALUE`.
    pub env: Vec<String>,
    /// Absolute working directory.
    pub cwd: String,
    /// Resource limits, `setrlimit(2)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rlimits: Vec<Rlimit>,
}

/// Numeric identity of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// One resource limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// Name as in `getrlimit(2)`, such as `RLIMIT_NOFILE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The limit in force.
    pub soft: u64,
    /// How far the process may raise it.
    pub hard: u64,
}

/// The `root` object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootConfig {
    /// Folder of the root file system in the bundle.
    pub path: String,
    /// Whether the guest may not change its root.
    pub readonly: bool,
    /// A disk that holds the root, instead of the folder in the bundle (decision 0011).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RootSource>,
}

/// The disk with the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootSource {
    /// Its file system: `erofs`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its number among the disks of the guest.
    pub device: u32,
}

/// One file system to be mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where, absolute.
    pub destination: String,
    /// `9p`, `ext4` or `tmpfs`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tag of a share, or the device.
    pub source: String,
    /// `ro`, `size=...` and the like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The `coracle` object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Coracle {
    /// Settings of the network interfaces, in the order of the devices.
    pub network: Vec<NetworkConfig>,
    /// Whether the kernel logs every system call.
    pub trace: bool,
    /// The host's wall clock shortly before the start, nanoseconds since 1970: the guest's own has whole seconds only.
    #[serde(default, rename = "startedNs", skip_serializing_if = "Option::is_none")]
    pub started_ns: Option<u64>,
}

/// Settings of one network interface. Addresses are text, `ADDRESS/PREFIX` where a prefix belongs to them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkConfig {
    /// Hardware address of the device this entry is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// IPv4 address with prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,
    /// IPv4 default router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// IPv6 address with prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
    /// IPv6 default router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway6: Option<String>,
    /// Whether to ask a DHCP server instead.
    pub dhcp: bool,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
}

impl Process {
    /// Runs `args` as root in `/`.
    #[must_use]
    pub fn new(args: Vec<String>, env: Vec<String>) -> Self {
        Self {
            terminal: false,
            user: User::default(),
            args,
            env,
            cwd: "/".into(),
            rlimits: Vec::new(),
        }
    }
}

impl Config {
    /// A configuration that runs `args` as root in `/`, without network.
    #[must_use]
    pub fn new(args: Vec<String>, env: Vec<String>) -> Self {
        Self::with_process(Process::new(args, env))
    }

    /// A configuration that runs `process`, without network.
    #[must_use]
    pub fn with_process(process: Process) -> Self {
        Self {
            oci_version: "1.0.2".into(),
            process,
            root: RootConfig {
                path: "rootfs".into(),
                readonly: false,
                source: None,
            },
            hostname: "coracle".into(),
            mounts: Vec::new(),
            coracle: Coracle::default(),
        }
    }
}
