// SPDX-License-Identifier: Apache-2.0

//! The bundle of a container: `config.json` as the OCI runtime specification 1.0 has it, with what container engines give a
//! container by default. The same for runc, crun and runsc.

use std::path::Path;

use serde_json::{Value, json};

use super::root::Root;

/// Open files a service may have, as container engines set it.
const OPEN_FILES: u64 = 65_536;

/// What Docker and podman leave a container.
const CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The network namespace of a container.
#[derive(Clone, Copy, Debug)]
pub(super) enum Network<'a> {
    /// A new one without a card.
    Empty,
    /// The one at this path.
    At(&'a str),
    /// The one the runtime is started in.
    Own,
}

/// What the configuration says beside the root.
pub(super) struct Bundle<'a> {
    pub(super) root: &'a Root,
    /// Where the root is mounted.
    pub(super) rootfs: &'a Path,
    /// Folders of the host by where they are mounted.
    pub(super) volumes: &'a [(std::path::PathBuf, String)],
    pub(super) network: Network<'a>,
    pub(super) cgroups_path: Option<&'a str>,
    pub(super) memory_bytes: Option<u64>,
    /// As cpusets write them.
    pub(super) cpus: Option<&'a str>,
}

/// `config.json`.
pub(super) fn config(bundle: &Bundle<'_>) -> Value {
    let root = bundle.root;
    let mut mounts = vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        mount(
            "/dev/pts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
            ],
        ),
        mount(
            "/dev/shm",
            "tmpfs",
            &["nosuid", "noexec", "nodev", "mode=1777"],
        ),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
    ];
    for (folder, path) in bundle.volumes {
        mounts.push(json!({
            "destination": path, "type": "bind", "source": folder, "options": ["rbind", "rw"],
        }));
    }
    let mut namespaces: Vec<Value> = ["pid", "ipc", "uts", "mount"]
        .iter()
        .map(|kind| json!({ "type": kind }))
        .collect();
    namespaces.extend(match bundle.network {
        Network::Empty => Some(json!({ "type": "network" })),
        Network::At(path) => Some(json!({ "type": "network", "path": path })),
        Network::Own => None,
    });
    let mut resources = json!({ "devices": [{ "allow": false, "access": "rwm" }] });
    if let Some(bytes) = bundle.memory_bytes {
        resources["memory"] = json!({ "limit": bytes });
    }
    if let Some(cpus) = bundle.cpus {
        resources["cpu"] = json!({ "cpus": cpus });
    }
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .unwrap_or((OPEN_FILES, OPEN_FILES));
    let files = OPEN_FILES.min(hard);
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": root.uid, "gid": root.gid },
            "args": root.argv,
            "env": root.env,
            "cwd": root.cwd,
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
            },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": files, "hard": files }],
            "noNewPrivileges": true,
        },
        "root": { "path": bundle.rootfs, "readonly": false },
        "hostname": "lab",
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
            "resources": resources,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    });
    if let Some(path) = bundle.cgroups_path {
        config["linux"]["cgroupsPath"] = path.into();
    }
    config
}

fn mount(destination: &str, kind: &str, options: &[&str]) -> Value {
    json!({ "destination": destination, "type": kind, "source": kind, "options": options })
}
