// SPDX-License-Identifier: Apache-2.0

//! Which processors the server's side and the load generator get: different ones where the machine has enough, and a remark
//! where it has not.

use std::collections::BTreeMap;
use std::fs;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// The processors of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    /// Of the process, container or VMM.
    pub server: Vec<usize>,
    /// Of the load generator.
    pub generator: Vec<usize>,
    /// They share processors, or the two threads of one core.
    pub shared: bool,
}

/// The processors this process may use, those of different cores first, each with its core.
#[derive(Clone, Debug)]
pub struct Processors {
    /// Processor and core.
    list: Vec<(usize, usize)>,
}

impl Processors {
    /// Those of this machine.
    #[must_use]
    pub fn here() -> Processors {
        let allowed = sched_getaffinity(Pid::from_raw(0));
        let allowed = |cpu: usize| {
            let is_set = |set: &CpuSet| set.is_set(cpu).unwrap_or(false);
            allowed.as_ref().is_ok_and(is_set)
        };
        let list: Vec<usize> = (0..CpuSet::count()).filter(|&cpu| allowed(cpu)).collect();
        Processors::of(list.into_iter().map(|cpu| (cpu, core_of(cpu))))
    }

    fn of(list: impl Iterator<Item = (usize, usize)>) -> Processors {
        let mut threads = BTreeMap::new();
        let mut numbered: Vec<(usize, usize, usize)> = list
            .map(|(cpu, core)| {
                let thread = threads.entry(core).or_insert(0);
                *thread += 1;
                (*thread, cpu, core)
            })
            .collect();
        numbered.sort_unstable();
        Processors {
            list: numbered
                .into_iter()
                .map(|(_, cpu, core)| (cpu, core))
                .collect(),
        }
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The first `vcpus` for the server, the rest for the generator, without the second threads of the server's cores if
    /// others are left. With too few both get all.
    #[must_use]
    pub fn pins(&self, vcpus: u32) -> Pins {
        let all: Vec<usize> = self.list.iter().map(|(cpu, _)| *cpu).collect();
        let wanted = usize::try_from(vcpus).unwrap_or(usize::MAX);
        if wanted >= all.len() {
            return Pins {
                server: sorted(all.clone()),
                generator: sorted(all),
                shared: true,
            };
        }
        let (server, rest) = self.list.split_at(wanted);
        let apart: Vec<usize> = rest
            .iter()
            .filter(|(_, core)| server.iter().all(|(_, other)| other != core))
            .map(|(cpu, _)| *cpu)
            .collect();
        let shared = apart.is_empty();
        let generator = if shared {
            rest.iter().map(|(cpu, _)| *cpu).collect()
        } else {
            apart
        };
        Pins {
            server: sorted(server.iter().map(|(cpu, _)| *cpu).collect()),
            generator: sorted(generator),
            shared,
        }
    }
}

fn sorted(mut list: Vec<usize>) -> Vec<usize> {
    list.sort_unstable();
    list
}

/// The lowest processor of the same core, as its name.
fn core_of(cpu: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = fs::read_to_string(path).unwrap_or_default();
    let first = text.split([',', '-', '\n']).next().unwrap_or_default();
    first.parse().unwrap_or(cpu)
}

/// As `taskset -c` writes it: `0-3,8`.
#[must_use]
pub fn list(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts: Vec<String> = ranges
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(list: &[(usize, usize)], vcpus: u32) -> Pins {
        Processors::of(list.iter().copied()).pins(vcpus)
    }

    #[test]
    fn two_cores_are_shared_out() {
        let two = [(0, 0), (1, 1)];
        let one = pins(&two, 1);
        assert_eq!(
            (one.server, one.generator, one.shared),
            (vec![0], vec![1], false)
        );
        let both = pins(&two, 2);
        assert_eq!(
            (both.server, both.generator, both.shared),
            (vec![0, 1], vec![0, 1], true)
        );
        assert!(pins(&[(0, 0)], 1).shared);
    }

    #[test]
    fn threads_of_one_core_are_told_from_cores() {
        // Four cores with two threads each: 0 and 4 are of one core.
        let list: Vec<(usize, usize)> = (0..8).map(|cpu| (cpu, cpu % 4)).collect();
        let two = pins(&list, 2);
        assert_eq!(two.server, [0, 1]);
        assert_eq!(
            two.generator,
            [2, 3, 6, 7],
            "not 4 and 5, which are the server's cores"
        );
        assert!(!two.shared);
        let four = pins(&list, 4);
        assert_eq!((four.generator, four.shared), (vec![4, 5, 6, 7], true));
        assert!(pins(&[(0, 0), (1, 0)], 1).shared);
    }

    #[test]
    fn lists_are_as_taskset_writes_them() {
        assert_eq!(list(&[0]), "0");
        assert_eq!(list(&[0, 1, 2, 5]), "0-2,5");
        assert_eq!(list(&[]), "");
        assert!(Processors::here().count() > 0);
    }
}
