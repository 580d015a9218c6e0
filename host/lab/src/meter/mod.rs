// SPDX-License-Identifier: Apache-2.0

//! What an instance uses, seen from outside: `/proc` of its processes, its control group, RAPL, KVM's counters.
//!
//! What cannot be read is left out, never zero: a host without RAPL has no `energy_j`, a process that has ended no memory.

mod energy;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::platform::Processes;
use energy::Energy;
use process::Switches;

/// How often CPU time and resident memory are looked at while a meter runs.
const PERIOD: Duration = Duration::from_millis(500);

/// Values over time, by name of metric: pairs of seconds since the start and a value.
pub type Series = BTreeMap<String, Vec<(f64, f64)>>;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// By name of metric ([`crate::metric`]).
    pub metrics: BTreeMap<String, f64>,
    /// Over time.
    pub series: Series,
}

/// A measurement that has begun.
#[derive(Debug)]
pub struct Meter {
    processes: Processes,
    begin: Reading,
    sampler: Option<Sampler>,
}

/// What only grows; of two readings the difference counts.
#[derive(Debug)]
struct Reading {
    at: Instant,
    cpu_s: Option<f64>,
    runtime_cpu_s: Option<f64>,
    switches: Switches,
    exits: Option<f64>,
    energy: Energy,
}

impl Reading {
    fn take(processes: &Processes) -> Reading {
        Reading {
            at: Instant::now(),
            cpu_s: cpu_s(processes),
            runtime_cpu_s: process::sum(&processes.runtime, process::cpu_s),
            switches: Switches::of(&processes.payload),
            exits: process::sum(&processes.payload, kvm_exits),
            energy: Energy::read(),
        }
    }
}

impl Meter {
    /// Begins. Processes that come later are seen only through the control group.
    #[must_use]
    pub fn start(processes: Processes) -> Meter {
        Meter {
            begin: Reading::take(&processes),
            sampler: Some(Sampler::start(processes.clone())),
            processes,
        }
    }

    /// Ends: differences since the start, and memory as it is now.
    #[must_use]
    pub fn stop(mut self) -> Measured {
        let end = Reading::take(&self.processes);
        let begin = &self.begin;
        let took_s = end.at.duration_since(begin.at).as_secs_f64();
        let mut metrics = memory(&self.processes);
        let mut put = |name: &str, value: Option<f64>| {
            metrics.extend(value.map(|value| (name.to_owned(), value)));
        };
        let since = |end: Option<f64>, begin: Option<f64>| Some((end? - begin?).max(0.0));
        let cpu_s = since(end.cpu_s, begin.cpu_s);
        put("cpu_s", cpu_s);
        put(
            "cpu_percent",
            cpu_s
                .filter(|_| took_s > 0.0)
                .map(|cpu_s| cpu_s / took_s * 100.0),
        );
        put(
            "runtime_cpu_s",
            since(end.runtime_cpu_s, begin.runtime_cpu_s),
        );
        let switches = end.switches.since(&begin.switches);
        put("context_switches_voluntary", switches.map(|(own, _)| own));
        put(
            "context_switches_involuntary",
            switches.map(|(_, forced)| forced),
        );
        put("vm_exits", since(end.exits, begin.exits));
        put("energy_j", end.energy.since(&begin.energy));
        let series = self.sampler.take().map(Sampler::stop).unwrap_or_default();
        Measured { metrics, series }
    }
}

/// Memory as it is now, by name of metric.
#[must_use]
pub fn memory(processes: &Processes) -> BTreeMap<String, f64> {
    let payload = &processes.payload;
    let mut metrics = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>| {
        metrics.extend(value.map(|value| (name.to_owned(), value)));
    };
    let resident = process::sum(payload, |pid| process::status_bytes(pid, "VmRSS:"));
    put("memory_resident_bytes", resident);
    put(
        "memory_proportional_bytes",
        process::sum(payload, process::proportional_bytes),
    );
    put(
        "memory_peak_bytes",
        process::sum(payload, |pid| process::status_bytes(pid, "VmHWM:")),
    );
    match processes.guest_memory_bytes {
        Some(guest) => {
            let parts = payload
                .first()
                .and_then(|pid| process::guest_and_own_bytes(*pid, guest));
            put("memory_guest_bytes", parts.map(|(guest, _)| guest));
            put("memory_vmm_bytes", parts.map(|(_, own)| own));
        }
        None => put("memory_guest_bytes", resident),
    }
    put(
        "runtime_memory_bytes",
        process::sum(&processes.runtime, process::proportional_bytes),
    );
    metrics
}

/// CPU time so far: of the control group, which knows processes that have ended too, else of the processes.
fn cpu_s(processes: &Processes) -> Option<f64> {
    let group = processes.cgroup.as_deref().and_then(group_cpu_s);
    group.or_else(|| process::sum(&processes.payload, process::cpu_s))
}

fn group_cpu_s(folder: &Path) -> Option<f64> {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    let nanoseconds = || read("cpuacct.usage")?.trim().parse::<f64>().ok();
    let microseconds = || {
        let text = read("cpu.stat")?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))?;
        line.trim().parse::<f64>().ok()
    };
    nanoseconds()
        .map(|ns| ns / 1e9)
        .or_else(|| microseconds().map(|us| us / 1e6))
}

/// How often the guest of this VMM has left its code, where KVM's counters can be read (`/sys/kernel/debug/kvm`).
fn kvm_exits(pid: u32) -> Option<f64> {
    let entries = std::fs::read_dir("/sys/kernel/debug/kvm").ok()?.flatten();
    let own = format!("{pid}-");
    let folder: PathBuf = entries.map(|entry| entry.path()).find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&own))
    })?;
    std::fs::read_to_string(folder.join("exits"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// A thread that looks now and then.
#[derive(Debug)]
struct Sampler {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<Series>>,
}

impl Sampler {
    fn start(processes: Processes) -> Sampler {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = Arc::clone(&stop);
        Sampler {
            stop,
            thread: Some(std::thread::spawn(move || sample(&processes, &seen))),
        }
    }

    fn signal(&self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
    }

    fn stop(mut self) -> Series {
        self.signal();
        let joined = self.thread.take().map(JoinHandle::join);
        joined.and_then(std::result::Result::ok).unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.signal();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; there is nothing to take from it.
            drop(thread.join());
        }
    }
}

fn sample(processes: &Processes, stop: &(Mutex<bool>, Condvar)) -> Series {
    let start = Instant::now();
    let mut series: Series = BTreeMap::new();
    let (mut last_at, mut last_cpu_s) = (start, cpu_s(processes));
    loop {
        let guard = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = stop.1.wait_timeout_while(guard, PERIOD, |stop| !*stop);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return series;
        }
        let now = Instant::now();
        let at_s = now.duration_since(start).as_secs_f64();
        let mut put = |name: &str, value: Option<f64>| {
            if let Some(value) = value {
                series
                    .entry(name.to_owned())
                    .or_default()
                    .push((at_s, value));
            }
        };
        let cpu = cpu_s(processes);
        let passed_s = now.duration_since(last_at).as_secs_f64();
        let percent =
            |now: Option<f64>, before: Option<f64>| Some((now? - before?) / passed_s * 100.0);
        put("cpu_percent", percent(cpu, last_cpu_s));
        let resident = process::sum(&processes.payload, |pid| {
            process::status_bytes(pid, "VmRSS:")
        });
        put("memory_resident_bytes", resident);
        (last_at, last_cpu_s) = (now, cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::{Meter, memory};
    use crate::platform::Processes;
    use std::time::{Duration, Instant};

    fn own() -> Processes {
        Processes {
            payload: vec![std::process::id()],
            ..Processes::default()
        }
    }

    #[test]
    fn work_is_seen_and_so_is_idleness() {
        let meter = Meter::start(own());
        let start = Instant::now();
        let mut sum = 0_u64;
        while start.elapsed() < Duration::from_millis(700) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let measured = meter.stop();
        // The thread worked all the time, others of the test program may have too; a busy host may have taken it away.
        let cpu_s = measured.metrics["cpu_s"];
        assert!((0.05..30.0).contains(&cpu_s), "{cpu_s}");
        assert!(measured.metrics.contains_key("context_switches_voluntary"));
        assert!(!measured.series["cpu_percent"].is_empty());
        assert!(!measured.metrics.contains_key("vm_exits"), "this is no VMM");
        assert!(
            !measured.metrics.contains_key("runtime_cpu_s"),
            "there is no runtime"
        );
    }

    #[test]
    fn memory_that_is_touched_is_counted() {
        let before = memory(&own())["memory_resident_bytes"];
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = memory(&own());
        let grown = after["memory_resident_bytes"] - before;
        assert!(grown > 60e6, "{grown}");
        assert!(after["memory_peak_bytes"] >= after["memory_resident_bytes"] * 0.9);
        assert!(after["memory_proportional_bytes"] > 60e6);
        assert!(!after.contains_key("memory_vmm_bytes"));
        drop(block);
    }

    #[test]
    fn what_is_gone_is_left_out() {
        let nobody = Processes {
            payload: vec![u32::MAX],
            ..Processes::default()
        };
        assert!(memory(&nobody).is_empty());
        assert!(!Meter::start(nobody).stop().metrics.contains_key("cpu_s"));
    }
}
