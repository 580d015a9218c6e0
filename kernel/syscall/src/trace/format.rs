// SPDX-License-Identifier: Apache-2.0
//! A call in the manner of strace(1): names of arguments, paths, flags, addresses.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use coracle_abi::convert::{low_u32, signed, u64_from};
use coracle_abi::numbers;
use coracle_abi::raw::general::AT_FDCWD;
use coracle_abi::signal::Signal;
use coracle_abi::syscalls;
use coracle_core::Result;
use coracle_core::user::{self, User};
use coracle_net::SocketAddress;

use super::flags;

/// Longest piece of memory that is shown, in bytes: paths are longer than data is interesting.
const PATH_MAX: usize = 256;
const DATA_MAX: usize = 32;

/// Results and arguments of unknown meaning above these are shown as addresses are.
const RESULT_MAX: usize = 1 << 32;
const ARGUMENT_MAX: usize = 1 << 12;

/// The name of a call.
pub(super) fn name(number: u32) -> &'static str {
    syscalls::find(number).map_or(syscalls::name(number), |entry| entry.name)
}

/// A result that is no error.
pub(super) fn result(number: u32, value: usize) -> String {
    if number == numbers::brk {
        format!("{value:#x}")
    } else {
        plain(value, RESULT_MAX)
    }
}

/// The names and values of the declared arguments.
fn declared(number: u32, arguments: [usize; 6]) -> Vec<(&'static str, &'static str, usize)> {
    let declared = syscalls::find(number).map_or("", |entry| entry.arguments);
    let split = |argument: &'static str| argument.split_once(':');
    declared
        .split(',')
        .map_while(split)
        .zip(arguments)
        .map(|((label, kind), value)| (label.trim(), kind.trim(), value))
        .collect()
}

fn is_path(name: &str, label: &str, kind: &str) -> bool {
    let is_pair = name.starts_with("rename") || name.starts_with("link");
    kind == "User"
        && (matches!(label, "path" | "target") || matches!(label, "old" | "new") && is_pair)
}

/// The first path among the arguments.
pub(super) fn path(number: u32, arguments: [usize; 6]) -> Option<String> {
    let name = name(number);
    let declared = declared(number, arguments);
    let (_, _, at) = declared
        .iter()
        .find(|(label, kind, _)| is_path(name, label, kind))?;
    let path = user::read_c_string(*at, 4096).ok()?;
    Some(String::from_utf8_lossy(&path).into_owned())
}

/// The arguments, as `dir=AT_FDCWD, path="/etc/hosts", flags=O_RDONLY`.
pub(super) fn arguments(number: u32, arguments: [usize; 6], result: Result<usize>) -> String {
    let name = name(number);
    let mut line = String::new();
    for (n, (label, kind, value)) in declared(number, arguments).into_iter().enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        let low = low_u32(u64_from(value));
        let named = flags::describe(name, label, low);
        let shown = match (label, kind) {
            _ if named.is_some() => named.unwrap_or_default(),
            (_, "Fd") if label.ends_with("dir") => directory(value),
            (_, "Fd" | "i32") => format!("{}", signed(low)),
            (_, "i64") => format!("{}", value.cast_signed()),
            ("number", "u32") => signal(value),
            ("mode", _) if value > 0 => format!("0{value:o}"),
            ("flags" | "command" | "options" | "events", _) => format!("{value:#x}"),
            ("len" | "size" | "count" | "old_len" | "new_len", "usize") | (_, "u32") => {
                format!("{value}")
            }
            (_, "usize") => plain(value, ARGUMENT_MAX),
            _ if is_path(name, label, kind) => text(value, PATH_MAX, true),
            ("address", "User") => address(name, value, arguments, n, result),
            ("argv", "User") => command(value),
            ("buf", "User") => match result {
                Ok(count) if count > 0 => text(value, count.min(DATA_MAX), false),
                _ => pointer(value),
            },
            _ => pointer(value),
        };
        let _ = write!(line, "{comma}{label}={shown}");
    }
    line
}

/// The address of a socket; its length is the next argument, or lies where that points.
fn address(
    name: &str,
    at: usize,
    arguments: [usize; 6],
    n: usize,
    result: Result<usize>,
) -> String {
    let next = arguments.get(n + 1).copied().unwrap_or(0);
    let is_answer = matches!(
        name,
        "accept" | "accept4" | "getsockname" | "getpeername" | "recvfrom"
    );
    let len = match is_answer {
        false => next,
        true if result.is_err() || at == 0 => return pointer(at),
        true => {
            let len: Result<u32> = User(next).read();
            coracle_abi::convert::usize_from_u32(len.unwrap_or(0))
        }
    };
    let mut bytes = [0; 128];
    let len = len.min(bytes.len());
    if user::read_bytes(&mut bytes[..len], at) > 0 {
        return pointer(at);
    }
    match SocketAddress::parse(&bytes[..len]) {
        Ok(SocketAddress::V4(address)) => format!("{address}"),
        Ok(SocketAddress::V6(address)) => format!("{address}"),
        Ok(other) => match other.unix_path() {
            Some(path) => format!("\"{}\"", path.escape_ascii()),
            None => pointer(at),
        },
        Err(_) => pointer(at),
    }
}

/// The first arguments of a command.
fn command(at: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    for n in 0..8 {
        match User(at.wrapping_add(n * size_of::<usize>())).read() {
            Ok(0usize) | Err(_) => break,
            Ok(string) => parts.push(text(string, PATH_MAX / 4, true)),
        }
    }
    format!("[{}]", parts.join(", "))
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
    let is_cut = shown.len() == len && (is_string || len == DATA_MAX);
    let more = if is_cut { "..." } else { "" };
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
