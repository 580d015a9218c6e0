// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask demo`: the to-do service as a unikernel and in a Linux VM, measured side by side.
//!
//! Both machines have the same VMM, machine type, accelerator, processors, memory and kind of network. One runs at a time,
//! they take turns, and each ratio is that of the medians of the same minutes.

pub(crate) mod figures;
mod html;
pub(crate) mod linux;
pub(crate) mod load;
pub(crate) mod measure;
pub(crate) mod net;
pub(crate) mod platform;
mod plot;
pub(crate) mod probe;
pub(crate) mod table;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::figures::{Figure, Samples};
use self::linux::{Linux, LinuxService};
use self::platform::{Accel, Machine, Platform};
use self::probe::Ready;
use crate::build::{self, Flavour};
use crate::{paths, setup, sh};

/// Rounds of load; in each, every platform boots once and takes every number of connections.
const LOAD_ROUNDS: u32 = 5;
/// Boots beyond those of the load rounds.
const BOOT_ROUNDS: u32 = 2;
/// Rounds with two vCPUs.
const SMP_ROUNDS: u32 = 2;
/// Connections of the runs with two vCPUs.
const SMP_CONNECTIONS: u32 = 40;
/// Length of one run of load, seconds.
const LOAD_SECONDS: u32 = 3;
/// The port the service listens on.
const SERVICE_PORT: u16 = 8080;
/// Memory of both guests, MiB.
const MEMORY_MIB: u32 = 256;

/// Which platforms take part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Both,
    LinuxOnly,
    CoracleOnly,
}

/// Measures, prints the table, and writes `demo.html` and `demo.jsonl`.
pub(crate) fn run(who: Who) -> Result<()> {
    setup::run()?;
    match who {
        Who::LinuxOnly => build::service()?,
        Who::Both | Who::CoracleOnly => build::run(Flavour::Release)?,
    }
    let started = Instant::now();
    let bench = Bench::prepare(who)?;
    let names = bench.names();
    let about = bench.about()?;
    let mut samples = Samples::create(&paths::in_root("demo.jsonl"), &about)?;

    bench.show_answer()?;
    bench.measure(&mut samples)?;

    let rows = table::rows(&samples, &names);
    println!("\n{}\n\n{}", bench.summary(), table::text(&rows, &names));
    let method = bench.method(&about, started.elapsed());
    let page = html::Page {
        summary: bench.summary(),
        rows: &rows,
        platforms: &names,
        method: &method,
    };
    fs::write(paths::in_root("demo.html"), html::render(&page, &samples))
        .context("write demo.html")?;
    println!(
        "plots: demo.html   samples: demo.jsonl   measured in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    if !samples.problems().is_empty() {
        bail!("not all went well:\n  {}", samples.problems().join("\n  "));
    }
    Ok(())
}

/// The platforms, ready to boot, and the machine they boot on.
pub(crate) struct Bench {
    pub(crate) platforms: Vec<Platform>,
    pub(crate) machine: Machine,
    network: &'static str,
}

impl Bench {
    /// Prepares networks and images.
    pub(crate) fn prepare(who: Who) -> Result<Bench> {
        let service = paths::build()?.join("todo-go");
        let [linux_link, coracle_link] = net::links(["l", "c"], SERVICE_PORT)?;
        let network = linux_link.description();
        let accel = if who == Who::LinuxOnly {
            Accel::Tcg
        } else {
            platform::accelerator()?
        };
        let mut platforms = Vec::new();
        if who != Who::CoracleOnly {
            let linux = Linux::prepare("todo-go", &LinuxService::Program(&service))?;
            platforms.push(Platform::linux(
                linux,
                linux_link,
                Ready::Http(measure::PATH),
            ));
        }
        if who != Who::LinuxOnly {
            let run = vec![service.into_os_string()];
            platforms.push(Platform::coracle(
                run,
                coracle_link,
                Ready::Http(measure::PATH),
            ));
        }
        Ok(Bench {
            platforms,
            machine: Machine {
                accel,
                vcpus: 1,
                memory_mib: MEMORY_MIB,
            },
            network,
        })
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.platforms.iter().map(Platform::name).collect()
    }

    /// Boots once and prints what the service answers.
    fn show_answer(&self) -> Result<()> {
        let Some(platform) = self.platforms.last() else {
            bail!("no platform takes part")
        };
        let booted = platform.boot(self.machine, Duration::from_secs(20))?;
        println!(
            "\n{} serves at http://{}{}:\n{}",
            platform.name(),
            booted.service,
            measure::PATH,
            booted.answer
        );
        Ok(())
    }

    /// Everything of the table, the platforms taking turns.
    fn measure(&self, samples: &mut Samples) -> Result<()> {
        println!("boot and load, {LOAD_ROUNDS} rounds");
        for _ in 0..LOAD_ROUNDS {
            for platform in &self.platforms {
                measure::load_all(platform, self.machine, LOAD_SECONDS, samples)?;
            }
        }
        println!("boot, {BOOT_ROUNDS} further rounds");
        for _ in 0..BOOT_ROUNDS {
            for platform in &self.platforms {
                measure::boot(platform, self.machine, samples)?;
            }
        }
        println!("a second vCPU, {SMP_ROUNDS} rounds");
        for _ in 0..SMP_ROUNDS {
            for platform in &self.platforms {
                let machine = Machine {
                    vcpus: 2,
                    ..self.machine
                };
                measure::load_alone(platform, machine, SMP_CONNECTIONS, LOAD_SECONDS, samples)?;
            }
        }
        println!("smallest memory");
        measure::all_smallest(&self.platforms, self.machine, samples)?;
        for platform in &self.platforms {
            let (kernel, rest) = platform.files(self.machine)?;
            let kernel_mb = megabytes(&kernel)?;
            let image_mb = rest
                .iter()
                .try_fold(kernel_mb, |sum, file| anyhow::Ok(sum + megabytes(file)?))?;
            samples.add(platform.name(), Figure::ImageSize, image_mb, &Value::Null)?;
            samples.add(platform.name(), Figure::KernelSize, kernel_mb, &Value::Null)?;
        }
        Ok(())
    }

    /// The conditions in one sentence.
    pub(crate) fn summary(&self) -> String {
        let accel = match self.machine.accel {
            Accel::Kvm => "KVM",
            Accel::Tcg => "software emulation",
        };
        format!(
            "The same static Go binary on QEMU microvm, {accel}, 1 vCPU, {} MiB, {} network; medians, platforms taking turns.",
            self.machine.memory_mib, self.network
        )
    }

    /// What a reader needs to judge or repeat the figures.
    pub(crate) fn about(&self) -> Result<Value> {
        let first_line = |text: String| text.lines().next().unwrap_or_default().to_owned();
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = cpus
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or("unknown");
        let commit = sh::output(
            sh::cmd("git", ["describe", "--always", "--dirty"]).current_dir(paths::root()),
        );
        let mut about = json!({
            "date": first_line(sh::output(&mut sh::cmd("date", ["-u", "+%F %H:%M UTC"]))?),
            "host": format!("{} ({} processors)", processor.trim_start_matches([' ', '\t', ':']), std::thread::available_parallelism()?),
            "qemu": first_line(sh::output(&mut sh::cmd("qemu-system-x86_64", ["--version"]))?),
            "commit": first_line(commit.unwrap_or_else(|_| "unknown".to_owned())),
            "load_before": fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next(),
            "accelerator": self.machine.accel.name(),
            "network": self.network,
            "memory_mib": self.machine.memory_mib,
        });
        for platform in &self.platforms {
            about[platform.name()] = platform.about(self.machine)?;
        }
        Ok(about)
    }

    /// The method section of the page.
    fn method(&self, about: &Value, took: Duration) -> Vec<html::Entry> {
        let said = |key: &str| about[key].as_str().unwrap_or_default();
        let seconds = took.as_secs_f64();
        let mut method = vec![
            html::text(
                "Command",
                format!(
                    "make demo, {}, commit {}; {seconds:.0} s",
                    said("date"),
                    said("commit")
                ),
            ),
            html::text(
                "Host",
                format!(
                    "{}; load average before {}; {}",
                    said("host"),
                    said("load_before"),
                    said("qemu")
                ),
            ),
            html::text(
                "Service",
                "apps/todo-go: Go, net/http, one static binary, the same file on both; GET /todos",
            ),
            html::text(
                "Load",
                format!(
                    "wrk, 1 thread, on the same host, {LOAD_SECONDS} s a run; one guest alive at a time"
                ),
            ),
            html::text(
                "Boot",
                "a connection is attempted every millisecond; the host knows both hardware addresses beforehand",
            ),
            html::text(
                "Differences",
                "Coracle starts from the boot ROM that `coracle run` makes and its boot time includes that command; its \
                 buffer of translated code is sized by the program (18 MiB here), the Linux VM's is 64 MiB, which costs \
                 it memory and spares it translation",
            ),
        ];
        for platform in &self.platforms {
            let (name, about) = (platform.name(), &about[platform.name()]);
            method.push(html::text(
                name,
                about["kernel"].as_str().unwrap_or_default(),
            ));
            method.push(html::code(
                "",
                about["command"].as_str().unwrap_or_default(),
            ));
        }
        method.push(html::text(
            "Raw samples",
            "demo.jsonl, one JSON object a line",
        ));
        method
    }
}

/// The size of a file, MB.
fn megabytes(file: &Path) -> Result<f64> {
    let bytes = fs::metadata(file)
        .with_context(|| format!("size of {}", file.display()))?
        .len();
    #[expect(
        clippy::cast_precision_loss,
        reason = "files are far smaller than 2^52 bytes"
    )]
    let bytes = bytes as f64;
    Ok(bytes / 1e6)
}
