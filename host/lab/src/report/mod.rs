// SPDX-License-Identifier: Apache-2.0

//! What a result says, for readers: one HTML file that opens offline, and the same as Markdown, CSV and JSON lines.
//!
//! Everything comes from `result.jsonl`; a report can be made again at any time and on any machine.

mod bars;
mod boxes;
mod compare;
mod distributions;
mod finding;
mod flat;
mod html;
mod lines;
mod markdown;
mod method;
mod model;
mod overview;
mod panels;
mod phases;
mod series;
mod svg;
mod sweeps;
mod table;
mod verdict;
mod words;

use std::path::{Path, PathBuf};

use crate::record;
use crate::{Error, Result};

pub use compare::{COLUMNS, Changed, Comparison, Difference, compare};
use model::Model;

/// A result in a report.
struct Chapter<'a> {
    model: Model<'a>,
    /// An anchor of the page, and part of file names.
    id: String,
    /// From the report's folder to the result's, with a slash at its end; empty if it is the same.
    to_result: String,
}

/// A report that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// `report.html`.
    pub page: PathBuf,
    /// Results among several that could not be read, a line each; they stand in the report, too.
    pub left_out: Vec<String>,
}

/// Writes `report.html`, `report.md`, `report.csv`, `report.jsonl` and for each result an `overview.svg` into `folder`.
///
/// `results` are result folders, files, or folders of results.
///
/// # Errors
/// When no result can be read (or is of this schema version), or the report cannot be written. Of several results those that
/// cannot be read are left out.
pub fn write(results: &[PathBuf], folder: &Path) -> Result<Written> {
    let mut files = Vec::new();
    for path in results {
        files.extend(record::find(path)?);
    }
    let (mut loaded, mut left_out) = (Vec::new(), Vec::new());
    for file in &files {
        match record::read(file) {
            Ok(recorded) => loaded.push(recorded),
            Err(error) if files.len() > 1 => left_out.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    if loaded.is_empty() {
        let why = left_out.first().map_or("none was named", String::as_str);
        return Err(Error::Input(format!("no result to report on: {why}")));
    }
    let mut chapters: Vec<Chapter<'_>> = Vec::new();
    for recorded in &loaded {
        let mut id = word(&recorded.run.experiment);
        let same = chapters
            .iter()
            .filter(|chapter| chapter.model.loaded.run.experiment == recorded.run.experiment);
        match same.count() {
            0 => {}
            before => id += &format!("-{}", before + 1),
        }
        chapters.push(Chapter {
            model: Model::new(recorded),
            id,
            to_result: relative(folder, &recorded.folder),
        });
    }
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let put = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .map_err(Error::file(&path))
            .map(|()| path)
    };
    for chapter in &chapters {
        let name = if chapters.len() == 1 {
            "overview.svg".to_owned()
        } else {
            format!("overview-{}.svg", chapter.id)
        };
        if let Some(picture) = overview::draw(&chapter.model) {
            put(&name, picture)?;
        }
    }
    put("report.md", markdown::render(&chapters, &left_out))?;
    put("report.csv", flat::csv(&chapters))?;
    put("report.jsonl", flat::json_lines(&chapters))?;
    let page = put("report.html", html::render(&chapters, &left_out))?;
    Ok(Written { page, left_out })
}

/// Letters, digits and dashes only.
fn word(name: &str) -> String {
    name.chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect()
}

/// The way from one folder to another, as a link; a full path where there is no other.
fn relative(from: &Path, to: &Path) -> String {
    let full = |path: &Path| {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        std::fs::canonicalize(path)
            .or_else(|_| std::path::absolute(path))
            .unwrap_or_else(|_| path.to_owned())
    };
    let (from, to) = (full(from), full(to));
    let shared = from
        .components()
        .zip(to.components())
        .take_while(|(a, b)| a == b)
        .count();
    let up = from.components().count() - shared;
    let mut link = "../".repeat(up);
    for part in to.components().skip(shared) {
        link += &part.as_os_str().to_string_lossy();
        link.push('/');
    }
    link
}
