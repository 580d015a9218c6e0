// SPDX-License-Identifier: Apache-2.0
//! Says how far a run is: a bar with the time left on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use coracle_lab::run::progress::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// Writes to standard error.
pub(super) struct Shown {
    /// None where there is no terminal.
    bar: Option<ProgressBar>,
    /// Seconds of work, as expected, of all and done.
    all: f64,
    done: f64,
    /// Expected before the present experiment began: earlier ones of the same command.
    began: Instant,
    last: String,
}

impl Shown {
    pub(super) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            let style = ProgressStyle::with_template("{prefix} {bar:24} {percent:>3}%  {wide_msg}");
            // The template is a constant; without it the bar has its own look.
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_secs(1));
            bar
        });
        Self {
            bar,
            all: 0.0,
            done: 0.0,
            began: Instant::now(),
            last: String::new(),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Time left, by what the part that is done took instead of what was expected.
    fn left(&self) -> String {
        let took = self.began.elapsed().as_secs_f64();
        // The expectation counts as much as ten seconds of experience.
        let pace = (took + 10.0) / (self.done + 10.0);
        let seconds = ((self.all - self.done).max(0.0) * pace).round();
        match seconds {
            0.0..120.0 => format!("{seconds:.0} s left"),
            120.0..7200.0 => format!("{:.0} min left", seconds / 60.0),
            _ => format!("{:.1} h left", seconds / 3600.0),
        }
    }

    fn show(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}  {}", self.left(), self.last));
        }
    }
}

impl Progress for Shown {
    fn begin(&mut self, experiment: &str, seconds: f64) {
        (self.all, self.done, self.began) = (seconds, 0.0, Instant::now());
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(experiment.to_owned());
                bar.set_length(milliseconds(seconds));
                bar.set_position(0);
            }
            None => eprintln!("{experiment}: about {:.0} s", seconds.ceil()),
        }
        self.show();
    }

    fn now(&mut self, what: &str) {
        what.clone_into(&mut self.last);
        self.show();
    }

    fn done(&mut self, seconds: f64) {
        self.done += seconds;
        if let Some(bar) = &self.bar {
            bar.set_position(milliseconds(self.done));
        }
        self.show();
    }

    fn say(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

/// For the bar, which counts in whole numbers.
fn milliseconds(seconds: f64) -> u64 {
    let time = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
