// SPDX-License-Identifier: Apache-2.0

//! `/proc` of a process. Source: proc_pid_stat(5), proc_pid_status(5), proc_pid_smaps(5).

use std::collections::BTreeMap;
use std::fs;

/// Units of time in /proc/PID/stat, a second (`USER_HZ`, 100 on x86-64 and arm64).
const CLOCK_TICKS: f64 = 100.0;

/// Of several processes together; `None` if none of them can be read.
pub(super) fn sum(pids: &[u32], one: impl Fn(u32) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = pids.iter().filter_map(|pid| one(*pid)).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// User and system time of a process with all its threads, also those that ended, seconds.
pub(super) fn cpu_s(pid: u32) -> Option<f64> {
    ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|ticks| ticks / CLOCK_TICKS)
}

fn ticks(stat: &str) -> Option<f64> {
    // The command's name, in parentheses, may contain blanks and parentheses; utime and stime are fields 14 and 15.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// A line of `/proc/PID/status` in kB, as bytes.
pub(super) fn status_bytes(pid: u32, field: &str) -> Option<f64> {
    kib(
        &fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        field,
    )
}

/// The proportional set size.
pub(super) fn proportional_bytes(pid: u32) -> Option<f64> {
    kib(
        &fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?,
        "Pss:",
    )
}

fn kib(text: &str, field: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let number: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(number * 1024.0)
}

/// What of a VMM's resident memory is its guest's, which has `guest_memory` bytes, and what is its own.
pub(super) fn guest_and_own_bytes(pid: u32, guest_memory: u64) -> Option<(f64, f64)> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    Some(divided(&smaps, guest_memory / 1024))
}

/// To the guest belong mappings of at least half its memory, and those of a boot bundle or root file. What can be executed
/// is the VMM's own: a buffer of translated code can be as large as a small guest.
fn divided(smaps: &str, memory_kib: u64) -> (f64, f64) {
    let (mut guest, mut own) = (0.0, 0.0);
    let (mut is_guests, mut is_code) = (false, false);
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = || words.get(1).and_then(|number| number.parse::<u64>().ok());
        match words.first() {
            Some(&"Size:") => {
                is_guests |= !is_code && number().is_some_and(|size| size >= memory_kib / 2);
            }
            Some(&"Rss:") => {
                let resident = words.get(1).and_then(|number| number.parse::<f64>().ok());
                *if is_guests { &mut guest } else { &mut own } += resident.unwrap_or(0.0);
            }
            // The first line of a mapping: addresses, permissions, offset, device, inode, path.
            Some(first) if !first.ends_with(':') => {
                is_code = words
                    .get(1)
                    .is_some_and(|permissions| permissions.contains('x'));
                let path = words.get(5).copied().unwrap_or_default();
                is_guests = path.ends_with(".cpio") || path.contains("/coracle/roots/");
            }
            _ => {}
        }
    }
    (guest * 1024.0, own * 1024.0)
}

/// Context switches of every thread: given up, and taken away.
#[derive(Debug, Default)]
pub(super) struct Switches(BTreeMap<(u32, u32), (f64, f64)>);

impl Switches {
    pub(super) fn of(pids: &[u32]) -> Switches {
        let mut all = BTreeMap::new();
        for pid in pids {
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            for entry in tasks.into_iter().flatten().flatten() {
                let Some(thread) = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok())
                else {
                    continue;
                };
                let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
                if let Some(counts) = switches(&status) {
                    all.insert((*pid, thread), counts);
                }
            }
        }
        Switches(all)
    }

    /// Those since; threads that are gone took theirs with them, threads that are new began at none.
    pub(super) fn since(&self, before: &Switches) -> Option<(f64, f64)> {
        let mut sums = (0.0, 0.0);
        for (thread, now) in &self.0 {
            let then = before.0.get(thread).copied().unwrap_or_default();
            sums.0 += now.0 - then.0;
            sums.1 += now.1 - then.1;
        }
        (!self.0.is_empty()).then_some(sums)
    }
}

fn switches(status: &str) -> Option<(f64, f64)> {
    let field = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some((
        field("voluntary_ctxt_switches:")?,
        field("nonvoluntary_ctxt_switches:")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::{divided, kib, switches, ticks};

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(ticks(stat), Some(300.0));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(kib(status, "VmRSS:"), Some(1024.0 * 1024.0));
        assert_eq!(kib(status, "VmSwap:"), None);
        assert_eq!(switches(status), Some((5.0, 3.0)));
    }

    #[test]
    fn memory_of_the_guest_is_told_from_that_of_the_vmm() {
        let smaps = "\
55aa-55bb r-xp 00000000 fe:01 42 /usr/bin/qemu-system-x86_64\nSize: 9000 kB\nRss: 100 kB\nVmFlags: rd\n\
7f00-7f11 rw-p 00000000 00:00 0\nSize: 65536 kB\nRss: 5000 kB\n\
7f22-7f33 rw-p 00000000 fe:01 7 /a/bundle.cpio\nSize: 8000 kB\nRss: 30 kB\n\
7f44-7f55 rwxp 00000000 00:00 0\nSize: 65536 kB\nRss: 2000 kB\n";
        assert_eq!(divided(smaps, 65_536), (5030.0 * 1024.0, 2100.0 * 1024.0));
    }
}
