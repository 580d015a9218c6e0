// SPDX-License-Identifier: Apache-2.0
//! The lines of the control channel, decision 0002.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Longest line either side sends, in bytes, without its line feed.
pub const MAX_LINE: usize = 4096;

/// What the guest tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The kernel is up and starts the program.
    Booted {
        /// Nanoseconds since the kernel's first instruction.
        t_ns: u64,
        /// Time of each boot step's end.
        #[serde(default)]
        laps: Vec<(String, u64)>,
        /// Version of the kernel.
        #[serde(default)]
        kernel: String,
    },
    /// The application's first `listen` on a port.
    Listening {
        /// Nanoseconds since the kernel's first instruction.
        t_ns: u64,
        /// `tcp` or `udp`.
        proto: String,
        /// The port in the guest.
        port: u16,
    },
    /// The application ended, or could not begin.
    Exit {
        /// Nanoseconds since the kernel's first instruction.
        t_ns: u64,
        /// `exit`, `signal`, `out-of-memory`, `panic` or `exec`.
        reason: String,
        /// What a shell would show.
        code: u8,
        /// The signal, when one was the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<u8>,
        /// More in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// Something about the program that whoever runs it should know.
    Warning {
        /// Nanoseconds since the kernel's first instruction.
        t_ns: u64,
        /// In words.
        text: String,
    },
    /// A system call, to who asked by [`Op::Trace`].
    Call {
        /// When it began, in nanoseconds since the kernel's first instruction.
        t_ns: u64,
        /// How long it took, waiting included; nothing for a call that does not come back.
        #[serde(default)]
        took_ns: Option<u64>,
        /// Number of the thread.
        tid: u32,
        /// Name of the thread.
        thread: String,
        /// Name of the call.
        call: String,
        /// Its arguments as text.
        arguments: String,
        /// A number, an address, or the name of an errno.
        result: String,
        /// The path that was not found.
        #[serde(default)]
        path: Option<String>,
    },
    /// How often a system call was made while [`Show::Counts`] was on.
    Count {
        /// Name of the call.
        call: String,
        /// How often.
        calls: u64,
        /// How often it failed.
        errors: u64,
        /// Time in it, in nanoseconds, waiting included.
        ns: u64,
    },
    /// Lines of the trace that somebody on the way had no room for.
    Dropped {
        /// How many.
        lines: u64,
    },
    /// The trace is off; everything it had to say has been said.
    Traced,
    /// Somebody else traces already. Only the monitor says it.
    Busy,
    /// Answer to [`Op::Counters`].
    Counters {
        /// Nanoseconds since the kernel's first instruction.
        t_ns: u64,
        /// The counters by name.
        #[serde(flatten)]
        values: BTreeMap<String, serde_json::Value>,
    },
    /// The VMM is gone. Only the monitor says it, to other `coracle` processes, as its last line.
    Ended {
        /// How the instance ended.
        exit: crate::instance::Exit,
    },
    /// A kind this version does not know; ignored.
    #[serde(other)]
    Unknown,
}

/// What the host asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Send a signal to the application.
    Signal {
        /// Its number.
        number: u8,
    },
    /// Ask for counters.
    Counters,
    /// There will be no more standard input.
    Eof {
        /// How many bytes were sent to the console in all.
        bytes: u64,
    },
    /// Show system calls, or show them no more.
    Trace {
        /// What of them.
        show: Show,
    },
    /// End the VMM at once. Only the monitor understands it; it is not passed to the guest.
    Kill,
}

/// What [`Op::Trace`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Show {
    /// Each call.
    Calls,
    /// Counts, when it ends.
    Counts,
    /// Calls that did not find a file.
    Missing,
    /// Nothing any more.
    Nothing,
}

impl Show {
    const fn word(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Counts => "counts",
            Self::Missing => "missing",
            Self::Nothing => "nothing",
        }
    }
}

impl Op {
    /// The line to send, with its line feed.
    #[must_use]
    pub fn line(self) -> Vec<u8> {
        let mut line = match self {
            Self::Signal { number } => format!("{{\"op\":\"signal\",\"number\":{number}}}"),
            Self::Counters => "{\"op\":\"counters\"}".to_owned(),
            Self::Eof { bytes } => format!("{{\"op\":\"eof\",\"bytes\":{bytes}}}"),
            Self::Trace { show } => format!("{{\"op\":\"trace\",\"show\":\"{}\"}}", show.word()),
            Self::Kill => "{\"op\":\"kill\"}".to_owned(),
        };
        line.push('\n');
        line.into_bytes()
    }
}

/// Cuts a stream of bytes into lines. Lines over [`MAX_LINE`] are dropped whole.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
    skipping: bool,
}

impl Lines {
    /// Takes what was read and answers the lines that ended in it, without line feeds.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.partial);
                if !std::mem::take(&mut self.skipping) && !line.is_empty() {
                    complete.push(line);
                }
            } else if !self.skipping {
                self.partial.push(byte);
                if self.partial.len() > MAX_LINE {
                    self.partial.clear();
                    self.skipping = true;
                }
            }
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_the_decision_are_understood() {
        let exit: Event = serde_json::from_str(
            r#"{"event":"exit","t_ns":5,"reason":"signal","signal":11,"code":139,"detail":"thread 1"}"#,
        )
        .unwrap();
        assert_eq!(
            exit,
            Event::Exit {
                t_ns: 5,
                reason: "signal".into(),
                code: 139,
                signal: Some(11),
                detail: Some("thread 1".into())
            }
        );
        let booted: Event = serde_json::from_str(
            r#"{"event":"booted","t_ns":9,"laps":[["memory",3],["net",7]],"kernel":"0.1.0"}"#,
        )
        .unwrap();
        assert!(matches!(booted, Event::Booted { laps, .. } if laps[1] == ("net".to_owned(), 7)));
        let counters: Event =
            serde_json::from_str(r#"{"event":"counters","t_ns":1,"syscalls":4}"#).unwrap();
        assert!(matches!(counters, Event::Counters { values, .. } if values["syscalls"] == 4));
        assert_eq!(
            serde_json::from_str::<Event>(r#"{"event":"new","x":1}"#).unwrap(),
            Event::Unknown
        );
    }

    #[test]
    fn lines_of_the_trace_are_understood() {
        let call: Event = serde_json::from_str(
            r#"{"event":"call","t_ns":7,"tid":2,"thread":"w\"x","call":"openat","arguments":"path=\"/x\"","result":"ENOENT","took_ns":9,"path":"/x"}"#,
        )
        .unwrap();
        assert_eq!(
            call,
            Event::Call {
                t_ns: 7,
                took_ns: Some(9),
                tid: 2,
                thread: "w\"x".into(),
                call: "openat".into(),
                arguments: "path=\"/x\"".into(),
                result: "ENOENT".into(),
                path: Some("/x".into()),
            }
        );
        let all = r#"{"event":"count","call":"read","calls":3,"errors":1,"ns":5}"#;
        assert!(matches!(
            serde_json::from_str(all).unwrap(),
            Event::Count {
                calls: 3,
                errors: 1,
                ns: 5,
                ..
            }
        ));
        let traced: Event = serde_json::from_str(r#"{"event":"traced"}"#).unwrap();
        assert_eq!(traced, Event::Traced);
    }

    #[test]
    fn ops_are_written_as_the_decision_says() {
        assert_eq!(
            Op::Signal { number: 15 }.line(),
            b"{\"op\":\"signal\",\"number\":15}\n"
        );
        for op in [
            Op::Signal { number: 2 },
            Op::Counters,
            Op::Eof { bytes: 1 << 40 },
            Op::Trace { show: Show::Calls },
            Op::Trace { show: Show::Counts },
            Op::Trace {
                show: Show::Missing,
            },
            Op::Trace {
                show: Show::Nothing,
            },
            Op::Kill,
        ] {
            assert_eq!(serde_json::from_slice::<Op>(&op.line()).unwrap(), op);
        }
    }

    #[test]
    fn lines_are_cut_across_reads_and_long_ones_dropped() {
        let mut lines = Lines::default();
        assert!(lines.feed(b"ab").is_empty());
        assert_eq!(lines.feed(b"c\n\nd\ne"), [b"abc".to_vec(), b"d".to_vec()]);
        assert_eq!(lines.feed(b"\n"), [b"e".to_vec()]);
        assert!(lines.feed(&[b'x'; MAX_LINE + 1]).is_empty());
        assert_eq!(lines.feed(b"xx\nok\n"), [b"ok".to_vec()]);
        let longest = [b'y'; MAX_LINE];
        assert!(lines.feed(&longest).is_empty());
        assert_eq!(lines.feed(b"\n"), [longest.to_vec()]);
    }
}
