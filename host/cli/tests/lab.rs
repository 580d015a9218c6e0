// SPDX-License-Identifier: Apache-2.0
//! `coracle lab`: lists, runs and what it says of wrong input. The unikernel's VMM is the script of `common`.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use common::{Done, World, eventually};

/// A program that prints a figure and ends; it runs twice.
const CALLS: &str = r#"schema = 1
title = "Calls"
question = "What does a call cost?"
study = "004"
platforms = ["unikernel"]

[repetitions]
full = 2
quick = 1

[[service]]
name = "calls"
image = "hello"
ready = "exit"
memory = "32M"

[[workload]]
name = "cost"
kind = "batch"
with = { timeout_s = 20 }
"#;

const FIGURE: &str = r#"{"metric":"getpid_ns","value":151.5,"cpu":"first"}"#;

/// A world with experiments of these names and texts.
fn world(experiments: &[(&str, &str)]) -> World {
    let world = World::new();
    for (name, text) in experiments {
        let folder = world.path("experiments").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("experiment.toml"), text).unwrap();
    }
    world
}

fn lab(world: &World, behaviour: &str, args: &[&str]) -> Done {
    let output = world
        .coracle(&[&["lab"], args].concat())
        .env("BEHAVIOUR", behaviour)
        .env("PRINT", FIGURE)
        .output()
        .unwrap();
    Done::from(output)
}

/// The records of a kind in a result.
fn records(folder: &Path, kind: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.join("result.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record["record"] == kind)
        .collect()
}

#[test]
fn experiments_are_listed() {
    let world = world(&[("calls", CALLS), ("a", CALLS)]);
    let table = lab(&world, "exit", &["list"]);
    assert_eq!(table.code, 0, "{table:?}");
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines[1].starts_with("a ") && lines[2].contains("004"));
    assert_eq!(
        lab(&world, "exit", &["list", "-o", "name"]).stdout,
        "a\ncalls\n"
    );
    let json = lab(
        &world,
        "exit",
        &["list", "-o", "json", "--filter", "name=call"],
    );
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json[0]["workloads"][0], "cost");
    assert_eq!(json.as_array().unwrap().len(), 1);
    // From below, and from elsewhere.
    let below = world
        .coracle(&["lab", "list", "-o", "name"])
        .current_dir(world.path("experiments/a"))
        .output()
        .unwrap();
    assert_eq!(below.stdout, b"a\ncalls\n");
    let folder = world.path("experiments");
    let named = world
        .coracle(&["lab", "list", "-o", "name", "--experiments"])
        .arg(folder)
        .current_dir("/")
        .output()
        .unwrap();
    assert_eq!(named.stdout, b"a\ncalls\n");
}

#[test]
fn wrong_input_is_one_line() {
    let broken = CALLS.replace("platforms = [\"unikernel\"]", "platforms = [\"unikernal\"]");
    let both = world(&[("broken", &broken), ("calls", CALLS)]);
    let listed = lab(&both, "exit", &["list", "-o", "name"]);
    listed.fails(
        125,
        &["broken/experiment.toml:5:", "did you mean \"unikernel\"?"],
    );
    assert_eq!(listed.stdout, "calls\n", "the others are listed");
    let world = world(&[("calls", CALLS)]);
    for (args, parts) in [
        (&["run", "cals"][..], &["did you mean \"calls\"?"][..]),
        (&["run"], &["coracle lab list", "--all"]),
        (
            &["run", "calls", "--platforms", "linuxvm"],
            &["--platforms", "did you mean \"linux-vm\"?"],
        ),
        (
            &["run", "calls", "--services", "cals"],
            &["did you mean \"calls\"?"],
        ),
        (
            &["run", "calls", "--workloads", "coast"],
            &["did you mean \"cost\"?"],
        ),
        (
            &["run", "--resume", "nowhere"],
            &["nowhere", "No such file"],
        ),
        (
            &["run", "calls", "--experiments", "nowhere"],
            &["nowhere", "No such file"],
        ),
        (
            &["list", "--filter", "size=3"],
            &["--filter size=3", "name=PART"],
        ),
    ] {
        lab(&world, "exit", args).fails(125, parts);
    }
    for args in [
        &["run", "calls", "--all"][..],
        &["run", "calls", "--repetitions", "0"],
        &["run", "--resume", "a", "--quick"],
        &["lsit"],
    ] {
        let done = lab(&world, "exit", args);
        assert_eq!(done.code, 125, "{args:?}: {done:?}");
    }
    assert!(!world.path("results").exists());
    world.assert_clean();
}

#[test]
fn a_missing_image_is_one_line() {
    let text = CALLS.replace("image = \"hello\"", "image = \"build/none.tar\"");
    let world = world(&[("calls", &text)]);
    lab(&world, "exit", &["run", "calls"])
        .fails(125, &["build/none.tar", "service calls", "how to make it"]);
    assert!(!world.path("results").exists());
}

#[test]
fn a_dry_run_shows_the_order_of_the_seed() {
    let world = world(&[("calls", CALLS)]);
    let dry = |seed| {
        lab(
            &world,
            "exit",
            &["run", "calls", "--dry-run", "--seed", seed],
        )
    };
    let done = dry("5");
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(done.stdout.lines().count(), 3);
    assert!(
        done.stdout.contains("round 2/2  calls on unikernel") && done.stdout.contains("seed 5")
    );
    assert_eq!(done.stdout, dry("5").stdout);
    assert!(!world.path("results").exists());
}

#[test]
fn a_run_gives_a_result_and_a_report() {
    let world = world(&[("calls", CALLS)]);
    let done = lab(&world, "print", &["run", "calls"]);
    assert_eq!(done.code, 0, "{done:?}");
    let report = PathBuf::from(done.stdout.trim());
    assert!(
        fs::read_to_string(&report)
            .unwrap()
            .contains("What does a call cost?")
    );
    let folder = report.parent().unwrap().to_owned();
    let samples = records(&folder, "sample");
    assert_eq!(samples.len(), 2, "{done:?}");
    assert_eq!(samples[0]["metrics"]["getpid_ns"], 151.5);
    assert_eq!(samples[0]["point"]["cpu"], "first");
    assert_eq!(records(&folder, "end")[0]["interrupted"], false);
    let run = &records(&folder, "run")[0];
    assert!(
        run["images"]["calls"]["digest"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
    world.assert_clean();
    // A result is not overwritten.
    let folder = folder.to_str().unwrap();
    lab(&world, "print", &["run", "calls", "--output", folder])
        .fails(125, &["there is a result already", "--resume"]);
}

#[test]
fn what_fails_is_in_the_result_and_in_the_exit_code() {
    let world = world(&[("calls", CALLS)]);
    let done = lab(&world, "crash", &["run", "calls", "--output", "out"]);
    assert_eq!(done.code, 1, "{done:?}");
    let failures = records(&world.path("out"), "failure");
    assert_eq!(failures.len(), 2, "one in each round");
    assert_eq!(failures[0]["workload"], "cost");
    assert!(world.path("out/report.html").is_file());
    world.assert_clean();
}

/// Starts a run of a guest that never ends, and waits until it is there.
fn hang(world: &World, args: &[&str]) -> Child {
    let child = world
        .coracle(&[&["lab", "run", "--output", "out"], args].concat())
        .env("BEHAVIOUR", "deaf")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("an instance runs", || !world.instances().is_empty());
    child
}

fn signal(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args([signal, &pid])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn ctrl_c_keeps_what_is_measured_and_resume_goes_on() {
    let world = world(&[("calls", CALLS), ("zz", CALLS)]);
    let child = hang(&world, &["--all"]);
    signal(&child, "-INT");
    let done = Done::from(child.wait_with_output().unwrap());
    assert_eq!(done.code, 130, "{done:?}");
    assert!(done.stderr.contains("--resume out"), "{done:?}");
    world.assert_clean();
    let first = world.path("out/calls");
    assert_eq!(records(&first, "end")[0]["interrupted"], true);
    let done = lab(&world, "print", &["run", "--resume", "out"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(records(&first, "sample").len(), 2);
    assert_eq!(records(&first, "resumed").len(), 1);
    // The one that had not begun is run too, and the report is on both.
    assert_eq!(records(&world.path("out/zz"), "sample").len(), 2);
    assert!(world.path("out/report.html").is_file());
    // Nothing is left to do.
    let again = lab(&world, "print", &["run", "--resume", "out"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(records(&first, "sample").len(), 2);
}

#[test]
fn a_killed_run_is_cleaned_up_by_the_next_and_goes_on() {
    let world = world(&[("calls", CALLS)]);
    let mut child = hang(&world, &["calls"]);
    signal(&child, "-KILL");
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(!world.processes().is_empty(), "its guest still runs");
    let done = lab(&world, "print", &["run", "--resume", "out"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.stderr.contains("removed what a killed run left"),
        "{done:?}"
    );
    assert_eq!(records(&world.path("out"), "sample").len(), 2);
    world.assert_clean();
}

#[test]
fn a_result_of_another_version_is_refused() {
    let world = world(&[("calls", CALLS)]);
    assert_eq!(
        lab(&world, "print", &["run", "calls", "--output", "out"]).code,
        0
    );
    let file = world.path("out/result.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"schema\":1", "\"schema\":9", 1)).unwrap();
    let done = lab(&world, "print", &["run", "--resume", "out"]);
    done.fails(125, &["out/result.jsonl", "schema version 9", "version 1"]);
}
