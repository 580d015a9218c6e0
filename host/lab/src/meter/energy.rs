// SPDX-License-Identifier: Apache-2.0

//! Energy of the processor packages by RAPL, where the host shows it (usually to root only).
//!
//! Source: `Documentation/power/powercap/powercap.rst`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Counters of all packages at a moment.
#[derive(Debug, Default)]
pub(super) struct Energy(BTreeMap<PathBuf, f64>);

impl Energy {
    pub(super) fn read() -> Energy {
        Energy::read_in(Path::new("/sys/class/powercap"))
    }

    fn read_in(folder: &Path) -> Energy {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            // `intel-rapl:0` is a package, `intel-rapl:0:1` a part of it that is counted with it.
            let is_package = name.to_str().is_some_and(|name| {
                name.starts_with("intel-rapl:") && name.matches(':').count() == 1
            });
            if is_package && let Some(value) = number(&entry.path().join("energy_uj")) {
                all.insert(entry.path(), value);
            }
        }
        Energy(all)
    }

    /// Joules since; `None` where there is no counter.
    pub(super) fn since(&self, before: &Energy) -> Option<f64> {
        let mut joules = None;
        for (package, now) in &self.0 {
            let Some(then) = before.0.get(package) else {
                continue;
            };
            let range = || number(&package.join("max_energy_range_uj"));
            // The counter begins again at its end.
            let passed = if now >= then {
                now - then
            } else {
                now + range()? - then
            };
            joules = Some(joules.unwrap_or(0.0) + passed / 1e6);
        }
        joules
    }
}

fn number(path: &Path) -> Option<f64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Energy;

    #[test]
    fn packages_count_and_counters_begin_again() {
        let folder = tempfile::tempdir().unwrap();
        let set = |name: &str, value: &str| {
            let package = folder.path().join(name);
            std::fs::create_dir_all(&package).unwrap();
            std::fs::write(package.join("energy_uj"), value).unwrap();
            std::fs::write(package.join("max_energy_range_uj"), "10000000\n").unwrap();
        };
        set("intel-rapl:0", "9000000\n");
        set("intel-rapl:1", "1000000\n");
        set("intel-rapl:0:0", "5\n");
        let before = Energy::read_in(folder.path());
        set("intel-rapl:0", "500000\n");
        set("intel-rapl:1", "1250000\n");
        let joules = Energy::read_in(folder.path()).since(&before).unwrap();
        assert!((joules - 1.75).abs() < 1e-9, "{joules}");
        let nothing = Energy::read_in(&folder.path().join("none"));
        assert_eq!(nothing.since(&Energy::default()), None);
    }
}
