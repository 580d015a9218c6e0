// SPDX-License-Identifier: Apache-2.0

//! Node and Java from their images: the to-do services boot, answer and stop; programs check from within what the
//! run-times need of the system.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::guest::{Detached, Guests};
use super::report::Report;
use crate::test::load;
use crate::test::probe::{self, Ready};
use crate::{images, paths, sh};

/// The most a boot to the first answer may take on a busy machine: a virtual machine in a virtual machine.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// The most a program that checks itself may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(300);

/// How long a program may take to act on a signal.
const SIGNAL_LIMIT: Duration = Duration::from_secs(30);

/// Memory of the guests; a quarter of it is the heap that Java takes.
const MEMORY: &str = "1G";

/// A run of an image, which says itself what to start.
struct Case {
    name: &'static str,
    /// The recipe in `images/`.
    image: &'static str,
    vcpus: &'static str,
    /// The exit code after SIGTERM for a service, of the program itself else.
    code: i32,
    /// What the program says at its end; a service says nothing.
    says: Option<&'static str>,
    /// What a service prints at SIGQUIT, if it lives through that.
    dumps: Option<&'static str>,
}

const CASES: [Case; 4] = [
    Case {
        name: "Node service",
        image: "todo-node",
        vcpus: "1",
        code: 0,
        says: None,
        dumps: None,
    },
    Case {
        name: "Java service, 2 vCPUs",
        image: "todo-java",
        vcpus: "2",
        // The virtual machine ends like a program that SIGTERM killed.
        code: 143,
        says: None,
        dumps: Some("Full thread dump"),
    },
    Case {
        name: "Node checks, 2 vCPUs",
        image: "check-node",
        vcpus: "2",
        code: 0,
        says: Some("node: ok"),
        dumps: None,
    },
    Case {
        name: "Java checks",
        image: "check-java",
        vcpus: "1",
        code: 0,
        says: Some("java: ok"),
        dumps: None,
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

fn archive(case: &Case) -> Result<PathBuf> {
    Ok(paths::build()?.join(format!("images/{}.tar", case.image)))
}

/// Runs a program that checks itself.
fn check(guests: &Guests, case: &Case, says: &str) -> Result<()> {
    let mut command = guests.coracle(&["run", "--rm", "-m", MEMORY, "--network", "none"])?;
    command
        .args(["--accel", guests.accel.name(), "--cpus", case.vcpus])
        .arg(archive(case)?);
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
    let flags = ["-m", MEMORY, "-p", &publish, "--cpus", case.vcpus];
    let guest = guests.detached(&flags, &archive(case)?, &[])?;
    let service = (Ipv4Addr::LOCALHOST, port).into();
    guest.explain(|| {
        let ready = Ready::Http("/todos");
        probe::first_answer(service, &ready, Instant::now() + BOOT_LIMIT, || None)?;
        let load = load::wrk(service, "/todos", 10, 2)?;
        if load.requests == 0 {
            bail!("no answer under load");
        }
        if let Some(dump) = case.dumps {
            guest.output(&["kill", "-s", "QUIT"])?;
            wait_for_output(&guest, dump)?;
            probe::first_answer(service, &ready, Instant::now() + SIGNAL_LIMIT, || None)?;
        }
        guest.output(&["stop", "-t", "20"])?;
        let code = guest.output(&["wait"])?;
        if code.trim() != case.code.to_string() {
            bail!("exit code {}, want {}", code.trim(), case.code);
        }
        Ok(())
    })
}

/// Waits until the program has printed a text.
fn wait_for_output(guest: &Detached<'_>, text: &str) -> Result<()> {
    let deadline = Instant::now() + SIGNAL_LIMIT;
    while !guest.output(&["logs"])?.contains(text) {
        if Instant::now() > deadline {
            bail!("did not print {text:?}");
        }
        sleep(Duration::from_millis(200));
    }
    Ok(())
}
