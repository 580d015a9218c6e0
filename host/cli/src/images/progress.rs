// SPDX-License-Identifier: Apache-2.0
//! Says how far a transfer is: one line that changes on a terminal, one line for each finished part elsewhere.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use coracle_imager::image::document::Descriptor;

use super::size;

/// How often the line changes.
const INTERVAL: Duration = Duration::from_millis(100);

/// Writes to standard error.
pub(super) struct Progress {
    is_quiet: bool,
    is_terminal: bool,
    last: Cell<Option<Instant>>,
}

impl Progress {
    pub(super) fn new(is_quiet: bool) -> Self {
        Self {
            is_quiet,
            is_terminal: std::io::stderr().is_terminal(),
            last: Cell::new(None),
        }
    }

    /// Says that `done` of `all` bytes of a blob have come or gone.
    pub(super) fn blob(&self, content: &Descriptor, done: u64, all: u64) {
        let is_recent = self.last.get().is_some_and(|at| at.elapsed() < INTERVAL);
        if self.is_quiet || (done < all && (is_recent || !self.is_terminal)) {
            return;
        }
        self.last.set(Some(Instant::now()));
        let what = content.digest.short();
        let mut stderr = std::io::stderr().lock();
        // Standard error that is closed is no reason to stop.
        let _ = match (self.is_terminal, done < all) {
            (true, true) => write!(
                stderr,
                "\r\x1b[KCopying {what}  {} / {}",
                size(done),
                size(all)
            ),
            (true, false) => writeln!(stderr, "\r\x1b[KCopying {what}  {} done", size(all)),
            (false, _) => writeln!(stderr, "Copying {what}  {} done", size(all)),
        };
    }

    /// Says what is being done.
    pub(super) fn say(&self, text: &str) {
        if !self.is_quiet {
            eprintln!("{text}");
        }
    }
}
