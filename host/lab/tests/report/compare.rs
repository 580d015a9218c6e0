// SPDX-License-Identifier: Apache-2.0

//! What changed between two results, with known changes.

use std::path::PathBuf;

use crate::synthetic::{Synthetic, VM, kinds, stress};
use coracle_lab::report::{Changed, Comparison, compare};

fn compared(before: &Synthetic, after: &Synthetic) -> coracle_lab::Result<Comparison> {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = [("a", before), ("b", after)]
        .into_iter()
        .map(|(name, result)| {
            let path = folder.path().join(name);
            result.write(&path);
            path
        })
        .collect();
    compare(&paths[0], &paths[1])
}

fn figure<'a>(
    found: &'a Comparison,
    platform: &str,
    metric: &str,
    connections: &str,
) -> &'a Changed {
    found
        .figures
        .iter()
        .find(|figure| {
            figure.platform == platform
                && figure.metric == metric
                && figure
                    .point
                    .get("connections")
                    .is_none_or(|value| value == connections)
        })
        .unwrap()
}

#[test]
fn a_slower_kernel_is_seen_and_nothing_else() {
    let found = compared(&stress::result(8), &stress::with_rate(8, 0.8, VM)).unwrap();
    assert!(found.differences.is_empty(), "{:?}", found.differences);
    let slower = figure(&found, "unikernel", "throughput_per_s", "40");
    assert_eq!(slower.change, "worse");
    assert!((slower.ratio.unwrap().ratio - 0.8).abs() < 0.05);
    assert_ne!(
        figure(&found, "linux-vm", "throughput_per_s", "40").change,
        "worse"
    );
    assert_eq!(
        figure(&found, "unikernel", "image_bytes", "").change,
        "no difference"
    );
    let worse = found.worse(0.1);
    assert!(
        !worse.is_empty() && worse.iter().all(|figure| figure.platform == "unikernel"),
        "{worse:?}"
    );
    assert!(found.worse(0.9).is_empty());
    let lines = found.table(false);
    assert!(
        lines
            .iter()
            .any(|line| line[0] == "unikernel" && line[7].starts_with("worse, -")),
        "{lines:?}"
    );
    assert!(found.table(true).len() > lines.len());
    assert!(found.summary().contains("worse"));
}

#[test]
fn few_rounds_change_nothing() {
    let found = compared(&stress::result(3), &stress::with_rate(3, 0.5, VM)).unwrap();
    assert_eq!(
        figure(&found, "unikernel", "throughput_per_s", "40").change,
        "not settled"
    );
    assert!(found.worse(0.0).is_empty());
    assert!(
        found
            .remarks
            .iter()
            .any(|remark| remark.contains("--repetitions 5")),
        "{:?}",
        found.remarks
    );
}

#[test]
fn another_substrate_is_said_and_not_compared() {
    let found = compared(
        &stress::result(5),
        &stress::with_rate(5, 1.0, "qemu 10.0, microvm, kvm"),
    )
    .unwrap();
    let figure = figure(&found, "unikernel", "throughput_per_s", "40");
    assert_eq!((figure.change, figure.ratio), ("other substrate", None));
    let names: Vec<&str> = found
        .differences
        .iter()
        .map(|difference| difference.what.as_str())
        .collect();
    assert_eq!(names, ["substrate: linux-vm", "substrate: unikernel"]);
}

#[test]
fn results_of_different_experiments_are_refused() {
    let error = compared(&stress::result(1), &kinds::batch())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("stress") && error.contains("cost"),
        "{error}"
    );
}
