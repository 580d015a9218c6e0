// SPDX-License-Identifier: Apache-2.0

//! Reports on results with known figures.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

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
    check_page(&read(&folder, "report.html"));
}

#[test]
fn odd_names_and_figures_harm_nothing() {
    let (_temporary, folder) = report("odd", &[("odd", kinds::odd())]);
    check_page(&read(&folder, "report.html"));
}
