// SPDX-License-Identifier: Apache-2.0

//! A result of each kind of workload, and odd ones.

use super::{Synthetic, VM};

const PLATFORMS: [(&str, &str); 2] = [("linux-vm", VM), ("unikernel", VM)];

fn text(title: &str, workload: &str, rest: &str) -> String {
    format!(
        "schema = 1\ntitle = \"{title}\"\nquestion = \"Which of the two is better at {title}?\"\nplatforms = [\"linux-vm\", \"unikernel\"]\n\
         [[service]]\nname = \"dns\"\nimage = \"x\"\nport = 53\n[repetitions]\nfull = 5\nquick = 2\n[[workload]]\n{workload}\n{rest}"
    )
}

fn verdict(workload: &str, metric: &str) -> String {
    format!(
        "[[verdict]]\nworkload = \"{workload}\"\nmetric = \"{metric}\"\nplatform = \"unikernel\"\nagainst = \"linux-vm\"\n"
    )
}

/// The rate is raised until 900 (Linux VM) or 1600 (unikernel) a second.
pub(crate) fn ramp() -> Synthetic {
    let workload = "name = \"ramp\"\nkind = \"ramp\"\ntool = \"dnsperf\"";
    let published = "[[published]]\nplatform = \"unikernel\"\nworkload = \"ramp\"\npoint = { rate_per_s = \"800\" }\n\
         metric = \"latency_mean_ms\"\nvalue = 37.15\n";
    let mut out = Synthetic::new(
        "ramp",
        &text(
            "a DNS ramp",
            workload,
            &(verdict("ramp", "sustained_per_s") + published),
        ),
        &PLATFORMS,
    );
    for round in 0..5 {
        for (platform, limit) in [("linux-vm", 900.0), ("unikernel", 1600.0)] {
            let limit = out.around(limit, 0.03);
            let mut here = out.session(platform, "dns", 1, round);
            for step in 1..=20 {
                let offered = f64::from(step) * 100.0;
                if offered > limit * 1.2 {
                    break;
                }
                let achieved = offered.min(limit);
                let latency = here
                    .result
                    .around(if offered < limit * 0.9 { 0.6 } else { 120.0 }, 0.2);
                let rate = format!("{offered:.0}");
                here.sample(
                    "ramp",
                    &[("rate_per_s", &rate)],
                    &[
                        ("offered_per_s", offered),
                        ("throughput_per_s", achieved),
                        ("latency_mean_ms", latency),
                        ("latency_p99_ms", latency * 3.0),
                    ],
                );
            }
            here.sample(
                "ramp",
                &[],
                &[("sustained_per_s", (limit / 100.0).floor() * 100.0)],
            );
        }
    }
    out.end(false);
    out
}

/// One of up to 140 instances is restarted again and again, in one round.
pub(crate) fn storm() -> Synthetic {
    let workload = "name = \"storm\"\nkind = \"boot-storm\"";
    let mut out = Synthetic::new(
        "storm",
        &text("a boot storm", workload, &verdict("storm", "restart_ms")),
        &PLATFORMS,
    );
    for (platform, middle) in [("linux-vm", 2400.0), ("unikernel", 310.0)] {
        for instances in ["10", "20", "40", "80", "140"] {
            let count: f64 = instances.parse().unwrap();
            for _ in 0..30 {
                let restart = out.around(middle * (1.0 + count / 200.0), 0.3);
                out.session(platform, "dns", 1, 0).sample(
                    "storm",
                    &[("instances", instances)],
                    &[
                        ("restart_ms", restart),
                        ("restart_legacy_ms", restart % 1000.0),
                    ],
                );
            }
        }
    }
    out.end(false);
    out
}

/// The throughput of one platform falls over five minutes.
pub(crate) fn endurance() -> Synthetic {
    let workload = "name = \"long\"\nkind = \"endurance\"\ntool = \"wrk\"";
    let mut out = Synthetic::new(
        "endurance",
        &text("endurance", workload, &verdict("long", "kept_percent")),
        &PLATFORMS,
    );
    for round in 0..5 {
        for (platform, decay) in [("linux-vm", 0.0), ("unikernel", 0.0007)] {
            let series: Vec<(f64, f64)> = (0..300)
                .map(|second| {
                    (
                        f64::from(second),
                        out.around(5000.0 * (1.0 - decay * f64::from(second)), 0.05),
                    )
                })
                .collect();
            let mut here = out.session(platform, "dns", 1, round);
            let sample = here.sample(
                "long",
                &[],
                &[
                    ("throughput_per_s", 5000.0),
                    ("kept_percent", 100.0 - decay * 30_000.0),
                ],
            );
            sample
                .series
                .insert("throughput_per_s".to_owned(), series.clone());
            sample.series.insert(
                "memory_resident_bytes".to_owned(),
                series.iter().map(|(at, _)| (*at, 9e7 + at * 1e4)).collect(),
            );
        }
    }
    out.end(false);
    out
}

/// Microbenchmarks, which lie far apart, and phases of the start.
pub(crate) fn batch() -> Synthetic {
    let workload = "name = \"cost\"\nkind = \"batch\"";
    let mut out = Synthetic::new(
        "cost",
        &text(
            "the cost of system calls",
            workload,
            &verdict("cost", "getpid_ns"),
        ),
        &PLATFORMS,
    );
    for round in 0..5 {
        for (platform, factor) in [("linux-vm", 1.0), ("unikernel", 0.2)] {
            let mut costs = Vec::new();
            for (name, cost) in [
                ("getpid_ns", 800.0),
                ("page_fault_ns", 21_000.0),
                ("thread_create_ns", 4e6),
                ("vdso_clock_ns", 40.0),
            ] {
                costs.push((name, out.around(cost * factor, 0.03)));
            }
            let mut here = out.session(platform, "dns", 1, round);
            for cost in costs {
                here.sample("cost", &[], &[cost]);
            }
            if platform == "unikernel" {
                let phases = [
                    ("boot_memory_ms", 12.0),
                    ("boot_clock_ms", 0.4),
                    ("boot_devices_ms", 31.0),
                    ("boot_network_ms", 9.0),
                    ("boot_files_ms", 55.0),
                    ("boot_program_ms", 120.0),
                ];
                here.sample("start", &[], &phases);
            }
        }
    }
    out.end(false);
    out
}

/// Redis' tests as rows of one tool, in the tool's order.
pub(crate) fn rows() -> Synthetic {
    let workload = "name = \"redis\"\nkind = \"load\"\ntool = \"redis-benchmark\"";
    let mut out = Synthetic::new(
        "redis",
        &text("Redis", workload, &verdict("redis", "throughput_per_s")),
        &PLATFORMS,
    );
    let tests = [
        "PING_INLINE",
        "PING_BULK",
        "SET",
        "GET",
        "INCR",
        "LPUSH",
        "LPOP",
        "SADD",
        "SPOP",
        "LRANGE_100",
        "LRANGE_300",
        "LRANGE_500",
        "LRANGE_600",
        "MSET",
    ];
    for round in 0..6 {
        for (platform, factor) in [("linux-vm", 1.0), ("unikernel", 1.1)] {
            for (index, test) in (0_u32..).zip(tests) {
                let rate = out.around(
                    90_000.0 * factor / (1.0 + f64::from(index)),
                    0.02 + f64::from(index) / 60.0,
                );
                out.session(platform, "dns", 1, round).sample(
                    "redis",
                    &[("test", test)],
                    &[("throughput_per_s", rate)],
                );
            }
        }
    }
    out.end(false);
    out
}

/// Names, logs and figures that nobody wants; a run that was cut off.
pub(crate) fn odd() -> Synthetic {
    let text = "schema = 1\ntitle = \"Odd <b>names</b> & \\\"quotes\\\" | pipes\"\nquestion = \"<script>alert('question')</script>?\"\n\
         platforms = [\"linux-vm\", \"unikernel\", \"image:a platform with quite a long name <i>\"]\n\
         [[service]]\nname = \"<img src=x onerror=alert(1)>\"\nimage = \"x\"\n[repetitions]\nfull = 5\nquick = 2\n\
         [[workload]]\nname = \"w|x\"\nkind = \"load\"\n\
         [[verdict]]\nworkload = \"w|x\"\nmetric = \"throughput_per_s\"\nplatform = \"unikernel\"\nagainst = \"linux-vm\"\nclaim = \"<u>claim</u>\"\n\
         [[verdict]]\nworkload = \"w|x\"\nmetric = \"latency_p50_ms\"\nplatform = \"gvisor\"\nagainst = \"linux-vm\"\n";
    let long = "image:a platform with quite a long name <i>";
    let platforms = [("linux-vm", VM), ("unikernel", VM), (long, VM)];
    let service = "<img src=x onerror=alert(1)>";
    let mut out = Synthetic::new("odd", text, &platforms);
    let mut here = out.session("linux-vm", service, 1, 0);
    here.sample(
        "w|x",
        &[("path", "</svg><script>x</script>")],
        &[
            ("throughput_per_s", 0.0),
            ("errors", 12.0),
            ("latency_p50_ms", 1e9),
            ("tiny_s", 3e-9),
        ],
    );
    let mut here = out.session("unikernel", service, 4, 0);
    here.sample(
        "w|x",
        &[("path", "</svg><script>x</script>")],
        &[
            ("throughput_per_s", 1e12),
            ("latency_p50_ms", 1e-6),
            ("tiny_s", 4.0),
        ],
    );
    let sample = here.sample("w|x", &[("path", "a point with a really long name that goes on and on until it runs out of any room there is")], &[("throughput_per_s", 7.0)]);
    sample.raw = Some("raw/a b\"><script>.txt".to_owned());
    sample.latency = Some("not a histogram".to_owned());
    sample.errors.insert("status <503>".to_owned(), 1200);
    let partial = here.sample("w|x", &[], &[("throughput_per_s", 123_456.0)]);
    partial.partial = true;
    for round in 0..3 {
        let mut here = out.session(long, service, 1, round);
        here.failure(
            None,
            "did not start: `x` <y>\nsecond line",
            &format!(
                "{}\u{0}\u{7}\u{1b}]0;title\u{7}</pre><script>alert(2)</script>",
                "a long line ".repeat(40)
            ),
        );
    }
    out
}
