// SPDX-License-Identifier: Apache-2.0
//! The first line of a script: `#!INTERPRETER [ARGUMENT]` (execve(2), "Interpreter scripts").
//!
//! Linux looks at the first 256 bytes only and hands everything behind the interpreter over as one argument. What it
//! does with odd lines is kept to the letter, since scripts exist that rely on it.

use core::fmt;

/// How much of a file is looked at.
pub const HEAD_BYTES: usize = 256;

/// What a script says about who runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script<'a> {
    /// Path of the interpreter; empty if the file ends behind `#!`, which Linux takes for the working directory.
    pub interpreter: &'a [u8],
    /// Everything behind it, as one argument.
    pub argument: Option<&'a [u8]>,
}

/// Why a file that begins with `#!` cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptError {
    /// The line is empty behind `#!`.
    NoInterpreter,
    /// The path of the interpreter does not end within the first 255 bytes.
    TooLong,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoInterpreter => "a script whose first line names no interpreter",
            Self::TooLong => "a script whose interpreter does not fit in 255 bytes",
        })
    }
}

impl core::error::Error for ScriptError {}

/// Whether a file with these first bytes is a script.
#[must_use]
pub fn is_script(head: &[u8]) -> bool {
    head.starts_with(b"#!")
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn ends_word(byte: u8) -> bool {
    is_blank(byte) || byte == 0
}

/// Reads the first line of a script. `head` is the file's first [`HEAD_BYTES`] bytes, zeroes where it is shorter.
///
/// # Errors
/// [`ScriptError`]: `execve(2)` says `ENOEXEC` for both.
pub fn parse(head: &[u8; HEAD_BYTES]) -> Result<Script<'_>, ScriptError> {
    let newline = head.iter().position(|b| matches!(b, b'\n' | 0));
    let end = match newline.filter(|at| head[*at] == b'\n') {
        Some(at) => at,
        None => {
            // Without an end of the line in sight, the path at least must be complete.
            let path = head[2..].iter().skip_while(|b| is_blank(**b));
            if path.clone().next().is_none() {
                return Err(ScriptError::NoInterpreter);
            }
            if !path.copied().any(ends_word) {
                return Err(ScriptError::TooLong);
            }
            HEAD_BYTES - 1
        }
    };
    let line = &head[2..end.max(2)];
    let blanks_behind = line.iter().rev().take_while(|b| is_blank(**b)).count();
    let line = &line[..line.len() - blanks_behind];
    let start = line
        .iter()
        .position(|b| !is_blank(*b))
        .ok_or(ScriptError::NoInterpreter)?;
    let (interpreter, rest) = split(&line[start..], ends_word);
    let is_separated = rest.first().copied().is_some_and(is_blank);
    let argument = is_separated.then(|| {
        let blanks = rest.iter().take_while(|b| is_blank(**b)).count();
        split(&rest[blanks..], |byte| byte == 0).0
    });
    Ok(Script {
        interpreter,
        argument,
    })
}

/// Splits before the first byte that `ends`.
fn split(bytes: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let at = bytes.iter().position(|b| ends(*b)).unwrap_or(bytes.len());
    bytes.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, Script, ScriptError, parse};
    use proptest::prelude::{any, proptest};

    fn head(text: &[u8]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let len = text.len().min(HEAD_BYTES);
        head[..len].copy_from_slice(&text[..len]);
        head
    }

    fn check(text: &[u8], interpreter: &[u8], argument: Option<&[u8]>) {
        let head = head(text);
        let wanted = Script {
            interpreter,
            argument,
        };
        assert_eq!(parse(&head), Ok(wanted), "{}", text.escape_ascii());
    }

    #[test]
    fn usual_lines() {
        check(b"#!/bin/sh\necho", b"/bin/sh", None);
        check(b"#! \t/bin/sh \t\n", b"/bin/sh", None);
        check(b"#!/bin/sh -e\n", b"/bin/sh", Some(b"-e"));
        check(
            b"#!/usr/bin/env -S a  b \n",
            b"/usr/bin/env",
            Some(b"-S a  b"),
        );
        check(b"#!sh\n", b"sh", None);
        check(b"#!/bin/sh\r\n", b"/bin/sh\r", None);
    }

    #[test]
    fn lines_without_an_end() {
        check(b"#!/bin/sh", b"/bin/sh", None);
        check(b"#!/bin/sh -x", b"/bin/sh", Some(b"-x"));
        check(b"#!/bin/sh ", b"/bin/sh", Some(b""));
        check(b"#!", b"", None);
        let mut long = b"#!/bin/sh ".to_vec();
        long.resize(300, b'x');
        check(&long, b"/bin/sh", Some(&long[10..255]));
        long[9] = b'y';
        assert_eq!(parse(&head(&long)), Err(ScriptError::TooLong));
        long[2..].fill(b' ');
        assert_eq!(parse(&head(&long)), Err(ScriptError::NoInterpreter));
    }

    #[test]
    fn lines_with_nothing() {
        assert_eq!(parse(&head(b"#!\n")), Err(ScriptError::NoInterpreter));
        assert_eq!(parse(&head(b"#! \t \n")), Err(ScriptError::NoInterpreter));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>, last in any::<u8>()) {
            let mut head = head(&[b"#!", &bytes[..]].concat());
            head[HEAD_BYTES - 1] = last;
            let _ = parse(&head);
        }
    }
}
