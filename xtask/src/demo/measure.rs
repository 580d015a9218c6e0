// SPDX-License-Identifier: Apache-2.0

//! The measurements themselves: each boots its own guest, and ends it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::figures::{Figure, Samples};
use super::load;
use super::platform::{Booted, Machine, Platform};
use super::probe::Client;
use crate::sh;

/// The request that is measured.
pub(crate) const PATH: &str = "/todos";

/// The numbers of connections.
pub(crate) const CONNECTIONS: [u32; 3] = [1, 10, 40];

/// The most a boot may take.
const BOOT_LIMIT: Duration = Duration::from_secs(20);

/// The same when looking for the smallest memory, where many guests must fail.
const SMALL_BOOT_LIMIT: Duration = Duration::from_secs(8);

/// Where the search for the smallest memory starts, MiB.
const SMALLEST_FROM_MIB: u32 = 128;

/// Starts of a guest before a boot that fails is an error.
const BOOT_ATTEMPTS: u32 = 3;

/// Boots, and records how long it took. A guest that does not come up is said, counted and started again.
pub(crate) fn boot(platform: &Platform, machine: Machine, samples: &mut Samples) -> Result<Booted> {
    for attempt in 1..=BOOT_ATTEMPTS {
        match platform.boot(machine, BOOT_LIMIT) {
            Ok(booted) => {
                if machine.vcpus == 1 {
                    let context = json!({ "attempt": attempt });
                    samples.add(
                        platform.name(),
                        Figure::Boot,
                        booted.took.as_secs_f64(),
                        &context,
                    )?;
                }
                return Ok(booted);
            }
            Err(error) => {
                sh::check_interrupt()?;
                if attempt == BOOT_ATTEMPTS {
                    return Err(error);
                }
                samples.add_problem(
                    platform.name(),
                    &format!("a start failed and was repeated: {error:#}"),
                )?;
            }
        }
    }
    bail!("no attempt was made")
}

/// Boots one guest and loads it with each number of connections in turn; then its peak memory.
pub(crate) fn load_all(
    platform: &Platform,
    machine: Machine,
    seconds: u32,
    samples: &mut Samples,
) -> Result<()> {
    let booted = boot(platform, machine, samples)?;
    for connections in CONNECTIONS {
        load_one(platform, machine, &booted, connections, seconds, samples)?;
    }
    samples.add(
        platform.name(),
        Figure::PeakMemory,
        booted.instance.peak_memory_mb()?,
        &Value::Null,
    )
}

/// Boots one guest and loads it with `connections`.
pub(crate) fn load_alone(
    platform: &Platform,
    machine: Machine,
    connections: u32,
    seconds: u32,
    samples: &mut Samples,
) -> Result<()> {
    let booted = boot(platform, machine, samples)?;
    load_one(platform, machine, &booted, connections, seconds, samples)
}

fn load_one(
    platform: &Platform,
    machine: Machine,
    booted: &Booted,
    connections: u32,
    seconds: u32,
    samples: &mut Samples,
) -> Result<()> {
    let load = load::wrk(booted.service, PATH, connections, seconds)?;
    println!(
        "  {:<9} {:>2} connections, {} vCPU: {:>6.0} requests/s, p50 {:.2} ms, p99 {:.2} ms",
        platform.name(),
        connections,
        machine.vcpus,
        load.requests_per_second,
        load.p50_ms,
        load.p99_ms,
    );
    if load.errors > 0 {
        let what = format!(
            "{} errors beside {} answers over {connections} connections",
            load.errors, load.requests
        );
        samples.add_problem(platform.name(), &what)?;
    }
    let context = json!({ "requests": load.requests, "seconds": seconds, "max_ms": load.max_ms });
    let mut add = |figure, value| samples.add(platform.name(), figure, value, &context);
    add(
        Figure::Rate {
            connections,
            vcpus: machine.vcpus,
        },
        load.requests_per_second,
    )?;
    if machine.vcpus == 1 {
        add(Figure::P50 { connections }, load.p50_ms)?;
        add(Figure::P99 { connections }, load.p99_ms)?;
    }
    Ok(())
}

/// The smallest guest, in steps of a MiB up to `most` MiB, that boots and answers 100 requests.
fn smallest_memory(platform: &Platform, machine: Machine, most: u32) -> Result<u32> {
    let serves = |memory_mib| {
        serves(
            platform,
            Machine {
                memory_mib,
                ..machine
            },
        )
    };
    let (mut fails, mut works) = (0, most);
    if !serves(works)? {
        bail!("{} does not serve even in {most} MiB", platform.name());
    }
    while works - fails > 1 {
        let middle = fails.midpoint(works);
        if serves(middle)? {
            works = middle;
        } else {
            fails = middle;
        }
    }
    println!(
        "  {:<9} serves in {works} MiB, not in {fails}",
        platform.name()
    );
    Ok(works)
}

/// The smallest memory of each platform.
pub(crate) fn all_smallest(
    platforms: &[Platform],
    machine: Machine,
    samples: &mut Samples,
) -> Result<()> {
    for platform in platforms {
        let mib = smallest_memory(platform, machine, SMALLEST_FROM_MIB)?;
        samples.add(
            platform.name(),
            Figure::SmallestMemory,
            f64::from(mib),
            &Value::Null,
        )?;
    }
    Ok(())
}

/// Whether such a machine boots and answers 100 requests.
fn serves(platform: &Platform, machine: Machine) -> Result<bool> {
    let answered = platform
        .boot(machine, SMALL_BOOT_LIMIT)
        .and_then(|booted| answers(booted.service, 100));
    sh::check_interrupt()?;
    Ok(answered.is_ok())
}

/// Asks `count` times over one new connection.
pub(crate) fn answers(service: SocketAddr, count: u32) -> Result<()> {
    let mut client = Client::connect(service, Duration::from_secs(1))?;
    (0..count).try_for_each(|_| client.get(PATH).map(drop))
}
