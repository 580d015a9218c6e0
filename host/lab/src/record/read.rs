// SPDX-License-Identifier: Apache-2.0

//! Reading a result: as the lab wrote it, or as a kill or a full disk left it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{End, FILE, Failure, Record, Resumed, Run, SCHEMA, Sample, Session};
use crate::{Error, Result};

/// A result file, read.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The folder it lies in.
    pub folder: PathBuf,
    /// The first line.
    pub run: Run,
    /// Each start.
    pub sessions: Vec<Session>,
    /// All measurements, partial ones too.
    pub samples: Vec<Sample>,
    /// What failed.
    pub failures: Vec<Failure>,
    /// Each time it went on.
    pub resumed: Vec<Resumed>,
    /// The last end; none if the run was killed, or goes on.
    pub end: Option<End>,
    /// The last line was cut off by a kill and is left out.
    pub torn: bool,
    /// Length of the whole lines, bytes.
    pub(super) whole_bytes: u64,
}

impl Recorded {
    /// Whether everything was measured.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end.as_ref().is_some_and(|end| !end.interrupted)
    }
}

/// The result files meant by a path: a file, a result's folder, or a folder of such folders, in the order of names.
///
/// # Errors
/// When there is none.
pub fn find(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if path.join(FILE).is_file() {
        return Ok(vec![path.join(FILE)]);
    }
    let entries = fs::read_dir(path).map_err(Error::file(path))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path().join(FILE)))
        .filter(|file| file.is_file())
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(Error::Input(format!(
            "{}: no result in it; want a folder with {FILE}",
            path.display()
        )));
    }
    Ok(files)
}

/// Reads a result: its folder, or the file.
///
/// # Errors
/// When it cannot be read, is of another schema version, or has a line in its middle that is not understood.
pub fn read(path: &Path) -> Result<Recorded> {
    let file = if path.is_dir() {
        path.join(FILE)
    } else {
        path.to_owned()
    };
    let bytes = fs::read(&file).map_err(Error::file(&file))?;
    parse(&file, &String::from_utf8_lossy(&bytes))
}

fn parse(file: &Path, text: &str) -> Result<Recorded> {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut lines = text[..whole].lines().zip(1..);
    let Some((first, _)) = lines.next() else {
        return Err(wrong(file, 1, "not a result of the lab"));
    };
    let mut recorded = Recorded {
        folder: file.parent().unwrap_or(Path::new(".")).to_owned(),
        run: first_line(file, first)?,
        sessions: Vec::new(),
        samples: Vec::new(),
        failures: Vec::new(),
        resumed: Vec::new(),
        end: None,
        torn: whole < text.len(),
        whole_bytes: whole as u64,
    };
    for (line, number) in lines {
        let record = serde_json::from_str(line)
            .map_err(|error| wrong(file, number, &format!("not understood: {error}")))?;
        match record {
            Record::Run(_) => return Err(wrong(file, number, "a second run in one file")),
            Record::Session(session) => recorded.sessions.push(session),
            Record::Sample(sample) => recorded.samples.push(sample),
            Record::Failure(failure) => recorded.failures.push(failure),
            Record::Resumed(resumed) => {
                recorded.resumed.push(resumed);
                recorded.end = None;
            }
            Record::End(end) => recorded.end = Some(end),
        }
    }
    Ok(recorded)
}

/// The run. Its version is looked at before anything else of it.
fn first_line(file: &Path, line: &str) -> Result<Run> {
    let value: serde_json::Value =
        serde_json::from_str(line).map_err(|_| wrong(file, 1, "not a result of the lab"))?;
    if value.get("record").and_then(|kind| kind.as_str()) != Some("run") {
        return Err(wrong(file, 1, "not a result of the lab"));
    }
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        schema => {
            let schema = schema.map_or_else(|| "?".to_owned(), |number| number.to_string());
            return Err(Error::Input(format!(
                "{}: result of schema version {schema}, this coracle reads version {SCHEMA}; \
                 use the coracle that wrote it, or measure again",
                file.display()
            )));
        }
    }
    match serde_json::from_value(value) {
        Ok(Record::Run(run)) => Ok(*run),
        Ok(_) => Err(wrong(file, 1, "not a result of the lab")),
        Err(error) => Err(wrong(file, 1, &format!("not understood: {error}"))),
    }
}

fn wrong(file: &Path, line: usize, what: &str) -> Error {
    Error::Input(format!("{}:{line}: {what}", file.display()))
}
