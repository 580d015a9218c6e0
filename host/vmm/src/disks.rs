// SPDX-License-Identifier: Apache-2.0
//! Watches the length of a guest's disks. QEMU answers reads behind the end of a file that became shorter with zeros, so
//! the guest would take them for data: a file cut short under it must end it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use crate::command::Disk;

/// How often the lengths are looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// The disks of one guest.
#[derive(Debug)]
pub(crate) struct Lengths {
    files: Vec<Watched>,
    next: Instant,
}

#[derive(Debug)]
struct Watched {
    /// The file itself: another one may be put in its place while the guest keeps this one.
    file: File,
    length: u64,
    path: PathBuf,
    read_only: bool,
}

impl Lengths {
    /// Notes how long the files are. Call it before the VMM opens them.
    ///
    /// # Errors
    /// What the host answers when a file is not there.
    pub(crate) fn new(disks: &[Disk]) -> io::Result<Self> {
        let watched = |disk: &Disk| {
            // For its attributes only: nobody's lock is touched, and the right to read it is QEMU's concern.
            let flags = OFlag::O_PATH.bits();
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open(&disk.path)?;
            Ok(Watched {
                length: file.metadata()?.len(),
                file,
                path: disk.path.clone(),
                read_only: disk.read_only,
            })
        };
        let files: io::Result<Vec<_>> = disks.iter().map(watched).collect();
        Ok(Self {
            files: files?,
            next: Instant::now() + PERIOD,
        })
    }

    /// When [`check`](Self::check) wants to be called; never without disks.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.files.is_empty()).then_some(self.next)
    }

    /// Looks at the files if it is time. Says in words which one is shorter than it was, and the remedy.
    pub(crate) fn check(&mut self) -> Option<String> {
        let now = Instant::now();
        if self.files.is_empty() || now < self.next {
            return None;
        }
        self.next = now + PERIOD;
        self.check_now()
    }

    /// The same whatever the time.
    pub(crate) fn check_now(&self) -> Option<String> {
        self.files.iter().find_map(|watched| {
            let length = watched.file.metadata().ok()?.len();
            (length < watched.length).then(|| {
                let remedy = if watched.read_only {
                    "start it again; if that fails, pull or build the image again first"
                } else {
                    "bring the volume back from a copy"
                };
                format!(
                    "{} was cut short under the running guest ({} bytes were there, {length} are left); {remedy}",
                    watched.path.display(),
                    watched.length,
                )
            })
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it fails")]
mod tests {
    use super::*;

    #[test]
    fn a_file_cut_short_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let disk = |name: &str, read_only| {
            let path = folder.path().join(name);
            std::fs::write(&path, [1; 9000]).unwrap();
            Disk {
                path,
                read_only,
                locked: false,
            }
        };
        for (read_only, remedy) in [(true, "the image again"), (false, "from a copy")] {
            let disks = [disk("one", true), disk("two", read_only)];
            let mut lengths = Lengths::new(&disks).unwrap();
            assert!(lengths.next().is_some());
            let file = File::options().write(true).open(&disks[1].path).unwrap();
            file.set_len(10_000).unwrap();
            assert_eq!(lengths.check_now(), None, "longer is no loss");
            file.set_len(4096).unwrap();
            assert_eq!(lengths.check(), None, "it is not time yet");
            lengths.next = Instant::now();
            let said = lengths.check().unwrap();
            for part in ["two", "9000", "4096", remedy] {
                assert!(said.contains(part), "{part:?} is not in {said:?}");
            }
        }
    }

    #[test]
    fn another_file_in_its_place_is_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, [1; 9000]).unwrap();
        let lengths = Lengths::new(&[Disk {
            path: path.clone(),
            read_only: true,
            locked: false,
        }])
        .unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [1; 10]).unwrap();
        assert_eq!(lengths.check_now(), None);
    }

    #[test]
    fn without_disks_nothing_is_waited_for() {
        let mut lengths = Lengths::new(&[]).unwrap();
        assert!(lengths.next().is_none() && lengths.check().is_none());
    }
}
