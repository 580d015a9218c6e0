// SPDX-License-Identifier: Apache-2.0

//! What is compared: the same program in a Linux VM and as a unikernel, started the same way.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::linux::Linux;
use super::net::Link;
use super::probe::{self, Ready};
use crate::{paths, sh};

/// Units of time in /proc/PID/stat, a second (`USER_HZ`, 100 on x86-64).
const CLOCK_TICKS: f64 = 100.0;

/// How guest code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accel {
    Kvm,
    /// Software emulation.
    Tcg,
}

impl Accel {
    /// The word for it, QEMU's and ours.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// QEMU's option for the Linux VM. Its buffer of translated code is the largest that `coracle run` would give a guest
    /// with this memory, so that a whole Linux does not run out of it; `coracle run` sizes its own by the program.
    pub(crate) fn option(self, memory_mib: u32) -> String {
        match self {
            Accel::Kvm => "kvm".to_owned(),
            Accel::Tcg => format!("tcg,tb-size={}", (memory_mib / 4).clamp(64, 256)),
        }
    }

    /// The processor model the guest sees.
    pub(crate) fn cpu(self) -> &'static str {
        match self {
            Accel::Kvm => "host",
            Accel::Tcg => "max",
        }
    }
}

/// What both machines are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) accel: Accel,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u32,
}

/// A way to run the service.
pub(crate) struct Platform {
    kind: Kind,
    link: Link,
    ready: Ready,
}

enum Kind {
    Linux(Linux),
    /// What `coracle run` is told to run: an executable, a folder or an image, then arguments.
    Coracle(Vec<OsString>),
}

impl Platform {
    /// A Linux VM.
    pub(crate) fn linux(linux: Linux, link: Link, ready: Ready) -> Platform {
        Platform {
            kind: Kind::Linux(linux),
            link,
            ready,
        }
    }

    /// A unikernel. `run`: what the command `coracle run` is told to run, an executable, a folder or an image, then
    /// arguments.
    pub(crate) fn coracle(run: Vec<OsString>, link: Link, ready: Ready) -> Platform {
        Platform {
            kind: Kind::Coracle(run),
            link,
            ready,
        }
    }

    /// The name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Linux(_) => "Linux VM",
            Kind::Coracle(_) => "Coracle",
        }
    }

    /// The kernel's file, and what is handed to the VMM beside it: the initial file system, or the boot ROM and the
    /// parts of the boot bundle.
    pub(crate) fn files(&self, machine: Machine) -> Result<(PathBuf, Vec<PathBuf>)> {
        match &self.kind {
            Kind::Linux(linux) => {
                let rest = [Some(linux.initrd.clone()), linux.disk.clone()];
                Ok((linux.kernel.clone(), rest.into_iter().flatten().collect()))
            }
            Kind::Coracle(run) => {
                let parts = boot_files(&dry_run(machine, &self.link, run)?);
                if parts.is_empty() {
                    bail!("`coracle run --dry-run` names no boot bundle");
                }
                Ok((paths::build()?.join("coracle-kernel"), parts))
            }
        }
    }

    /// How it is run: the VMM's command line and what made it so.
    pub(crate) fn about(&self, machine: Machine) -> Result<Value> {
        Ok(match &self.kind {
            Kind::Linux(linux) => json!({
                "kernel": format!("{} as the distribution ships it; the first program is xtask/linux-vm/init.c", linux.release),
                "command": sh::shown(&linux.command(machine, &self.link)),
            }),
            Kind::Coracle(run) => {
                json!({ "kernel": "build/coracle-kernel, started by `coracle run`; the time of that command is part of the boot", "command": dry_run(machine, &self.link, run)? })
            }
        })
    }

    /// Starts the service and waits for its first answer, at most `limit`.
    pub(crate) fn boot(&self, machine: Machine, limit: Duration) -> Result<Booted> {
        let started = Instant::now();
        let mut instance = match &self.kind {
            Kind::Linux(linux) => Instance::linux(linux, machine, &self.link)?,
            Kind::Coracle(run) => Instance::coracle(machine, &self.link, run)?,
        };
        let service = self.link.service();
        let answer =
            probe::first_answer(service, &self.ready, started + limit, || instance.ended());
        let took = started.elapsed();
        match answer {
            Ok(answer) => {
                instance.find_vmm()?;
                Ok(Booted {
                    instance,
                    service,
                    took,
                    answer,
                })
            }
            Err(error) => {
                let log = instance.log();
                let log = log.trim();
                let detail = if log.is_empty() {
                    String::new()
                } else {
                    format!("\n{log}")
                };
                Err(error.context(format!(
                    "{} did not serve within {limit:?}{detail}",
                    self.name()
                )))
            }
        }
    }
}

/// Memory of a VMM that is resident, MB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResidentMemory {
    /// Of the guest's memory.
    pub(crate) guest_mb: f64,
    /// All other: the VMM's code and data, and the code it translates for the guest.
    pub(crate) vmm_mb: f64,
}

/// A running service that has answered.
pub(crate) struct Booted {
    pub(crate) instance: Instance,
    pub(crate) service: SocketAddr,
    /// From just before the start of the command to the end of the first answer.
    pub(crate) took: Duration,
    /// The body of the first answer.
    pub(crate) answer: String,
}

/// A started guest; ended and cleaned up when dropped.
pub(crate) struct Instance {
    /// QEMU itself for the Linux VM, the `coracle run -d` that starts it for the unikernel.
    child: Child,
    /// The unikernel's name.
    name: Option<String>,
    /// The process id of the VMM, once found.
    vmm: Option<u32>,
}

impl Instance {
    fn linux(linux: &Linux, machine: Machine, link: &Link) -> Result<Instance> {
        let mut command = linux.command(machine, link);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = sh::spawn(&mut command)?;
        let vmm = Some(child.id());
        Ok(Instance {
            child,
            name: None,
            vmm,
        })
    }

    fn coracle(machine: Machine, link: &Link, run: &[OsString]) -> Result<Instance> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "xtask-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let mut command = coracle_run(machine, link)?;
        command.args(["-d", "--name", &name]).args(run);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(Instance {
            child: sh::spawn(&mut command)?,
            name: Some(name),
            vmm: None,
        })
    }

    /// How the guest ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            // A detached start that succeeds only says that the guest was started.
            Ok(Some(status)) if self.name.is_some() && status.success() => self.coracle_ended(),
            Ok(Some(status)) => Some(status.to_string()),
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    /// The state of a detached unikernel, when it no longer runs.
    fn coracle_ended(&mut self) -> Option<String> {
        if self.vmm.is_none() {
            self.find_vmm().err().map(|error| error.to_string())?;
        }
        let vmm = self.vmm?;
        (!fs::exists(format!("/proc/{vmm}")).unwrap_or(false)).then(|| "the VMM is gone".to_owned())
    }

    /// Learns the VMM's process id of a unikernel.
    fn find_vmm(&mut self) -> Result<()> {
        let Some(name) = &self.name else {
            return Ok(());
        };
        if self.vmm.is_some() {
            return Ok(());
        }
        let Some(status) = sh::wait_within(&mut self.child, Duration::from_secs(10))? else {
            bail!("`coracle run -d` does not return");
        };
        if !status.success() {
            bail!("`coracle run -d` ended with {status}");
        }
        let text = sh::output(&mut coracle(["inspect", name])?)?;
        let document: Value =
            serde_json::from_str(&text).context("`coracle inspect` is not JSON")?;
        let pid = find_pid(&document)
            .with_context(|| format!("`coracle inspect` names no VMM pid: {text}"))?;
        self.vmm = Some(u32::try_from(pid).context("the VMM's pid")?);
        Ok(())
    }

    /// What the guest said on its console, or the command on its standard error.
    pub(crate) fn log(&mut self) -> String {
        let Some(name) = &self.name else {
            return String::new();
        };
        let mut said = String::new();
        if let Ok(Some(_)) = sh::wait_within(&mut self.child, Duration::from_secs(1))
            && let Some(mut stderr) = self.child.stderr.take()
        {
            use std::io::Read;
            // The text is an aid for the reader of an error that is reported anyway.
            let _ = stderr.read_to_string(&mut said);
        }
        if let Ok(log) = coracle(["logs", name]).and_then(|mut command| sh::output(&mut command)) {
            said += &log;
        }
        said
    }

    /// The most memory the VMM has had resident so far (`VmHWM` in proc(5)), MB.
    pub(crate) fn peak_memory_mb(&self) -> Result<f64> {
        self.status_mb("VmHWM:")
    }

    /// The memory the VMM has resident now (`VmRSS`), MB.
    pub(crate) fn memory_mb(&self) -> Result<f64> {
        self.status_mb("VmRSS:")
    }

    /// The processor time the VMM has used so far (`utime` and `stime` in proc_pid_stat(5)), seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let pid = self.vmm.context("the VMM is not known")?;
        let path = format!("/proc/{pid}/stat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("read {path}: did the VMM end?"))?;
        // The command's name, in parentheses, may contain blanks; utime and stime are fields 14 and 15.
        let fields: Vec<&str> = text
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |index: usize| {
            fields
                .get(index)
                .and_then(|field| field.parse::<f64>().ok())
        };
        let (user, system) = ticks(11)
            .zip(ticks(12))
            .with_context(|| format!("{path} is not understood"))?;
        Ok((user + system) / CLOCK_TICKS)
    }

    /// The memory that is resident now, MB: what the guest has touched of its own, and the rest of the VMM. The guest's
    /// memory is found by its size, as most of it is one anonymous mapping; the files mapped into it (the boot bundle)
    /// by their folder.
    pub(crate) fn guest_memory_mb(&self, memory_mib: u32) -> Result<ResidentMemory> {
        let pid = self.vmm.context("the VMM is not known")?;
        let path = format!("/proc/{pid}/smaps");
        let text =
            fs::read_to_string(&path).with_context(|| format!("read {path}: did the VMM end?"))?;
        let (guest_kib, all_kib) = resident_kib(&text, u64::from(memory_mib) * 1024);
        let mb = |kib: u64| -> Result<f64> { Ok(f64::from(u32::try_from(kib)?) * 1024.0 / 1e6) };
        Ok(ResidentMemory {
            guest_mb: mb(guest_kib)?,
            vmm_mb: mb(all_kib - guest_kib)?,
        })
    }

    fn status_mb(&self, field: &str) -> Result<f64> {
        let pid = self.vmm.context("the VMM is not known")?;
        let path = format!("/proc/{pid}/status");
        let text =
            fs::read_to_string(&path).with_context(|| format!("read {path}: did the VMM end?"))?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .context("no such field in /proc/PID/status")?;
        let kib: f64 = line
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse()
            .context("not a number in /proc/PID/status")?;
        Ok(kib * 1024.0 / 1e6)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Without sh::output, which refuses after Ctrl-C. An instance that never came up has nothing to remove.
            let removed = coracle(["rm", "-f", "-v", name]).map(|mut command| command.output());
            if let Ok(Err(error)) = removed {
                eprintln!("xtask: could not remove the instance {name}: {error}");
            }
        }
        sh::end(&mut self.child);
    }
}

/// The `coracle` command that was built.
pub(crate) fn coracle<'a>(
    args: impl IntoIterator<Item = &'a str>,
) -> Result<std::process::Command> {
    Ok(sh::cmd(paths::build()?.join("coracle"), args))
}

/// `coracle run` with the machine and the network, without name and program.
pub(crate) fn coracle_run(machine: Machine, link: &Link) -> Result<std::process::Command> {
    let network = match link {
        Link::Tap {
            interface,
            host,
            guest,
            guest_mac,
            ..
        } => {
            format!("tap={interface},ip={guest}/24,gw={host},mac={guest_mac}")
        }
        Link::User { .. } => "user".to_owned(),
    };
    let (memory, vcpus) = (
        format!("{}M", machine.memory_mib),
        machine.vcpus.to_string(),
    );
    let mut command = coracle([
        "run",
        "--accel",
        machine.accel.name(),
        "-m",
        &memory,
        "--cpus",
        &vcpus,
    ])?;
    command.args(["--network", &network]);
    if let Link::User { host_port, port } = link {
        command.args(["-p", &format!("127.0.0.1:{host_port}:{port}")]);
    }
    Ok(command)
}

/// The VMM's command line for the service as a unikernel; its boot bundle has been written.
fn dry_run(machine: Machine, link: &Link, run: &[OsString]) -> Result<String> {
    let mut command = coracle_run(machine, link)?;
    command.arg("--dry-run").args(run);
    Ok(sh::output(&mut command)?.trim().to_owned())
}

/// The files beside the kernel in a VMM's command line: memory made of a file, the firmware, the initial RAM disk.
fn boot_files(line: &str) -> Vec<PathBuf> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |option| {
        words
            .windows(2)
            .find(move |pair| pair[0] == option)
            .map(|pair| pair[1])
    };
    let mapped = words
        .iter()
        .flat_map(|word| word.split(','))
        .filter_map(|value| value.strip_prefix("mem-path="));
    mapped
        .chain(after("-bios"))
        .chain(after("-initrd"))
        .map(PathBuf::from)
        .collect()
}

/// The accelerator that `coracle run` chooses on this machine, which both platforms then use.
pub(crate) fn accelerator() -> Result<Accel> {
    let mut command = coracle(["run", "--network", "none", "--dry-run"])?;
    command.arg(paths::build()?.join("todo-go"));
    let line = sh::output(&mut command)?;
    Ok(if line.contains("-accel kvm") {
        Accel::Kvm
    } else {
        Accel::Tcg
    })
}

/// Resident memory in the text of `/proc/PID/smaps`, KiB: that of the guest and all of it. To the guest belong mappings
/// of at least half its memory, and those of a boot bundle or root file.
fn resident_kib(smaps: &str, memory_kib: u64) -> (u64, u64) {
    let (mut guest, mut all, mut of_guest) = (0, 0, false);
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let kib = || words.get(1).and_then(|number| number.parse::<u64>().ok());
        match words.first() {
            Some(&"Size:") => of_guest |= kib().is_some_and(|size| size >= memory_kib / 2),
            Some(&"Rss:") => {
                let rss = kib().unwrap_or(0);
                all += rss;
                guest += if of_guest { rss } else { 0 };
            }
            // The first line of a mapping: addresses, permissions, offset, device, inode, path.
            Some(first) if !first.ends_with(':') => {
                let path = words.get(5).copied().unwrap_or_default();
                of_guest = path.ends_with(".cpio") || path.contains("/coracle/roots/");
            }
            _ => {}
        }
    }
    (guest, all)
}

/// The VMM's process id in the output of `coracle inspect`.
fn find_pid(document: &Value) -> Option<u64> {
    let instance = document
        .as_array()
        .map_or(document, |list| list.first().unwrap_or(document));
    instance.get("vmm")?.get("pid")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::{boot_files, find_pid, resident_kib};

    #[test]
    fn memory_of_the_guest_is_told_from_that_of_the_vmm() {
        let smaps = "\
55aa-55bb r-xp 00000000 fe:01 42 /usr/bin/qemu-system-x86_64\nSize: 9000 kB\nRss: 100 kB\nVmFlags: rd\n\
7f00-7f11 rw-p 00000000 00:00 0\nSize: 262144 kB\nRss: 5000 kB\n\
7f22-7f33 rw-p 00000000 fe:01 7 /a/bundle.cpio\nSize: 8000 kB\nRss: 30 kB\n\
7f44-7f55 rw-p 00000000 00:00 0\nSize: 65536 kB\nRss: 2000 kB\n";
        assert_eq!(resident_kib(smaps, 262_144), (5030, 7130));
    }

    #[test]
    fn boot_files_are_found_in_both_ways_to_boot() {
        let direct = "qemu -bios /a/boot.rom -object memory-backend-file,id=p,size=1,mem-path=/a/bundle.cpio \
                      -object memory-backend-file,mem-path=/c/root,share=off";
        let names = |line| {
            boot_files(line)
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(direct), ["/a/bundle.cpio", "/c/root", "/a/boot.rom"]);
        assert_eq!(
            names("qemu -kernel /k -initrd /a/bundle.cpio"),
            ["/a/bundle.cpio"]
        );
    }

    #[test]
    fn the_vmm_is_found_in_an_inspection() {
        let text = r#"[{"name":"a","monitor":{"pid":1},"vmm":{"pid":24068,"start_ticks":3}}]"#;
        assert_eq!(find_pid(&serde_json::from_str(text).unwrap()), Some(24068));
        assert_eq!(
            find_pid(&serde_json::from_str(r#"[{"vmm":null}]"#).unwrap()),
            None
        );
    }
}
