// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask bench endure`: one application under load for minutes: no error, no decay, no growth without end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::result::Results;
use super::table::{App, Load, Tool};
use super::{BOOT_LIMIT, find, load, machine, platforms, prepare};
use crate::demo::Who;
use crate::demo::figures::median;
use crate::demo::platform::{self, Platform};
use crate::paths;

/// Minutes when no number is given.
const MINUTES: u64 = 5;
/// What the last quarter must reach of the first, in requests for a second of the VMM's processor time. A host that does
/// other work too lowers what is reached in a second of time, which says nothing about the guest.
const WANTED: f64 = 0.95;

/// Runs the load over ten connections of an application. `arguments`: its name; `linux` for the Linux VM instead of the
/// unikernel; minutes.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let (mut who, mut minutes, mut app) = (Who::CoracleOnly, MINUTES, None);
    for argument in arguments {
        match (*argument, argument.parse::<u64>()) {
            ("linux", _) => who = Who::LinuxOnly,
            (_, Ok(number)) if number > 0 => minutes = number,
            (name, _) => app = Some(find(name)?),
        }
    }
    let app = app.context("which application?")?;
    let load = app.loads.iter().find(|load| is_steady(load));
    let load = load.with_context(|| format!("{} has no load over ten connections", app.name))?;
    prepare()?;
    let path = paths::build()?.join("bench-endure.jsonl");
    let mut results = Results::create(&path)?;
    for platform in platforms(app, who)? {
        endure(app, load, &platform, minutes, &mut results)?;
    }
    println!("samples: {}", path.display());
    if results.problems().is_empty() {
        return Ok(());
    }
    bail!("not all went well:\n  {}", results.problems().join("\n  "))
}

fn is_steady(load: &Load) -> bool {
    match load.tool {
        Tool::Redis {
            connections,
            pipeline,
            ..
        } => connections == 10 && pipeline == 1,
        Tool::Wrk { connections, .. } => connections == 10,
    }
}

fn endure(
    app: &App,
    load: &Load,
    platform: &Platform,
    minutes: u64,
    results: &mut Results,
) -> Result<()> {
    let name = platform.name();
    let machine = machine(platform::accelerator()?, 1);
    let booted = platform.boot(machine, BOOT_LIMIT)?;
    let (started, length) = (Instant::now(), Duration::from_secs(60 * minutes));
    let mut said = Instant::now();
    let mut efficiency = Vec::new();
    while started.elapsed() < length {
        let (cpu_before, slice) = (booted.instance.cpu_seconds()?, Instant::now());
        let measured = load::run(load, booted.service)?;
        let (took, cpu) = (
            slice.elapsed().as_secs_f64(),
            booted.instance.cpu_seconds()? - cpu_before,
        );
        let memory = booted.instance.guest_memory_mb(machine.memory_mib)?;
        for one in measured {
            efficiency.push(one.rate * took / cpu.max(0.01));
            results.note(&json!({
                "app": app.name, "platform": name, "seconds": started.elapsed().as_secs_f64(), "rate": one.rate,
                "vmm_cpu_s": cpu, "guest_mb": memory.guest_mb, "vmm_mb": memory.vmm_mb, "context": one.context,
            }))?;
            if one.errors > 0 {
                results.add_problem(format!("{name}: {} errors", one.errors))?;
            }
            if said.elapsed() > Duration::from_secs(20) || efficiency.len() == 1 {
                said = Instant::now();
                println!(
                    "  {name:<9} after {:>4.0} s: {:>7.0}/s on {:.2} processors, guest memory {:.0} MB, VMM {:.0} MB",
                    started.elapsed().as_secs_f64(),
                    one.rate,
                    cpu / took,
                    memory.guest_mb,
                    memory.vmm_mb,
                );
            }
        }
    }
    let quarter = (efficiency.len() / 4).max(1);
    let first = median(&efficiency[..quarter]).unwrap_or(0.0);
    let last = median(&efficiency[efficiency.len() - quarter..]).unwrap_or(0.0);
    let kept = last / first;
    println!(
        "  {name:<9} the last quarter reached {kept:.3} of the first for the same processor time"
    );
    if kept < WANTED {
        results.add_problem(format!(
            "{name}: {kept:.3} of the first quarter, wanted {WANTED}"
        ))?;
    }
    Ok(())
}
