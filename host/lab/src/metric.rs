// SPDX-License-Identifier: Apache-2.0

//! The metrics: name, unit, direction, and what each includes. A sample may only carry metrics of this list.

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: context for the reader.
    Neither,
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// The name in experiments and results. It ends in the unit.
    pub name: &'static str,
    /// The name in reports, without unit.
    pub title: &'static str,
    /// The unit in reports.
    pub unit: &'static str,
    /// Which way is good.
    pub better: Better,
    /// What it includes and how it is measured, for the report's method section.
    pub includes: &'static str,
}

use Better::{Higher, Lower, Neither};

const fn metric(
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
    includes: &'static str,
) -> Metric {
    Metric {
        name,
        title,
        unit,
        better,
        includes,
    }
}

/// All metrics.
pub const METRICS: &[Metric] = &[
    metric(
        "first_answer_s",
        "Start to first answer",
        "s",
        Lower,
        "from just before the start command to the end of the first right answer, seen by a probe that tries again every millisecond; the command that starts the platform is part of it",
    ),
    metric(
        "throughput_per_s",
        "Throughput",
        "1/s",
        Higher,
        "answers without error a second, over the measured time without warm-up",
    ),
    metric(
        "offered_per_s",
        "Offered load",
        "1/s",
        Neither,
        "requests the generator was told to send a second (open loop)",
    ),
    metric(
        "bandwidth_mbit_s",
        "Bandwidth",
        "Mbit/s",
        Higher,
        "payload bits a second at the receiver, 10^6 bits",
    ),
    metric(
        "latency_mean_ms",
        "Response time, mean",
        "ms",
        Lower,
        "of all answers; open loop: from the intended start",
    ),
    metric(
        "latency_p50_ms",
        "Response time, median",
        "ms",
        Lower,
        "as the mean",
    ),
    metric(
        "latency_p90_ms",
        "Response time, p90",
        "ms",
        Lower,
        "as the mean",
    ),
    metric(
        "latency_p99_ms",
        "Response time, p99",
        "ms",
        Lower,
        "as the mean",
    ),
    metric(
        "latency_p999_ms",
        "Response time, p99.9",
        "ms",
        Lower,
        "as the mean",
    ),
    metric(
        "latency_max_ms",
        "Response time, maximum",
        "ms",
        Lower,
        "as the mean",
    ),
    metric(
        "errors",
        "Errors",
        "",
        Lower,
        "requests without a right answer, all kinds",
    ),
    metric(
        "cpu_s",
        "CPU time",
        "s",
        Lower,
        "user and system time of the application's processes (host, container) or of the VMM with all its threads (VM, unikernel), over the measured time",
    ),
    metric(
        "cpu_percent",
        "CPU use",
        "%",
        Neither,
        "CPU time by measured time; 100 is one processor",
    ),
    metric(
        "cpu_us_per_request",
        "CPU time a request",
        "us",
        Lower,
        "CPU time by answers",
    ),
    metric(
        "memory_resident_bytes",
        "Resident memory",
        "B",
        Lower,
        "RSS of the application's processes, or of the whole VMM, guest memory included",
    ),
    metric(
        "memory_proportional_bytes",
        "Proportional memory",
        "B",
        Lower,
        "PSS: as resident memory, shared pages divided among those who share them",
    ),
    metric(
        "memory_peak_bytes",
        "Peak memory",
        "B",
        Lower,
        "the highest resident memory so far (VmHWM)",
    ),
    metric(
        "memory_guest_bytes",
        "Guest memory",
        "B",
        Lower,
        "the part of the VMM's resident memory that is the guest's; for process and container the resident memory",
    ),
    metric(
        "memory_vmm_bytes",
        "VMM's own memory",
        "B",
        Lower,
        "the rest of the VMM's resident memory",
    ),
    metric(
        "runtime_cpu_s",
        "CPU time of the runtime",
        "s",
        Lower,
        "user and system time of the container runtime's or monitor's own processes; not part of cpu_s",
    ),
    metric(
        "runtime_memory_bytes",
        "Memory of the runtime",
        "B",
        Lower,
        "PSS of the container runtime's or monitor's own processes; not part of the other memory metrics",
    ),
    metric(
        "image_bytes",
        "Image on disk",
        "B",
        Lower,
        "what this platform needs on disk for this service: root file system, and kernel and initial file system for a VM",
    ),
    metric(
        "image_shared_bytes",
        "Shared part of the image",
        "B",
        Neither,
        "the part of it that all services on the platform share: the kernel",
    ),
    metric(
        "context_switches_voluntary",
        "Context switches, voluntary",
        "",
        Lower,
        "of the application's or VMM's threads on the host",
    ),
    metric(
        "context_switches_involuntary",
        "Context switches, involuntary",
        "",
        Lower,
        "of the application's or VMM's threads on the host",
    ),
    metric(
        "sustained_per_s",
        "Sustained load",
        "1/s",
        Higher,
        "the highest offered rate of a ramp that the service kept up with, before the first that it did not",
    ),
    metric(
        "kept_percent",
        "Throughput kept",
        "%",
        Higher,
        "endurance: the throughput of the last quarter of the time by that of the first quarter, medians of slices",
    ),
    metric(
        "kept_cpu_percent",
        "Answers per CPU time kept",
        "%",
        Higher,
        "endurance: answers a CPU second in the last quarter of the time by those in the first quarter, medians of slices; not lowered by other work of the host",
    ),
    metric(
        "restart_ms",
        "Restart to first answer",
        "ms",
        Lower,
        "boot storm: from just before the start command of the one instance that was killed to its first answer, the others running on",
    ),
    metric(
        "restart_legacy_ms",
        "Restart, the study's timer",
        "ms",
        Neither,
        "restart_ms with whole seconds dropped, a mistake of study 002 repeated to compare with its figures",
    ),
    metric(
        "restarts",
        "Restarts",
        "",
        Neither,
        "boot storm: how often an instance was killed and started again in the given time",
    ),
    metric(
        "running_instances",
        "Instances",
        "",
        Higher,
        "density: instances that ran at once and answered in time, before memory or latency broke",
    ),
    metric(
        "vm_exits",
        "Exits of the guest",
        "",
        Lower,
        "how often the guest has left its code for the VMM or the host's kernel (KVM's counter), over the measured time",
    ),
    metric(
        "energy_j",
        "Energy",
        "J",
        Lower,
        "RAPL package counters of the whole host, over the measured time",
    ),
];

/// The metric of that name. Workloads that count something of their own (microbenchmarks) use names that end in a unit
/// after the last `_` (`ns`, `us`, `ms`, `s`, `bytes`, `per_s`): see [`unit_of`].
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// Unit and direction of a workload's own figure, by the end of its name; `None` if it has none of the known ends.
#[must_use]
pub fn unit_of(name: &str) -> Option<(&'static str, Better)> {
    // An end that ends another one comes after it.
    [
        ("_per_s", "1/s", Higher),
        ("_mbit_s", "Mbit/s", Higher),
        ("_ns", "ns", Lower),
        ("_us", "us", Lower),
        ("_ms", "ms", Lower),
        ("_s", "s", Lower),
        ("_bytes", "B", Lower),
        ("_instances", "", Higher),
    ]
    .into_iter()
    .find(|(end, ..)| name.ends_with(end))
    .map(|(_, unit, better)| (unit, better))
}
