// SPDX-License-Identifier: Apache-2.0

//! Whole runs with a platform and a generator of the tests' own.

mod fake;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use self::fake::{Behaviour, FakeLoad, LOAD, SERVICE, experiment, world};
use super::progress::Quiet;
use super::watch::Watch;
use super::{Options, Outcome, resume, run};
use crate::experiment::Loaded;
use crate::record::{Recorded, Sample, Selection, read};
use crate::run::world::World;
use crate::{Error, Result};

use Behaviour::{DiesUnderLoad, Prints, Refuses, Serves, Silent};

fn options() -> Options {
    Options {
        selection: Selection::default(),
        quick: false,
        seed: 1,
        command: vec!["coracle".into()],
    }
}

/// A run in a folder of its own.
struct Done {
    folder: tempfile::TempDir,
    outcome: Result<Outcome>,
    alive: Arc<AtomicU32>,
}

impl Done {
    fn recorded(&self) -> Recorded {
        read(self.folder.path()).unwrap()
    }
}

fn begin(loaded: &Loaded, world: (World, Arc<AtomicU32>), interrupted: &Arc<AtomicBool>) -> Done {
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::new(Arc::clone(interrupted));
    let (mut world, alive) = world;
    let outcome = run(
        loaded,
        &options(),
        Path::new("/"),
        &mut world,
        folder.path(),
        &watch,
        &mut Quiet,
    );
    Done {
        folder,
        outcome,
        alive,
    }
}

fn whole(text: &str, a: Behaviour, b: Behaviour) -> Done {
    let loaded = experiment(text);
    let done = begin(&loaded, world(a, b, FakeLoad::new()), &Arc::default());
    assert_eq!(
        done.alive.load(Ordering::SeqCst),
        0,
        "nothing is left running"
    );
    done
}

/// What identifies a measurement.
fn keys(samples: &[Sample]) -> Vec<(u32, String, String, BTreeMap<String, String>)> {
    let mut keys: Vec<_> = samples
        .iter()
        .filter(|sample| !sample.partial)
        .map(|one| {
            (
                one.round,
                one.cell.platform.clone(),
                one.workload.clone(),
                one.point.clone(),
            )
        })
        .collect();
    keys.sort();
    keys
}

#[test]
fn every_combination_is_measured_in_each_round() {
    let done = whole(&format!("{SERVICE}{LOAD}"), Serves, Serves);
    let recorded = done.recorded();
    assert!(recorded.is_complete());
    assert_eq!(recorded.sessions.len(), 6);
    let keys = keys(&recorded.samples);
    // Two platforms, three rounds: a start and two points.
    assert_eq!(keys.len(), 18);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 18, "each once");
    let start = recorded
        .samples
        .iter()
        .find(|one| one.workload == "start" && one.cell.platform == "a");
    let start = &start.unwrap().metrics;
    assert!(start["first_answer_s"] > 0.0 && start["image_bytes"] == 100.0);
    assert_eq!(start["boot_kernel_ms"], 7.0);
    let load = recorded
        .samples
        .iter()
        .find(|one| one.workload == "load")
        .unwrap();
    assert_eq!(load.metrics["throughput_per_s"], 100.0);
    let raw = std::fs::read_to_string(done.folder.path().join(load.raw.as_ref().unwrap())).unwrap();
    assert_eq!(raw, "$ fake --load\nsaid");
    assert_eq!(
        done.outcome.unwrap(),
        Outcome {
            samples: 18,
            failures: 0,
            interrupted: false
        }
    );
    // The platforms take turns.
    for pair in recorded.sessions.chunks(2) {
        assert_eq!(pair[0].round, pair[1].round);
        assert_ne!(pair[0].cell.platform, pair[1].cell.platform);
    }
}

#[test]
fn a_platform_that_does_not_start_does_not_keep_the_others_from_it() {
    for (behaviour, says) in [
        (Refuses, "no luck today"),
        (Silent, "no right answer within"),
    ] {
        let done = whole(&format!("{SERVICE}{LOAD}"), behaviour, Serves);
        let recorded = done.recorded();
        assert!(recorded.is_complete());
        assert_eq!(recorded.samples.len(), 9, "all of b");
        let starts: Vec<_> = recorded
            .failures
            .iter()
            .filter(|one| one.workload.is_none())
            .collect();
        assert_eq!(starts.len(), 5, "three tries, then one in each later round");
        assert!(starts[0].what.contains(says), "{}", starts[0].what);
        let log = if behaviour == Refuses {
            "it said so"
        } else {
            "the fake's log"
        };
        assert_eq!(starts[0].log, log);
        let missing: Vec<_> = recorded
            .failures
            .iter()
            .filter(|one| one.workload.is_some())
            .collect();
        assert_eq!(missing.len(), 6);
        assert!(
            missing[0].what.contains("not measured"),
            "{}",
            missing[0].what
        );
    }
}

#[test]
fn what_dies_under_load_is_recorded_with_its_log_and_started_again() {
    for load in 0..6 {
        let done = whole(&format!("{SERVICE}{LOAD}"), DiesUnderLoad(load), Serves);
        let recorded = done.recorded();
        assert_eq!(recorded.failures.len(), 1, "load {load}");
        let failure = &recorded.failures[0];
        assert!(failure.what.contains("connection lost"), "{}", failure.what);
        assert!(
            failure.log.contains("what the tool said") && failure.log.contains("the fake's log")
        );
        assert_eq!(failure.workload.as_deref(), Some("load"));
        let loads = recorded
            .samples
            .iter()
            .filter(|one| one.workload == "load")
            .count();
        assert_eq!(loads, 11, "all others were measured");
    }
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_goes_on() {
    let loaded = experiment(&format!("{SERVICE}{LOAD}"));
    for at in 1..=12 {
        let interrupted = Arc::new(AtomicBool::new(false));
        let mut load = FakeLoad::new();
        load.interrupt = Some((at, Arc::clone(&interrupted)));
        let done = begin(&loaded, world(Serves, Serves, load), &interrupted);
        assert!(done.outcome.as_ref().unwrap().interrupted);
        assert_eq!(done.alive.load(Ordering::SeqCst), 0);
        let before = done.recorded();
        assert!(!before.is_complete());
        let loads = before
            .samples
            .iter()
            .filter(|one| one.workload == "load")
            .count();
        assert_eq!(loads, usize::try_from(at).unwrap() - 1);

        let (mut world, _) = world(Serves, Serves, FakeLoad::new());
        let watch = Watch::new(Arc::default());
        let command = vec!["again".into()];
        resume(
            &before,
            &loaded,
            command,
            Path::new("/"),
            &mut world,
            &watch,
            &mut Quiet,
        )
        .unwrap();
        let after = done.recorded();
        assert!(after.is_complete());
        assert_eq!(after.resumed[0].command, ["again"]);
        let loads = |recorded: &Recorded| {
            let mut keys = keys(&recorded.samples);
            keys.retain(|key| key.2 == "load");
            keys
        };
        let all = loads(&after);
        assert_eq!(all.len(), 12, "interrupted at load {at}: each once");
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 12);
        let ids: BTreeSet<u32> = after.sessions.iter().map(|one| one.id).collect();
        assert_eq!(
            ids.len(),
            after.sessions.len(),
            "sessions have numbers of their own"
        );
    }
}

#[test]
fn a_changed_image_is_not_mixed_with_the_old_one() {
    let loaded = experiment(&format!("{SERVICE}{LOAD}"));
    let done = begin(
        &loaded,
        world(Serves, Serves, FakeLoad::new()),
        &Arc::default(),
    );
    let (mut world, _) = world(Serves, Serves, FakeLoad::new());
    world.images.get_mut("web").unwrap().digest = "sha256:2".into();
    let watch = Watch::new(Arc::default());
    let error = resume(
        &done.recorded(),
        &loaded,
        Vec::new(),
        Path::new("/"),
        &mut world,
        &watch,
        &mut Quiet,
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the image of web has changed"), "{error}");
}

#[test]
fn a_load_that_hangs_is_ended() {
    let text = format!(
        "{SERVICE}{}",
        LOAD.replace("warmup_s = 0", "warmup_s = 0, duration_s = 0.1")
    );
    let loaded = experiment(&text.replace("full = 3", "full = 1"));
    let mut load = FakeLoad::new();
    load.hangs = true;
    let (mut world, _) = world(Serves, Serves, load);
    let watch = Watch::new(Arc::default());
    // The limit of a load is far longer; here the phase itself is looked at.
    let limit = std::time::Duration::from_millis(50);
    let error = watch.phase("fake", limit, &[], |cancel| {
        let (generator, _) = world.generators.pop().unwrap();
        generator.run(&crate::load::Job {
            target: "127.0.0.1:1".parse().unwrap(),
            point: &BTreeMap::new(),
            duration: None,
            rate_per_s: None,
            pin: None,
            experiment: &loaded.folder,
            folder: "/".into(),
            cancel,
        })
    });
    assert!(matches!(error, Err(Error::Platform { what, .. }) if what.contains("not done within")));
}

#[test]
fn a_ramp_stops_by_itself() {
    let ramp = "[[workload]]\nname = 'ramp'\nkind = 'ramp'\ntool = 'fake'\n\
                with = { start_per_s = 50, step_per_s = 30, max_per_s = 1000, step_s = 0.01, warmup_s = 0 }\n";
    let done = whole(&format!("{SERVICE}{ramp}"), Serves, Serves);
    let recorded = done.recorded();
    // 100 a second is all it can: 50 and 80 are kept up with, 110 is not.
    let first = &recorded
        .samples
        .iter()
        .filter(|one| one.workload == "ramp")
        .collect::<Vec<_>>()[..4];
    let rates: Vec<_> = first
        .iter()
        .map(|one| one.point.get("rate_per_s").map(String::as_str))
        .collect();
    assert_eq!(rates, [Some("50"), Some("80"), Some("110"), None]);
    assert_eq!(first[2].metrics["offered_per_s"], 110.0);
    assert_eq!(first[2].metrics["throughput_per_s"], 100.0);
    assert_eq!(first[3].metrics["sustained_per_s"], 80.0);
}

#[test]
fn an_endurance_run_is_a_series_and_its_begin_survives_an_interruption() {
    let text = "[[workload]]\nname = 'long'\nkind = 'endurance'\ntool = 'fake'\n\
                with = { duration_s = 0.4, slice_s = 0.05, warmup_s = 0 }\n";
    let done = whole(&format!("{SERVICE}{text}"), Serves, Serves);
    let recorded = done.recorded();
    let sample = recorded
        .samples
        .iter()
        .find(|one| one.workload == "long")
        .unwrap();
    assert!(sample.series["throughput_per_s"].len() >= 4);
    assert_eq!(sample.metrics["kept_percent"], 100.0);
    assert!(!sample.partial);

    let interrupted = Arc::new(AtomicBool::new(false));
    let mut load = FakeLoad::new();
    load.interrupt = Some((3, Arc::clone(&interrupted)));
    let loaded = experiment(&format!("{SERVICE}{text}"));
    let done = begin(&loaded, world(Serves, Serves, load), &interrupted);
    let recorded = done.recorded();
    let sample = recorded
        .samples
        .iter()
        .find(|one| one.workload == "long")
        .unwrap();
    assert!(sample.partial);
    assert_eq!(sample.series["throughput_per_s"].len(), 2);
    // It is measured again.
    let (mut world, _) = world(Serves, Serves, FakeLoad::new());
    let watch = Watch::new(Arc::default());
    resume(
        &recorded,
        &loaded,
        Vec::new(),
        Path::new("/"),
        &mut world,
        &watch,
        &mut Quiet,
    )
    .unwrap();
    let long = |one: &&Sample| one.workload == "long" && !one.partial;
    assert_eq!(done.recorded().samples.iter().filter(long).count(), 6);
}

#[test]
fn a_storm_restarts_one_of_many() {
    let text = "[[workload]]\nname = 'storm'\nkind = 'boot-storm'\n\
                with = { instances = [2, 4], duration_s = 0.1, pause_s = 0.01 }\n";
    let done = whole(&format!("{SERVICE}{text}"), Serves, Refuses);
    let recorded = done.recorded();
    for instances in ["2", "4"] {
        let of = |one: &&Sample| {
            one.point
                .get("instances")
                .is_some_and(|value| value == instances)
        };
        let samples: Vec<_> = recorded.samples.iter().filter(of).collect();
        let restarts: f64 = samples
            .iter()
            .filter_map(|one| one.metrics.get("restarts"))
            .sum();
        let times = samples
            .iter()
            .filter(|one| one.metrics.contains_key("restart_ms"))
            .count();
        assert!(restarts >= 3.0, "at least one in each round");
        assert_eq!(restarts, times as f64);
    }
    assert_eq!(
        recorded.failures.len(),
        6,
        "b fails once for each point and round"
    );
    assert!(
        recorded
            .failures
            .iter()
            .all(|one| one.workload.as_deref() == Some("storm"))
    );
}

#[test]
fn density_ends_at_the_number_it_was_given() {
    let text = "[[workload]]\nname = 'many'\nkind = 'density'\nwith = { max_instances = 5, memory_share = 1.0 }\n";
    let done = whole(&format!("{SERVICE}{text}"), Serves, Serves);
    let recorded = done.recorded();
    assert_eq!(recorded.samples.len(), 6);
    assert_eq!(recorded.samples[0].metrics["running_instances"], 5.0);
    assert_eq!(recorded.samples[0].series["slowest_answer_ms"].len(), 5);
}

#[test]
fn batches_print_their_figures() {
    let text = "[[service]]\nname = 'web'\nimage = 'x'\nready = 'exit'\n\
                [[workload]]\nname = 'calls'\nkind = 'batch'\n";
    let figures = "{\"metric\":\"getpid_ns\",\"value\":150}\n";
    let done = whole(text, Prints(figures, 0), Prints(figures, 3));
    let recorded = done.recorded();
    let of = |name: &str| {
        let of = |one: &&Sample| one.cell.platform == name;
        recorded.samples.iter().filter(of).collect::<Vec<_>>()
    };
    assert_eq!(of("a").len(), 3);
    assert_eq!(of("a")[0].metrics["getpid_ns"], 150.0);
    assert!(
        of("b").iter().all(|one| one.partial),
        "what a failed program printed does not count"
    );
    assert_eq!(recorded.failures.len(), 3);
    assert!(
        recorded.failures[0].what.contains("exit code 3"),
        "{}",
        recorded.failures[0].what
    );
}

#[test]
fn the_order_is_that_of_the_seed() {
    let loaded = experiment(&format!("{SERVICE}{LOAD}"));
    let order = |seed| {
        let selection = Selection::default();
        let plan = super::plan::plan(&loaded.experiment, &selection, false, seed).unwrap();
        let of = |one: &super::plan::Planned| {
            let tasks: Vec<String> = one.tasks.iter().map(ToString::to_string).collect();
            format!("{} {} {tasks:?}", one.round, one.cell.platform)
        };
        plan.sessions.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    assert!((2..20).any(|seed| order(seed) != order(1)));
    let selection = Selection {
        workloads: vec!["laod".into()],
        ..Selection::default()
    };
    let error = super::plan::plan(&loaded.experiment, &selection, false, 1).unwrap_err();
    assert!(
        error.to_string().contains("did you mean \"load\"?"),
        "{error}"
    );
}
