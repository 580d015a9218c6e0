// SPDX-License-Identifier: Apache-2.0
//! fork(2) and its kind, which a unikernel refuses: one program, one process.
//!
//! The errno is `ENOSYS` (decision 0015): programs that see `EAGAIN` try again, bash for 15 seconds and perl for ever.
//! The log names the program and, where it can be found out, what it wanted to start: whoever starts a program has its
//! arguments at hand, so an array of strings whose first one leads to an executable lies near the stack pointer, or at
//! least its path.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use coracle_abi::Errno;
use coracle_abi::convert::usize_from;
use coracle_core::sync::SpinLock;
use coracle_core::user;
use coracle_core::{Result, thread};

use crate::exec::{self, ProgramInfo};

/// How much of the stack is looked at, in words: for arrays of arguments, and for paths, which are no such clear sign.
const WORDS: usize = 512;
const PATH_WORDS: usize = 128;
/// Most arguments that are read.
const MOST_ARGUMENTS: usize = 64;
/// Longest argument that is believed to be one, in bytes.
const LONGEST: usize = 512;
/// How much of a command line is shown, in bytes.
const SHOWN: usize = 160;
/// Most different messages.
const MOST_MESSAGES: usize = 16;

/// What was said already.
static SAID: SpinLock<Vec<String>> = SpinLock::new(Vec::new());

/// `fork(2)`
pub(crate) fn fork() -> Result<usize> {
    refuse("fork")
}

/// `vfork(2)`
pub(crate) fn vfork() -> Result<usize> {
    refuse("vfork")
}

/// Says no, and in the log why and what to do instead: once for each program that was to be started.
pub(super) fn refuse(call: &str) -> Result<usize> {
    let program = exec::program();
    let mut what = String::new();
    if let Some(command) = command(&program) {
        what = format!("; it seems to want: {command}");
    }
    let name = thread::current().name();
    let text = format!(
        "{} (thread {}) tried to start another process{what}",
        program.path().escape_ascii(),
        String::from_utf8_lossy(&name).trim_end_matches('\0'),
    );
    let is_new = {
        let mut said = SAID.lock();
        let is_new = said.len() < MOST_MESSAGES && !said.contains(&text);
        if is_new {
            said.push(text.clone());
        }
        is_new
    };
    if is_new {
        log::warn!(
            target: "program",
            "{text}. A unikernel is one process ({call}: ENOSYS): run the other program as an instance of its own; a \
             start script may end in exec"
        );
    }
    Err(Errno::ENOSYS)
}

/// The command line, or else the path of an executable, that lies nearest to the caller's stack pointer, other than the
/// program's own.
fn command(program: &ProgramInfo) -> Option<String> {
    let frame = thread::entry_frame();
    let mut words: Vec<usize> = frame.registers().map(|(_, value)| value).into();
    words.extend((0..WORDS).map_while(|n| word_at((frame.stack() & !7).checked_add(n * 8)?)));
    // Below the stack pointer lies nothing yet; above the program's first one lie its own arguments.
    words.retain(|at| {
        !(frame.stack().saturating_sub(STACK_BYTES)..frame.stack()).contains(at)
            && *at < program.stack
    });
    let environment = environment(program);
    let own = strings_in(usize_from(program.arguments.start)..usize_from(program.arguments.end));
    let arguments = words
        .iter()
        .filter_map(|at| arguments_at(*at))
        .find(|arguments| *arguments != own && leads_somewhere(&arguments[0], &environment));
    arguments.map(|arguments| shown(&arguments)).or_else(|| {
        let path = words
            .iter()
            .take(PATH_WORDS)
            .filter_map(|at| string_at(*at))
            .find(|path| {
                path.starts_with(b"/")
                    && !own.contains(path)
                    && *path != program.path()
                    && leads_somewhere(path, &environment)
            })?;
        Some(shown(&[path]))
    })
}

/// The longest a stack grows, `RLIMIT_STACK`'s usual value.
const STACK_BYTES: usize = 8 << 20;

fn word_at(at: usize) -> Option<usize> {
    let mut bytes = [0; size_of::<usize>()];
    (user::read_bytes(&mut bytes, at) == 0).then(|| usize::from_le_bytes(bytes))
}

/// The strings of an array of pointers, if that is what lies there.
fn arguments_at(at: usize) -> Option<Vec<Vec<u8>>> {
    if !at.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    let mut arguments = Vec::new();
    loop {
        match word_at(at.checked_add(arguments.len() * size_of::<usize>())?)? {
            0 => break,
            _ if arguments.len() == MOST_ARGUMENTS => return None,
            string => arguments.push(string_at(string)?),
        }
    }
    // An environment looks the same, but for its equals signs.
    let is_command = arguments
        .first()
        .is_some_and(|first| !first.is_empty() && !first.contains(&b'='));
    is_command.then_some(arguments)
}

/// A readable string.
fn string_at(at: usize) -> Option<Vec<u8>> {
    let is_text = |b: &u8| matches!(*b, b'\t' | b'\n' | b' '..=b'~' | 0x80..);
    user::read_c_string(at, LONGEST)
        .ok()
        .filter(|string| string.iter().all(is_text))
}

/// The strings that lie one behind the other.
fn strings_in(range: core::ops::Range<usize>) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let Some(string) = string_at(at) else { break };
        at += string.len() + 1;
        strings.push(string);
    }
    strings
}

/// The environment the program was started with, for its `PATH`.
fn environment(program: &ProgramInfo) -> Vec<Vec<u8>> {
    strings_in(usize_from(program.environment.start)..usize_from(program.environment.end))
}

/// Whether a program of this name could be started.
fn leads_somewhere(name: &[u8], environment: &[Vec<u8>]) -> bool {
    let Ok(name) = core::str::from_utf8(name) else {
        return false;
    };
    exec::can_start(name, environment.iter().map(Vec::as_slice))
}

/// As one would type it, cut where it gets long.
fn shown(arguments: &[Vec<u8>]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let text = argument.escape_ascii().to_string();
        if text.is_empty() || text.contains([' ', '\'', '$', '*', ';', '&', '|']) {
            format!("'{text}'")
        } else {
            text
        }
    });
    let mut line = quoted.collect::<Vec<_>>().join(" ");
    if line.len() > SHOWN {
        line.truncate(SHOWN); // escaped text is ASCII
        line += "...";
    }
    line
}
