// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask bench apps`: known programs, unmodified, as unikernels and in a Linux VM.
//!
//! Both machines have the same VMM, machine type, accelerator, processors, memory, kind of network and root file system
//! (`apps/root.rs`). One guest runs at a time, they take turns, and each ratio is that of the medians of the same minutes.
//! Samples are written to `build/bench-apps.jsonl` as they come.

pub(crate) mod endure;
mod load;
mod result;
mod root;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use self::load::Measured;
use self::result::Results;
use self::table::{APPS, App};
use crate::build::{self, Flavour};
use crate::demo::linux::{Linux, LinuxService};
use crate::demo::platform::{self, Accel, Machine, Platform};
use crate::demo::{Who, net};
use crate::{paths, setup, sh};

/// Rounds when no number is given.
const ROUNDS: u64 = 5;
/// Memory of both guests, MiB.
const MEMORY_MIB: u32 = 1024;
/// The most a boot may take.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
/// How long a guest is left alone before its memory is looked at.
const IDLE: Duration = Duration::from_secs(1);

/// A tool, and the package that brings it.
const TOOLS: [(&str, &str); 2] = [("redis-benchmark", "redis-tools"), ("mke2fs", "e2fsprogs")];

/// Compares. `arguments`, all optional: names of applications, the platforms (`linux`, `coracle`, `both`), a number of
/// rounds, and `smp` for two vCPUs beside one.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let (mut who, mut rounds, mut all_vcpus) = (Who::Both, ROUNDS, &[1][..]);
    let mut apps: Vec<&App> = Vec::new();
    for argument in arguments {
        match (*argument, argument.parse::<u64>()) {
            ("linux", _) => who = Who::LinuxOnly,
            ("coracle", _) => who = Who::CoracleOnly,
            ("both", _) => who = Who::Both,
            ("smp", _) => all_vcpus = &[1, 2],
            (_, Ok(number)) if number > 0 => rounds = number,
            (name, _) => apps
                .push(APPS.iter().find(|app| app.name == name).with_context(|| {
                format!(
                    "{name}: want linux, coracle, both, smp, a number, or of the applications {}",
                    APPS.iter()
                        .map(|app| app.name)
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            })?),
        }
    }
    if apps.is_empty() {
        apps = APPS.iter().collect();
    }
    prepare()?;
    let accel = platform::accelerator()?;
    let path = paths::build()?.join("bench-apps.jsonl");
    let mut results = Results::create(&path)?;
    for app in apps {
        let platforms = platforms(app, who)?;
        describe(app, &platforms, accel, &mut results)?;
        for _ in 0..rounds {
            for vcpus in all_vcpus {
                for platform in &platforms {
                    let machine = machine(accel, *vcpus);
                    round(app, platform, machine, &mut results)?;
                }
            }
        }
    }
    println!("\n{}\nsamples: {}", results.table(), path.display());
    if results.problems().is_empty() {
        return Ok(());
    }
    bail!("not all went well:\n  {}", results.problems().join("\n  "))
}

/// The application of that name.
fn find(name: &str) -> Result<&'static App> {
    let app = APPS.iter().find(|app| app.name == name);
    app.with_context(|| {
        let names: Vec<&str> = APPS.iter().map(|app| app.name).collect();
        format!(
            "{name}: not understood; the applications are {}",
            names.join(", ")
        )
    })
}

/// Installs what the loads need, and builds kernel and command.
fn prepare() -> Result<()> {
    setup::run()?;
    let missing = TOOLS.iter().filter(|(program, _)| !sh::installed(program));
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    setup::install(&packages)?;
    build::run(Flavour::Release)
}

/// The root folder of an image in `build/images`.
pub(crate) fn root_folder(image: &str) -> Result<PathBuf> {
    root::unpack(image).map(|unpacked| unpacked.folder)
}

fn machine(accel: Accel, vcpus: u32) -> Machine {
    Machine {
        accel,
        vcpus,
        memory_mib: MEMORY_MIB,
    }
}

/// The platforms that take part, ready to boot the application.
fn platforms(app: &App, who: Who) -> Result<Vec<Platform>> {
    let root = root::prepare(app)?;
    let [linux_link, coracle_link] = net::links(["l", "c"], app.port)?;
    let mut platforms = Vec::new();
    if who != Who::CoracleOnly {
        let service = LinuxService::Disk {
            image: &root.disk,
            workdir: &root.workdir,
            arguments: &root.arguments,
            environment: &root.environment,
        };
        let linux = Linux::prepare(app.name, &service)?;
        platforms.push(Platform::linux(linux, linux_link, app.ready));
    }
    if who != Who::LinuxOnly {
        platforms.push(Platform::coracle(root.coracle, coracle_link, app.ready));
    }
    Ok(platforms)
}

/// Notes how each platform runs the application.
fn describe(app: &App, platforms: &[Platform], accel: Accel, results: &mut Results) -> Result<()> {
    let mut about =
        json!({ "app": app.name, "memory_mib": MEMORY_MIB, "accelerator": accel.name() });
    for platform in platforms {
        about[platform.name()] = platform.about(machine(accel, 1))?;
    }
    results.note(&json!({ "about": about }))
}

/// Boots one guest and gives it all loads of the application.
fn round(app: &App, platform: &Platform, machine: Machine, results: &mut Results) -> Result<()> {
    let name = platform.name();
    let booted = platform.boot(machine, BOOT_LIMIT)?;
    let about = |figure: &str| {
        if machine.vcpus == 1 {
            format!("{}: {figure}", app.name)
        } else {
            format!("{}: {figure}, {} vCPUs", app.name, machine.vcpus)
        }
    };
    results.boot(
        name,
        &about("first answer, s"),
        booted.took.as_secs_f64(),
        app.boot_goal_s,
    )?;
    std::thread::sleep(IDLE);
    let memory = booted.instance.guest_memory_mb(machine.memory_mib)?;
    results.lower(
        name,
        &about("guest memory at idle, MB"),
        memory.guest_mb,
        &Value::Null,
    )?;
    results.lower(
        name,
        &about("the VMM's own memory, MB"),
        memory.vmm_mb,
        &Value::Null,
    )?;
    for row in app.loads {
        for Measured {
            figure,
            rate,
            context,
            errors,
        } in load::run(row, booted.service)?
        {
            let figure = about(&figure);
            println!("  {name:<9} {figure:<60} {rate:>9.0}/s");
            let goal = row.goal.filter(|_| machine.vcpus == 1);
            results.rate(name, &figure, rate, goal, &context)?;
            if errors > 0 {
                results.add_problem(format!("{name}: {figure}: {errors} errors"))?;
            }
        }
    }
    Ok(())
}
