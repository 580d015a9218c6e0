// SPDX-License-Identifier: Apache-2.0
//! `coracle trace`: the system calls of a running instance, switched on and off while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coracle_vmm::client::Connection;
use coracle_vmm::{Event, Op, Show, Store};
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;

use crate::args::{Format, TraceArgs};
use crate::error::Failure;
use crate::{folders, output};

/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// How long the guest may take to send what is left.
const LAST: Duration = Duration::from_secs(3);

/// What is gathered until the end.
#[derive(Default)]
struct Gathered {
    counts: Vec<Count>,
    missing: BTreeMap<String, Missing>,
    dropped: u64,
}

/// One line of the summary.
#[derive(Serialize)]
struct Count {
    call: String,
    calls: u64,
    errors: u64,
    seconds: f64,
    share: f64,
}

/// One path that was not found.
#[derive(Default, Serialize)]
struct Missing {
    times: u64,
    calls: BTreeSet<String>,
    threads: BTreeSet<String>,
}

/// One call, as JSON.
#[derive(Serialize)]
struct Call<'a> {
    t_ns: u64,
    tid: u32,
    thread: &'a str,
    call: &'a str,
    arguments: &'a str,
    result: &'a str,
    took_ns: Option<u64>,
}

/// Shows calls until the instance ends, a signal comes, or the time is over.
pub(crate) fn trace(args: &TraceArgs) -> Result<u8, Failure> {
    let instance = Store::new(&folders::state()?).open(&args.name)?;
    let name = &instance.name;
    let not_running = || Failure::new(format!("{name} is not running"));
    let show = match (args.summary, args.missing_files) {
        (true, _) => Show::Counts,
        (_, true) => Show::Missing,
        _ => Show::Calls,
    };
    let stop = stop_on_signals()?;
    let mut connection = Connection::open(&instance).map_err(|_| not_running())?;
    connection
        .send(Op::Trace { show })
        .map_err(|_| not_running())?;
    let until = args
        .time
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut gathered = Gathered::default();
    let mut stopped: Option<Instant> = None;
    loop {
        match connection.next_event(Some(Instant::now() + LOOK)) {
            Ok(Some(Event::Traced)) | Ok(None) => break,
            Ok(Some(Event::Busy)) => {
                return Err(Failure::new(format!(
                    "{name} is being traced already; end the other trace first"
                )));
            }
            Ok(Some(event)) => take(event, args, &mut gathered)?,
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {}
            Err(error) => return Err(Failure::new(format!("{name}: {error}"))),
        }
        let is_over = until.is_some_and(|until| until <= Instant::now());
        match stopped {
            None if is_over || stop.load(Ordering::Relaxed) => {
                stopped = Some(Instant::now());
                let nothing = Op::Trace {
                    show: Show::Nothing,
                };
                if connection.send(nothing).is_err() {
                    break;
                }
            }
            Some(since) if since.elapsed() > LAST => break,
            _ => {}
        }
    }
    finish(args, show, gathered)?;
    Ok(0)
}

/// A flag that SIGINT and SIGTERM set.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.thread_block().map_err(Failure::new)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    std::thread::spawn(move || {
        let _ = set.wait();
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}

fn take(event: Event, args: &TraceArgs, gathered: &mut Gathered) -> Result<(), Failure> {
    match event {
        Event::Call {
            call,
            thread,
            path: Some(path),
            ..
        } if args.missing_files => {
            let missing = gathered.missing.entry(path).or_default();
            missing.times += 1;
            missing.calls.insert(call);
            missing.threads.insert(thread);
        }
        Event::Call {
            t_ns,
            tid,
            thread,
            call,
            arguments,
            result,
            took_ns,
            ..
        } => match args.output {
            Format::Json => {
                let call = Call {
                    t_ns,
                    tid,
                    thread: &thread,
                    call: &call,
                    arguments: &arguments,
                    result: &result,
                    took_ns,
                };
                output::line(&serde_json::to_string(&call).map_err(Failure::new)?);
            }
            Format::Name => output::line(&call),
            Format::Table => {
                let took = took_ns.map_or_else(String::new, |ns| format!(" <{}>", seconds(ns)));
                output::line(&format!(
                    "{} {tid:>4} {thread:<15} {call}({arguments}) = {result}{took}",
                    seconds(t_ns)
                ));
            }
        },
        Event::Count {
            call,
            calls,
            errors,
            ns,
        } => gathered.counts.push(Count {
            call,
            calls,
            errors,
            seconds: Duration::from_nanos(ns).as_secs_f64(),
            share: 0.0,
        }),
        Event::Dropped { lines } => {
            gathered.dropped += lines;
            if args.output == Format::Table && !args.summary && !args.missing_files {
                output::line(&format!("... {lines} calls not shown: too fast"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Nanoseconds as seconds with microseconds.
fn seconds(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns / 1000 % 1_000_000)
}

/// Prints what was gathered.
fn finish(args: &TraceArgs, show: Show, gathered: Gathered) -> Result<(), Failure> {
    match show {
        Show::Counts => counts(args.output, gathered.counts)?,
        Show::Missing => missing(args.output, &gathered.missing)?,
        Show::Calls | Show::Nothing => {}
    }
    if gathered.dropped > 0 {
        eprintln!(
            "coracle: {} lines were not shown: there were more than could be read",
            gathered.dropped
        );
    }
    Ok(())
}

/// The table of calls, those that took longest first. Time includes waiting.
fn counts(format: Format, mut counts: Vec<Count>) -> Result<(), Failure> {
    let total: f64 = counts.iter().map(|count| count.seconds).sum();
    for count in &mut counts {
        count.share = if total > 0.0 {
            count.seconds / total
        } else {
            0.0
        };
    }
    counts.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    match format {
        Format::Json => output::json(&counts)?,
        Format::Name => counts.iter().for_each(|count| output::line(&count.call)),
        Format::Table => output::table(
            &["CALL", "CALLS", "ERRORS", "SECONDS", "SHARE", "US/CALL"],
            counts
                .iter()
                .map(|count| {
                    vec![
                        count.call.clone(),
                        count.calls.to_string(),
                        count.errors.to_string(),
                        format!("{:.6}", count.seconds),
                        format!("{:.1} %", 100.0 * count.share),
                        format!("{:.1}", 1e6 * count.seconds / count.calls as f64),
                    ]
                })
                .collect(),
        ),
    }
    Ok(())
}

/// The table of paths, those that were looked for most often first.
fn missing(format: Format, missing: &BTreeMap<String, Missing>) -> Result<(), Failure> {
    let joined = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(",");
    let mut rows: Vec<_> = missing.iter().collect();
    rows.sort_by_key(|(_, missing)| std::cmp::Reverse(missing.times));
    match format {
        Format::Json => output::json(missing)?,
        Format::Name => rows.iter().for_each(|(path, _)| output::line(path)),
        Format::Table => output::table(
            &["PATH", "TIMES", "CALLS", "THREADS"],
            rows.into_iter()
                .map(|(path, missing)| {
                    vec![
                        path.clone(),
                        missing.times.to_string(),
                        joined(&missing.calls),
                        joined(&missing.threads),
                    ]
                })
                .collect(),
        ),
    }
    Ok(())
}
