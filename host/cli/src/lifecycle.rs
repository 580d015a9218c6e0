// SPDX-License-Identifier: Apache-2.0
//! `coracle stop`, `kill`, `rm` and `wait`

use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use coracle_vmm::client::Connection;
use coracle_vmm::instance::StoreError;
use coracle_vmm::{Exit, Instance, Op, Reason, State, Status, Store};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::args::{Format, KillArgs, RmArgs, StopArgs, WaitArgs};
use crate::error::Failure;
use crate::{folders, output};

/// How long a killed application may take to end before its VMM is killed.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// How long a killed VMM may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Asks applications to end; the VMM of one that does not is killed after the grace period.
pub(crate) fn stop(args: &StopArgs) -> Result<u8, Failure> {
    let grace = Duration::from_secs(args.time.into());
    each(&args.names, |instance| {
        let state = instance.load()?;
        if state.status != Status::Exited {
            let signal = state.stop_signal.as_deref().map(signal).transpose()?;
            end(instance, signal.unwrap_or(Signal::SIGTERM), grace)?;
        }
        output::line(&instance.name);
        Ok(())
    })
}

/// Sends a signal.
pub(crate) fn kill(args: &KillArgs) -> Result<u8, Failure> {
    let signal = signal(&args.signal)?;
    each(&args.names, |instance| {
        if instance.load()?.status == Status::Exited {
            return Err(Failure::new(format!(
                "{0} is not running; remove it: coracle rm {0}",
                instance.name
            )));
        }
        if signal == Signal::SIGKILL {
            end(instance, signal, KILL_GRACE)?;
        } else {
            let mut connection = connect(instance)?;
            connection
                .send(op(signal))
                .map_err(|error| Failure::new(format!("{}: {error}", instance.name)))?;
        }
        output::line(&instance.name);
        Ok(())
    })
}

/// Removes instances.
pub(crate) fn rm(args: &RmArgs) -> Result<u8, Failure> {
    let store = Store::new(&folders::state()?);
    let mut failure = None;
    for name in &args.names {
        let result = store
            .open(name)
            .map_err(Failure::from)
            .and_then(|instance| remove(&instance, args));
        match result {
            Ok(()) => output::line(name),
            Err(_)
                if args.force && matches!(store.open(name), Err(StoreError::NotFound { .. })) => {}
            Err(error) => report(&mut failure, error),
        }
    }
    failure.map_or(Ok(0), Err)
}

fn remove(instance: &Instance, args: &RmArgs) -> Result<(), Failure> {
    let state = match instance.load() {
        Ok(state) => Some(state),
        // What cannot be read can be removed, if that is insisted on.
        Err(_) if args.force => None,
        Err(error) => return Err(error.into()),
    };
    if state.as_ref().is_some_and(|s| s.status != Status::Exited) {
        if !args.force {
            let name = &instance.name;
            return Err(Failure::new(format!(
                "{name} is running; stop it first or use coracle rm -f {name}"
            )));
        }
        end(instance, Signal::SIGKILL, KILL_GRACE)?;
    }
    if let Some(state) = state.filter(|state| args.volumes || state.remove) {
        state.remove_volumes();
    }
    Ok(instance.remove()?)
}

/// How an instance ended, as `wait -o json` shows it.
#[derive(Debug, Serialize)]
struct Ended<'a> {
    name: &'a str,
    #[serde(flatten)]
    exit: &'a Exit,
}

/// Waits for the end of instances and prints how they ended.
pub(crate) fn wait(args: &WaitArgs) -> Result<u8, Failure> {
    each(&args.names, |instance| {
        let name = &instance.name;
        let exit = wait_exit(instance)?;
        match args.output {
            Format::Name => output::line(&exit.code.to_string()),
            Format::Json => output::json(&Ended { name, exit: &exit })?,
            Format::Table => {
                let detail = exit.detail.clone().unwrap_or_default();
                let row = vec![
                    name.clone(),
                    exit.code.to_string(),
                    exit.reason.to_string(),
                    detail,
                ];
                output::table(&["NAME", "CODE", "REASON", "DETAIL"], vec![row]);
            }
        }
        if args.output == Format::Name && exit.reason != Reason::Exit {
            eprintln!(
                "coracle: {name}: {}: {}",
                exit.reason,
                exit.detail.as_deref().unwrap_or("no details")
            );
        }
        Ok(())
    })
}

fn wait_exit(instance: &Instance) -> Result<Exit, Failure> {
    let unknown = || {
        Failure::new(format!(
            "{}: the instance is gone and nobody knows how it ended",
            instance.name
        ))
    };
    if let Ok(mut connection) = Connection::open(instance) {
        let last = connection
            .last_words(None)
            .map_err(|error| Failure::new(format!("{}: {error}", instance.name)))?;
        if let Some(exit) = last {
            return Ok(exit);
        }
    }
    loop {
        let state: State = instance.load()?;
        match (state.status, state.exit) {
            (Status::Exited, exit) => return exit.ok_or_else(unknown),
            // Between its folder and its socket, or between its socket and its last state.
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends `signal` and waits for the end for `grace`, then kills the VMM.
fn end(instance: &Instance, signal: Signal, grace: Duration) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("{}: {error}", instance.name));
    let mut connection = connect(instance)?;
    if connection.send(op(signal)).is_err() {
        return Ok(()); // it ended meanwhile
    }
    if connection
        .wait_end(Some(Instant::now() + grace))
        .map_err(failed)?
    {
        return Ok(());
    }
    let _ = connection.send(Op::Kill);
    if connection
        .wait_end(Some(Instant::now() + KILL_LIMIT))
        .map_err(failed)?
    {
        return Ok(());
    }
    // The monitor itself does not answer. The VMM dies with it.
    let state = instance.load()?;
    if state.monitor.is_some_and(|monitor| monitor.kill()) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: cannot be ended; its VMM hangs in the host's kernel",
        instance.name
    )))
}

/// Connects to the monitor. An instance that was just made may need a moment until it listens.
fn connect(instance: &Instance) -> Result<Connection, Failure> {
    let deadline = Instant::now() + KILL_GRACE;
    loop {
        match Connection::open(instance) {
            Ok(connection) => return Ok(connection),
            Err(_)
                if Instant::now() < deadline
                    && instance.load().is_ok_and(|s| s.status != Status::Exited) =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => {
                return Err(Failure::new(format!(
                    "{}: cannot reach the process that watches it: {error}",
                    instance.name
                )));
            }
        }
    }
}

fn op(signal: Signal) -> Op {
    let number = u8::try_from(signal as i32).expect("signals are below 65");
    Op::Signal { number }
}

/// `KILL`, `SIGKILL`, `sigkill` or `9`.
pub(crate) fn signal(text: &str) -> Result<Signal, Failure> {
    let upper = text.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") {
        upper
    } else {
        format!("SIG{upper}")
    };
    let by_number = text
        .parse::<i32>()
        .ok()
        .and_then(|number| Signal::try_from(number).ok());
    let found = by_number.or_else(|| Signal::from_str(&name).ok());
    found.ok_or_else(|| {
        Failure::new(format!(
            "--signal {text}: no such signal; use a name such as TERM or a number from 1 to 31"
        ))
    })
}

/// Does the same for every name, goes on after a failure, and fails with the last one.
fn each(
    names: &[String],
    mut action: impl FnMut(&Instance) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let store = Store::new(&folders::state()?);
    let mut failure = None;
    for name in names {
        let result = store
            .open(name)
            .map_err(Failure::from)
            .and_then(|instance| action(&instance));
        if let Err(error) = result {
            report(&mut failure, error);
        }
    }
    failure.map_or(Ok(0), Err)
}

/// Keeps a failure for the end; the one before is shown now.
fn report(last: &mut Option<Failure>, failure: Failure) {
    if let Some(earlier) = last.replace(failure) {
        eprintln!("coracle: {}", earlier.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["KILL", "SIGKILL", "kill", "9"] {
            assert_eq!(signal(text).unwrap(), Signal::SIGKILL);
        }
        for text in ["", "SIG", "0", "99", "-9", "STOPP"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }
}
