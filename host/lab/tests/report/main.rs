// SPDX-License-Identifier: Apache-2.0

//! Reports on results with known figures.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod compare;
mod synthetic;

use std::path::{Path, PathBuf};

use coracle_lab::report;
use synthetic::{Synthetic, kinds, stress};

/// A report on results, each in a folder of its own. `LAB_REPORT_COPY=FOLDER` keeps it, to be looked at.
fn report(name: &str, results: &[(&str, Synthetic)]) -> (tempfile::TempDir, PathBuf) {
    let keep = std::env::var_os("LAB_REPORT_COPY").map(|folder| Path::new(&folder).join(name));
    let temporary = tempfile::tempdir().unwrap();
    let folder = keep.unwrap_or_else(|| temporary.path().to_owned());
    let mut paths = Vec::new();
    for (name, result) in results {
        result.write(&folder.join(name));
        paths.push(folder.join(name));
    }
    report::write(&paths, &folder).unwrap();
    (temporary, folder)
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Every element is closed, and nothing is fetched or run.
fn check_page(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(begin) = rest.find('<') {
        rest = &rest[begin + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n', '/'])
            .next()
            .unwrap();
        if tag.starts_with('/') {
            assert_eq!(
                open.pop(),
                Some(name),
                "</{name}> before {}",
                &rest[..rest.len().min(200)]
            );
        } else if !tag.ends_with('/') && !matches!(name, "!doctype" | "meta" | "br") {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for unwanted in [
        "https://",
        "<script",
        "<img",
        "NaN",
        "inf\"",
        "\u{1b}",
        "\u{0}",
        "javascript:",
    ] {
        let at = page.find(unwanted);
        assert_eq!(
            at,
            None,
            "{unwanted:?}: {:?}",
            at.map(|at| page[at.saturating_sub(40)..]
                .chars()
                .take(90)
                .collect::<String>())
        );
    }
    let tables = page.matches("<table>").count();
    assert_eq!(page.matches("<caption>").count(), tables);
    let drawings = page.matches("<svg ").count();
    assert_eq!(
        page.matches("<desc>").count(),
        drawings,
        "each drawing is described"
    );
}

#[test]
fn a_report_is_whole_and_needs_no_network() {
    let (_temporary, folder) = report("stress", &[("result", stress::result(6))]);
    let page = read(&folder, "report.html");
    check_page(&page);
    assert!(page.contains("unikernel serves 1.8"), "the first verdict");
    assert!(
        page.contains("better; in the study 1.38 times"),
        "13 800 by 10 000 published"
    );
    assert!(page.contains("figure 3; derived from +38 %"), "the source");
    assert!(page.contains("href=\"result/result.jsonl\"") && page.contains("href=\"result/raw/"));
    assert!(read(&folder, "overview.svg").starts_with("<svg xmlns="));
}

#[test]
fn each_kind_of_workload_is_drawn() {
    let kinds = [
        ("ramp", kinds::ramp()),
        ("storm", kinds::storm()),
        ("endurance", kinds::endurance()),
        ("cost", kinds::batch()),
        ("redis", kinds::rows()),
    ];
    let (_temporary, folder) = report("kinds", &kinds);
    let page = read(&folder, "report.html");
    check_page(&page);
    for words in [
        "offered requests a second",
        ">instances<",
        "Throughput over time: long",
        "Start to first answer, by phase",
        "test LRANGE_600",
        "at 14 points",
        "href=\"#endurance\"",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(
        page.find(">test PING_INLINE<") < page.find(">test MSET<"),
        "the tool's order"
    );
    for name in ["ramp", "storm", "endurance", "cost", "redis"] {
        assert!(
            read(&folder, &format!("overview-{name}.svg")).contains("</svg>"),
            "{name}"
        );
    }
}

#[test]
fn odd_names_and_figures_harm_nothing() {
    let (_temporary, folder) = report("odd", &[("odd", kinds::odd())]);
    let page = read(&folder, "report.html");
    check_page(&page);
    assert!(page.contains("the run has no end"));
    assert!(page.contains("1 measurement was cut short"));
    assert!(page.contains("gvisor was not measured"));
    assert!(page.contains("1\u{a0}200 status &lt;503&gt;"));
    assert!(
        !page.contains("123\u{a0}456"),
        "a partial sample does not count"
    );
    assert!(
        page.contains("\u{241b}]0;title\u{2407}&lt;/pre&gt;"),
        "the log, its control characters shown"
    );
    assert!(page.contains("raw/a%20b%22%3E%3Cscript%3E.txt"));
    let markdown = read(&folder, "report.md");
    assert!(!markdown.contains("<script") && !markdown.contains('\u{1b}'));
    assert!(markdown.contains("w\\|x"), "a pipe would end the cell");
    let lines = read(&folder, "report.csv");
    assert!(lines.lines().count() > 5 && !lines.contains('\u{1b}'));
    for line in read(&folder, "report.jsonl").lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn platforms_of_other_substrates_have_no_ratio() {
    let (_temporary, folder) = report("substrates", &[("result", stress::result(5))]);
    for line in read(&folder, "report.jsonl").lines().skip(1) {
        let figure: serde_json::Value = serde_json::from_str(line).unwrap();
        let platform = figure["platform"].as_str().unwrap();
        match (
            platform,
            figure.get("baseline").and_then(|name| name.as_str()),
        ) {
            (_, None) => {}
            ("unikernel", Some("linux-vm")) | ("container", Some("process")) => {}
            (platform, Some(baseline)) => panic!("{platform} is compared with {baseline}"),
        }
    }
    let page = read(&folder, "report.html");
    assert!(page.contains("unikernel / linux-vm") && !page.contains("unikernel / process"));
    assert!(page.contains("On another substrate: host"));
    assert!(page.contains("container on \u{201c}host\u{201d}"));
}

#[test]
fn few_rounds_decide_nothing() {
    let (_temporary, folder) = report("few", &[("result", stress::result(3))]);
    let page = read(&folder, "report.html");
    assert!(page.contains("not settled: 3 runs, an interval needs 5"));
    let (_temporary, folder) = report("one", &[("result", stress::result(1))]);
    let page = read(&folder, "report.html");
    check_page(&page);
    assert!(
        page.contains("no ratio of single runs"),
        "no ratio of two single runs"
    );
}

#[test]
fn another_schema_is_refused_and_a_torn_file_is_reported_on() {
    let folder = tempfile::tempdir().unwrap();
    let text = kinds::batch().text();
    let put = |text: &str| std::fs::write(folder.path().join("result.jsonl"), text).unwrap();
    let write = || report::write(&[folder.path().to_owned()], folder.path());
    put(&text.replacen("\"schema\":1", "\"schema\":9", 1));
    let error = write().unwrap_err().to_string();
    assert!(
        error.contains("result.jsonl") && error.contains("version 9"),
        "{error}"
    );
    put("not JSON\n");
    assert!(write().is_err());
    put(&text[..text.len() - 200]);
    write().unwrap();
    let page = read(folder.path(), "report.html");
    assert!(page.contains("is torn") && page.contains("the run has no end"));
}

#[test]
fn one_result_that_cannot_be_read_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    kinds::batch().write(&folder.path().join("whole"));
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("result.jsonl"), "").unwrap();
    let written = report::write(&[folder.path().to_owned()], folder.path()).unwrap();
    assert!(
        written.left_out.len() == 1 && written.left_out[0].contains("empty"),
        "{written:?}"
    );
    assert!(read(folder.path(), "report.html").contains("a result is left out"));
    assert!(report::write(std::slice::from_ref(&empty), folder.path()).is_err());
}

/// `LAB_REPORT_BLESS=1` writes result and reports anew; the difference is then to be read.
#[test]
fn a_recorded_result_gives_the_recorded_report() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/results/cost");
    if std::env::var_os("LAB_REPORT_BLESS").is_some() {
        kinds::batch().write(&golden);
        report::write(std::slice::from_ref(&golden), &golden).unwrap();
        std::fs::remove_file(golden.join("report.html")).unwrap();
        std::fs::remove_file(golden.join("report.jsonl")).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(
        golden.join("result.jsonl"),
        folder.path().join("result.jsonl"),
    )
    .unwrap();
    report::write(&[folder.path().to_owned()], folder.path()).unwrap();
    for name in ["report.md", "report.csv", "overview.svg"] {
        assert_eq!(read(folder.path(), name), read(&golden, name), "{name}");
    }
}
