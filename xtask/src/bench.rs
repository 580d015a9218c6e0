// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask bench`: one question each, answered with numbers and a verdict where a number is wanted.
//!
//! Raw samples are written to `build/bench-NAME.jsonl`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::build::{self, Flavour};
use crate::demo::figures::{Figure, Samples};
use crate::demo::measure::{self, PATH};
use crate::demo::platform::{Machine, Platform};
use crate::demo::{Bench, Who, load, table};
use crate::{paths, setup, sh};

/// The names, for messages.
pub(crate) const NAMES: &str = "boot, memory, smp, conns, soak, stall, apps";

/// Boots of `boot`, requests of `soak`, guests of `stall`, when no number is given.
const BOOTS: u64 = 20;
const SOAK_REQUESTS: u64 = 1_000_000;
const STALL_GUESTS: u64 = 50;

/// Connections of the long runs.
const CONNECTIONS: u32 = 40;

/// What the last minute of a soak must reach of the first.
const SOAK_WANTED: f64 = 0.97;
/// What 100 connections must reach beside idle ones, of what they reach alone.
const CONNS_WANTED: f64 = 0.9;
/// How much the VMM's memory may grow from the first minute of a soak to the end, MB.
const SOAK_GROWTH_MB: f64 = 2.0;
/// The longest answer of a guest that does not stall, milliseconds.
const STALL_LIMIT_MS: f64 = 1000.0;

/// Runs a benchmark. `arguments`: the platforms (`linux`, `coracle`, `both`) and a number, both optional.
pub(crate) fn run(name: &str, arguments: &[&str]) -> Result<()> {
    let mut who = if matches!(name, "boot" | "memory" | "smp") {
        Who::Both
    } else {
        Who::CoracleOnly
    };
    let mut number = None;
    for argument in arguments {
        match (*argument, argument.parse::<u64>()) {
            ("linux", _) => who = Who::LinuxOnly,
            ("coracle", _) => who = Who::CoracleOnly,
            ("both", _) => who = Who::Both,
            (_, Ok(count)) if count > 0 => number = Some(count),
            _ => bail!("{argument}: want linux, coracle, both, or a number"),
        }
    }
    let bench: fn(&Bench, &mut Samples, Option<u64>) -> Result<()> = match name {
        "boot" => boot,
        "memory" => memory,
        "smp" => smp,
        "conns" => conns,
        "soak" => soak,
        "stall" => stall,
        _ => bail!("no benchmark {name}; there are: {NAMES}"),
    };
    setup::run()?;
    if who == Who::LinuxOnly {
        build::service()?
    } else {
        build::run(Flavour::Release)?
    }
    let prepared = Bench::prepare(who)?;
    let path = paths::build()?.join(format!("bench-{name}.jsonl"));
    let mut samples = Samples::create(&path, &prepared.about()?)?;
    println!("{}", prepared.summary());
    let outcome = bench(&prepared, &mut samples, number);
    let names = prepared.names();
    let rows = table::rows(&samples, &names);
    if !rows.is_empty() {
        println!("\n{}", table::text(&rows, &names));
    }
    println!("samples: {}", path.display());
    outcome?;
    if !samples.problems().is_empty() {
        bail!("not all went well:\n  {}", samples.problems().join("\n  "));
    }
    Ok(())
}

/// Boot to first answer, many times, platforms taking turns.
fn boot(bench: &Bench, samples: &mut Samples, number: Option<u64>) -> Result<()> {
    for _ in 0..number.unwrap_or(BOOTS) {
        for platform in &bench.platforms {
            measure::boot(platform, bench.machine, samples)?;
        }
    }
    for platform in &bench.platforms {
        let times = samples.of(platform.name(), Figure::Boot);
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().copied().fold(0.0, f64::max);
        println!(
            "  {:<9} {} boots, {} to {}",
            platform.name(),
            times.len(),
            Figure::Boot.format(least),
            Figure::Boot.format(most)
        );
    }
    Ok(())
}

/// The smallest memory that serves.
fn memory(bench: &Bench, samples: &mut Samples, _: Option<u64>) -> Result<()> {
    measure::all_smallest(&bench.platforms, bench.machine, samples)
}

/// What a second vCPU brings; a number is that of the rounds.
fn smp(bench: &Bench, samples: &mut Samples, number: Option<u64>) -> Result<()> {
    for _ in 0..number.unwrap_or(5) {
        for vcpus in [1, 2] {
            for platform in &bench.platforms {
                let machine = Machine {
                    vcpus,
                    ..bench.machine
                };
                measure::load_alone(platform, machine, CONNECTIONS, 4, samples)?;
            }
        }
    }
    Ok(())
}

/// 100 connections at work, alone and beside idle ones (2 000, or the number given).
fn conns(bench: &Bench, samples: &mut Samples, number: Option<u64>) -> Result<()> {
    let folder = paths::build()?.join("programs");
    let programs = format!("BUILD={}", folder.display());
    let holder = folder.join("holder");
    sh::output(
        sh::cmd(
            "make",
            [
                "-s",
                "-C",
                "tests/programs",
                &programs,
                &holder.display().to_string(),
            ],
        )
        .current_dir(paths::root())
        .env("PATH", setup::path_with_go()?),
    )?;
    for platform in &bench.platforms {
        let booted = measure::boot(platform, bench.machine, samples)?;
        let address = booted.service.to_string();
        let open = number.unwrap_or(2000).to_string();
        let args = [
            "-address", &address, "-path", PATH, "-open", &open, "-active", "100", "-seconds",
            "10", "-json",
        ];
        let result = sh::output_within(&mut sh::cmd(&holder, args), Duration::from_secs(180))?;
        println!("  {:<9} {}", platform.name(), result.stdout.trim());
        let report: Value = serde_json::from_str(&result.stdout)
            .with_context(|| format!("holder: {}{}", result.stdout, result.stderr))?;
        samples.note(platform.name(), &report)?;
        if !result.success() {
            samples.add_problem(
                platform.name(),
                &format!("holder failed: {}", result.stderr.trim()),
            )?;
        }
        let ratio = report["ratio"]
            .as_f64()
            .context("holder reports no ratio")?;
        if ratio < CONNS_WANTED {
            samples.add_problem(
                platform.name(),
                &format!("{ratio:.3} of the rate alone, wanted {CONNS_WANTED}"),
            )?;
        }
    }
    Ok(())
}

/// A million requests (or the number given) in slices of a minute: no error, flat memory, no decay.
fn soak(bench: &Bench, samples: &mut Samples, number: Option<u64>) -> Result<()> {
    const SLICE_SECONDS: u32 = 60;
    let wanted = number.unwrap_or(SOAK_REQUESTS);
    for platform in &bench.platforms {
        let booted = measure::boot(platform, bench.machine, samples)?;
        let (mut rates, mut memory_mb) = (Vec::new(), Vec::new());
        let (mut requests, started) = (0, Instant::now());
        while requests < wanted || rates.len() < 2 {
            let cpu_before = booted.instance.cpu_seconds()?;
            let load = load::wrk(booted.service, PATH, CONNECTIONS, SLICE_SECONDS)?;
            let (cpu, vmm_mb) = (
                booted.instance.cpu_seconds()? - cpu_before,
                booted.instance.memory_mb()?,
            );
            requests += load.requests;
            rates.push(load.requests_per_second);
            memory_mb.push(vmm_mb);
            // The share of a processor tells a guest that decays from a host that is busy with something else.
            let share = cpu / f64::from(SLICE_SECONDS);
            println!(
                "  {:<9} {requests:>8} requests in {:>4.0} s: {:.0} requests/s on {share:.2} processors, p99 {:.1} ms, max {:.0} ms, {} errors, VMM {vmm_mb:.1} MB",
                platform.name(),
                started.elapsed().as_secs_f64(),
                load.requests_per_second,
                load.p99_ms,
                load.max_ms,
                load.errors,
            );
            samples.note(platform.name(), &json!({
                "requests": requests, "rate": load.requests_per_second, "p99_ms": load.p99_ms, "max_ms": load.max_ms,
                "errors": load.errors, "vmm_mb": vmm_mb, "vmm_cpu_s": cpu,
            }))?;
            if load.errors > 0 {
                samples.add_problem(
                    platform.name(),
                    &format!("{} errors by request {requests}", load.errors),
                )?;
            }
        }
        let kept = rates[rates.len() - 1] / rates[0];
        let growth_mb = memory_mb[memory_mb.len() - 1] - memory_mb[0];
        println!(
            "  {:<9} last minute {kept:.3} of the first, VMM memory {growth_mb:+.1} MB",
            platform.name()
        );
        if kept < SOAK_WANTED {
            samples.add_problem(
                platform.name(),
                &format!("last minute {kept:.3} of the first, wanted {SOAK_WANTED}"),
            )?;
        }
        if growth_mb > SOAK_GROWTH_MB {
            samples.add_problem(
                platform.name(),
                &format!("memory grew by {growth_mb:.1} MB, allowed {SOAK_GROWTH_MB}"),
            )?;
        }
    }
    Ok(())
}

/// 50 guests (or the number given), one after the other, two seconds of load each: none may stall.
fn stall(bench: &Bench, samples: &mut Samples, number: Option<u64>) -> Result<()> {
    for platform in &bench.platforms {
        let (guests, mut stalled) = (number.unwrap_or(STALL_GUESTS), 0_u64);
        for guest in 1..=guests {
            let what = load_and_ask(platform, bench, samples)?;
            if let Some(what) = what {
                stalled += 1;
                samples.add_problem(platform.name(), &format!("guest {guest}: {what}"))?;
            }
        }
        println!(
            "  {:<9} {stalled} of {guests} guests stalled",
            platform.name()
        );
    }
    Ok(())
}

/// Loads a fresh guest for two seconds, then asks it once more; says what was wrong.
fn load_and_ask(
    platform: &Platform,
    bench: &Bench,
    samples: &mut Samples,
) -> Result<Option<String>> {
    let booted = measure::boot(platform, bench.machine, samples)?;
    let load = load::wrk(booted.service, PATH, CONNECTIONS, 2)?;
    let figure = Figure::Rate {
        connections: CONNECTIONS,
        vcpus: bench.machine.vcpus,
    };
    samples.add(
        platform.name(),
        figure,
        load.requests_per_second,
        &json!({ "max_ms": load.max_ms }),
    )?;
    if load.errors > 0 {
        return Ok(Some(format!(
            "{} errors beside {} answers",
            load.errors, load.requests
        )));
    }
    if load.requests == 0 || load.max_ms > STALL_LIMIT_MS {
        return Ok(Some(format!(
            "{} answers, the latest after {:.0} ms",
            load.requests, load.max_ms
        )));
    }
    let answered = measure::answers(booted.service, 100);
    Ok(answered
        .err()
        .map(|error| format!("silent after the load: {error:#}")))
}
