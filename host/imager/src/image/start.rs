// SPDX-License-Identifier: Apache-2.0
//! How the program of an image is started: what its configuration leaves open is looked up in its root, and what cannot
//! run is said before the start. Nothing of the image is executed.

use std::fs::File;
use std::path::{Path, PathBuf};

use coracle_loader::script::HEAD_BYTES;

use super::document::Execution;
use crate::config::User;
use crate::erofs::{Found, ReadError, Reader};
use crate::program;
use crate::root::{MOST_SCRIPTS, RootError, interpreter_of};

/// Largest file of users or groups that is read, bytes.
const TABLE_MAX: u64 = 4 << 20;
/// Why a program in an image cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The root cannot be read.
    #[error("{}: {source}; remove it (coracle rmi) and fetch the image again", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// What is wrong with it.
        source: ReadError,
    },
    /// The program or its loader is missing or unfit.
    #[error(transparent)]
    Program(#[from] RootError),
    /// The image names no program.
    #[error(
        "{image}: the image names no program; name one behind it: coracle run {image} /path/in/image"
    )]
    NoProgram {
        /// The image.
        image: String,
    },
    /// A user or group by a name the image does not know.
    #[error("{what} {name:?}: not in {file} of {image}; give a number (--user 1000:1000)")]
    NoUser {
        /// `user` or `group`.
        what: &'static str,
        /// The name.
        name: String,
        /// Where it was looked for.
        file: &'static str,
        /// The image.
        image: String,
    },
}

/// The root of an image, to look things up in.
#[derive(Debug)]
pub struct ImageRoot {
    /// What the image is called in messages.
    name: String,
    path: PathBuf,
    reader: Reader,
}

impl ImageRoot {
    /// Opens the root at `path` of the image called `name`.
    ///
    /// # Errors
    /// [`StartError::Root`].
    pub fn open(name: &str, path: &Path) -> Result<Self, StartError> {
        let broken = |source| StartError::Root {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(|error| broken(error.into()))?;
        Ok(Self {
            name: name.into(),
            path: path.into(),
            reader: Reader::new(file).map_err(broken)?,
        })
    }

    /// The arguments the program gets: the entry point, then what the user gave, or if that is nothing the command.
    ///
    /// # Errors
    /// [`StartError::NoProgram`].
    pub fn arguments(
        &self,
        execution: &Execution,
        entrypoint: Option<&[String]>,
        given: &[String],
    ) -> Result<Vec<String>, StartError> {
        let mut all = entrypoint.unwrap_or(&execution.entrypoint).to_vec();
        // Another entry point knows nothing of the image's command.
        match (given, entrypoint) {
            ([], None) => all.extend(execution.cmd.iter().cloned()),
            (given, _) => all.extend(given.iter().cloned()),
        }
        match all.first() {
            Some(program) if !program.is_empty() => Ok(all),
            _ => Err(StartError::NoProgram {
                image: self.name.clone(),
            }),
        }
    }

    /// Finds and checks the program: a path, or a name to be looked for in the folders of `search`. A relative path begins
    /// at `folder`. Answers its absolute path.
    ///
    /// # Errors
    /// Every reason for which the program could not be started.
    pub fn program(&self, program: &str, folder: &str, search: &str) -> Result<String, StartError> {
        let candidates: Vec<String> = match program {
            absolute if absolute.starts_with('/') => vec![absolute.into()],
            relative if relative.contains('/') => vec![join(folder, relative)],
            name => search.split(':').map(|dir| join(dir, name)).collect(),
        };
        let mut denied = false;
        for path in candidates {
            match self.find(&path)? {
                Some(found) if found.is_file() && found.mode & 0o111 != 0 => {
                    self.check(&path, &found)?;
                    return Ok(path);
                }
                Some(_) => denied = true,
                None => {}
            }
        }
        let (program, root) = (program.to_owned(), PathBuf::from(&self.name));
        Err(match denied {
            true => RootError::NotExecutable { program, root },
            false => RootError::NotFound { program, root },
        }
        .into())
    }

    /// As [`crate::root`] does it for folders.
    fn check(&self, path: &str, found: &Found) -> Result<(), StartError> {
        let mut file = *found;
        for _ in 0..MOST_SCRIPTS {
            let start = self.read(&file, 0, HEAD_BYTES as u64)?;
            let Some(interpreter) = interpreter_of(path, &start)? else {
                break;
            };
            if !interpreter.starts_with('/') {
                return Ok(()); // seen from the working directory
            }
            let next = self.find(&interpreter)?.filter(Found::is_file);
            file = next.ok_or_else(|| RootError::NoScriptInterpreter {
                program: path.into(),
                interpreter,
                root: PathBuf::from(&self.name),
            })?;
        }
        let named = PathBuf::from(format!("{}: {path}", self.name));
        let read = |at: u64, most: u64| {
            let bytes = self.reader.read(&file, at, most);
            bytes.map_err(std::io::Error::other)
        };
        let inspected = program::inspect_with(&named, file.size, &read).map_err(RootError::from)?;
        if let Some(interpreter) = inspected.interpreter
            && self.find(&interpreter)?.is_none_or(|file| !file.is_file())
        {
            return Err(RootError::NoInterpreter {
                program: path.into(),
                interpreter,
                root: PathBuf::from(&self.name),
            }
            .into());
        }
        Ok(())
    }

    /// The identity `text` names: `USER[:GROUP]`, each a name or number; nothing is root. Without a group it is the one of
    /// the user.
    ///
    /// # Errors
    /// [`StartError::NoUser`], [`StartError::Root`].
    pub fn user(&self, text: &str) -> Result<User, StartError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let known = self.row("/etc/passwd", user, 2)?;
        let no_user = |what, name: &str, file| StartError::NoUser {
            what,
            name: name.into(),
            file,
            image: self.name.clone(),
        };
        let number = |row: &Option<Vec<String>>, field: usize| {
            row.as_ref().and_then(|row| row.get(field)?.parse().ok())
        };
        let uid = match user.parse() {
            Ok(uid) => uid,
            Err(_) if user.is_empty() => 0,
            Err(_) => number(&known, 2).ok_or_else(|| no_user("user", user, "/etc/passwd"))?,
        };
        let gid = match group {
            None | Some("") => number(&known, 3).unwrap_or(0),
            Some(group) => match group.parse() {
                Ok(gid) => gid,
                Err(_) => number(&self.row("/etc/group", group, 2)?, 2)
                    .ok_or_else(|| no_user("group", group, "/etc/group"))?,
            },
        };
        Ok(User { uid, gid })
    }

    /// The home folder of a user, `/` if the image does not say.
    ///
    /// # Errors
    /// [`StartError::Root`].
    pub fn home(&self, user: User) -> Result<String, StartError> {
        let row = self.row("/etc/passwd", &user.uid.to_string(), 2)?;
        let home = row.and_then(|row| row.get(5).filter(|home| !home.is_empty()).cloned());
        Ok(home.unwrap_or_else(|| "/".into()))
    }

    /// The row of a table like `/etc/passwd` whose first field is `key`, or, if `key` is a number, field `number` is.
    fn row(
        &self,
        table: &str,
        key: &str,
        number: usize,
    ) -> Result<Option<Vec<String>>, StartError> {
        let Some(found) = self.find(table)?.filter(Found::is_file) else {
            return Ok(None);
        };
        let text = self.read(&found, 0, TABLE_MAX)?;
        let text = String::from_utf8_lossy(&text);
        let is_number = key.parse::<u32>().is_ok();
        let mut rows = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let row = rows.find(|row| match is_number {
            true => row.get(number) == Some(&key),
            false => row.first() == Some(&key) && !key.is_empty(),
        });
        Ok(row.map(|row| row.into_iter().map(str::to_owned).collect()))
    }

    fn find(&self, path: &str) -> Result<Option<Found>, StartError> {
        self.reader.find(path).map_err(|source| self.broken(source))
    }

    fn read(&self, found: &Found, from: u64, most: u64) -> Result<Vec<u8>, StartError> {
        let bytes = self.reader.read(found, from, most);
        bytes.map_err(|source| self.broken(source))
    }

    fn broken(&self, source: ReadError) -> StartError {
        StartError::Root {
            path: self.path.clone(),
            source,
        }
    }
}

fn join(folder: &str, name: &str) -> String {
    format!("/{}/{name}", folder.trim_matches('/')).replace("//", "/")
}
