// SPDX-License-Identifier: Apache-2.0
//! What is known about instances, one folder each: `$XDG_STATE_HOME/coracle/instances/NAME/`.
//!
//! `state.json` is written aside and renamed, so that a reader never sees half of it. Making the folder is what takes a
//! name: of two that try at once, one gets it.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use coracle_volume::Volume;
use serde::{Deserialize, Serialize};

use crate::command::Spec;
use crate::process::ProcessId;

/// The longest name of an instance: its control socket must fit into `sockaddr_un` below usual state folders.
pub const NAME_MAX: usize = 40;

/// All instances of this user.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// The folder of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub dir: PathBuf,
}

/// What `state.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Where it is in its life.
    pub status: Status,
    /// The executable or folder on the host, or the name of an image.
    pub image: PathBuf,
    /// The signal that asks the application to end, if it is not SIGTERM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// When it was made, seconds since 1970.
    pub created_s: u64,
    /// When the VMM was started, seconds since 1970.
    pub started_s: Option<u64>,
    /// When it ended, seconds since 1970.
    pub finished_s: Option<u64>,
    /// Whether the folder goes when the instance ends, and the volumes with it.
    pub remove: bool,
    /// Volumes that nobody named: they were made for this instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Whether the guest may not change its root.
    pub read_only: bool,
    /// Why software emulation was chosen although nobody asked for it.
    pub accel_warning: Option<String>,
    /// The process that watches the VMM.
    pub monitor: Option<ProcessId>,
    /// The VMM.
    pub vmm: Option<ProcessId>,
    /// Nanoseconds from the kernel's first instruction to the start of the program.
    pub boot_ns: Option<u64>,
    /// When each boot step ended, nanoseconds since the kernel's first instruction, in order.
    #[serde(default)]
    pub boot_laps: Vec<(String, u64)>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// How it is started.
    pub spec: Spec,
}

/// Where an instance is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The folder is there, the VMM not yet.
    Created,
    /// The VMM runs.
    Running,
    /// The VMM is gone.
    Exited,
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Why.
    pub reason: Reason,
    /// What a shell would show: the application's exit code, 128+n for a signal.
    pub code: u8,
    /// The signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// More in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The kernel's report of a crash or a panic, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub report: Vec<String>,
}

/// Why an instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The application ended by itself.
    Exit,
    /// A signal ended it.
    Signal,
    /// Its memory did not suffice.
    OutOfMemory,
    /// The kernel panicked.
    Panic,
    /// The program could not be started.
    Exec,
    /// The VMM ended without a word of the guest.
    Vmm,
}

/// What can be wrong with the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The name is not allowed.
    #[error(
        "--name {name:?}: use 1 to {NAME_MAX} letters, digits, '-', '_' and '.', beginning with a letter or digit"
    )]
    BadName {
        /// As given.
        name: String,
    },
    /// The name is taken.
    #[error(
        "the name {name} is in use by {what} instance; choose another --name or remove it: coracle rm {force}{name}"
    )]
    NameInUse {
        /// The name.
        name: String,
        /// A running, an ended or a half-made one.
        what: &'static str,
        /// `-f ` for a running one.
        force: &'static str,
    },
    /// There is no such instance.
    #[error("no instance named {name}; coracle ps -a lists them")]
    NotFound {
        /// As given.
        name: String,
    },
    /// A file could not be written or read.
    #[error("{}: {source}{}", path.display(), io_remedy(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the host answered.
        source: io::Error,
    },
    /// `state.json` is damaged.
    #[error("{}: damaged ({source}); remove the instance: coracle rm -f {name}", path.display())]
    Damaged {
        /// Name of the instance.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// What helps against an answer of the host about a file.
pub(crate) fn io_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free space there, or set XDG_STATE_HOME to a folder on another disk"
        }
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::NotFound => "; set XDG_STATE_HOME to a folder you may write",
        _ => "",
    }
}

impl Store {
    /// The instances below `state`, the folder of Coracle's state.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self {
            root: state.join("instances"),
        }
    }

    /// Takes a name and makes its folder.
    ///
    /// # Errors
    /// [`StoreError::BadName`], [`StoreError::NameInUse`], [`StoreError::Io`].
    pub fn create(&self, name: &str) -> Result<Instance, StoreError> {
        let instance = self.at(name)?;
        let io_error = |source| StoreError::Io {
            path: instance.dir.clone(),
            source,
        };
        fs::create_dir_all(&self.root).map_err(io_error)?;
        match DirBuilder::new().mode(0o700).create(&instance.dir) {
            Ok(()) => Ok(instance),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let (what, force) = match instance.load() {
                    Ok(state) if state.status == Status::Exited => ("an ended", ""),
                    Ok(_) => ("a running", "-f "),
                    Err(_) => ("a half-made", "-f "),
                };
                let name = name.into();
                Err(StoreError::NameInUse { name, what, force })
            }
            Err(error) => Err(io_error(error)),
        }
    }

    /// The instance of that name.
    ///
    /// # Errors
    /// [`StoreError::BadName`], [`StoreError::NotFound`].
    pub fn open(&self, name: &str) -> Result<Instance, StoreError> {
        let instance = self.at(name)?;
        if instance.dir.is_dir() {
            Ok(instance)
        } else {
            Err(StoreError::NotFound { name: name.into() })
        }
    }

    /// All instances, by name.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn list(&self) -> Result<Vec<Instance>, StoreError> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                let path = self.root.clone();
                return Err(StoreError::Io { path, source });
            }
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        Ok(names
            .iter()
            .filter_map(|name| self.open(name).ok())
            .collect())
    }

    fn at(&self, name: &str) -> Result<Instance, StoreError> {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || name.len() > NAME_MAX || !name.chars().all(valid) {
            return Err(StoreError::BadName { name: name.into() });
        }
        Ok(Instance {
            name: name.into(),
            dir: self.root.join(name),
        })
    }
}

impl State {
    /// Removes the volumes that were made for the instance, with their content. One that another instance has by now
    /// stays, as one that cannot be removed does: `coracle volume ls` shows it.
    pub fn remove_volumes(&self) {
        for volume in &self.volumes {
            let _ = volume.clone().remove();
        }
    }
}

impl Instance {
    /// The application's output, when nobody watches it in the foreground also its only place.
    #[must_use]
    pub fn console_log(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// What the kernel wrote on the serial port.
    #[must_use]
    pub fn serial_log(&self) -> PathBuf {
        self.dir.join("serial.log")
    }

    /// What QEMU itself said.
    #[must_use]
    pub fn vmm_log(&self) -> PathBuf {
        self.dir.join("vmm.log")
    }

    /// The boot bundle or its first part, until the guest has read it.
    #[must_use]
    pub fn bundle(&self) -> PathBuf {
        self.dir.join("bundle.cpio")
    }

    /// Folder for files that are shared one by one.
    #[must_use]
    pub fn shares(&self) -> PathBuf {
        self.dir.join("shares")
    }

    /// The boot ROM, until the guest has started.
    #[must_use]
    pub fn boot_rom(&self) -> PathBuf {
        self.dir.join("boot.rom")
    }

    /// Removes what only the start needs. What is not there is no error.
    pub(crate) fn remove_boot_files(&self) {
        let _ = fs::remove_file(self.bundle());
        let _ = fs::remove_file(self.boot_rom());
    }

    /// Where the monitor listens for other `coracle` processes.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.dir.join("control.sock")
    }

    /// Reads the state. An instance whose monitor is gone without a word has ended, whatever the file says.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Io`], [`StoreError::Damaged`].
    pub fn load(&self) -> Result<State, StoreError> {
        let path = self.dir.join("state.json");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = self.name.clone();
                return Err(StoreError::NotFound { name });
            }
            Err(source) => return Err(StoreError::Io { path, source }),
        };
        let mut state: State =
            serde_json::from_slice(&bytes).map_err(|source| StoreError::Damaged {
                name: self.name.clone(),
                path,
                source,
            })?;
        let watched = state.monitor.is_some_and(ProcessId::is_alive);
        if state.status != Status::Exited && !watched {
            state.status = Status::Exited;
            state.exit = Some(Exit::vmm("the process that watched the VMM was killed"));
        }
        Ok(state)
    }

    /// Writes the state.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn save(&self, state: &State) -> Result<(), StoreError> {
        let path = self.dir.join("state.json");
        let aside = self.dir.join("state.json.new");
        let bytes = serde_json::to_vec_pretty(state).expect("a state has text keys only");
        let written = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, &path));
        written.map_err(|source| StoreError::Io { path, source })
    }

    /// Removes the folder with everything in it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn remove(&self) -> Result<(), StoreError> {
        match fs::remove_dir_all(&self.dir) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                let path = self.dir.clone();
                Err(StoreError::Io { path, source })
            }
            _ => Ok(()),
        }
    }
}

impl Exit {
    /// Exit code of an instance whose VMM ended without a word of the guest: Coracle's own error.
    pub const VMM_CODE: u8 = 125;

    /// The VMM ended without a word of the guest.
    #[must_use]
    pub fn vmm(detail: &str) -> Self {
        Self {
            reason: Reason::Vmm,
            code: Self::VMM_CODE,
            signal: None,
            detail: Some(detail.to_owned()),
            report: Vec::new(),
        }
    }

    /// Ended by `SIGKILL` on request of a user.
    #[must_use]
    pub fn killed() -> Self {
        Self {
            reason: Reason::Signal,
            code: 128 + 9,
            signal: Some(9),
            detail: Some("the VMM was killed on request".into()),
            report: Vec::new(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::OutOfMemory => "out-of-memory",
            Self::Panic => "panic",
            Self::Exec => "exec",
            Self::Vmm => "vmm",
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
        })
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
