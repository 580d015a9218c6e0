// SPDX-License-Identifier: Apache-2.0

//! Node and Java from their images: the to-do services boot, answer and stop; programs check from within what the
//! run-times need of the system.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::guest::Guests;
use super::report::Report;
use crate::demo::load;
use crate::demo::probe::{self, Ready};
use crate::{apps, images, sh};

/// The most a boot to the first answer may take on a busy machine: a virtual machine in a virtual machine.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// The most a program that checks itself may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(300);

/// Memory of the guests, which holds the root too.
const MEMORY: &str = "1G";

const JAVA: &str = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java";
const NODE: &str = "/usr/local/bin/node";

/// A run of an image.
struct Case {
    name: &'static str,
    /// The recipe in `images/`.
    image: &'static str,
    command: &'static [&'static str],
    vcpus: &'static str,
    /// The exit code after SIGTERM for a service, of the program itself else.
    code: i32,
    /// What the program says at its end; a service says nothing.
    says: Option<&'static str>,
}

const CASES: [Case; 4] = [
    Case {
        name: "Node service",
        image: "todo-node",
        command: &[NODE, "main.js"],
        vcpus: "1",
        code: 0,
        says: None,
    },
    Case {
        name: "Java service, 2 vCPUs",
        image: "todo-java",
        command: &[JAVA, "-jar", "todo-java.jar"],
        vcpus: "2",
        // The virtual machine ends like a program that SIGTERM killed.
        code: 143,
        says: None,
    },
    Case {
        name: "Node checks, 2 vCPUs",
        image: "check-node",
        command: &[NODE, "check.js"],
        vcpus: "2",
        code: 0,
        says: Some("node: ok"),
    },
    Case {
        name: "Java checks",
        image: "check-java",
        command: &[JAVA, "-Xmx256m", "-jar", "check.jar"],
        vcpus: "1",
        code: 0,
        says: Some("java: ok"),
    },
];

/// Runs those whose names contain one of `only`, or all.
pub(super) fn run(report: &mut Report, only: &[&str]) -> Result<()> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let guests = Guests::new()?;
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        report.step(&format!("runtimes {}", case.name), || {
            images::run(&[case.image])?;
            match case.says {
                Some(says) => check(&guests, case, says),
                None => serve(&guests, case),
            }
        })?;
    }
    Ok(())
}

/// Runs a program that checks itself.
fn check(guests: &Guests, case: &Case, says: &str) -> Result<()> {
    let mut command = guests.coracle(&["run", "--rm", "-m", MEMORY, "-w", "/app"])?;
    command
        .args(["--accel", guests.accel.name(), "--cpus", case.vcpus])
        .arg(apps::root_folder(case.image)?)
        .args(case.command);
    let result = sh::output_within(&mut command, PROGRAM_LIMIT)?;
    let code = result.status.and_then(|status| status.code());
    if code != Some(case.code) || !result.stdout.contains(says) {
        bail!("exit code {code:?}\n{}{}", result.stdout, result.stderr);
    }
    Ok(())
}

/// Boots a service, asks it, loads it for two seconds, and stops it.
fn serve(guests: &Guests, case: &Case) -> Result<()> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let publish = format!("127.0.0.1:{port}:8080");
    let flags = [
        "-m", MEMORY, "-w", "/app", "-p", &publish, "--cpus", case.vcpus,
    ];
    let guest = guests.detached(&flags, &apps::root_folder(case.image)?, case.command)?;
    let service = (Ipv4Addr::LOCALHOST, port).into();
    guest.explain(|| {
        let ready = Ready::Http("/todos");
        probe::first_answer(service, &ready, Instant::now() + BOOT_LIMIT, || None)?;
        let load = load::wrk(service, "/todos", 10, 2)?;
        if load.requests == 0 {
            bail!("no answer under load");
        }
        guest.output(&["stop", "-t", "20"])?;
        let code = guest.output(&["wait"])?;
        if code.trim() != case.code.to_string() {
            bail!("exit code {}, want {}", code.trim(), case.code);
        }
        Ok(())
    })
}
