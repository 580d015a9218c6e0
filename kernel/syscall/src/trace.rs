// SPDX-License-Identifier: Apache-2.0
//! A line for every system call, in the manner of strace(1): `1 openat(dir=AT_FDCWD, path="/etc/hosts", …) = 3`.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use coracle_abi::convert::{low_u32, signed, u64_from};
use coracle_abi::raw::general::AT_FDCWD;
use coracle_abi::signal::Signal;
use coracle_abi::{Errno, numbers, syscalls};
use coracle_core::{Result, thread, user};

static ON: AtomicBool = AtomicBool::new(false);

/// Longest piece of memory that is shown, in bytes: paths are longer than data is interesting.
const PATH_MAX: usize = 256;
const DATA_MAX: usize = 32;

/// Results and arguments of unknown meaning above these are shown as addresses are.
const RESULT_MAX: usize = 1 << 32;
const ARGUMENT_MAX: usize = 1 << 12;

/// Switches the lines on or off.
pub fn set_trace(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Whether calls are to be shown. All that they cost while they are not.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Shows a call that will not come back.
#[cold]
pub(crate) fn before(number: u32, arguments: [usize; 6]) {
    if matches!(number, numbers::exit | numbers::exit_group) {
        log::info!("{} = ?", call(number, arguments, Err(Errno::ENOSYS)));
    }
}

/// Shows a call that came back.
#[cold]
pub(crate) fn after(number: u32, arguments: [usize; 6], result: Result<usize>) {
    let call = call(number, arguments, result);
    match result {
        Ok(value) if number == numbers::brk => log::info!("{call} = {value:#x}"),
        Ok(value) => log::info!("{call} = {}", plain(value, RESULT_MAX)),
        Err(error) => log::info!("{call} = {error}"),
    }
}

/// Thread, name and arguments.
fn call(number: u32, arguments: [usize; 6], result: Result<usize>) -> String {
    let entry = syscalls::find(number);
    let name = entry.map_or(syscalls::name(number), |entry| entry.name);
    let mut line = format!("{:>3} {name}(", thread::current().tid());
    let declared = entry.map_or("", |entry| entry.arguments).split(',');
    for (n, (argument, value)) in declared.zip(arguments).enumerate() {
        let Some((label, kind)) = argument.split_once(':') else {
            break; // no arguments
        };
        let (label, kind) = (label.trim(), kind.trim());
        let comma = if n > 0 { ", " } else { "" };
        let shown = match (label, kind) {
            (_, "Fd") if label.ends_with("dir") => directory(value),
            (_, "Fd" | "i32") => format!("{}", signed(low_u32(u64_from(value)))),
            (_, "i64") => format!("{}", value.cast_signed()),
            ("number", "u32") => signal(value),
            ("mode", _) => format!("0{value:o}"),
            ("flags" | "protection" | "command" | "options" | "events", _) => format!("{value:#x}"),
            ("len" | "size" | "count" | "old_len" | "new_len", "usize") | (_, "u32") => {
                format!("{value}")
            }
            (_, "usize") => plain(value, ARGUMENT_MAX),
            ("path" | "target", "User") => text(value, PATH_MAX, true),
            ("old" | "new", "User") if name.starts_with("rename") || name.starts_with("link") => {
                text(value, PATH_MAX, true)
            }
            ("buf", "User") => match result {
                Ok(count) if count > 0 => text(value, count.min(DATA_MAX), false),
                _ => pointer(value),
            },
            _ => pointer(value),
        };
        let _ = write!(line, "{comma}{label}={shown}");
    }
    line.push(')');
    line
}

fn directory(value: usize) -> String {
    match signed(low_u32(u64_from(value))) {
        AT_FDCWD => "AT_FDCWD".into(),
        descriptor => format!("{descriptor}"),
    }
}

fn pointer(value: usize) -> String {
    match value {
        0 => "NULL".into(),
        value => format!("{value:#x}"),
    }
}

/// A piece of memory: a string up to its NUL, or that many bytes.
fn text(at: usize, len: usize, is_string: bool) -> String {
    let mut bytes = [0; PATH_MAX];
    let bytes = &mut bytes[..len];
    let there = len - user::read_bytes(bytes, at);
    let mut shown = &bytes[..there];
    if is_string && let Some(end) = shown.iter().position(|byte| *byte == 0) {
        shown = &shown[..end];
    }
    if there == 0 {
        return pointer(at);
    }
    let more = if shown.len() == PATH_MAX || !is_string && len == DATA_MAX {
        "..."
    } else {
        ""
    };
    format!("\"{}\"{more}", shown.escape_ascii())
}

/// A count as such, an address as such.
fn plain(value: usize, decimal_max: usize) -> String {
    if value < decimal_max {
        format!("{value}")
    } else {
        format!("{value:#x}")
    }
}

fn signal(value: usize) -> String {
    let number = low_u32(u64_from(value));
    Signal::new(number).map_or_else(|| format!("{number}"), |signal| signal.name().into())
}
