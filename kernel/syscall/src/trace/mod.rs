// SPDX-License-Identifier: Apache-2.0
//! What system calls the program makes: a line for each in the log (`coracle run --trace`), or lines and counts on the
//! control channel for whoever asks while it runs (`coracle trace`, decision 0002).
//!
//! Nobody waits for a reader: what the channel cannot take is dropped and counted.

mod flags;
mod format;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use coracle_abi::{Errno, numbers};
use coracle_core::sync::Once;
use coracle_core::{Result, thread, time};

/// Where calls are shown, one bit each; 0 is the usual case.
static WHERE: AtomicU8 = AtomicU8::new(0);

const LOG: u8 = 1;
const CALLS: u8 = 2;
const COUNTS: u8 = 4;
const MISSING: u8 = 8;

/// What the channel is asked to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Every call.
    Calls,
    /// Counts of calls, when they are asked for.
    Counts,
    /// Calls that did not find a file.
    Missing,
}

/// Sends a line if there is room for all of it, and says whether there was.
type Sink = fn(&str) -> bool;

static SINK: Once<Sink> = Once::new();

/// Lines that the channel had no room for, and that nobody was told of yet.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// What is counted of one call.
#[derive(Default)]
struct Count {
    calls: AtomicU64,
    errors: AtomicU64,
    /// Time in the call, waiting included.
    ns: AtomicU64,
}

/// Numbers of calls that are counted; higher ones do not exist.
const NUMBERS: usize = 512;

static TABLE: Once<Vec<Count>> = Once::new();

/// Switches the lines in the log on or off.
pub fn set_trace(on: bool) {
    if on {
        WHERE.fetch_or(LOG, Ordering::Relaxed);
    } else {
        WHERE.fetch_and(!LOG, Ordering::Relaxed);
    }
}

/// Says where lines for the channel go, once.
pub fn set_trace_sink(sink: Sink) {
    let _ = SINK.set(sink);
}

/// Adds something to what the channel shows.
pub fn show(what: Show) {
    let bit = match what {
        Show::Calls => CALLS,
        Show::Missing => MISSING,
        Show::Counts => {
            let mut table = Vec::new();
            table.resize_with(NUMBERS, Count::default);
            let _ = TABLE.set(table);
            if WHERE.load(Ordering::Relaxed) & COUNTS == 0 {
                for count in TABLE.get().into_iter().flatten() {
                    for cell in [&count.calls, &count.errors, &count.ns] {
                        cell.store(0, Ordering::Relaxed);
                    }
                }
            }
            COUNTS
        }
    };
    WHERE.fetch_or(bit, Ordering::SeqCst);
}

/// Ends what the channel shows. The lines of the counts, and of what was dropped, come first.
pub fn show_nothing() {
    let before = WHERE.fetch_and(LOG, Ordering::SeqCst);
    if before & !LOG == 0 {
        return;
    }
    if before & COUNTS != 0 {
        for (number, count) in (0..).zip(TABLE.get().into_iter().flatten()) {
            send_count(number, count);
        }
    }
    send("{\"event\":\"traced\"}\n");
}

fn send_count(number: u32, count: &Count) {
    let get = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
    if get(&count.calls) > 0 {
        send(&alloc::format!(
            "{{\"event\":\"count\",\"call\":\"{}\",\"calls\":{},\"errors\":{},\"ns\":{}}}\n",
            format::name(number),
            get(&count.calls),
            get(&count.errors),
            get(&count.ns)
        ));
    }
}

/// Whether calls are to be looked at. All that they cost while they are not.
#[inline]
pub(crate) fn is_on() -> bool {
    WHERE.load(Ordering::Relaxed) != 0
}

/// A call that began.
pub(crate) struct Started {
    ns: u64,
    /// Its arguments, if they are gone when it comes back.
    arguments: Option<String>,
}

/// Before a call: shows one that will not come back.
#[cold]
pub(crate) fn before(number: u32, arguments: [usize; 6]) -> Started {
    let now = time::now();
    let is_exec = matches!(number, numbers::execve | numbers::execveat);
    if matches!(number, numbers::exit | numbers::exit_group) {
        let shown = WHERE.load(Ordering::Relaxed);
        let text = format::arguments(number, arguments, Err(Errno::ENOSYS));
        if shown & LOG != 0 {
            log_call(number, &text, "?");
        }
        if shown & CALLS != 0 {
            send_call(number, &text, now, None, "?", None);
        }
    }
    Started {
        ns: now,
        arguments: is_exec.then(|| format::arguments(number, arguments, Err(Errno::ENOSYS))),
    }
}

/// Shows a call that came back.
#[cold]
pub(crate) fn after(number: u32, arguments: [usize; 6], result: Result<usize>, started: Started) {
    let shown = WHERE.load(Ordering::Relaxed);
    let started_ns = started.ns;
    let took_ns = time::now().saturating_sub(started_ns);
    if shown & COUNTS != 0
        && let Some(count) = TABLE.get().and_then(|table| table.get(number as usize))
    {
        count.calls.fetch_add(1, Ordering::Relaxed);
        count.ns.fetch_add(took_ns, Ordering::Relaxed);
        count
            .errors
            .fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
    }
    let is_missing = matches!(result, Err(Errno::ENOENT | Errno::ENOTDIR));
    let path = (shown & MISSING != 0 && is_missing)
        .then(|| format::path(number, arguments))
        .flatten();
    if shown & (LOG | CALLS) == 0 && path.is_none() {
        return;
    }
    let text = started
        .arguments
        .unwrap_or_else(|| format::arguments(number, arguments, result));
    let value = match result {
        Ok(value) => format::result(number, value),
        Err(error) => alloc::format!("{error}"),
    };
    if shown & LOG != 0 {
        log_call(number, &text, &value);
    }
    if shown & CALLS != 0 || path.is_some() {
        send_call(
            number,
            &text,
            started_ns,
            Some(took_ns),
            &value,
            path.as_deref(),
        );
    }
}

fn log_call(number: u32, arguments: &str, result: &str) {
    let (tid, name) = (thread::current().tid(), format::name(number));
    log::info!("{tid:>3} {name}({arguments}) = {result}");
}

fn send_call(
    number: u32,
    arguments: &str,
    started_ns: u64,
    took_ns: Option<u64>,
    result: &str,
    path: Option<&str>,
) {
    let me = thread::current();
    let name = me.name();
    let name = String::from_utf8_lossy(&name);
    let mut line = alloc::format!(
        "{{\"event\":\"call\",\"t_ns\":{started_ns},\"tid\":{},\"thread\":{},\"call\":\"{}\",\"arguments\":{},\
         \"result\":{}",
        me.tid(),
        quoted(name.trim_end_matches('\0')),
        format::name(number),
        quoted(arguments),
        quoted(result),
    );
    if let Some(took_ns) = took_ns {
        let _ = write!(line, ",\"took_ns\":{took_ns}");
    }
    if let Some(path) = path {
        let _ = write!(line, ",\"path\":{}", quoted(path));
    }
    line.push_str("}\n");
    send(&line);
}

/// Text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Sends a line, and before it how many were lost since the last one.
fn send(line: &str) {
    let Some(sink) = SINK.get() else { return };
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    if dropped > 0
        && !sink(&alloc::format!(
            "{{\"event\":\"dropped\",\"lines\":{dropped}}}\n"
        ))
    {
        DROPPED.fetch_add(dropped + 1, Ordering::Relaxed);
        return;
    }
    if !sink(line) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}
