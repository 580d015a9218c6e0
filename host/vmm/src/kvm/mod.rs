// SPDX-License-Identifier: Apache-2.0
//! Finds out whether KVM works by running a guest, because `/dev/kvm` can exist and not work.
//!
//! The guest is a boot ROM of our own: it goes from the reset vector to 64-bit mode with paging and waits for an
//! interrupt of its local APIC timer, which is what the kernel needs of a CPU; then it ends QEMU through the debug-exit
//! port. Everything else (an error, another exit status, two seconds without one) means that KVM does not work.

mod rom;

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long the probe guest may take. It takes 40 ms where KVM works.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Exit status of QEMU after the guest wrote 0x10 to the debug-exit port: `(0x10 << 1) | 1`.
const PROBE_STATUS: i32 = 33;

/// What the probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The probe guest ran.
    Works,
    /// There is no `/dev/kvm`.
    Absent,
    /// This user may not open it.
    Denied,
    /// It is there, and the probe guest did not run; the text says how that looked.
    Broken(String),
}

impl Verdict {
    /// What to tell a user; empty when KVM works.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Works => String::new(),
            Self::Absent => "there is no /dev/kvm".into(),
            Self::Denied => "no right to open /dev/kvm".into(),
            Self::Broken(how) => format!("/dev/kvm exists but does not work: {how}"),
        }
    }

    /// The line that repairs it; empty when KVM works.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Works => "",
            Self::Absent => {
                "sudo modprobe kvm_amd || sudo modprobe kvm_intel  # inside a VM: allow nested virtualisation on its host"
            }
            Self::Denied => "sudo usermod -aG kvm $USER  # then log in again",
            Self::Broken(_) => {
                "update the host's kernel and QEMU, or (inside a VM) allow nested virtualisation on its host; --accel tcg works meanwhile"
            }
        }
    }
}

/// Runs the probe guest under `qemu`, for two seconds at most.
#[must_use]
pub fn probe(qemu: &Path) -> Verdict {
    match std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
    {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Verdict::Denied;
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Verdict::Absent,
        Err(error) => return Verdict::Broken(error.to_string()),
    }
    run(qemu, "kvm", "host", PROBE_LIMIT).map_or_else(Verdict::Broken, |()| Verdict::Works)
}

/// Runs the ROM and answers in words what went wrong.
fn run(qemu: &Path, accel: &str, cpu: &str, limit: Duration) -> Result<(), String> {
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let mut rom = anonymous_file().map_err(failed("cannot write the probe guest"))?;
    rom.write_all(rom::bytes())
        .map_err(failed("cannot write the probe guest"))?;
    // QEMU opens the file of this process by its number while the probe runs.
    let rom_path = PathBuf::from(format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        rom.as_raw_fd()
    ));
    let mut errors = anonymous_file().map_err(failed("cannot keep the probe's messages"))?;
    let stderr = errors
        .try_clone()
        .map_err(failed("cannot keep the probe's messages"))?;
    let mut child = Command::new(qemu)
        .args([
            "-M",
            "microvm,acpi=off",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args([
            "-accel",
            accel,
            "-cpu",
            cpu,
            "-m",
            "8M",
            "-device",
            "isa-debug-exit,iobase=0xf4,iosize=1",
        ])
        .arg("-bios")
        .arg(&rom_path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(failed("cannot start the probe guest"))?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < limit => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                // A VMM that hangs inside the driver may not even die; it is left to the host then.
                let killed = Instant::now();
                while killed.elapsed() < Duration::from_millis(200)
                    && matches!(child.try_wait(), Ok(None))
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return Err(format!(
                    "a probe guest did not finish within {} s",
                    limit.as_secs_f32()
                ));
            }
        }
    };
    if status.code() == Some(PROBE_STATUS) {
        return Ok(());
    }
    let mut text = String::new();
    let _ = errors.rewind();
    let _ = errors.read_to_string(&mut text);
    let first = text
        .lines()
        .find(|line| !line.contains("warning:"))
        .unwrap_or("no message");
    Err(format!("the probe guest failed ({})", first.trim()))
}

/// An anonymous file; its memory goes with its last descriptor.
fn anonymous_file() -> std::io::Result<File> {
    let fd =
        nix::sys::memfd::memfd_create("coracle-probe", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)?;
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qemu() -> PathBuf {
        crate::Qemu::find(None).expect("the tests need QEMU").path
    }

    #[test]
    fn the_probe_guest_finishes_where_guests_run() {
        assert_eq!(run(&qemu(), "tcg", "max", Duration::from_secs(20)), Ok(()));
    }

    #[test]
    fn a_vmm_that_fails_or_hangs_is_told_apart() {
        let failed = run(
            &qemu(),
            "no-such-accelerator",
            "max",
            Duration::from_secs(20),
        );
        assert!(failed.is_err_and(|how| how.contains("no-such-accelerator")));

        let dir = tempfile::tempdir().unwrap();
        let sleeper = dir.path().join("qemu");
        std::fs::write(&sleeper, "#!/bin/sh\nexec sleep 30\n").unwrap();
        std::fs::set_permissions(
            &sleeper,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let hung = run(&sleeper, "kvm", "host", Duration::from_millis(100));
        assert!(hung.is_err_and(|how| how.contains("did not finish")));
    }
}
