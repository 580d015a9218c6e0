// SPDX-License-Identifier: Apache-2.0

use std::fs;

use super::*;

fn run() -> Run {
    Run {
        schema: SCHEMA,
        experiment: "rest".into(),
        text: String::new(),
        quick: true,
        selection: Selection::default(),
        seed: 7,
        started: "2026-11-21T00:00:00Z".into(),
        command: vec!["coracle".into()],
        commit: None,
        host: BTreeMap::new(),
        tools: BTreeMap::new(),
        platforms: Vec::new(),
        images: BTreeMap::new(),
        remarks: Vec::new(),
    }
}

fn sample(value: f64) -> Record {
    Record::Sample(Sample {
        session: 0,
        round: 0,
        cell: Cell {
            platform: "unikernel".into(),
            service: "go".into(),
            vcpus: 1,
        },
        workload: "stress".into(),
        point: BTreeMap::from([("connections".into(), "10".into())]),
        metrics: BTreeMap::from([("throughput_per_s".into(), value)]),
        errors: BTreeMap::new(),
        latency: None,
        series: BTreeMap::new(),
        raw: None,
        partial: false,
    })
}

fn end(interrupted: bool) -> Record {
    Record::End(End {
        took_s: 1.0,
        interrupted,
    })
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder.path(), run()).unwrap();
    writer
        .write(vec![sample(1.5), sample(f64::INFINITY)])
        .unwrap();
    // Each record is there at once, not only at the end.
    assert_eq!(read(folder.path()).unwrap().samples.len(), 2);
    writer.write(vec![end(false)]).unwrap();
    drop(writer);
    let recorded = read(folder.path()).unwrap();
    assert_eq!(recorded.run.seed, 7);
    assert_eq!(recorded.samples[0].metrics["throughput_per_s"], 1.5);
    assert!(recorded.samples[1].metrics.is_empty());
    assert!(recorded.is_complete() && !recorded.torn);
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "only the result and raw/ stay: {left:?}");
}

#[test]
fn a_second_run_does_not_overwrite_the_first() {
    let folder = tempfile::tempdir().unwrap();
    drop(Writer::create(folder.path(), run()).unwrap());
    assert!(Writer::create(folder.path(), run()).is_err());
}

#[test]
fn a_result_cut_anywhere_keeps_its_whole_lines_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(folder.path(), run()).unwrap();
    writer.write(vec![sample(1.0), sample(2.0)]).unwrap();
    drop(writer);
    let file = folder.path().join(FILE);
    let whole = fs::read(&file).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for length in first..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let lines = whole[..length]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        let (recorded, mut writer) = Writer::resume(folder.path()).unwrap();
        assert_eq!(recorded.samples.len(), lines - 1, "cut at {length}");
        assert_eq!(recorded.torn, whole[length - 1] != b'\n');
        writer.write(vec![sample(3.0), end(true)]).unwrap();
        let recorded = read(folder.path()).unwrap();
        assert_eq!(recorded.samples.len(), lines, "cut at {length}");
        assert!(!recorded.is_complete() && !recorded.torn);
    }
}

#[test]
fn what_is_not_a_result_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    let run = serde_json::to_string(&Record::Run(Box::new(run()))).unwrap();
    for (text, says) in [
        (String::new(), "not a result of the lab"),
        ("{".into(), "not a result of the lab"),
        ("hello\n".into(), "result.jsonl:1: not a result of the lab"),
        ("[1]\n".into(), "not a result of the lab"),
        (
            run.replace("\"schema\":1", "\"schema\":2") + "\n",
            "result of schema version 2, this coracle reads version 1",
        ),
        (
            r#"{"record":"run","schema":"x"}"#.to_owned() + "\n",
            "schema version ?",
        ),
        (
            r#"{"record":"run","schema":1}"#.to_owned() + "\n",
            ":1: not understood: missing field",
        ),
        (format!("{run}\n{run}\n"), ":2: a second run"),
        (format!("{run}\nnonsense\n{run}\n"), ":2: not understood"),
        (
            format!("{run}\n{{\"record\":\"sample\"}}\n"),
            ":2: not understood: missing field",
        ),
    ] {
        fs::write(&file, &text).unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains(says), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(error.starts_with(&folder.path().display().to_string()));
    }
}

#[test]
fn results_are_found_by_file_folder_or_folder_of_folders() {
    let folder = tempfile::tempdir().unwrap();
    assert!(find(folder.path()).is_err());
    for name in ["b", "a"] {
        drop(Writer::create(&folder.path().join(name), run()).unwrap());
    }
    let (a, b) = (
        folder.path().join("a").join(FILE),
        folder.path().join("b").join(FILE),
    );
    assert_eq!(find(folder.path()).unwrap(), [a.clone(), b]);
    assert_eq!(
        find(&folder.path().join("a")).unwrap(),
        std::slice::from_ref(&a)
    );
    assert_eq!(find(&a).unwrap(), [a]);
    assert!(find(&folder.path().join("c")).is_err());
}
