// SPDX-License-Identifier: Apache-2.0
//! Names a process beyond its pid, so that a pid used again is not taken for it.
//!
//! Source: `proc_pid_stat(5)`, field 22.

use serde::{Deserialize, Serialize};

/// A process of this boot of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid.
    pub pid: i32,
    /// When the process started, in clock ticks since the host booted.
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has `pid` now; `None` if there is none, or only its zombie.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start_ticks = parse_start(&stat)?;
        Some(Self { pid, start_ticks })
    }

    /// The calling process.
    #[must_use]
    pub fn current() -> Option<Self> {
        Self::of(nix::unistd::getpid().as_raw())
    }

    /// Whether exactly this process still runs.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Kills the process if it still is the one that was recorded; answers whether it was.
    ///
    /// The pid is checked right before. A process that ends between the check and the signal leaves a moment in which
    /// the number could be used again; the kernel hands numbers out in a circle, so that takes thousands of new ones.
    #[must_use]
    pub fn kill(self) -> bool {
        self.is_alive()
            && nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(self.pid),
                nix::sys::signal::SIGKILL,
            )
            .is_ok()
    }
}

/// Start time out of a `stat` line. The command name in parentheses may hold blanks and parentheses itself.
fn parse_start(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let tail = (4..=52)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(parse_start(&format!("7 (a) b (c) S {tail}")), Some(22));
        assert_eq!(parse_start(&format!("7 (a) Z {tail}")), None);
    }

    #[test]
    fn the_same_pid_with_another_start_is_another_process() {
        let me = ProcessId::current().unwrap();
        assert!(me.is_alive());
        let other = ProcessId {
            start_ticks: me.start_ticks + 1,
            ..me
        };
        assert!(!other.is_alive());
        assert!(!other.kill());
    }
}
