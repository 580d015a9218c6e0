// SPDX-License-Identifier: Apache-2.0

//! The Linux VM the unikernel is compared with: the distribution's kernel for virtual machines as it is, and an initial
//! file system with a first program of ours (`linux-vm/init.c`), the modules the network needs, and the service.

use std::collections::HashSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::net::Link;
use super::platform::Machine;
use crate::{paths, setup, sh};

/// The packages that stand for the current kernel for virtual machines: Debian's, then Ubuntu's.
const META_PACKAGES: [&str; 2] = ["linux-image-cloud-amd64", "linux-image-virtual"];

/// What a virtio network card on virtio-mmio needs; dependencies are found in the modules themselves.
const MODULES: [&str; 2] = ["virtio_mmio", "virtio_net"];

/// What a disk needs beside them. The file system, ext4, is part of the kernel.
const DISK_MODULE: &str = "virtio_blk";

/// The kernel's parameters, chosen for the soonest boot and the most requests per second this kernel can reach.
/// `console=` and `quiet`: no console, so that no time goes to a serial port. `tsc_early_khz` (added with the
/// host's figure) and `tsc=reliable`: neither calibrate the clock nor fall back to a slow one. `mitigations=off`: no
/// work against speculation between processes; there is one. `panic=-1`, `reboot=t`: end at once.
const PARAMETERS: &str = "console= quiet loglevel=0 tsc=reliable no_timer_check mitigations=off random.trust_cpu=on panic=-1 reboot=t";

/// What the Linux VM runs.
pub(crate) enum LinuxService<'a> {
    /// One static executable, which becomes a part of the initial file system.
    Program(&'a Path),
    /// A program in the root file system of a disk.
    Disk {
        /// An image with ext4. Guests write to it as if it were theirs; nothing of that is kept.
        image: &'a Path,
        workdir: &'a str,
        arguments: &'a [String],
        /// Variables as `NAME=VALUE`.
        environment: &'a [String],
    },
}

/// A Linux kernel with the initial file system for one service.
pub(crate) struct Linux {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    /// The image of the first disk, if there is one.
    pub(crate) disk: Option<PathBuf>,
    /// As in `uname -r`.
    pub(crate) release: String,
    tsc_khz: u64,
}

impl Linux {
    /// Fetches the kernel if the cache has none, and makes the initial file system for the service `name`.
    pub(crate) fn prepare(name: &str, service: &LinuxService<'_>) -> Result<Linux> {
        let (kernel, release) = kernel()?;
        let initrd = paths::build()?.join(format!("linux-vm-{name}.initrd"));
        let folder = paths::cache()?.join("linux/unpacked");
        let init = paths::build()?.join("linux-vm-init");
        let source = paths::in_root("xtask/linux-vm/init.c");
        sh::output(
            sh::cmd(
                "gcc",
                ["-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror", "-o"],
            )
            .arg(&init)
            .arg(source),
        )?;

        let mut archive = Archive::default();
        archive.folder("dev");
        archive.folder("modules");
        let mut order = String::new();
        let disk = match service {
            LinuxService::Program(_) => None,
            LinuxService::Disk { image, .. } => Some(image.to_path_buf()),
        };
        for (name, content) in modules(&folder, &release, disk.is_some())? {
            let path = format!("modules/{name}.ko");
            order += &format!("/{path}\n");
            archive.file(&path, 0o644, &content)?;
        }
        archive.file("modules/order", 0o644, order.as_bytes())?;
        archive.file("init", 0o755, &read(&init)?)?;
        match service {
            LinuxService::Program(path) => archive.file("service", 0o755, &read(path)?)?,
            LinuxService::Disk {
                workdir,
                arguments,
                environment,
                ..
            } => {
                let count = arguments.len().to_string();
                let words = [*workdir, &count].into_iter();
                let rest = arguments.iter().chain(*environment).map(String::as_str);
                let text: String = words.chain(rest).map(|word| format!("{word}\0")).collect();
                archive.file("command", 0o644, text.as_bytes())?;
            }
        }
        fs::write(&initrd, archive.finish())
            .with_context(|| format!("write {}", initrd.display()))?;
        Ok(Linux {
            kernel,
            initrd,
            disk,
            release,
            tsc_khz: tsc_khz(),
        })
    }

    /// The kernel's command line without the arguments of the first program.
    pub(crate) fn parameters(&self) -> String {
        format!("{PARAMETERS} tsc_early_khz={}", self.tsc_khz)
    }

    /// The command that runs the machine in the foreground.
    pub(crate) fn command(&self, machine: Machine, link: &Link) -> Command {
        let (address, gateway, netdev, mac) = match link {
            Link::Tap {
                interface,
                host,
                guest,
                guest_mac,
                ..
            } => {
                let netdev = format!("tap,id=net0,ifname={interface},script=no,downscript=no");
                (*guest, *host, netdev, guest_mac.as_str())
            }
            Link::User { host_port, port } => {
                let netdev = format!("user,id=net0,hostfwd=tcp:127.0.0.1:{host_port}-:{port}");
                (
                    Ipv4Addr::new(10, 0, 2, 15),
                    Ipv4Addr::new(10, 0, 2, 2),
                    netdev,
                    "52:54:00:12:34:56",
                )
            }
        };
        let append = format!(
            "{} -- {address} 255.255.255.0 {gateway} /service",
            self.parameters()
        );
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args([
                "-M",
                "microvm,isa-serial=off,auto-kernel-cmdline=off",
                "-accel",
                &machine.accel.option(machine.memory_mib),
            ])
            .args([
                "-cpu",
                machine.accel.cpu(),
                "-smp",
                &machine.vcpus.to_string(),
            ])
            .args(["-m", &format!("{}M", machine.memory_mib)])
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd)
            .args(["-append", &append, "-netdev", &netdev])
            .args(["-global", "virtio-mmio.force-legacy=false"])
            .args([
                "-device",
                &format!("virtio-net-device,netdev=net0,mac={mac}"),
            ]);
        if let Some(disk) = &self.disk {
            let drive = format!(
                "id=root,if=none,format=raw,snapshot=on,cache=unsafe,file={}",
                disk.display()
            );
            command
                .args(["-drive", &drive])
                .args(["-device", "virtio-blk-device,drive=root"]);
        }
        command
    }
}

/// The kernel image and its release, from the cache or freshly downloaded. The package is unpacked, not installed.
fn kernel() -> Result<(PathBuf, String)> {
    let folder = paths::cache()?.join("linux");
    let unpacked = folder.join("unpacked");
    if let Some(found) = find_kernel(&unpacked) {
        return Ok(found);
    }
    let packages = packages()?;
    println!("downloading {}", packages.join(" "));
    let downloads = paths::created(folder.join("downloads"))?;
    sh::output(
        sh::cmd("apt-get", ["download"])
            .args(&packages)
            .current_dir(&downloads),
    )?;
    // Unpacked beside its place and then moved, so that an interrupted run leaves no half kernel.
    let fresh = folder.join("fresh");
    for entry in fs::read_dir(&downloads)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            sh::output(sh::cmd("dpkg-deb", ["-x"]).arg(&path).arg(&fresh))?;
        }
    }
    fs::remove_dir_all(&downloads)?;
    fs::rename(&fresh, &unpacked)
        .with_context(|| format!("move the kernel to {}", unpacked.display()))?;
    find_kernel(&unpacked).with_context(|| format!("no boot/vmlinuz-* in {}", unpacked.display()))
}

fn find_kernel(unpacked: &Path) -> Option<(PathBuf, String)> {
    fs::read_dir(unpacked.join("boot"))
        .ok()?
        .flatten()
        .find_map(|entry| {
            let release = entry
                .file_name()
                .to_str()?
                .strip_prefix("vmlinuz-")?
                .to_owned();
            Some((entry.path(), release))
        })
}

/// The packages behind the meta package: the kernel, and its modules where they are apart.
fn packages() -> Result<Vec<String>> {
    if META_PACKAGES
        .iter()
        .all(|meta| depends(meta, "linux-image-").is_none())
    {
        setup::update_lists()?;
    }
    let image = META_PACKAGES
        .iter()
        .find_map(|meta| depends(meta, "linux-image-"));
    let image = image.with_context(|| {
        format!(
            "the package lists know none of {}",
            META_PACKAGES.join(", ")
        )
    })?;
    let modules = depends(&image, "linux-modules-");
    Ok([Some(image), modules].into_iter().flatten().collect())
}

/// The first package starting with `prefix` that `package` depends on.
fn depends(package: &str, prefix: &str) -> Option<String> {
    let text = sh::output(&mut sh::cmd("apt-cache", ["depends", package])).ok()?;
    let mut names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    names
        .find(|name| name.starts_with(prefix))
        .map(str::to_owned)
}

/// The modules to load, uncompressed and in load order.
fn modules(unpacked: &Path, release: &str, disk: bool) -> Result<Vec<(String, Vec<u8>)>> {
    let base = ["lib/modules", "usr/lib/modules"].map(|folder| unpacked.join(folder).join(release));
    let base = base
        .iter()
        .find(|folder| folder.is_dir())
        .context("the kernel package has no lib/modules")?;
    let listed = |file: &str| {
        let path = base.join(file);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let finder = Modules {
        base,
        builtin: listed("modules.builtin")?,
        loadable: listed("modules.order")?,
    };
    let (mut seen, mut ordered) = (HashSet::new(), Vec::new());
    for name in MODULES.into_iter().chain(disk.then_some(DISK_MODULE)) {
        finder.add(name, &mut seen, &mut ordered)?;
    }
    Ok(ordered)
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
            .with_context(|| format!("the kernel has no module {name}"))?;
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
            return read(&plain);
        }
        for (suffix, tool) in [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")] {
            let packed = plain.with_extension(format!("ko.{suffix}"));
            if packed.exists() {
                if !sh::installed(tool) {
                    setup::install(&[if tool == "xz" { "xz-utils" } else { tool }])?;
                }
                let result = sh::cmd(tool, ["-dc"]).arg(&packed).output()?;
                if !result.status.success() {
                    bail!("`{tool} -dc {}` failed", packed.display());
                }
                return Ok(result.stdout);
            }
        }
        bail!(
            "the kernel package lists {} but does not have it",
            plain.display()
        )
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

/// A cpio archive in *newc* format, as the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst` has it.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn folder(&mut self, path: &str) {
        self.header(path, 0o040_755, 0);
    }

    fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> Result<()> {
        let size =
            u32::try_from(content.len()).with_context(|| format!("{path} is larger than 4 GiB"))?;
        self.header(path, 0o100_000 | permissions, size);
        self.bytes.extend_from_slice(content);
        self.pad();
        Ok(())
    }

    fn header(&mut self, path: &str, mode: u32, size: u32) {
        self.entries += 1;
        let name_bytes = path.len() + 1;
        // Magic, inode, mode, owner and group, links, time, size, two device numbers, length of the name, no checksum.
        let header = format!(
            "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{name_bytes:08x}{:08x}{path}\0",
            self.entries, 0, 0, 1, 0, 0, 0, 0, 0, 0
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0);
        self.bytes
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// The frequency of the host's time-stamp counter, kHz, which is also the guest's. A tenth of a second is exact to a
/// few parts in 100 000.
fn tsc_khz() -> u64 {
    let (start, from) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(100));
    let (took, passed) = (start.elapsed(), ticks().wrapping_sub(from));
    u64::try_from(u128::from(passed) * 1_000_000 / took.as_nanos().max(1)).unwrap_or(0)
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has this instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::{Archive, find_module, module_dependencies};

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

    #[test]
    fn archives_have_the_published_layout() {
        let mut archive = Archive::default();
        archive.folder("dev");
        archive.file("a", 0o644, b"hello").unwrap();
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[110..114], b"dev\0");
        // The second entry: 110 bytes of header, the name, padding to four, then the content.
        assert_eq!(&bytes[116 + 110..116 + 112], b"a\0");
        assert_eq!(&bytes[116 + 112..116 + 117], b"hello");
    }
}
