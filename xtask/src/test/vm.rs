// SPDX-License-Identifier: Apache-2.0

//! The VM tests: whole guests through the `coracle` command. Programs that end in every way, programs with a result known
//! in advance on all kinds of machines, and servers that are asked from outside.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::guest::{Guests, Job, in_parallel};
use super::report::Report;
use super::vm_cases::{CASES, Case, SERVERS, Server};
use super::{disk, dynamic, folders, volumes};
use crate::test::load;
use crate::test::probe::{self, Ready};
use crate::{paths, setup, sh};

/// The most one guest may take.
const LIMIT: Duration = Duration::from_secs(180);
/// The most a server may take to its first answer.
const BOOT_LIMIT: Duration = Duration::from_secs(20);

/// A test that needs more than a line.
type Test = fn(&Guests) -> Result<()>;

/// Runs the cases whose names contain one of `only`, or all.
pub(crate) fn run(report: &mut Report, only: &[&str]) -> Result<()> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    if !report.step("build test programs", build)? {
        return Ok(());
    }
    let guests = Guests::new()?;
    let cases: Vec<&Case> = CASES.iter().filter(|case| wanted(case.name)).collect();
    let verdicts = in_parallel(&cases, |case| judge(&guests, case))?;
    for (case, verdict) in cases.iter().zip(verdicts) {
        report.step(&format!("vm {}", case.name), || {
            verdict.map_or(Ok(()), |wrong| bail!(wrong))
        })?;
    }
    for server in SERVERS.iter().filter(|server| wanted(server.name)) {
        report.step(&format!("vm {}", server.name), || serve(&guests, server))?;
    }
    dynamic::run(report, &guests, &folder()?, wanted)?;
    disk::run(report, &guests, &folder()?, wanted)?;
    folders::run(report, &guests, wanted)?;
    volumes::run(report, &guests, wanted)?;
    let others: [(&str, Test); 10] = [
        ("random numbers differ in each boot", random_differs),
        ("UDP echo", udp_echo),
        ("standard input ends", input_ends),
        (
            "standard input of a detached guest is at its end",
            input_detached,
        ),
        ("trace", trace),
        ("trace of a running guest", trace_running),
        ("what a program wanted to start", wanted_to_start),
        ("stop reaches the application", stop),
        ("stop kills what ignores it", stop_ignored),
        ("kill ends a busy guest", kill_busy),
    ];
    for (name, test) in others.into_iter().filter(|(name, _)| wanted(name)) {
        report.step(&format!("vm {name}"), || test(&guests))?;
    }
    Ok(())
}

fn folder() -> Result<PathBuf> {
    Ok(paths::build()?.join("programs"))
}

fn program(name: &str) -> Result<PathBuf> {
    Ok(if name == "todo-go" {
        paths::build()?.join(name)
    } else {
        folder()?.join(name)
    })
}

/// Builds the programs of `tests/programs`.
fn build() -> Result<()> {
    let mut command = sh::cmd("make", ["-s", "-C"]);
    command
        .arg(paths::in_root("tests/programs"))
        .arg(format!("BUILD={}", folder()?.display()));
    sh::output(command.env("PATH", setup::path_with_go()?)).map(drop)
}

/// Runs a case; what was wrong, if anything.
fn judge(guests: &Guests, case: &Case) -> Result<Option<String>> {
    let program = program(case.program)?;
    let (machine, vcpus, memory_mib) = (case.machine, case.vcpus, case.memory_mib);
    let outcome = guests.run(&Job {
        program: &program,
        args: case.args,
        machine,
        vcpus,
        memory_mib,
        limit: LIMIT,
    })?;
    let mut wrong = Vec::new();
    if outcome.code != Some(case.code) {
        wrong.push(format!("exit code {:?}, want {}", outcome.code, case.code));
    }
    let reason = outcome.exit["reason"].as_str().unwrap_or("none");
    if reason != case.reason {
        wrong.push(format!("reason {reason}, want {}", case.reason));
    }
    let exit = outcome.exit.to_string();
    for text in case.says {
        if !outcome.output.contains(text) && !exit.contains(text) {
            wrong.push(format!("neither output nor exit has {text:?}"));
        }
    }
    Ok((!wrong.is_empty()).then(|| format!("{}\n{}", wrong.join("\n"), outcome.story)))
}

/// Boots twice: nothing that should be random may come again.
fn random_differs(guests: &Guests) -> Result<()> {
    let program = program("random")?;
    let boot = || -> Result<String> {
        let outcome = guests.run(&Job {
            program: &program,
            args: &[],
            machine: "microvm",
            vcpus: 1,
            memory_mib: 32,
            limit: LIMIT,
        })?;
        if outcome.code != Some(0) || outcome.output.lines().count() != 5 {
            bail!("{}", outcome.story);
        }
        Ok(outcome.output)
    };
    let (first, second) = (boot()?, boot()?);
    match first.lines().zip(second.lines()).find(|(a, b)| a == b) {
        Some((line, _)) => bail!("twice the same: {line}"),
        None => Ok(()),
    }
}

/// Boots a server in the background and asks it, then loads it for a second over ten connections.
fn serve(guests: &Guests, server: &Server) -> Result<()> {
    let Server {
        program: name,
        args,
        path,
        machine,
        vcpus,
        ..
    } = *server;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let publish = format!("127.0.0.1:{port}:8080");
    let guest = guests.detached(
        &[
            "-p",
            &publish,
            "--machine",
            machine,
            "--cpus",
            &vcpus.to_string(),
        ],
        &program(name)?,
        args,
    )?;
    let service = (Ipv4Addr::LOCALHOST, port).into();
    guest.explain(|| {
        let mut polls = 0_u32;
        // Asking for the state starts a process: not at every attempt to connect.
        let gone = || {
            polls += 1;
            if polls.is_multiple_of(200) {
                guest.ended()
            } else {
                None
            }
        };
        let ready = Ready::Http(path);
        probe::first_answer(service, &ready, Instant::now() + BOOT_LIMIT, gone)?;
        let load = load::wrk(service, path, 10, 1)?;
        if load.errors > 0 || load.requests == 0 {
            bail!("{} errors beside {} answers", load.errors, load.requests);
        }
        Ok(())
    })
}

/// Datagrams come back unchanged.
fn udp_echo(guests: &Guests) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let guest = guests.detached(
        &["-p", &format!("127.0.0.1:{port}:7000/udp")],
        &program("udp_echo")?,
        &["7000"],
    )?;
    guest.explain(|| {
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let deadline = Instant::now() + BOOT_LIMIT;
        for length in [1_usize, 100, 1400] {
            // The first bytes tell this datagram from a late answer to an earlier one.
            let sent: Vec<u8> = length
                .to_le_bytes()
                .into_iter()
                .cycle()
                .take(length)
                .collect();
            let mut buffer = [0; 2048];
            loop {
                socket.send_to(&sent, (Ipv4Addr::LOCALHOST, port))?;
                if socket
                    .recv(&mut buffer)
                    .is_ok_and(|received| buffer[..received] == sent)
                {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("no echo of {length} bytes");
                }
            }
        }
        Ok(())
    })
}

/// A program that reads its standard input to the end gets all of it, and then the end.
fn input_ends(guests: &Guests) -> Result<()> {
    const BYTES: usize = 100_000;
    let text: Vec<u8> = (0..=255).cycle().take(BYTES).collect();
    let (read, mut write) = std::io::pipe()?;
    let writer = std::thread::spawn(move || write.write_all(&text));
    let mut command = guests.coracle(&["run", "--rm", "--network", "none"])?;
    command.args(["--accel", guests.accel.name()]);
    command.arg(program("input")?).arg(BYTES.to_string());
    let result = sh::output_with_input(&mut command, read.into(), LIMIT)?;
    drop(command); // with it the last reader, should it not have read everything
    let written = writer.join().map_err(|_| anyhow!("the writer panicked"))?;
    written.context("write to the standard input of `coracle run`")?;
    if !result.success() || !result.stdout.starts_with("input: 100000 bytes") {
        bail!("{}{}", result.stdout, result.stderr);
    }
    Ok(())
}

/// System calls are shown on standard error, with what a reader wants to know of their arguments.
fn trace(guests: &Guests) -> Result<()> {
    let mut command = guests.coracle(&["run", "--rm", "--trace", "--network", "none"])?;
    command.args(["--accel", guests.accel.name()]);
    command.arg(program("crash")?).args(["output", "7"]);
    let result = sh::output_within(&mut command, LIMIT)?;
    for line in [
        "  1 readlink(path=\"/proc/self/exe\", buf=\"/crash\", len=4096) = 6\n",
        "  1 write(fd=2, buf=\"to standard error\\n\", len=18) = 18\n",
        "  1 exit_group(status=7) = ?\n",
    ] {
        if !result.stderr.replace('\r', "").contains(line) {
            bail!("no line {line:?} in\n{}", result.stderr);
        }
    }
    Ok(())
}

/// The trace is switched on and off while the guest runs, and each form shows what the program does.
fn trace_running(guests: &Guests) -> Result<()> {
    let root = program("start.root")?;
    let guest = guests.detached(&["--network", "none"], &root, &["/bin/failing", "look"])?;
    guest.explain(|| {
        let says = |args: &[&str], wanted: &[&str]| {
            let printed = guest.output(args)?;
            match wanted.iter().find(|text| !printed.contains(*text)) {
                Some(text) => bail!("{args:?}: no {text:?} in\n{printed}"),
                None => Ok(()),
            }
        };
        let call = "openat(dir=AT_FDCWD, path=\"/etc/no-such.conf\", flags=O_RDONLY|O_CLOEXEC";
        // The first one waits until the program has been loaded, also on a slow machine.
        says(&["trace", "-t", "3"], &[" failing ", call, "= ENOENT <0.0"])?;
        says(
            &["trace", "-t", "1", "-o", "json"],
            &["\"call\":\"openat\"", "\"result\":\"ENOENT\""],
        )?;
        says(
            &["trace", "-t", "1", "--summary"],
            &["CALLS", "openat", "clock_nanosleep"],
        )?;
        says(
            &["trace", "-t", "1", "--missing-files"],
            &["/etc/no-such.conf", "openat", "failing"],
        )?;
        guest.output(&["kill"]).map(drop)
    })
}

/// The command says what a program tried to start, and what to do instead.
fn wanted_to_start(guests: &Guests) -> Result<()> {
    let mut command = guests.coracle(&["run", "--rm", "--network", "none"])?;
    command.args(["--accel", guests.accel.name()]);
    command.arg(program("start.root")?).arg("/helper.sh");
    let result = sh::output_within(&mut command, LIMIT)?;
    for words in [
        "/bin/sh (thread helper.sh) tried to start another process",
        "it seems to want: failing 0 argument",
        "as an instance of its own",
    ] {
        if !result.stderr.contains(words) {
            bail!("no {words:?} in\n{}", result.stderr);
        }
    }
    Ok(())
}

/// Nobody types to a detached guest.
fn input_detached(guests: &Guests) -> Result<()> {
    let guest = guests.detached(&["--network", "none"], &program("input")?, &["0"])?;
    guest.explain(|| {
        let code = guest.output(&["wait"])?;
        if code.trim() != "0" {
            bail!("exit code {code}");
        }
        Ok(())
    })
}

/// `coracle stop` delivers SIGTERM, and the application's exit code comes back.
fn stop(guests: &Guests) -> Result<()> {
    ends_with(
        guests,
        &["sigterm", "42"],
        "waiting for SIGTERM",
        &["stop", "-t", "20"],
        42,
    )
}

/// What ignores SIGTERM is killed after the grace period.
fn stop_ignored(guests: &Guests) -> Result<()> {
    ends_with(
        guests,
        &["ignore-sigterm"],
        "ignoring SIGTERM",
        &["stop", "-t", "1"],
        137,
    )
}

/// `coracle kill` ends a guest that never enters the kernel.
fn kill_busy(guests: &Guests) -> Result<()> {
    ends_with(guests, &["busy"], "busy for ever", &["kill"], 137)
}

/// Starts `crash`, waits until it says `ready`, applies `how`, and checks the code that `coracle wait` prints.
fn ends_with(guests: &Guests, args: &[&str], ready: &str, how: &[&str], code: i32) -> Result<()> {
    let guest = guests.detached(&[], &program("crash")?, args)?;
    guest.explain(|| {
        guest.says(ready, BOOT_LIMIT)?;
        guest.output(how)?;
        let ended = guest.output(&["wait"])?;
        let got: i32 = ended
            .trim()
            .parse()
            .with_context(|| format!("`coracle wait` printed {ended:?}"))?;
        if got != code {
            bail!("exit code {got}, want {code}");
        }
        Ok(())
    })
}
