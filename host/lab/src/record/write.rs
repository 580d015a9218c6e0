// SPDX-License-Identifier: Apache-2.0

//! Writing a result. Each record reaches the file before the next thing is measured, and a full disk costs none: some
//! space is held in reserve for what was measured when it happened.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{FILE, RAW, Record, Recorded, Run, read};
use crate::{Error, Result};

/// The file whose space is given up when the disk is full.
const RESERVE: &str = "reserve";
/// Its size: far more than the records of one workload.
const RESERVE_BYTES: usize = 1 << 20;

/// A result that is being written.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    file: File,
    /// Length of the whole lines.
    length: u64,
}

impl Writer {
    /// Begins a result in `folder`, which is made.
    ///
    /// # Errors
    /// When there is one already, or it cannot be written.
    pub fn create(folder: &Path, run: Run) -> Result<Writer> {
        fs::create_dir_all(folder.join(RAW)).map_err(Error::file(folder))?;
        let path = folder.join(FILE);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(Error::file(&path))?;
        let mut writer = Writer {
            folder: folder.to_owned(),
            file,
            length: 0,
        };
        writer.reserve()?;
        writer.write(vec![Record::Run(Box::new(run))])?;
        Ok(writer)
    }

    /// Goes on with the result in `folder`. A line that a kill cut off is removed.
    ///
    /// # Errors
    /// See [`read()`].
    pub fn resume(folder: &Path) -> Result<(Recorded, Writer)> {
        let recorded = read(folder)?;
        let path = recorded.folder.join(FILE);
        let file = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(Error::file(&path))?;
        let mut writer = Writer {
            folder: recorded.folder.clone(),
            file,
            length: recorded.whole_bytes,
        };
        fs::create_dir_all(writer.folder.join(RAW)).map_err(Error::file(folder))?;
        writer.cut().map_err(Error::file(&path))?;
        writer.reserve()?;
        Ok((recorded, writer))
    }

    /// The result's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds records, all or none.
    ///
    /// # Errors
    /// When the disk is full, which the records survive: they are in the file all the same.
    pub fn write(&mut self, records: Vec<Record>) -> Result<()> {
        let mut text = String::new();
        for mut record in records {
            only_numbers(&mut record);
            let line = serde_json::to_string(&record)
                .map_err(|error| Error::Input(format!("a record cannot be written: {error}")))?;
            text += &line;
            text.push('\n');
        }
        let Err(error) = self.append(&text) else {
            return Ok(());
        };
        // The space in reserve is for this moment. The run ends then, but what was measured is kept.
        let kept = fs::remove_file(self.folder.join(RESERVE)).is_ok() && self.append(&text).is_ok();
        let path = self.folder.join(FILE);
        let what = if kept {
            "nothing measured was lost"
        } else {
            "what was measured last is lost"
        };
        Err(Error::Record(format!(
            "{}: {error}; {what}; make room and go on: coracle lab run --resume {}",
            path.display(),
            self.folder.display()
        )))
    }

    /// Keeps what a tool printed in `raw/NAME`; answers the name for [`super::Sample::raw`]. `None` if it cannot be kept,
    /// which is no reason to lose the figures.
    #[must_use]
    pub fn raw(&self, name: &str, text: &str) -> Option<String> {
        let path = self.folder.join(RAW).join(name);
        if fs::write(&path, text).is_err() {
            // Half of it would mislead.
            let _ = fs::remove_file(path);
            return None;
        }
        Some(format!("{RAW}/{name}"))
    }

    fn append(&mut self, text: &str) -> std::io::Result<()> {
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.flush());
        match written {
            Ok(()) => self.length += text.len() as u64,
            // Half a line would hide the ones after it.
            Err(_) => self.cut()?,
        }
        written
    }

    /// Removes what lies behind the last whole line.
    fn cut(&mut self) -> std::io::Result<()> {
        self.file.set_len(self.length)?;
        self.file.seek(SeekFrom::Start(self.length)).map(drop)
    }

    fn reserve(&self) -> Result<()> {
        let path = self.folder.join(RESERVE);
        fs::write(&path, vec![b'\n'; RESERVE_BYTES]).map_err(Error::file(path))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Gone already when the disk was full.
        let _ = fs::remove_file(self.folder.join(RESERVE));
    }
}

/// JSON knows no infinity; a figure that is no number says nothing.
fn only_numbers(record: &mut Record) {
    if let Record::Sample(sample) = record {
        sample.metrics.retain(|_, value| value.is_finite());
        for points in sample.series.values_mut() {
            points.retain(|(at, value)| at.is_finite() && value.is_finite());
        }
    }
}
