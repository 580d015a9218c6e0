// SPDX-License-Identifier: Apache-2.0

//! The container runtime of the platform `linux-vm-container`: the host's runc with the libraries it needs, in the initial
//! file system of the VM, and a bundle whose root is the VM's disk.
//!
//! As in a VM that runs nothing but one container: the container has the VM's network, and the VM's memory is its limit.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::oci::{self, Bundle, Network};
use super::super::root::Root;
use super::super::tool::{output, tool};
use crate::{Error, Result};

/// The runtime of the host.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    /// Where each file goes, with its content; the program is the first.
    pub(super) files: Vec<(String, Vec<u8>)>,
    pub(super) version: String,
}

impl Runtime {
    pub(super) fn find() -> Result<Runtime> {
        let program = tool("runc", "runc")?;
        let version = output(Command::new(&program).arg("--version"))?;
        let listed = output(Command::new("ldd").arg(&program)).unwrap_or_default();
        let mut files = vec![("bin/runc".to_owned(), read(&program)?)];
        for path in libraries(&listed) {
            let content = read(&path)?;
            let place = path.display().to_string();
            files.push((place.trim_start_matches('/').to_owned(), content));
        }
        Ok(Runtime {
            files,
            version: version.lines().next().unwrap_or_default().to_owned(),
        })
    }

    /// The service as a bundle in the VM.
    pub(super) fn config(root: &Root) -> String {
        let config = oci::config(&Bundle {
            root,
            rootfs: Path::new("/root"),
            // They are mounted below it already.
            volumes: &[],
            network: Network::Own,
            cgroups_path: None,
            memory_bytes: None,
            cpus: None,
        });
        config.to_string()
    }

    /// What the VM's first program starts: the runtime, as root. The initial file system is no mount that could be left by
    /// pivot_root.
    pub(super) fn job(root: &Root) -> Root {
        let argv = [
            "/bin/runc",
            "run",
            "--no-pivot",
            "--bundle",
            "/bundle",
            "service",
        ];
        Root {
            argv: argv.map(str::to_owned).to_vec(),
            env: vec!["PATH=/bin".into()],
            cwd: "/".into(),
            uid: 0,
            gid: 0,
            ..root.clone()
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(Error::file(path))
}

/// The files in what `ldd` prints; none for a static program.
fn libraries(ldd: &str) -> Vec<PathBuf> {
    let word = |line: &str| {
        let path = line.split("=>").last()?.split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    ldd.lines().filter_map(word).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn libraries_and_the_loader_are_found() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let found: Vec<String> = super::libraries(text)
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        assert_eq!(
            found,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert!(super::libraries("\tnot a dynamic executable\n").is_empty());
    }
}
