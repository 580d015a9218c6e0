// SPDX-License-Identifier: Apache-2.0

//! A service under load on four platforms of two substrates, as study 003 has it.

use coracle_lab::record;

use super::{Synthetic, VM};

const TEXT: &str = r#"
schema = 1
title = "To-do service in Go: unikernel against Linux VM"
question = "Does a REST service serve more requests as a unikernel than in a Linux VM?"
study = "003"
platforms = ["linux-vm", "unikernel", "process", "container"]
[[service]]
name = "go"
image = "build/images/todo-go.tar"
port = 8080
[repetitions]
full = 6
quick = 3
[[workload]]
name = "stress"
kind = "load"
tool = "wrk"
with = { connections = [1, 40], path = "/todos" }
[[verdict]]
workload = "stress"
metric = "throughput_per_s"
platform = "unikernel"
against = "linux-vm"
claim = "Go: +38 % in the study"
[[verdict]]
workload = "start"
metric = "first_answer_s"
platform = "unikernel"
against = "linux-vm"
[[verdict]]
workload = "start"
metric = "image_bytes"
platform = "unikernel"
against = "linux-vm"
[[verdict]]
workload = "stress"
metric = "latency_p99_ms"
platform = "unikernel"
against = "container"
[[published]]
platform = "unikernel"
as = "OSv 0.51 on XenServer 7.5"
service = "go"
workload = "stress"
point = { connections = "40" }
metric = "throughput_per_s"
value = 13800.0
source = "figure 3; derived from +38 %"
[[published]]
platform = "linux-vm"
as = "none: the study compares with Docker"
service = "go"
workload = "stress"
point = { connections = "40" }
metric = "throughput_per_s"
value = 10000.0
"#;

/// The result, with `rounds` rounds; the unikernel serves 1.84 times what the Linux VM does.
pub(crate) fn result(rounds: u32) -> Synthetic {
    with_rate(rounds, 1.0, VM)
}

/// As [`result`], with the unikernel's throughput times `factor`, on another machine for the VMs if need be.
pub(crate) fn with_rate(rounds: u32, factor: f64, vm: &str) -> Synthetic {
    let platforms = [
        ("linux-vm", vm),
        ("unikernel", vm),
        ("process", "host"),
        ("container", "host"),
    ];
    let mut out = Synthetic::new("stress", TEXT, &platforms);
    for round in 0..rounds {
        // The host has slow rounds, which all platforms share.
        let host = out.around(1.0, 0.05);
        for (index, (platform, _)) in (0_i32..).zip(platforms) {
            let fast = [1.0, 1.84 * factor, 3.1, 3.0][usize::try_from(index).unwrap()];
            let boot = out.around(
                [2.4, 0.31, 0.02, 0.14][usize::try_from(index).unwrap()],
                0.04,
            );
            let memory = [251e6, 88e6, 21e6, 24e6][usize::try_from(index).unwrap()];
            let size = [68e6, 21.4e6, 7.2e6, 7.3e6][usize::try_from(index).unwrap()];
            let mut loads = Vec::new();
            for (connections, rate, latency) in [("1", 2400.0, 0.41), ("40", 5100.0, 7.6)] {
                let rate = out.around(rate * fast * host, 0.01);
                let histogram = out.latency(latency / fast / host, 4000);
                loads.push((connections, rate, histogram));
            }
            let mut here = out.session(platform, "go", 1, round);
            if platform == "container" && round == 2 {
                here.failure(
                    Some("stress"),
                    "wrk: 40 connections refused",
                    "first line\n\u{1b}[31mred\u{1b}[0m <script>alert(1)</script>",
                );
                continue;
            }
            here.sample(
                "start",
                &[],
                &[
                    ("first_answer_s", boot),
                    ("memory_resident_bytes", memory),
                    ("image_bytes", size),
                    ("boot_kernel_ms", boot * 300.0),
                    ("boot_network_ms", boot * 100.0),
                ],
            );
            for (connections, rate, histogram) in loads {
                let ms = |share: f64| {
                    f64::from(u32::try_from(histogram.value_at_quantile(share)).unwrap()) / 1e6
                };
                let metrics = [
                    ("throughput_per_s", rate),
                    ("latency_p50_ms", ms(0.5)),
                    ("latency_p99_ms", ms(0.99)),
                    ("latency_max_ms", ms(1.0)),
                    ("cpu_s", 9.7),
                    ("errors", 0.0),
                ];
                let sample = here.sample("stress", &[("connections", connections)], &metrics);
                sample.latency = record::encode(&histogram);
                sample.series.insert(
                    "latency_mean_ms".to_owned(),
                    (0..10)
                        .map(|second| {
                            (
                                f64::from(second),
                                ms(0.5) * (1.0 + f64::from(second % 3) / 10.0),
                            )
                        })
                        .collect(),
                );
            }
        }
    }
    out.end(false);
    out
}
