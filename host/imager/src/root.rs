// SPDX-License-Identifier: Apache-2.0
//! The files below `rootfs/`: one executable, or a folder taken as a root file system.
//!
//! Paths of a folder are resolved as the guest will resolve them: a link never leads out of the root.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use coracle_loader::script::{self, ScriptError};

use crate::program::{self, Program, ProgramError};

/// How many links a path may go through, `path_resolution(7)`.
const MAX_LINKS: u32 = 40;

/// Most scripts that lead to each other, as in the guest.
pub(crate) const MOST_SCRIPTS: usize = 5;

/// Where programs without a slash in their name are looked for when the environment has no `PATH`.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What becomes the root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// One static executable; it appears as `/NAME`.
    Executable(PathBuf),
    /// A folder with everything the program needs.
    Directory(PathBuf),
    /// An EROFS image, which the guest reads from a disk; the bundle carries no files.
    Image(PathBuf),
}

/// Why a root cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
    /// Nothing is there.
    #[error("{}: no such file; give the path of an executable or a folder", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The executable itself is unfit.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A name that cannot be recorded as text.
    #[error("{}: the name is not UTF-8; rename it", path.display())]
    Name {
        /// The file.
        path: PathBuf,
    },
    /// A folder was given without saying what to run in it.
    #[error("{}: a folder or image; name the program in it: coracle run {} /path/in/it", path.display(), path.display())]
    NoProgram {
        /// The folder.
        path: PathBuf,
    },
    /// The program is not in the folder.
    #[error("{program}: not found in {}", root.display())]
    NotFound {
        /// The program as asked for.
        program: String,
        /// The folder.
        root: PathBuf,
    },
    /// The program may not be executed.
    #[error("{program}: not executable in {}; set its mode: chmod +x", root.display())]
    NotExecutable {
        /// The program as asked for.
        program: String,
        /// The folder.
        root: PathBuf,
    },
    /// A dynamic executable was given alone.
    #[error(
        "{}: a dynamic program: it needs its loader {interpreter} and its libraries in the root; build it statically \
         (Go: CGO_ENABLED=0, gcc: -static, Rust: --target x86_64-unknown-linux-musl) or give a folder that has them",
        path.display()
    )]
    DynamicAlone {
        /// The executable.
        path: PathBuf,
        /// The loader it asks for.
        interpreter: String,
    },
    /// A dynamic executable in a folder that lacks the loader.
    #[error(
        "{program}: a dynamic program whose loader {interpreter} is missing in {}; add the loader and the libraries, or \
         build the program statically (Go: CGO_ENABLED=0, gcc: -static, Rust: --target x86_64-unknown-linux-musl)",
        root.display()
    )]
    NoInterpreter {
        /// The program in the folder.
        program: String,
        /// The loader it asks for.
        interpreter: String,
        /// The folder.
        root: PathBuf,
    },
    /// A script whose interpreter the folder lacks.
    #[error(
        "{program}: a script whose interpreter {interpreter} is missing in {}; add it with its libraries, or name a \
         program that is there",
        root.display()
    )]
    NoScriptInterpreter {
        /// The script in the folder.
        program: String,
        /// The interpreter its first line names.
        interpreter: String,
        /// The folder.
        root: PathBuf,
    },
    /// A script that cannot be run.
    #[error("{program}: {source}")]
    Script {
        /// The script in the folder.
        program: String,
        /// What is wrong with its first line.
        source: ScriptError,
    },
}

/// One entry below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is on the host.
    pub source: PathBuf,
    /// Its path in the root, without a leading slash.
    pub name: String,
}

impl Root {
    /// A folder or an executable, whichever is at `path`.
    ///
    /// # Errors
    /// [`RootError::Missing`], [`RootError::Read`].
    pub fn at(path: &Path) -> Result<Self, RootError> {
        let meta = std::fs::metadata(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => RootError::Missing { path: path.into() },
            _ => RootError::Read {
                path: path.into(),
                source,
            },
        })?;
        Ok(if meta.is_dir() {
            Self::Directory(path.into())
        } else if is_erofs(path) {
            Self::Image(path.into())
        } else {
            Self::Executable(path.into())
        })
    }

    /// Finds and checks the program to run, and answers its absolute path in the root.
    ///
    /// For [`Root::Executable`] that is `/NAME` and `program` is not looked at. In a folder `program` is a path, or a
    /// name to look for in the folders of `search` (the guest's `PATH`).
    ///
    /// # Errors
    /// Every reason for which the program could not be started; see [`RootError`] and [`ProgramError`].
    pub fn program(&self, program: Option<&str>, search: &str) -> Result<String, RootError> {
        match self {
            Self::Executable(path) => {
                if let Program {
                    interpreter: Some(interpreter),
                    ..
                } = program::inspect(path)?
                {
                    return Err(RootError::DynamicAlone {
                        path: path.clone(),
                        interpreter,
                    });
                }
                Ok(format!("/{}", place(path)?))
            }
            Self::Directory(root) => {
                let program = program.ok_or_else(|| RootError::NoProgram { path: root.clone() })?;
                let found = find(root, program, search)?;
                check(root, &found)?;
                Ok(found.name)
            }
            Self::Image(path) => program
                .map(str::to_owned)
                .ok_or_else(|| RootError::NoProgram { path: path.clone() }),
        }
    }

    /// All entries in a fixed order (a folder before what is in it, names by their bytes), and apart from them the
    /// devices, sockets and pipes, which a bundle does not carry.
    ///
    /// # Errors
    /// [`RootError::Read`] and [`RootError::Name`].
    pub fn entries(&self) -> Result<(Vec<Entry>, Vec<PathBuf>), RootError> {
        match self {
            Self::Executable(path) => {
                let name = place(path)?;
                let source = path.clone();
                Ok((vec![Entry { source, name }], Vec::new()))
            }
            Self::Directory(root) => {
                let mut found = (Vec::new(), Vec::new());
                walk(root, "", &mut found)?;
                Ok(found)
            }
            Self::Image(_) => Ok((Vec::new(), Vec::new())),
        }
    }
}

/// Whether the file begins as an EROFS image does.
fn is_erofs(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path)
        .and_then(|file| file.read_exact_at(&mut magic, 1024))
        .is_ok_and(|()| u32::from_le_bytes(magic) == 0xe0f5_e1e2)
}

/// Where a single executable lies, without the leading slash: in the root directory, unless a file system is mounted
/// under its name.
fn place(path: &Path) -> Result<String, RootError> {
    let name = file_name(path)?;
    Ok(if matches!(name, "dev" | "proc" | "sys" | "tmp") {
        format!("bin/{name}")
    } else {
        name.to_owned()
    })
}

fn file_name(path: &Path) -> Result<&str, RootError> {
    let text = path.file_name().and_then(|name| name.to_str());
    text.ok_or_else(|| RootError::Name { path: path.into() })
}

fn walk(dir: &Path, prefix: &str, found: &mut (Vec<Entry>, Vec<PathBuf>)) -> Result<(), RootError> {
    let read_error = |source| RootError::Read {
        path: dir.into(),
        source,
    };
    let mut names: Vec<OsString> = std::fs::read_dir(dir)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.file_name())).collect())
        .map_err(read_error)?;
    names.sort();
    for name in names {
        let source = dir.join(&name);
        let text = name.to_str().ok_or_else(|| RootError::Name {
            path: source.clone(),
        })?;
        let name = format!("{prefix}{text}");
        let kind = source.symlink_metadata().map_err(read_error)?.file_type();
        if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
            found.1.push(source);
            continue;
        }
        found.0.push(Entry {
            source: source.clone(),
            name: name.clone(),
        });
        if kind.is_dir() {
            walk(&source, &format!("{name}/"), found)?;
        }
    }
    Ok(())
}

/// A program found in a folder: its path on the host, and its absolute path in the root.
struct Found {
    source: PathBuf,
    name: String,
}

fn find(root: &Path, program: &str, search: &str) -> Result<Found, RootError> {
    let mut candidates = Vec::new();
    if program.contains('/') {
        candidates.push(Path::new("/").join(program));
    } else {
        candidates.extend(
            search
                .split(':')
                .map(|dir| Path::new("/").join(dir).join(program)),
        );
    }
    let mut denied = false;
    for candidate in candidates {
        let Some(source) = resolve(root, &candidate) else {
            continue;
        };
        let Ok(meta) = source.metadata() else {
            continue;
        };
        if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
            denied = true;
            continue;
        }
        let name = candidate.to_string_lossy().into_owned();
        return Ok(Found { source, name });
    }
    let (program, root) = (program.to_owned(), root.to_owned());
    Err(if denied {
        RootError::NotExecutable { program, root }
    } else {
        RootError::NotFound { program, root }
    })
}

/// Checks that the program can be started: it is an executable whose dynamic loader is there, or a script whose
/// interpreter is such a program.
fn check(root: &Path, found: &Found) -> Result<(), RootError> {
    let (program, mut file) = (&found.name, found.source.clone());
    // More scripts that lead to each other are left to the guest, which refuses them.
    for _ in 0..MOST_SCRIPTS {
        let Some(interpreter) = script_interpreter(program, &file)? else {
            break;
        };
        if !interpreter.starts_with('/') {
            return Ok(()); // seen from the working directory
        }
        file = resolve(root, Path::new(&interpreter))
            .filter(|file| file.is_file())
            .ok_or_else(|| RootError::NoScriptInterpreter {
                program: program.clone(),
                interpreter,
                root: root.to_owned(),
            })?;
    }
    if let Program {
        interpreter: Some(interpreter),
        ..
    } = program::inspect(&file)?
        && resolve(root, Path::new(&interpreter)).is_none_or(|file| !file.is_file())
    {
        return Err(RootError::NoInterpreter {
            program: program.clone(),
            interpreter,
            root: root.to_owned(),
        });
    }
    Ok(())
}

/// The interpreter that the first line of `file` names; `None` if it is no script.
fn script_interpreter(program: &str, file: &Path) -> Result<Option<String>, RootError> {
    let read_error = |source| RootError::Read {
        path: file.into(),
        source,
    };
    let mut start = Vec::new();
    File::open(file)
        .and_then(|file| file.take(script::HEAD_BYTES as u64).read_to_end(&mut start))
        .map_err(read_error)?;
    interpreter_of(program, &start)
}

/// The interpreter that the first line of a file names, of which `start` is the first [`script::HEAD_BYTES`], or all;
/// `None` if it is no script.
pub(crate) fn interpreter_of(program: &str, start: &[u8]) -> Result<Option<String>, RootError> {
    if !script::is_script(start) {
        return Ok(None);
    }
    let mut head = [0; script::HEAD_BYTES];
    head[..start.len()].copy_from_slice(start);
    let script = script::parse(&head).map_err(|source| RootError::Script {
        program: program.to_owned(),
        source,
    })?;
    Ok(Some(
        String::from_utf8_lossy(script.interpreter).into_owned(),
    ))
}

/// Follows `path` inside `root` as the guest would; `None` when it leads nowhere.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut at = PathBuf::new();
    let mut todo: Vec<OsString> = components(path);
    let mut links = 0;
    while let Some(step) = todo.pop() {
        if step == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&step);
        let meta = root.join(&next).symlink_metadata().ok()?;
        if meta.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            let target = std::fs::read_link(root.join(&next)).ok()?;
            if target.is_absolute() {
                at = PathBuf::new();
            }
            todo.extend(components(&target));
        } else {
            at = next;
        }
    }
    Some(root.join(at))
}

/// The names of a path, last first, so that the next one is popped from the end.
fn components(path: &Path) -> Vec<OsString> {
    let named = path.components().filter_map(|c| match c {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<OsString> = named.collect();
    names.reverse();
    names
}

/// The metadata an archive records for `source`, without following a link.
pub(crate) fn cpio_meta(meta: &std::fs::Metadata) -> crate::cpio::Meta {
    crate::cpio::Meta {
        permissions: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        mtime_s: u32::try_from(meta.mtime().max(0)).unwrap_or(u32::MAX),
    }
}
