// SPDX-License-Identifier: Apache-2.0

//! Facts of the host that a reader needs to judge the figures, and remarks where something in them is not as it should be.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::pin::{Processors, list};

/// A host with more waiting for each processor than this is busy: its figures are its own mixture.
const BUSY: f64 = 0.25;

/// "cpu", "processors", "kernel", "governor", "memory", "kvm", "load before" and others.
#[must_use]
pub fn facts(processors: &Processors) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            facts.insert(name.to_owned(), value);
        }
    };
    let cpus = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpus.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    add("cpu", field("model name"));
    add("processors", processors.count().to_string());
    if cpus.contains(" hypervisor") {
        add("virtual machine", "yes".to_owned());
    }
    add("kernel", read("/proc/sys/kernel/osrelease"));
    add(
        "governor",
        read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    add(
        "turbo",
        read("/sys/devices/system/cpu/intel_pstate/no_turbo")
            .replace('1', "off")
            .replace('0', "on"),
    );
    let memory = read("/proc/meminfo");
    let kib = memory
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(1));
    add(
        "memory",
        kib.map_or(String::new(), |kib| format!("{kib} KiB")),
    );
    let kvm = if Path::new("/dev/kvm").exists() {
        "/dev/kvm is there"
    } else {
        "no /dev/kvm"
    };
    add("kvm", kvm.to_owned());
    add(
        "load before",
        read("/proc/loadavg")
            .split(' ')
            .take(3)
            .collect::<Vec<_>>()
            .join(" "),
    );
    add(
        "user",
        if nix::unistd::geteuid().is_root() {
            "root"
        } else {
            "not root"
        }
        .to_owned(),
    );
    facts
}

/// What stands in the way of clean figures.
#[must_use]
pub fn remarks(processors: &Processors, vcpus: &[u32]) -> Vec<String> {
    let mut remarks = Vec::new();
    for &count in vcpus {
        let pins = processors.pins(count);
        if pins.shared {
            remarks.push(format!(
                "with {count} vCPU{} load generator and server share processors ({})",
                if count == 1 { "" } else { "s" },
                list(&pins.server)
            ));
        }
    }
    let load: f64 = read("/proc/loadavg")
        .split(' ')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap_or(0.0);
    let count = f64::from(u32::try_from(processors.count()).unwrap_or(u32::MAX));
    if load > BUSY * count {
        remarks.push(format!(
            "the host was busy before the run: load average {load} on {count} processors"
        ));
    }
    if read("/proc/sys/kernel/sched_autogroup_enabled") == "1" {
        remarks.push(
            "the kernel shares processors between sessions, not threads (autogroup); where server and generator share \
             processors, each gets half, however many threads it has"
                .to_owned(),
        );
    }
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if !governor.is_empty() && governor != "performance" {
        remarks.push(format!(
            "the processors' frequency changes (governor {governor})"
        ));
    }
    remarks
}

/// `git describe --always --dirty` of a folder, if it is a checkout.
#[must_use]
pub fn commit(folder: &Path) -> Option<String> {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Bytes of memory that could be had, and of all memory: `MemAvailable` and `MemTotal` of `proc_meminfo(5)`.
#[must_use]
pub fn memory() -> Option<(f64, f64)> {
    let text = read("/proc/meminfo");
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024.0)
    };
    Some((bytes("MemAvailable:")?, bytes("MemTotal:")?))
}

/// A file's text, without the newline at its end; empty if it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_described() {
        let processors = Processors::here();
        let facts = facts(&processors);
        for name in ["processors", "kernel", "memory", "kvm", "load before"] {
            assert!(facts.contains_key(name), "{name}: {facts:?}");
        }
        let (free, all) = memory().unwrap();
        assert!(free > 0.0 && free < all);
        let most = u32::try_from(processors.count()).unwrap();
        assert!(remarks(&processors, &[most])[0].contains("share processors"));
    }
}
