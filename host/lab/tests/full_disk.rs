// SPDX-License-Identifier: Apache-2.0

//! A full disk costs no measurement. The test runs itself again where it may mount a small file system.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use coracle_lab::record::{Cell, Record, Run, SCHEMA, Sample, Selection, Writer, read};

/// Names the folder for the second run.
const FOLDER: &str = "CORACLE_TEST_SMALL_DISK";

fn sample(number: u32) -> Record {
    Record::Sample(Sample {
        session: number,
        round: 0,
        cell: Cell {
            platform: "unikernel".into(),
            service: "go".into(),
            vcpus: 1,
        },
        workload: "stress".into(),
        point: BTreeMap::new(),
        metrics: BTreeMap::from([("throughput_per_s".into(), f64::from(number))]),
        errors: BTreeMap::new(),
        latency: Some("x".repeat(20_000)),
        series: BTreeMap::new(),
        raw: None,
        partial: false,
    })
}

#[test]
fn what_was_measured_when_the_disk_was_full_is_kept() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--map-root-user", "sh", "-c"]);
    let may = shell
        .arg("mount -t tmpfs none \"$0\"")
        .arg(folder.path())
        .output();
    if !may.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: this host lets nobody mount in a namespace of their own");
        return;
    }
    let done = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg("mount -t tmpfs -o size=3m none \"$0\" && exec \"$1\" --exact what_was_measured_when_the_disk_was_full_is_kept")
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

fn fill(disk: &Path) {
    let folder = disk.join("result");
    let run = Run {
        schema: SCHEMA,
        experiment: "rest".into(),
        text: String::new(),
        quick: true,
        selection: Selection::default(),
        seed: 7,
        started: String::new(),
        command: Vec::new(),
        commit: None,
        host: BTreeMap::new(),
        tools: BTreeMap::new(),
        platforms: Vec::new(),
        images: BTreeMap::new(),
        remarks: Vec::new(),
    };
    let mut writer = Writer::create(&folder, run).unwrap();
    let mut measured = 0;
    let error = loop {
        measured += 1;
        assert!(measured < 1000, "the disk is never full");
        // Raw outputs fill the disk too, and are the first to be left out.
        let raw = writer.raw(&format!("{measured}.txt"), &"y".repeat(10_000));
        if raw.is_none() {
            assert!(!folder.join(format!("raw/{measured}.txt")).exists());
        }
        if let Err(error) = writer.write(vec![sample(measured)]) {
            break error;
        }
    };
    let text = error.to_string();
    assert!(error.ends_run());
    assert!(
        text.contains("No space left") && text.contains("nothing measured was lost"),
        "{text}"
    );
    assert!(text.contains("--resume") && !text.contains('\n'), "{text}");
    drop(writer);
    let recorded = read(&folder).unwrap();
    assert_eq!(recorded.samples.len(), usize::try_from(measured).unwrap());
    assert!(!recorded.torn);
    // With room again it goes on.
    fs::remove_dir_all(folder.join("raw")).unwrap();
    let (_, mut writer) = Writer::resume(&folder).unwrap();
    writer.write(vec![sample(0)]).unwrap();
}
