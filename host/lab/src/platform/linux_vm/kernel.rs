// SPDX-License-Identifier: Apache-2.0

//! The kernel of the Linux VM: the distribution's for virtual machines, as it is, with the modules that the devices need.
//! The package is unpacked into the cache, not installed.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::root::in_cache;
use super::super::tool::{output, output_bytes, tool};
use crate::{Error, Result};

/// The packages that stand for the current kernel for virtual machines: Debian's, then Ubuntu's.
const META_PACKAGES: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-virtual"];

/// A kernel and its modules.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// As in `uname -r`.
    pub(super) release: String,
    /// The unpacked package.
    folder: PathBuf,
}

impl Kernel {
    /// From the cache, or freshly downloaded.
    pub(super) fn find() -> Result<Kernel> {
        let folder = in_cache("linux", "unpacked", |folder| {
            let packages = packages()?;
            eprintln!("coracle lab: downloading {}", packages.join(" "));
            let downloads = tempfile::tempdir().map_err(Error::file(std::env::temp_dir()))?;
            output(
                Command::new(tool("apt-get", "apt")?)
                    .arg("download")
                    .args(&packages)
                    .current_dir(downloads.path()),
            )?;
            let entries = fs::read_dir(downloads.path()).map_err(Error::file(downloads.path()))?;
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.extension().is_some_and(|extension| extension == "deb") {
                    let mut unpack = Command::new(tool("dpkg-deb", "dpkg")?);
                    output(unpack.arg("-x").arg(&path).arg(folder))?;
                }
            }
            Ok(())
        })?;
        let entries = fs::read_dir(folder.join("boot")).into_iter().flatten();
        let found = entries.flatten().find_map(|entry| {
            let name = entry.file_name();
            let release = name.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            Some((entry.path(), release))
        });
        let (image, release) = found.ok_or_else(|| {
            Error::Host(format!(
                "no boot/vmlinuz-* in {}; remove that folder to fetch the kernel again",
                folder.display()
            ))
        })?;
        Ok(Kernel {
            image,
            release,
            folder,
        })
    }

    /// The modules called `names` and those they need, uncompressed and in load order; none for what the kernel contains.
    pub(super) fn modules(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let candidates = ["lib/modules", "usr/lib/modules"]
            .map(|folder| self.folder.join(folder).join(&self.release));
        let base = candidates.iter().find(|folder| folder.is_dir());
        let base =
            base.ok_or_else(|| Error::Host("the kernel's package has no lib/modules".into()))?;
        let listed = |file: &str| {
            let path = base.join(file);
            fs::read_to_string(&path).map_err(Error::file(path))
        };
        let finder = Modules {
            base,
            builtin: listed("modules.builtin")?,
            loadable: listed("modules.order")?,
        };
        let (mut seen, mut ordered) = (HashSet::new(), Vec::new());
        for name in names {
            finder.add(name, &mut seen, &mut ordered)?;
        }
        Ok(ordered)
    }
}

/// The packages behind the meta package: the kernel, and its modules where they are apart.
fn packages() -> Result<Vec<String>> {
    let look = || {
        META_PACKAGES
            .iter()
            .find_map(|meta| depends(meta, "linux-image-"))
    };
    let mut image = look();
    if image.is_none() && nix::unistd::geteuid().is_root() {
        // A fresh machine has no lists yet.
        output(Command::new("apt-get").args(["update", "-qq"]))?;
        image = look();
    }
    let image = image.ok_or_else(|| {
        Error::Host(format!(
            "the package lists know none of {}: run apt-get update, on Debian or Ubuntu",
            META_PACKAGES.join(", ")
        ))
    })?;
    let modules = depends(&image, "linux-modules-");
    Ok([Some(image), modules].into_iter().flatten().collect())
}

/// The first package starting with `prefix` that `package` depends on.
fn depends(package: &str, prefix: &str) -> Option<String> {
    let text = output(Command::new("apt-cache").args(["depends", package])).ok()?;
    let mut names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    names
        .find(|name| name.starts_with(prefix))
        .map(str::to_owned)
}

struct Modules<'a> {
    base: &'a Path,
    /// `modules.builtin`: paths of what the kernel contains.
    builtin: String,
    /// `modules.order`: paths of what can be loaded, without the suffix of a compression.
    loadable: String,
}

impl Modules<'_> {
    /// Appends the module after those it needs.
    fn add(
        &self,
        name: &str,
        seen: &mut HashSet<String>,
        ordered: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<()> {
        if !seen.insert(name.to_owned()) || find_module(&self.builtin, name).is_some() {
            return Ok(());
        }
        let path = find_module(&self.loadable, name)
            .ok_or_else(|| Error::Host(format!("the kernel has no module {name}")))?;
        let content = self.read(path)?;
        for dependency in module_dependencies(&content) {
            self.add(&dependency, seen, ordered)?;
        }
        ordered.push((name.to_owned(), content));
        Ok(())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        let plain = self.base.join(path);
        if plain.exists() {
            return fs::read(&plain).map_err(Error::file(plain));
        }
        for (suffix, program, package) in [
            ("xz", "xz", "xz-utils"),
            ("zst", "zstd", "zstd"),
            ("gz", "gzip", "gzip"),
        ] {
            let packed = plain.with_extension(format!("ko.{suffix}"));
            if packed.exists() {
                return output_bytes(
                    Command::new(tool(program, package)?)
                        .arg("-dc")
                        .arg(&packed),
                );
            }
        }
        Err(Error::Host(format!(
            "the kernel's package lists {} but does not have it",
            plain.display()
        )))
    }
}

/// The line of a module list that names `name`; `-` and `_` are the same in module names.
fn find_module<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.lines().find(|path| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.strip_suffix(".ko")
            .is_some_and(|module| module.replace('-', "_") == name)
    })
}

/// The `depends=` entry of a module's `.modinfo` section.
fn module_dependencies(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|bytes| bytes == key) else {
        return Vec::new();
    };
    let value = module[at + key.len()..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let names = String::from_utf8_lossy(value).into_owned();
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{find_module, module_dependencies};

    #[test]
    fn modules_name_what_they_need() {
        assert_eq!(
            module_dependencies(b"license=GPL\0depends=net_failover,virtio-ring\0x"),
            ["net_failover", "virtio_ring"]
        );
        assert!(module_dependencies(b"license=GPL\0depends=\0x").is_empty());
        assert!(module_dependencies(b"license=GPL").is_empty());
    }

    #[test]
    fn modules_are_found_by_name() {
        let list = "kernel/drivers/char/hw_random/virtio-rng.ko\nkernel/drivers/virtio/virtio.ko\n";
        assert_eq!(
            find_module(list, "virtio"),
            Some("kernel/drivers/virtio/virtio.ko")
        );
        assert_eq!(
            find_module(list, "virtio_rng"),
            Some("kernel/drivers/char/hw_random/virtio-rng.ko")
        );
        assert_eq!(find_module(list, "net"), None);
    }
}
