// SPDX-License-Identifier: Apache-2.0
//! The other end of `control.sock`: how a `coracle` process speaks with the one that watches an instance.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::control::{Event, Lines, Op};
use crate::instance::{Exit, Instance};
use crate::supervise::short_path;

/// A connection to the monitor of a running instance.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    lines: Lines,
    pending: VecDeque<Event>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// What the host answers; `NotFound` and `ConnectionRefused` mean that the instance is not running.
    pub fn open(instance: &Instance) -> io::Result<Self> {
        let (_dir, path) = short_path(&instance.control_socket())?;
        Ok(Self {
            stream: UnixStream::connect(path)?,
            lines: Lines::default(),
            pending: VecDeque::new(),
        })
    }

    /// Sends one op.
    ///
    /// # Errors
    /// What the host answers; `BrokenPipe` means that the instance has ended.
    pub fn send(&mut self, op: Op) -> io::Result<()> {
        self.stream.write_all(&op.line())
    }

    /// The next thing the guest says; `None` when the instance has ended.
    ///
    /// # Errors
    /// `TimedOut` when there was nothing until `deadline`, else what the host answers.
    pub fn next_event(&mut self, deadline: Option<Instant>) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Zero would mean no limit to the socket.
            self.stream
                .set_read_timeout(left.map(|left| left.max(Duration::from_millis(1))))?;
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => {
                    let lines = self.lines.feed(&buffer[..count]);
                    self.pending.extend(
                        lines
                            .iter()
                            .filter_map(|line| serde_json::from_slice(line).ok()),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the instance has ended; answers whether it did before `deadline`.
    ///
    /// # Errors
    /// What the host answers.
    pub fn wait_end(&mut self, deadline: Option<Instant>) -> io::Result<bool> {
        match self.last_words(deadline) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until the monitor closes the connection, and answers what it said last about the end.
    ///
    /// # Errors
    /// `TimedOut` when it did not until `deadline`, else what the host answers.
    pub fn last_words(&mut self, deadline: Option<Instant>) -> io::Result<Option<Exit>> {
        let mut last = None;
        while let Some(event) = self.next_event(deadline)? {
            if let Event::Ended { exit } = event {
                last = Some(exit);
            }
        }
        Ok(last)
    }
}
