// SPDX-License-Identifier: Apache-2.0
//! The command line of QEMU for one instance.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::accel::Accel;
use crate::boot::Boot;
use crate::network::{Network, PortForward, Protocol, USER_GUEST};

/// Name of the control port in the guest, decision 0002.
pub const CONTROL_PORT: &str = "org.coracle.control";
/// Where `microvm` has its virtio-mmio slots: address of the first, bytes of each, interrupt of the first (QEMU
/// `include/hw/i386/microvm.h`; these hold with `ioapic2=off`).
const MMIO_BASE: u32 = 0xfeb0_0000;
const MMIO_SIZE: u32 = 512;
const MMIO_IRQ: u32 = 5;
/// Places on the bus: random numbers, console, then network cards, disks, shares.
const FIRST_NETWORK_SLOT: u32 = 2;
/// How many there are.
const MMIO_SLOTS: u32 = 8;

/// Machine type of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    /// No PCI, devices by virtio-mmio: starts soonest.
    #[default]
    Microvm,
    /// A PC with PCI Express.
    Q35,
}

/// Everything the command line depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Name of the instance.
    pub name: String,
    /// The VMM.
    pub qemu: PathBuf,
    /// Machine type.
    pub machine: Machine,
    /// How guest code runs.
    pub accel: Accel,
    /// Number of vCPUs.
    pub cpus: u32,
    /// Memory of the guest, bytes.
    pub memory_bytes: u64,
    /// The kernel, a PVH ELF file.
    pub kernel: PathBuf,
    /// The boot bundle, in parts that follow each other; [`Boot::Firmware`] takes one only.
    pub bundle: Vec<PathBuf>,
    /// How the two reach the guest.
    pub boot: Boot,
    /// How the guest is connected: one network for each interface, none of them [`Network::None`].
    pub networks: Vec<Network>,
    /// Ports of the host that lead into the guest.
    pub ports: Vec<PortForward>,
    /// Disks, in the order in which the guest numbers them.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// Folders of the host that the guest sees.
    #[serde(default)]
    pub shares: Vec<Share>,
    /// Size of the buffer for translated code under software emulation, MiB.
    pub tcg_buffer_mib: u64,
    /// Frequency of the time-stamp counter told to the kernel, kHz.
    pub tsc_khz: Option<u64>,
    /// How much the kernel logs on the serial port.
    pub log_level: Option<String>,
    /// Whether QEMU confines itself by seccomp.
    pub sandbox: bool,
}

/// A file of the host that is a disk of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The file; its length is the disk's.
    pub path: PathBuf,
    /// Whether the guest may not change it. Several guests can have such a disk at once, of a disk to be written one.
    pub read_only: bool,
    /// Whether QEMU locks the file: to write it alone, or to read it while nobody writes. Images are never written and
    /// need no lock.
    #[serde(default)]
    pub locked: bool,
}

/// A folder of the host that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The folder.
    pub path: PathBuf,
    /// Its name for the guest, at most 31 characters.
    pub tag: String,
    /// Whether QEMU refuses changes.
    pub read_only: bool,
}

/// Where one of the guest's byte streams ends on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// QEMU's own standard input and output.
    Stdio,
    /// A connected socket QEMU inherits.
    Fd(RawFd),
    /// A file; nothing is read.
    File(PathBuf),
    /// A UNIX socket on which QEMU waits for somebody.
    Listen(PathBuf),
}

/// The three byte streams of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streams {
    /// Standard input, output and error of the application.
    pub console: Endpoint,
    /// The control channel.
    pub control: Endpoint,
    /// The serial port: early boot and panics.
    pub serial: Endpoint,
}

impl Machine {
    fn options(self) -> &'static str {
        match self {
            Self::Microvm => {
                "microvm,acpi=off,ioapic2=off,pit=off,pic=off,rtc=on,isa-serial=on,auto-kernel-cmdline=on"
            }
            Self::Q35 => "q35,vmport=off,smbus=off,sata=off,usb=off,i8042=off,hpet=off",
        }
    }

    /// A virtio device in that place of this machine's bus.
    fn device(self, name: &str, slot: u32) -> String {
        match self {
            Self::Microvm => format!("{name}-device,bus=virtio-mmio-bus.{slot}"),
            Self::Q35 => format!("{name}-pci,disable-legacy=on"),
        }
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "microvm" => Ok(Self::Microvm),
            "q35" => Ok(Self::Q35),
            _ => Err(format!("{text:?}: use microvm or q35")),
        }
    }
}

impl Spec {
    /// The arguments, without the program itself.
    #[must_use]
    pub fn arguments(&self, streams: &Streams) -> Vec<OsString> {
        let mut args = Arguments::default();
        args.flag("-M").add(self.machine.options());
        args.flag("-nodefaults")
            .flag("-no-user-config")
            .flag("-no-reboot");
        args.flag("-display").add("none");
        if self.sandbox {
            args.flag("-sandbox")
                .add("on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
        }
        match self.accel {
            Accel::Kvm => args.flag("-accel").add("kvm").flag("-cpu").add("host"),
            Accel::Tcg => args
                .flag("-accel")
                .add(format!("tcg,tb-size={}", self.tcg_buffer_mib))
                .flag("-cpu")
                .add("max"),
        };
        args.flag("-smp").add(self.cpus.to_string());
        args.flag("-m").add(memory(self.memory_bytes));
        self.boot_arguments(&mut args);

        args.flag("-chardev").add(streams.serial.chardev("serial"));
        args.flag("-serial").add("chardev:serial");
        args.flag("-chardev")
            .add(streams.console.chardev("console"));
        args.flag("-chardev")
            .add(streams.control.chardev("control"));
        if self.machine == Machine::Microvm {
            args.flag("-global").add("virtio-mmio.force-legacy=false");
        }
        let device = |name, slot| self.machine.device(name, slot);
        args.flag("-device").add(device("virtio-rng", 0));
        args.flag("-device")
            .add(device("virtio-serial", 1) + ",max_ports=2");
        args.flag("-device").add("virtconsole,chardev=console,nr=0");
        args.flag("-device").add(format!(
            "virtserialport,chardev=control,nr=1,name={CONTROL_PORT}"
        ));
        for (number, network) in self.networks.iter().enumerate() {
            if let Some(mac) = network.mac() {
                args.flag("-netdev").add(self.netdev(network, number));
                args.flag("-device").add(
                    device("virtio-net", FIRST_NETWORK_SLOT + number_u32(number))
                        + &format!(",netdev=net{number},mac={mac}"),
                );
            }
        }
        for (number, disk) in self.disks.iter().enumerate() {
            let file = format!("driver=raw,node-name=disk{number},file.driver=file,");
            let mode = if disk.read_only {
                "read-only=on,auto-read-only=off,"
            } else {
                ""
            };
            let locking = if disk.locked { "on" } else { "off" };
            args.flag("-blockdev").add(joined(
                &format!("{file}{mode}file.locking={locking},file.filename="),
                &disk.path,
                "",
            ));
            args.flag("-device").add(
                device("virtio-blk", self.first_disk_slot() + number_u32(number))
                    // A full disk of the host is the guest's to report, not a reason to stop it.
                    + &format!(",drive=disk{number},werror=report,rerror=report"),
            );
        }
        self.share_arguments(&mut args);
        args.0
    }

    /// Folders of the host. QEMU acts as its own user: files belong to that user unless QEMU runs as root.
    fn share_arguments(&self, args: &mut Arguments) {
        for (number, share) in self.shares.iter().enumerate() {
            let id = format!("share{number}");
            let mode = if share.read_only { ",readonly=on" } else { "" };
            args.flag("-fsdev").add(joined(
                &format!("local,id={id},security_model=none,multidevs=remap{mode},path="),
                &share.path,
                "",
            ));
            let slot = self.first_share_slot() + number_u32(number);
            args.flag("-device").add(
                self.machine.device("virtio-9p", slot)
                    + &format!(",fsdev={id},mount_tag={}", share.tag),
            );
        }
    }

    /// The place of the first share on the bus, behind all other devices.
    fn first_share_slot(&self) -> u32 {
        self.first_disk_slot() + number_u32(self.disks.len())
    }

    /// How many places on the bus are used.
    fn slots(&self) -> u32 {
        self.first_share_slot() + number_u32(self.shares.len())
    }

    /// Whether the machine has a place for each device.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.machine != Machine::Microvm || self.slots() <= MMIO_SLOTS
    }

    /// Memory, kernel and bundle.
    fn boot_arguments(&self, args: &mut Arguments) {
        match &self.boot {
            Boot::Firmware => {
                args.flag("-kernel").add(&self.kernel);
                for bundle in &self.bundle {
                    args.flag("-initrd").add(bundle);
                }
                let command_line = self.kernel_command_line();
                if !command_line.is_empty() {
                    args.flag("-append").add(command_line);
                }
            }
            Boot::Direct { rom, bundle_bytes } => {
                let rest = memory(self.memory_bytes - bundle_bytes.iter().sum::<u64>());
                args.flag("-bios").add(rom);
                args.flag("-device")
                    .add(joined("loader,file=", &self.kernel, ""));
                args.flag("-object")
                    .add(format!("memory-backend-ram,id=ram,size={rest}"));
                args.flag("-numa").add("node,memdev=ram");
                for (number, (path, bytes)) in self.bundle.iter().zip(bundle_bytes).enumerate() {
                    let object = format!(
                        "memory-backend-file,id=part{number},share=off,size={bytes},mem-path="
                    );
                    args.flag("-object").add(joined(&object, path, ""));
                    args.flag("-numa").add(format!("node,memdev=part{number}"));
                }
            }
        }
    }

    /// What the kernel reads before it has seen the bundle, decision 0001; without the devices of `microvm`.
    fn kernel_command_line(&self) -> String {
        let tsc = self.tsc_khz.map(|khz| format!("tsc_khz={khz}"));
        let log = self
            .log_level
            .as_ref()
            .map(|level| format!("loglevel={level}"));
        tsc.into_iter().chain(log).collect::<Vec<_>>().join(" ")
    }

    /// The same with the devices, which QEMU adds by itself only for its own firmware (`auto-kernel-cmdline`).
    pub(crate) fn whole_command_line(&self) -> String {
        let mut line = self.kernel_command_line();
        for slot in 0..self.slots() {
            let base = MMIO_BASE + slot * MMIO_SIZE;
            let irq = MMIO_IRQ + slot;
            line += &format!(" virtio_mmio.device={MMIO_SIZE}@{base:#x}:{irq}");
        }
        line.trim_start().to_owned()
    }

    /// The place of the first disk on the bus, behind the network cards.
    fn first_disk_slot(&self) -> u32 {
        FIRST_NETWORK_SLOT + number_u32(self.networks.len())
    }

    fn netdev(&self, network: &Network, number: usize) -> String {
        match network {
            Network::Tap(tap) => {
                // Zero-copy transmission by the host's kernel, where it offers that.
                let vhost = self.accel == Accel::Kvm
                    && std::fs::File::options()
                        .read(true)
                        .write(true)
                        .open("/dev/vhost-net")
                        .is_ok();
                let vhost = if vhost { ",vhost=on" } else { "" };
                format!(
                    "tap,id=net{number},ifname={},script=no,downscript=no{vhost}",
                    tap.interface
                )
            }
            Network::User | Network::None => {
                let mut user = format!("user,id=net{number}");
                // The first user-mode network has the ports.
                let first = self.networks.iter().position(|n| *n == Network::User);
                let ports = self.ports.iter().filter(|_| first == Some(number));
                for port in ports {
                    let protocol = match port.protocol {
                        Protocol::Tcp => "tcp",
                        Protocol::Udp => "udp",
                    };
                    let address = if port.address.is_unspecified() {
                        String::new()
                    } else {
                        port.address.to_string()
                    };
                    user += &format!(
                        ",hostfwd={protocol}:{address}:{}-{USER_GUEST}:{}",
                        port.host, port.guest
                    );
                }
                user
            }
        }
    }
}

impl Endpoint {
    fn chardev(&self, id: &str) -> OsString {
        match self {
            Self::Stdio => format!("stdio,id={id},signal=off").into(),
            Self::Fd(fd) => format!("socket,id={id},fd={fd}").into(),
            Self::File(path) => joined(&format!("file,id={id},append=on,path="), path, ""),
            Self::Listen(path) => joined(
                &format!("socket,id={id},server=on,wait=off,path="),
                path,
                "",
            ),
        }
    }
}

/// A number of disks, of which a machine has few.
fn number_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A value with a path in it. A comma ends a value in QEMU's options; doubled it stands for itself.
fn joined(before: &str, path: &Path, after: &str) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = before.as_bytes().to_vec();
    for &byte in path.as_os_str().as_bytes() {
        bytes.push(byte);
        if byte == b',' {
            bytes.push(byte);
        }
    }
    bytes.extend_from_slice(after.as_bytes());
    OsString::from_vec(bytes)
}

/// Memory as QEMU takes it: whole MiB where possible.
fn memory(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes.is_multiple_of(MIB) {
        format!("{}M", bytes / MIB)
    } else {
        format!("{}K", bytes.div_ceil(1024))
    }
}

/// A command line as one would type it into a POSIX shell.
#[must_use]
pub fn shell_line(program: &Path, args: &[OsString]) -> String {
    let quoted = |word: &OsStr| {
        let text = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    };
    let mut line = quoted(program.as_os_str());
    for arg in args {
        line.push(' ');
        line += &quoted(arg);
    }
    line
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flag(&mut self, flag: &str) -> &mut Self {
        self.0.push(flag.into());
        self
    }

    fn add(&mut self, value: impl Into<OsString>) -> &mut Self {
        self.0.push(value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(machine: Machine, network: &str) -> Spec {
        Spec {
            name: "n".into(),
            qemu: "qemu".into(),
            machine,
            accel: Accel::Tcg,
            cpus: 2,
            memory_bytes: 64 << 20,
            kernel: "/k".into(),
            bundle: vec!["/b".into()],
            boot: Boot::Firmware,
            networks: match network {
                "none" => Vec::new(),
                network => vec![network.parse().unwrap()],
            },
            ports: vec!["127.0.0.1:1:2".parse().unwrap(), "3:4/udp".parse().unwrap()],
            disks: Vec::new(),
            shares: Vec::new(),
            tcg_buffer_mib: 24,
            tsc_khz: Some(5),
            log_level: Some("debug".into()),
            sandbox: true,
        }
    }

    fn line(spec: &Spec) -> String {
        let streams = Streams {
            console: Endpoint::Fd(7),
            control: Endpoint::Listen("/a,b".into()),
            serial: Endpoint::File("/s".into()),
        };
        shell_line(&spec.qemu, &spec.arguments(&streams))
    }

    #[test]
    fn microvm_devices_are_on_mmio() {
        let line = line(&spec(Machine::Microvm, "user"));
        for part in [
            "-global virtio-mmio.force-legacy=false",
            "-device virtio-net-device,bus=virtio-mmio-bus.2,netdev=net0",
            "user,id=net0,hostfwd=tcp:127.0.0.1:1-10.0.2.15:2,hostfwd=udp::3-10.0.2.15:4",
            "-append 'tsc_khz=5 loglevel=debug'",
            "socket,id=console,fd=7",
            "path=/a,,b",
            "-accel tcg,tb-size=24 ",
            "-smp 2 -m 64M",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("-pci"));
    }

    #[test]
    fn a_bundle_that_is_memory_is_not_loaded() {
        let mut direct = spec(Machine::Microvm, "none");
        direct.bundle = vec!["/b".into(), "/c".into()];
        direct.boot = Boot::Direct {
            rom: "/r".into(),
            bundle_bytes: vec![8192, (3 << 20) - 8192],
        };
        let line = line(&direct);
        for part in [
            "-bios /r -device loader,file=/k ",
            "memory-backend-ram,id=ram,size=61M",
            "memory-backend-file,id=part0,share=off,size=8192,mem-path=/b -numa node,memdev=part0",
            "memory-backend-file,id=part1,share=off,size=3137536,mem-path=/c -numa node,memdev=part1",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("-initrd") && !line.contains("-append"));
        let told = "tsc_khz=5 loglevel=debug virtio_mmio.device=512@0xfeb00000:5 virtio_mmio.device=512@0xfeb00200:6";
        assert_eq!(direct.whole_command_line(), told);
    }

    #[test]
    fn q35_devices_are_on_pci() {
        let line = line(&spec(Machine::Q35, "tap=t0,ip=10.0.0.2/24"));
        for part in [
            "virtio-rng-pci,disable-legacy=on",
            "tap,id=net0,ifname=t0,script=no,downscript=no",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("mmio") && !line.contains("hostfwd"));
    }

    #[test]
    fn each_network_has_a_card() {
        let mut two = spec(Machine::Microvm, "user");
        let tap = "tap=t0,ip=10.0.0.2/24,mac=52:54:00:00:00:01";
        two.networks.push(tap.parse().unwrap());
        let line = line(&two);
        for part in [
            "-netdev user,id=net0,hostfwd=tcp:127.0.0.1:1-10.0.2.15:2,",
            "-netdev tap,id=net1,ifname=t0,script=no,downscript=no -device",
            "virtio-mmio-bus.2,netdev=net0,mac=",
            "virtio-mmio-bus.3,netdev=net1,mac=52:54:00:00:00:01",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert_eq!(two.slots(), 4);
    }

    #[test]
    fn disks_follow_the_network_card() {
        let mut with_disks = spec(Machine::Microvm, "user");
        with_disks.disks = vec![
            Disk {
                path: "/a,b.erofs".into(),
                read_only: true,
                locked: false,
            },
            Disk {
                path: "/v".into(),
                read_only: false,
                locked: true,
            },
        ];
        let line = line(&with_disks);
        for part in [
            "read-only=on,auto-read-only=off,file.locking=off,file.filename=/a,,b.erofs ",
            "-device virtio-blk-device,bus=virtio-mmio-bus.3,drive=disk0,werror=report,",
            "node-name=disk1,file.driver=file,file.locking=on,file.filename=/v ",
            "bus=virtio-mmio-bus.4,drive=disk1",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(with_disks.whole_command_line().ends_with("0xfeb00800:9"));
        with_disks.networks.clear();
        assert!(with_disks.whole_command_line().ends_with("0xfeb00600:8"));
    }

    #[test]
    fn shares_come_last_and_keep_their_paths() {
        let mut shared = spec(Machine::Microvm, "none");
        let share = |path: &str, read_only| Share {
            path: path.into(),
            tag: "data".into(),
            read_only,
        };
        shared.shares = vec![share("/a,b", false), share("/c", true)];
        let line = line(&shared);
        for part in [
            "security_model=none,multidevs=remap,path=/a,,b ",
            "-device virtio-9p-device,bus=virtio-mmio-bus.2,fsdev=share0,mount_tag=data ",
            "multidevs=remap,readonly=on,path=/c ",
            "bus=virtio-mmio-bus.3,fsdev=share1",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(shared.whole_command_line().ends_with("0xfeb00600:8"));
        assert!(shared.fits());
        shared.shares = vec![share("/c", true); 7];
        assert!(!shared.fits());
        shared.machine = Machine::Q35;
        assert!(shared.fits());
    }

    #[test]
    fn nothing_is_said_that_needs_not_be() {
        let mut bare = spec(Machine::Microvm, "none");
        (bare.tsc_khz, bare.log_level, bare.sandbox) = (None, None, false);
        let line = line(&bare);
        for part in ["-append", "-netdev", "-sandbox", "virtio-net"] {
            assert!(!line.contains(part), "{part} is in {line}");
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let args = ["plain", "two words", "it's", ""].map(OsString::from);
        assert_eq!(
            shell_line(Path::new("/q"), &args),
            r"/q plain 'two words' 'it'\''s' ''"
        );
    }
}
