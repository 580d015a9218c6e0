// SPDX-License-Identifier: Apache-2.0

//! The platform `linux-vm`: the service in an ordinary Linux, in the same VMM on the same machine as the unikernel. The
//! kernel is the distribution's for virtual machines, as it is; the first program is ours (`init.c`) and does the least
//! that is needed, so that it is Linux that is measured and not a distribution's services.
//!
//! `linux-vm-container` is the same VM with a container in it (`runtime`).
//!
//! Output goes over virtio-console ports like the unikernel's, never over a serial port.

mod cpio;
mod disk;
mod kernel;
mod runtime;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use self::cpio::Archive;
use self::kernel::Kernel;
use self::runtime::Runtime;
use super::root::{Root, in_cache};
use super::tool::{bytes_on_disk, output, tail, tool};
use super::vmm::{MACHINE, SANDBOX, Started, Vmm};
use super::{Ended, Image, Instance, Order, Platform, Prepared, Processes, end_child, end_within};
use crate::experiment::Service;
use crate::network::{Link, Wanted, netmask};
use crate::record::PlatformFacts;
use crate::{Error, Result};

/// The source of the first program.
const INIT: &str = include_str!("init.c");

/// What the machine's devices need; dependencies are found in the modules themselves. The file system, ext4, is part of
/// the kernel.
const MODULES: [&str; 4] = ["virtio_mmio", "virtio_console", "virtio_net", "virtio_blk"];

/// The kernel's parameters, chosen for the soonest boot and the most requests per second this kernel can reach.
/// `console=` and `quiet`: no console, so that no time goes to a serial port. `tsc_early_khz` (added with the host's
/// figure) and `tsc=reliable`: neither calibrate the clock nor fall back to a slow one. `mitigations=off`: no work against
/// speculation between processes; there is one. `panic=-1`, `reboot=t`: end at once.
const PARAMETERS: &str = "console= quiet loglevel=0 tsc=reliable no_timer_check mitigations=off random.trust_cpu=on panic=-1 reboot=t";

/// Addresses on QEMU's user-mode network.
const USER: [&str; 3] = ["10.0.2.15", "255.255.255.0", "10.0.2.2"];
/// The card there, where no other guest can see it.
const USER_MAC: &str = "52:54:00:12:34:56";

/// Linux in a VM.
#[derive(Debug)]
pub struct LinuxVm {
    vmm: Vmm,
    kernel: Kernel,
    /// The runtime of `linux-vm-container`.
    runtime: Option<Runtime>,
    /// By service.
    machines: BTreeMap<String, Machine>,
}

/// What a service is started from.
#[derive(Clone, Debug)]
struct Machine {
    initrd: PathBuf,
    disk: PathBuf,
    /// Originals of the volumes.
    volumes: Vec<PathBuf>,
}

impl LinuxVm {
    /// Finds the VMM, and the kernel in the cache or in the distribution's archive.
    ///
    /// # Errors
    /// [`Error::Host`] when one of them is not to be had, with what to do.
    pub fn find() -> Result<LinuxVm> {
        Ok(LinuxVm {
            vmm: Vmm::find()?,
            kernel: Kernel::find()?,
            runtime: None,
            machines: BTreeMap::new(),
        })
    }

    /// The same with a container in the VM.
    ///
    /// # Errors
    /// As above, and when the host has no runc to put into the VM.
    pub fn with_container() -> Result<LinuxVm> {
        Ok(LinuxVm {
            runtime: Some(Runtime::find()?),
            ..LinuxVm::find()?
        })
    }

    /// The kernel's command line without the arguments of the first program.
    fn parameters(&self) -> String {
        match self.vmm.tsc_khz {
            Some(khz) => format!("{PARAMETERS} tsc_early_khz={khz}"),
            None => PARAMETERS.to_owned(),
        }
    }

    /// The first program with the modules, and the job: what to start.
    fn initrd(&self, root: &Root) -> Result<PathBuf> {
        let job = match self.runtime {
            Some(_) => job(&Runtime::job(root), "cgroups"),
            None => job(root, ""),
        };
        let bundle = self.runtime.as_ref().map(|_| Runtime::config(root));
        let mut parts: Vec<&[u8]> = vec![INIT.as_bytes(), self.kernel.release.as_bytes()];
        parts.push(&job);
        if let (Some(runtime), Some(bundle)) = (&self.runtime, &bundle) {
            parts.extend([bundle.as_bytes(), runtime.version.as_bytes()]);
        }
        let key = coracle_imager::image::Digest::of(&parts.concat());
        let made = in_cache("initrd", key.short(), |folder| {
            let mut archive = Archive::default();
            archive.folder("dev");
            archive.folder("proc");
            archive.folder("sys");
            archive.folder("modules");
            let mut order = String::new();
            for (name, content) in self.kernel.modules(&MODULES)? {
                let path = format!("modules/{name}.ko");
                order += &format!("/{path}\n");
                archive.file(&path, 0o644, &content)?;
            }
            archive.file("modules/order", 0o644, order.as_bytes())?;
            let init = init()?;
            archive.file("init", 0o755, &fs::read(&init).map_err(Error::file(&init))?)?;
            archive.file("job", 0o644, &job)?;
            if let (Some(runtime), Some(bundle)) = (&self.runtime, &bundle) {
                archive.file("bundle/config.json", 0o644, bundle.as_bytes())?;
                for (path, content) in &runtime.files {
                    archive.file(path, 0o755, content)?;
                }
            }
            let path = folder.join("initrd");
            fs::write(&path, archive.finish()).map_err(Error::file(&path))
        })?;
        Ok(made.join("initrd"))
    }

    /// The command that runs the machine in the foreground.
    fn command(&self, order: &Order<'_>, machine: &Machine, control: i32) -> Result<Command> {
        let (netdev, mac, addresses) = match order.link {
            Link::Tap {
                interface,
                host,
                guest,
                prefix,
                guest_mac,
            } => {
                let netdev = format!(
                    "tap,id=net0,ifname={interface},script=no,downscript=no{}",
                    self.vmm.vhost()
                );
                let mask = netmask(*prefix);
                (netdev, guest_mac.as_str(), format!("{guest} {mask} {host}"))
            }
            Link::User { host_port, port } => {
                let forward = |kind| format!("hostfwd={kind}:127.0.0.1:{host_port}-:{port}");
                let netdev = format!("user,id=net0,{},{}", forward("tcp"), forward("udp"));
                (netdev, USER_MAC, USER.join(" "))
            }
            Link::None => (String::new(), "", String::new()),
            Link::Namespace { .. } => return Err(super::wrong_link(self.name())),
        };
        let mut command = Command::new(&self.vmm.qemu.path);
        command
            .arg("-M")
            .arg(format!("{MACHINE},isa-serial=off,auto-kernel-cmdline=off"))
            .args([
                "-nodefaults",
                "-no-user-config",
                "-no-reboot",
                "-display",
                "none",
            ])
            .args(["-sandbox", SANDBOX])
            .args(["-accel", &self.vmm.accel_option(order.memory_bytes)])
            .args(["-cpu", self.vmm.cpu(), "-smp", &order.vcpus.to_string()])
            .args(["-m", &format!("{}M", order.memory_bytes >> 20)])
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(&machine.initrd)
            .args(["-append", &format!("{} -- {addresses}", self.parameters())])
            .args(["-global", "virtio-mmio.force-legacy=false"])
            .args(["-device", "virtio-serial-device,max_ports=4"]);
        for (number, name) in [(1, "stdout"), (2, "stderr")] {
            let path = order.folder.join(name);
            command
                .arg("-chardev")
                .arg(with_path(&format!("file,id={name},path="), &path))
                .args([
                    "-device",
                    &format!("virtserialport,chardev={name},nr={number},name={name}"),
                ]);
        }
        command
            .args(["-chardev", &format!("socket,id=control,fd={control}")])
            .args([
                "-device",
                "virtserialport,chardev=control,nr=3,name=control",
            ]);
        if !netdev.is_empty() {
            command.args(["-netdev", &netdev]).args([
                "-device",
                &format!("virtio-net-device,netdev=net0,mac={mac}"),
            ]);
        }
        command
            .arg("-drive")
            .arg(with_path(
                "id=root,if=none,format=raw,snapshot=on,cache=unsafe,file=",
                &machine.disk,
            ))
            .args(["-device", "virtio-blk-device,drive=root"]);
        for number in 0..machine.volumes.len() {
            // The guest's flush becomes fdatasync of the host's file.
            let volume = with_path(
                &format!("id=volume{number},if=none,format=raw,cache=writeback,file="),
                &order.folder.join(format!("volume{number}")),
            );
            command.arg("-drive").arg(volume).args([
                "-device",
                &format!("virtio-blk-device,drive=volume{number}"),
            ]);
        }
        Ok(command)
    }
}

/// What the first program reads, see `init.c`.
fn job(root: &Root, runtime: &str) -> Vec<u8> {
    let numbers = [root.uid, root.gid].map(|number| number.to_string());
    let counts = [root.volumes.len(), root.argv.len()].map(|number| number.to_string());
    let mut words = vec![
        root.cwd.as_str(),
        runtime,
        &numbers[0],
        &numbers[1],
        &counts[0],
    ];
    words.extend(root.volumes.iter().map(String::as_str));
    words.push(&counts[1]);
    words.extend(root.argv.iter().chain(&root.env).map(String::as_str));
    words
        .into_iter()
        .flat_map(|word| word.bytes().chain([0]))
        .collect()
}

/// The first program, compiled once for each version of its source.
fn init() -> Result<PathBuf> {
    let key = coracle_imager::image::Digest::of(INIT.as_bytes());
    let made = in_cache("init", key.short(), |folder| {
        let source = folder.join("init.c");
        fs::write(&source, INIT).map_err(Error::file(&source))?;
        let mut compiler = Command::new(tool("gcc", "gcc")?);
        compiler.args(["-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror", "-o"]);
        output(compiler.arg(folder.join("init")).arg(&source)).map(drop)
    })?;
    Ok(made.join("init"))
}

/// A value with a path in it. A comma ends a value in QEMU's options; doubled it stands for itself.
fn with_path(before: &str, path: &Path) -> OsString {
    let text = path.to_string_lossy().replace(',', ",,");
    format!("{before}{text}").into()
}

impl Platform for LinuxVm {
    fn name(&self) -> &'static str {
        match self.runtime {
            Some(_) => "linux-vm-container",
            None => "linux-vm",
        }
    }

    fn facts(&self) -> PlatformFacts {
        let mut about = vec![
            (
                "kernel",
                format!("{}, as the distribution ships it", self.kernel.release),
            ),
            ("parameters", self.parameters()),
            (
                "first program",
                "host/lab/src/platform/linux_vm/init.c, no services of a distribution".into(),
            ),
            ("root", "ext4 on virtio-blk, changes are dropped".into()),
        ];
        if let Some(runtime) = &self.runtime {
            about.push(("runtime in the VM", runtime.version.clone()));
        }
        PlatformFacts {
            name: self.name().into(),
            substrate: self.vmm.substrate(),
            about: about
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        }
    }

    fn wanted(&self) -> Wanted {
        Wanted::Tap
    }

    fn prepare(&mut self, service: &Service, image: &Image) -> Result<Prepared> {
        let root = Root::prepare(service, image)?;
        let machine = Machine {
            initrd: self.initrd(&root)?,
            disk: disk::of_root(&root)?,
            volumes: root
                .volumes
                .iter()
                .map(|path| disk::volume_template(&root, path))
                .collect::<Result<_>>()?,
        };
        let kernel = bytes_on_disk(&self.kernel.image);
        let initrd = bytes_on_disk(&machine.initrd);
        let prepared = Prepared {
            image_bytes: kernel + initrd + bytes_on_disk(&machine.disk),
            shared_bytes: kernel + initrd,
        };
        self.machines.insert(service.name.clone(), machine);
        Ok(prepared)
    }

    fn start(&mut self, order: &Order<'_>) -> Result<Box<dyn Instance>> {
        let machine = super::prepared(&self.machines, order.service)?;
        let refused = |error: std::io::Error| Error::Host(format!("a pair of sockets: {error}"));
        let (control, of_guest) = UnixStream::pair().map_err(refused)?;
        control.set_nonblocking(true).map_err(refused)?;
        let of_guest = OwnedFd::from(of_guest);
        let mut command = self.command(order, machine, of_guest.as_raw_fd())?;
        for (number, original) in machine.volumes.iter().enumerate() {
            disk::copy(original, &order.folder.join(format!("volume{number}")))?;
        }
        let vmm = Started::new(&mut command, order, vec![of_guest])?;
        Ok(Box::new(Running {
            vmm,
            control,
            heard: String::new(),
        }))
    }
}

#[derive(Debug)]
struct Running {
    vmm: Started,
    /// The first program's words.
    control: UnixStream,
    heard: String,
}

impl Running {
    /// Takes what the first program has said since.
    fn hear(&mut self) {
        let mut bytes = Vec::new();
        // The error at the end is that there is no more for now.
        drop(self.control.read_to_end(&mut bytes));
        self.heard += &String::from_utf8_lossy(&bytes);
    }

    /// What the first program said behind `word`.
    fn said(&self, word: &str) -> Option<&str> {
        self.heard
            .lines()
            .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
    }
}

impl Instance for Running {
    fn commands(&self) -> Vec<String> {
        vec![self.vmm.line.clone()]
    }

    fn address(&self) -> IpAddr {
        self.vmm.address
    }

    fn ended(&mut self) -> Option<Ended> {
        let status = match self.vmm.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.hear();
        let code = self.said("exit").and_then(|code| code.parse().ok());
        let reason = match (self.said("error"), code) {
            (Some(error), _) => error.to_owned(),
            (None, Some(_)) => "exit".to_owned(),
            (None, None) => format!("the VMM ended without a word of the guest ({status})"),
        };
        Some(Ended { code, reason })
    }

    fn processes(&self) -> Processes {
        self.vmm.processes()
    }

    fn output(&mut self) -> String {
        self.vmm.text("stdout")
    }

    fn log(&mut self) -> String {
        self.hear();
        let parts = [
            self.vmm.text("vmm.stderr"),
            self.heard.clone(),
            self.vmm.text("stderr"),
            self.vmm.text("stdout"),
        ];
        tail(parts.concat())
    }

    fn stop(mut self: Box<Self>, grace: Duration) -> Result<Option<Ended>> {
        if self.control.write_all(b"stop\n").is_ok()
            && let Some(ended) = end_within(self.as_mut(), grace)
        {
            return Ok(Some(ended));
        }
        end_child(&mut self.vmm.child);
        Ok(self.ended())
    }
}

#[cfg(test)]
mod tests {
    use super::{Root, job, with_path};

    #[test]
    fn jobs_are_strings_with_counts_before_lists() {
        let root = Root {
            folder: "/r".into(),
            key: "k".into(),
            argv: vec!["/p".into(), "x y".into()],
            env: vec!["A=1".into()],
            cwd: "/w".into(),
            uid: 7,
            gid: 8,
            volumes: vec!["/data".into()],
        };
        assert_eq!(
            job(&root, ""),
            b"/w\0\x007\x008\x001\0/data\x002\0/p\0x y\0A=1\0"
        );
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        assert_eq!(with_path("file=", "/a,b".as_ref()), "file=/a,,b");
    }
}
