// SPDX-License-Identifier: Apache-2.0

//! Reports on results with known figures.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod synthetic;

use coracle_lab::report;

#[test]
fn a_report_is_whole_and_needs_no_network() {
    let folder = tempfile::tempdir().unwrap();
    synthetic::stress::result(6).write(folder.path());
    let page = report::write(&[folder.path().to_owned()], folder.path()).unwrap();
    if let Some(copy) = std::env::var_os("LAB_REPORT_COPY") {
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::create_dir_all(&copy).unwrap();
            std::fs::copy(
                entry.path(),
                std::path::Path::new(&copy).join(entry.file_name()),
            )
            .unwrap();
        }
    }
    let page = std::fs::read_to_string(page).unwrap();
    for tag in [
        "html", "head", "body", "main", "table", "svg", "figure", "text", "dl", "section",
        "details", "ul", "li", "g", "tr", "td", "th", "small", "span",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        assert!(opened > 0, "{tag}");
    }
    for unwanted in ["https://", "src=", "NaN", "<script", "\u{1b}"] {
        assert!(!page.contains(unwanted), "{unwanted}");
    }
}
