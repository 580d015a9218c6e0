// SPDX-License-Identifier: Apache-2.0

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::load::{Generator, Job, Outcome, Point};
use crate::{Error, Result};

const WHOLE: &str = r#"schema = 1
title = "REST in Go"
question = "Is the unikernel faster?"
platforms = ["linux-vm", "unikernel"]

[machine]
vcpus = [1, 2]
memory = "256M"

[repetitions]
full = 10
quick = 3

[[service]]
name = "go"
image = "build/todo-go"
port = 8080
ready = { http = "/todos" }

[[service]]
name = "calls"
image = "build/calls"
ready = "exit"

[[workload]]
name = "stress"
kind = "load"
tool = "wrk"
services = ["go"]
with = { path = "/todos", connections = [1, 10, 40], threads = [2, 4], duration_s = 30 }
quick = { connections = 10, duration_s = 2 }

[[workload]]
name = "calls"
kind = "batch"
services = ["calls"]

[[published]]
platform = "unikernel"
as = "OSv"
service = "go"
workload = "stress"
metric = "throughput_per_s"
value = 1.5

[[verdict]]
workload = "stress"
metric = "throughput_per_s"
platform = "unikernel"
against = "linux-vm"
"#;

struct Wrk;

impl Generator for Wrk {
    fn name(&self) -> &'static str {
        "wrk"
    }
    fn method(&self) -> &'static str {
        "closed loop"
    }
    fn find(&self) -> Result<String> {
        Ok("4.1".into())
    }
    fn check(&self, point: &Point) -> Result<()> {
        let known = ["path", "connections", "threads", "duration_s"];
        match point.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Error::Input(unknown("parameter", key, &known))),
            None => Ok(()),
        }
    }
    fn run(&self, _: &Job<'_>) -> Result<Outcome> {
        Err(Error::Interrupted)
    }
}

fn read(text: &str) -> Result<Experiment> {
    let known = Known {
        platforms: vec!["process", "container", "linux-vm", "unikernel"],
        generators: &[Box::new(Wrk)],
    };
    parse(Path::new("/e/x/experiment.toml"), text, &known)
}

#[test]
fn a_whole_experiment_is_read() {
    let experiment = read(WHOLE).unwrap();
    assert_eq!(experiment.services[0].ready, Ready::Http("/todos".into()));
    assert_eq!(experiment.machine.vcpus, [1, 2]);
    assert_eq!(experiment.workloads[1].kind, Kind::Batch);
}

#[test]
fn lists_span_a_matrix_in_file_order() {
    let stress = &read(WHOLE).unwrap().workloads[0];
    let points = stress.points(false);
    let of = |point: &Point| {
        (
            point["connections"].as_integer().unwrap(),
            point["threads"].as_integer().unwrap(),
        )
    };
    let order: Vec<_> = points.iter().map(of).collect();
    assert_eq!(
        order,
        [(1, 2), (1, 4), (10, 2), (10, 4), (40, 2), (40, 4)],
        "the first list changes slowest"
    );
    assert_eq!(points[0]["duration_s"].as_integer(), Some(30));
    let quick = stress.points(true);
    assert_eq!(quick.iter().map(of).collect::<Vec<_>>(), [(10, 2), (10, 4)]);
    assert_eq!(quick[0]["duration_s"].as_integer(), Some(2));
    // Named alike in both forms of the run.
    let label = stress.label(&quick[0]);
    assert_eq!(label, stress.label(&points[2]));
    assert_eq!(
        label.into_iter().collect::<Vec<_>>(),
        [
            ("connections".to_owned(), "10".to_owned()),
            ("threads".to_owned(), "2".to_owned())
        ]
    );
    assert_eq!(read(WHOLE).unwrap().workloads[1].points(false).len(), 1);
}

#[test]
fn a_workload_may_leave_out_rounds() {
    let mut workload = read(WHOLE).unwrap().workloads.remove(0);
    let rounds = |workload: &Workload, quick| -> Vec<u32> {
        (0..4)
            .filter(|round| workload.is_in_round(*round, quick))
            .collect()
    };
    assert_eq!(rounds(&workload, false), [0, 1, 2, 3]);
    workload.rounds = Some(2);
    assert_eq!(rounds(&workload, true), [0, 1]);
    workload.quick_rounds = Some(0);
    assert_eq!(
        (
            rounds(&workload, false).len(),
            rounds(&workload, true).len()
        ),
        (2, 0)
    );
}

#[test]
fn a_short_run_may_say_how_long_instead_of_how_many() {
    let mut workload = read(WHOLE).unwrap().workloads.remove(0);
    workload.with = toml::from_str("requests = 2_000_000\nconnections = 40").unwrap();
    workload.quick = toml::from_str("duration_s = 3").unwrap();
    let names =
        |quick: bool| -> Vec<String> { workload.points(quick)[0].keys().cloned().collect() };
    assert_eq!(names(false), ["connections", "requests"]);
    assert_eq!(names(true), ["connections", "duration_s"]);
}

/// Each mistake, made by replacing a part of the whole file, with the line it is in and what is said of it.
const MISTAKES: &[(&str, &str, usize, &str)] = &[
    ("schema = 1", "schema = 2", 1, "schema 2 is not known here"),
    ("schema = 1", "schema = 'x'", 1, "write schema = 1"),
    ("schema = 1", "", 1, "schema is missing"),
    (
        "title =",
        "titel =",
        2,
        r#"unknown key "titel"; did you mean "title"?"#,
    ),
    ("title = \"REST in Go\"\n", "", 1, "missing field `title`"),
    (
        "title = \"REST in Go\"",
        "title = ''",
        2,
        "title: want one line",
    ),
    (
        "title = \"REST in Go\"",
        "title = 5",
        2,
        "invalid type: integer `5`",
    ),
    (
        "title = \"REST in Go\"",
        "title = \"REST",
        2,
        "invalid basic string",
    ),
    ("faster?", "faster.", 3, "with a question mark"),
    (
        "\"unikernel\"]",
        "\"unikernal\"]",
        4,
        r#"unknown platform "unikernal"; did you mean "unikernel"?"#,
    ),
    ("\"unikernel\"]", "\"linux-vm\"]", 4, "is named twice"),
    ("[\"linux-vm\", \"unikernel\"]", "[]", 4, "at least one"),
    ("[1, 2]", "[1, 0]", 7, "vcpus: 0"),
    ("[1, 2]", "[2, 2]", 7, "vcpus: 2"),
    ("[1, 2]", "[]", 7, "at least one number"),
    ("[1, 2]", "[1, 2]\nquick_vcpus = []", 8, "quick_vcpus: name"),
    ("[1, 2]", "[1, 2]\nquick_vcpus = [65]", 8, "quick_vcpus: 65"),
    (
        "tool = \"wrk\"",
        "tool = \"wrk\"\nvcpus = [4]",
        29,
        "vcpus: 4: the machine has [1, 2]",
    ),
    (
        "tool = \"wrk\"",
        "tool = \"wrk\"\nrounds = 0",
        29,
        "must be at least 1",
    ),
    ("\"256M\"", "\"256X\"", 8, "unknown unit \"x\""),
    ("\"256M\"", "\"0M\"", 8, "no memory"),
    ("full = 10", "full = 0", 11, "at least 1"),
    ("full = 10", "full = -1", 11, "invalid value"),
    ("quick = 3", "quikc = 3", 12, "did you mean \"quick\"?"),
    ("name = \"go\"", "name = \"g o\"", 15, "letters, digits"),
    ("build/todo-go", "", 16, "want a path"),
    ("port = 8080", "port = 0", 17, "1 to 65535"),
    ("port = 8080", "port = 70000", 17, "invalid value"),
    ("port = 8080\n", "", 17, "has no port"),
    (
        "http = \"/todos\"",
        "http = \"todos\"",
        18,
        "must begin with /",
    ),
    (
        "{ http = \"/todos\" }",
        "\"redsi\"",
        18,
        r#"did you mean "redis"?"#,
    ),
    (
        "{ http = \"/todos\" }",
        "{ dns = \"a..b\" }",
        18,
        "no name of a host",
    ),
    (
        "name = \"calls\"\nimage",
        "name = \"go\"\nimage",
        21,
        "is there twice",
    ),
    (
        "ready = \"exit\"",
        "ready = \"exit\"\nready_limit_s = -3",
        24,
        "want seconds",
    ),
    (
        "ready = \"exit\"",
        "ready = \"exit\"\nvolumes = [\"a\"]",
        24,
        "must begin with /",
    ),
    ("name = \"stress\"", "name = \"start\"", 26, "is taken"),
    (
        "kind = \"load\"",
        "kind = \"laod\"",
        27,
        r#"unknown word "laod"; did you mean "load"?"#,
    ),
    (
        "kind = \"load\"",
        "kind = \"ramp\"",
        30,
        "start_per_s: is missing",
    ),
    (
        "tool = \"wrk\"",
        "tool = \"wkr\"",
        28,
        r#"unknown tool "wkr"; did you mean "wrk"?"#,
    ),
    ("tool = \"wrk\"\n", "", 27, "tool is missing"),
    (
        "services = [\"go\"]",
        "services = [\"og\"]",
        29,
        r#"unknown service "og"; did you mean "go"?"#,
    ),
    (
        "services = [\"go\"]",
        "platforms = [\"procss\"]",
        29,
        r#"did you mean "process"?"#,
    ),
    (
        "services = [\"go\"]\n",
        "",
        27,
        "a load needs a service with a port",
    ),
    (
        "connections = [1",
        "conections = [1",
        30,
        r#"unknown parameter "conections"; did you mean "connections"?"#,
    ),
    (
        "duration_s = 30",
        "warmup_s = -4",
        30,
        "warmup_s: -4 is no number",
    ),
    (
        "duration_s = 2 }",
        "durations = 2 }",
        31,
        r#"did you mean "duration_s"?"#,
    ),
    (
        "kind = \"batch\"",
        "kind = \"batch\"\ntool = \"wrk\"",
        36,
        "uses none",
    ),
    (
        "kind = \"batch\"",
        "kind = \"batch\"\nwith = { timeout = 4 }",
        36,
        r#"did you mean "timeout_s"?"#,
    ),
    (
        "services = [\"calls\"]",
        "services = [\"go\"]",
        35,
        "needs a service with ready = \"exit\"",
    ),
    ("as = \"OSv\"", "sa = \"OSv\"", 40, "did you mean \"as\"?"),
    (
        "service = \"go\"",
        "service = \"og\"",
        41,
        "did you mean \"go\"?",
    ),
    (
        "metric = \"throughput_per_s\"\nvalue",
        "metric = \"troughput_per_s\"\nvalue",
        43,
        "did you mean \"throughput_per_s\"?",
    ),
    (
        "metric = \"throughput_per_s\"\nvalue",
        "metric = \"xyzzy\"\nvalue",
        43,
        "ends in its unit",
    ),
    ("value = 1.5", "value = nan", 44, "no figure"),
    (
        "[[verdict]]\nworkload = \"stress\"",
        "[[verdict]]\nworkload = \"stres\"",
        47,
        "did you mean \"stress\"?",
    ),
    (
        "against = \"linux-vm\"",
        "against = \"unikernel\"",
        50,
        "against itself",
    ),
    (
        "against = \"linux-vm\"",
        "against = \"linux\"",
        50,
        "did you mean \"linux-vm\"?",
    ),
];

#[test]
fn each_mistake_is_one_line_with_its_place() {
    for (from, to, line, says) in MISTAKES {
        assert!(WHOLE.contains(from), "{from}");
        let error = read(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("/e/x/experiment.toml:{line}: ")),
            "{from:?} -> {to:?}: {error}"
        );
        assert!(error.contains(says), "{from:?} -> {to:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn figures_of_the_programs_own_have_a_unit() {
    for name in ["getpid_ns", "restart_ms", "copy_mbit_s"] {
        let text = WHOLE.replacen(
            "metric = \"throughput_per_s\"\nvalue",
            &format!("metric = \"{name}\"\nvalue"),
            1,
        );
        read(&text).unwrap();
    }
}

#[test]
fn experiments_are_found_from_below() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("experiments/rest");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(base.path().join("experiments/notes")).unwrap();
    std::fs::write(folder.join(FILE), WHOLE).unwrap();
    let known = Known {
        platforms: vec!["linux-vm", "unikernel"],
        generators: &[Box::new(Wrk)],
    };
    let experiments = Experiments::find(&folder).unwrap();
    assert_eq!(experiments.base, base.path());
    assert_eq!(experiments.names().unwrap(), ["rest"]);
    assert_eq!(experiments.load("rest", &known).unwrap().text, WHOLE);
    let error = experiments.load("rset", &known).unwrap_err().to_string();
    assert!(error.contains("did you mean \"rest\"?"), "{error}");
    assert!(Experiments::find(Path::new("/proc")).is_err());
    assert!(Experiments::at(&base.path().join("nothing")).is_err());
}

#[test]
fn sizes_have_podmans_units() {
    assert_eq!(bytes("64M"), Ok(64 << 20));
    assert_eq!(bytes("64MiB"), Ok(64 << 20));
    assert_eq!(bytes("1g"), Ok(1 << 30));
    assert_eq!(bytes("4096"), Ok(4096));
    for wrong in [
        "",
        "M",
        "-1M",
        "1T5",
        "5x",
        "99999999999999999999",
        "18446744073709551615k",
    ] {
        assert!(bytes(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    /// Whatever is in the file, the answer is an experiment or one line with file and line number.
    #[test]
    fn any_text_is_answered_in_one_line(at in 0..WHOLE.len(), cut in 0usize..40, put in "\\PC{0,12}") {
        let end = (at + cut).min(WHOLE.len());
        let text = format!("{}{put}{}", &WHOLE[..at], &WHOLE[end..]);
        if let Err(error) = read(&text) {
            let error = error.to_string();
            prop_assert!(error.starts_with("/e/x/experiment.toml:"), "{}", error);
            prop_assert!(!error.contains('\n'), "{}", error);
            let line: usize = error["/e/x/experiment.toml:".len()..].split(':').next().unwrap().parse().unwrap();
            prop_assert!(line >= 1 && line <= text.matches('\n').count() + 1, "{}", error);
        }
    }

    #[test]
    fn the_nearest_word_is_always_a_known_one(word in "\\PC{0,20}") {
        let known = ["process", "container", "unikernel"];
        prop_assert!(nearest(&word, known).is_none_or(|best| known.contains(&best)));
    }
}
