// SPDX-License-Identifier: Apache-2.0

//! Reading `experiment.toml`. What is wrong in it is said in one line, with the file and the line number.

use std::fs;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check::{self, Known};
use super::nearest::nearest;
use super::{Experiment, SCHEMA};
use crate::{Error, Result};

/// The file in an experiment's folder.
pub const FILE: &str = "experiment.toml";
/// The folder of experiments in the base.
pub const FOLDER: &str = "experiments";

/// The experiments of a base, found upwards from the working directory or named.
#[derive(Clone, Debug)]
pub struct Experiments {
    /// The folder with the experiments' folders.
    pub folder: PathBuf,
    /// The folder that paths in experiments are relative to.
    pub base: PathBuf,
}

/// An experiment that was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The folder's name.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// The file's text.
    pub text: String,
    /// What it says.
    pub experiment: Experiment,
}

impl Experiments {
    /// The folder `experiments` of `from` or the nearest folder above it.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(from: &Path) -> Result<Experiments> {
        let base = from.ancestors().find(|base| base.join(FOLDER).is_dir());
        let base = base.ok_or_else(|| {
            Error::Input(format!(
                "no folder {FOLDER} in {} or above it; name one with --experiments",
                from.display()
            ))
        })?;
        Ok(Experiments {
            folder: base.join(FOLDER),
            base: base.to_owned(),
        })
    }

    /// The experiments in `folder`; its parent is the base.
    ///
    /// # Errors
    /// When it is no folder.
    pub fn at(folder: &Path) -> Result<Experiments> {
        let folder = fs::canonicalize(folder).map_err(Error::file(folder))?;
        if !folder.is_dir() {
            return Err(Error::Input(format!("{}: not a folder", folder.display())));
        }
        let base = folder.parent().unwrap_or(&folder).to_owned();
        Ok(Experiments { folder, base })
    }

    /// Names of all folders with an `experiment.toml`, in order.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.folder).map_err(Error::file(&self.folder))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok())
            .filter(|entry| entry.path().join(FILE).is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Reads one of them.
    ///
    /// # Errors
    /// When there is none of that name, or something in it cannot be used.
    pub fn load(&self, name: &str, known: &Known<'_>) -> Result<Loaded> {
        let names = self.names()?;
        if !names.iter().any(|one| one == name) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(Error::Input(format!(
                "{}: {}",
                self.folder.display(),
                super::unknown("experiment", name, &names)
            )));
        }
        let folder = self.folder.join(name);
        let file = folder.join(FILE);
        let text = fs::read_to_string(&file).map_err(Error::file(&file))?;
        let experiment = parse(&file, &text, known)?;
        Ok(Loaded {
            name: name.to_owned(),
            folder,
            text,
            experiment,
        })
    }
}

/// Reads the text of `file`.
///
/// # Errors
/// One line with file, line number and what is wrong.
pub fn parse(file: &Path, text: &str, known: &Known<'_>) -> Result<Experiment> {
    let source = Source::new(file, text)?;
    source.version()?;
    let experiment = toml::from_str(text).map_err(|error| source.of_toml(&error))?;
    check::check(&source, &experiment, known)?;
    Ok(experiment)
}

/// A file's text with the place of everything in it.
pub(super) struct Source<'a> {
    file: &'a Path,
    text: &'a str,
    table: Spanned<DeTable<'a>>,
}

/// One step on the way to a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> Source<'a> {
    fn new(file: &'a Path, text: &'a str) -> Result<Source<'a>> {
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            Error::Input(format!(
                "{}:{}: {}",
                file.display(),
                line_of(text, at),
                one_line(error.message())
            ))
        })?;
        Ok(Source { file, text, table })
    }

    /// An error at the value that `way` leads to, or at the last step of it that exists.
    pub(super) fn wrong(&self, way: &[Step<'_>], what: impl AsRef<str>) -> Error {
        self.at(self.offset(way), what.as_ref())
    }

    fn at(&self, offset: usize, what: &str) -> Error {
        Error::Input(format!(
            "{}:{}: {what}",
            self.file.display(),
            line_of(self.text, offset)
        ))
    }

    fn offset(&self, way: &[Step<'_>]) -> usize {
        let Some((Step::Key(first), rest)) = way.split_first() else {
            return 0;
        };
        let Some((key, mut value)) = self.table.get_ref().get_key_value(*first) else {
            return 0;
        };
        let mut offset = key.span().start;
        for step in rest {
            let next = match (step, value.get_ref()) {
                (Step::Key(name), DeValue::Table(table)) => table
                    .get_key_value(*name)
                    .map(|(key, value)| (key.span(), value)),
                (Step::Index(index), DeValue::Array(array)) => {
                    array.get(*index).map(|value| (value.span(), value))
                }
                _ => None,
            };
            let Some((span, next)) = next else { break };
            offset = span.start;
            value = next;
        }
        offset
    }

    /// A file of another version is not looked at any further: its keys may mean something else.
    fn version(&self) -> Result<()> {
        let way = [Step::Key("schema")];
        let schema = self
            .table
            .get_ref()
            .get("schema")
            .map(|value| value.get_ref());
        match schema {
            Some(DeValue::Integer(number)) if number.as_str() == SCHEMA.to_string() => Ok(()),
            Some(DeValue::Integer(number)) => Err(self.wrong(
                &way,
                format!(
                    "schema {} is not known here; this coracle reads schema = {SCHEMA}",
                    number.as_str()
                ),
            )),
            Some(_) => Err(self.wrong(&way, format!("write schema = {SCHEMA}"))),
            None => Err(self.wrong(&[], format!("schema is missing; write schema = {SCHEMA}"))),
        }
    }

    /// What serde does not understand: unknown keys and words with the nearest known one.
    fn of_toml(&self, error: &toml::de::Error) -> Error {
        let at = error.span().map_or(0, |span| span.start);
        let message = one_line(error.message());
        for (begin, kind) in [("unknown field `", "key"), ("unknown variant `", "word")] {
            let Some(rest) = message.strip_prefix(begin) else {
                continue;
            };
            // "unknown field `x`, expected one of `a`, `b`" (serde's own words; others are passed on as they are).
            let mut words = rest.split('`');
            let word = words.next().unwrap_or_default();
            let known: Vec<&str> = words.skip(1).step_by(2).collect();
            return self.at(
                at,
                &match nearest(word, known.iter().copied()) {
                    Some(best) => format!("unknown {kind} {word:?}; did you mean {best:?}?"),
                    None => format!("unknown {kind} {word:?}; known: {}", known.join(", ")),
                },
            );
        }
        self.at(at, &message)
    }
}

/// The number of the line with that byte.
fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

fn one_line(message: &str) -> String {
    message.trim().replace('\n', "; ")
}
