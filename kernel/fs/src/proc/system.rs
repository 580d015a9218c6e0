// SPDX-License-Identifier: Apache-2.0
//! Files about the machine as a whole.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use coracle_core::time;

use super::ProcInfo;

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds in one tick of `USER_HZ`, the unit of times in `/proc` (100 a second).
pub(super) const NS_PER_TICK: u64 = NS_PER_S / 100;

pub(super) const FILESYSTEMS: &str =
    "nodev\tproc\nnodev\tsysfs\nnodev\ttmpfs\nnodev\toverlay\nnodev\t9p\n\terofs\n\text4\n";

pub(super) fn meminfo(info: &dyn ProcInfo) -> String {
    let memory = info.system_memory();
    let mut out = String::new();
    // Files in memory cannot be dropped. What was read from disks can, but for a part that programs need all the time;
    // Linux estimates it so (si_mem_available()).
    let kept = (memory.cached / 2).min(memory.total / 64);
    for (name, bytes) in [
        ("MemTotal", memory.total),
        ("MemFree", memory.free),
        ("MemAvailable", memory.free + memory.cached - kept),
        ("Buffers", 0),
        ("Cached", memory.in_files + memory.cached),
        ("SwapCached", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Shmem", memory.in_files),
    ] {
        let _ = writeln!(out, "{:<15} {:>8} kB", format!("{name}:"), bytes / 1024);
    }
    out
}

pub(super) fn stat(info: &dyn ProcInfo) -> String {
    let cpus = info.cpus();
    let mut out = String::new();
    let mut line = |name: &str, busy: u64, idle: u64| {
        let (busy, idle) = (busy / NS_PER_TICK, idle / NS_PER_TICK);
        let _ = writeln!(out, "{name} {busy} 0 0 {idle} 0 0 0 0 0 0");
    };
    let busy = cpus.iter().map(|cpu| cpu.busy_ns).sum();
    let idle = cpus.iter().map(|cpu| cpu.idle_ns).sum();
    line("cpu ", busy, idle);
    for (number, cpu) in cpus.iter().enumerate() {
        line(&format!("cpu{number}"), cpu.busy_ns, cpu.idle_ns);
    }
    let boot_s = time::wall().saturating_sub(time::now()) / NS_PER_S;
    let _ = writeln!(out, "ctxt {}", info.context_switches());
    let _ = writeln!(out, "btime {boot_s}");
    let _ = writeln!(out, "processes 1");
    let _ = writeln!(out, "procs_running {}", info.runnable());
    let _ = writeln!(out, "procs_blocked 0");
    out
}

pub(super) fn uptime(info: &dyn ProcInfo) -> String {
    let idle: u64 = info.cpus().iter().map(|cpu| cpu.idle_ns).sum();
    format!("{} {}\n", hundredths(time::now()), hundredths(idle))
}

fn hundredths(ns: u64) -> String {
    format!("{}.{:02}", ns / NS_PER_S, ns % NS_PER_S / 10_000_000)
}

/// There is no history of the load: the three averages are the threads that are runnable now.
pub(super) fn loadavg(info: &dyn ProcInfo) -> String {
    let runnable = info.runnable();
    let threads = info.threads();
    let last = threads.last().map_or(0, |thread| thread.tid);
    format!(
        "{runnable}.00 {runnable}.00 {runnable}.00 {runnable}/{} {last}\n",
        threads.len()
    )
}

pub(super) fn version(info: &dyn ProcInfo) -> String {
    let (release, version) = info.release();
    format!("Linux version {release} (coracle) {version}\n")
}
