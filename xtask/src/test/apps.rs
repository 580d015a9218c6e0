// SPDX-License-Identifier: Apache-2.0

//! Known programs from their images, unmodified: servers boot, answer, and stop with their exit code; others check
//! themselves and end.

mod nginx;
mod python;
mod redis;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::guest::{Detached, Guests};
use super::report::Report;
use crate::test::probe::{self, Ready};
use crate::{images, paths, sh};

/// The most a boot to the first answer may take on a busy machine.
const BOOT_LIMIT: Duration = Duration::from_secs(30);

/// The most a program may take to its end.
const PROGRAM_LIMIT: Duration = Duration::from_secs(180);

/// The most an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// A server that is tested.
struct Server {
    name: &'static str,
    /// The recipe in `images/`.
    image: &'static str,
    /// Program and arguments.
    command: &'static [&'static str],
    /// Flags of `coracle run`.
    flags: &'static [&'static str],
    port: u16,
    ready: Ready,
    test: fn(&Running<'_>) -> Result<()>,
}

/// A program that checks itself and ends with 0.
struct Program {
    name: &'static str,
    /// The recipe in `images/`.
    image: &'static str,
    /// Program and arguments.
    command: &'static [&'static str],
    /// Flags of `coracle run`.
    flags: &'static [&'static str],
    /// Must be in its output.
    says: &'static str,
}

/// A server that has answered.
struct Running<'a> {
    guest: &'a Detached<'a>,
    address: SocketAddr,
}

/// Runs those whose names contain one of `only`, or all.
pub(super) fn run(report: &mut Report, only: &[&str]) -> Result<()> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let servers: Vec<&Server> = redis::SERVERS
        .iter()
        .chain(nginx::SERVERS)
        .chain(python::SERVERS)
        .filter(|server| wanted(server.name))
        .collect();
    let guests = Guests::new()?;
    for server in servers {
        report.step(&format!("apps {}", server.name), || judge(&guests, server))?;
    }
    for program in python::PROGRAMS.iter().filter(|p| wanted(p.name)) {
        report.step(&format!("apps {}", program.name), || {
            ends_well(&guests, program)
        })?;
    }
    Ok(())
}

/// The image's file.
fn archive(image: &str) -> Result<PathBuf> {
    Ok(paths::build()?.join(format!("images/{image}.tar")))
}

/// Boots the server, runs its test, and stops it; it must end with exit code 0.
fn judge(guests: &Guests, server: &Server) -> Result<()> {
    images::run(&[server.image])?;
    let archive = archive(server.image)?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let publish = format!("127.0.0.1:{port}:{}", server.port);
    let memory: &[&str] = if server.flags.contains(&"-m") {
        &[]
    } else {
        &["-m", "256M"]
    };
    // Without an entry point what follows the image is the whole command.
    let flags = ["-p", &publish, "--entrypoint", ""];
    let flags: Vec<&str> = [memory, &flags, server.flags].concat();
    let guest = guests.detached(&flags, &archive, server.command)?;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    guest.explain(|| {
        let gone = || None;
        probe::first_answer(address, &server.ready, Instant::now() + BOOT_LIMIT, gone)?;
        (server.test)(&Running {
            guest: &guest,
            address,
        })?;
        guest.output(&["stop", "-t", "10"])?;
        match guest.ended() {
            Some(how) if how.contains("\"code\":0") => Ok(()),
            how => bail!("stopped, it ended with {how:?}"),
        }
    })
}

/// Runs the program to its end.
fn ends_well(guests: &Guests, program: &Program) -> Result<()> {
    images::run(&[program.image])?;
    let mut command = guests.coracle(&["run", "--rm", "--accel", guests.accel.name()])?;
    command
        .args(["--network", "none", "--entrypoint", ""])
        .args(program.flags)
        .arg(archive(program.image)?)
        .args(program.command);
    let result = sh::output_within(&mut command, PROGRAM_LIMIT)?;
    if !result.success() || !result.stdout.contains(program.says) {
        bail!("{}{}", result.stdout, result.stderr);
    }
    Ok(())
}

/// A connection that answers within a bounded time.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).context("connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    Ok(stream)
}

/// Sends all and reads to the end.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = connect(address)?;
    let mut writer = stream.try_clone()?;
    let bytes = bytes.to_vec();
    // At the same time, since an answer may begin before the request has ended.
    let sender = std::thread::spawn(move || writer.write_all(&bytes));
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("read the answer")?;
    match sender.join() {
        Ok(sent) => sent.context("send")?,
        Err(_) => bail!("the sender panicked"),
    }
    Ok(answer)
}
