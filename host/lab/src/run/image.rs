// SPDX-License-Identifier: Apache-2.0

//! The image of a service: found, made if it is missing, and named by its digest.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coracle_imager::image::digest::Hashing;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::experiment::Service;
use crate::platform::Image;
use crate::{Error, Result};

/// The most that making an image may take.
const MAKE_LIMIT: Duration = Duration::from_secs(3600);
/// How often a command that makes one is looked after.
const TICK: Duration = Duration::from_millis(20);
/// Lines of its output in an error.
const SAID_LINES: usize = 3;

/// The image of a service. A missing one is made by the service's `make`.
///
/// # Errors
/// When it is missing and cannot be made.
pub(super) fn find(service: &Service, base: &Path, cancel: &AtomicBool) -> Result<Image> {
    let path = base.join(&service.image);
    if !path.exists() {
        let Some(make) = &service.make else {
            return Err(Error::Input(format!(
                "{}: the image of service {} is missing, and the experiment does not say how to make it",
                path.display(),
                service.name
            )));
        };
        run(make, base, cancel).map_err(|error| match error {
            Error::Host(what) => Error::Host(format!("service {}: {what}", service.name)),
            other => other,
        })?;
        if !path.exists() {
            return Err(Error::Host(format!(
                "service {}: `{make}` did not make {}",
                service.name,
                path.display()
            )));
        }
    }
    let digest = digest(&path).map_err(Error::file(&path))?;
    Ok(Image { path, digest })
}

/// Runs a command line in the base.
fn run(make: &str, base: &Path, cancel: &AtomicBool) -> Result<()> {
    let failed = |what: &str, said: &str| {
        let said: Vec<&str> = said
            .lines()
            .rev()
            .filter(|line| !line.trim().is_empty())
            .take(SAID_LINES)
            .collect();
        let said: Vec<&str> = said.into_iter().rev().collect();
        Err(Error::Host(format!("`{make}` {what}: {}", said.join("; "))))
    };
    let cannot = |error: io::Error| Error::Host(format!("`{make}` cannot be run: {error}"));
    let output = tempfile::tempfile().map_err(cannot)?;
    let mut child = Command::new("sh")
        .args(["-c", make])
        .current_dir(base)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(cannot)?)
        .stderr(output.try_clone().map_err(cannot)?)
        .spawn()
        .map_err(cannot)?;
    let said = || {
        let mut file = &output;
        let mut text = Vec::new();
        // Without it the error still says which command failed.
        let _ =
            io::Seek::rewind(&mut file).and_then(|()| io::Read::read_to_end(&mut file, &mut text));
        String::from_utf8_lossy(&text).into_owned()
    };
    let begin = Instant::now();
    loop {
        match child.try_wait().map_err(cannot)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return failed(&format!("failed ({status})"), &said()),
            None => {}
        }
        let is_cancelled = cancel.load(Ordering::SeqCst);
        if is_cancelled || begin.elapsed() > MAKE_LIMIT {
            // With all it started. It may have ended by itself in between.
            let group =
                i32::try_from(child.id()).map_err(|error| cannot(io::Error::other(error)))?;
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            child.wait().map_err(cannot)?;
            if is_cancelled {
                return Err(Error::Interrupted);
            }
            return failed(
                &format!("was not done within {} s", MAKE_LIMIT.as_secs()),
                &said(),
            );
        }
        std::thread::sleep(TICK);
    }
}

/// `sha256:...` of a file's bytes, or of all names, kinds, modes and bytes in a folder.
fn digest(path: &Path) -> io::Result<String> {
    let mut hash = Hashing::new(io::sink());
    if path.is_dir() {
        add_folder(path, Path::new(""), &mut hash)?;
    } else {
        io::copy(&mut File::open(path)?, &mut hash)?;
    }
    Ok(hash.finish().0.to_string())
}

fn add_folder(root: &Path, below: &Path, hash: &mut impl Write) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(below))? {
        names.push(entry?.file_name());
    }
    names.sort();
    for name in names {
        let below = below.join(name);
        let path = root.join(&below);
        let data = fs::symlink_metadata(&path)?;
        let mode = std::os::unix::fs::PermissionsExt::mode(&data.permissions());
        writeln!(hash, "{} {mode:o} {}", below.display(), data.len())?;
        if data.is_dir() {
            add_folder(root, &below, hash)?;
        } else if data.is_symlink() {
            writeln!(hash, "{}", fs::read_link(&path)?.display())?;
        } else if data.is_file() {
            io::copy(&mut File::open(&path)?, hash)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(image: &str, make: Option<&str>) -> Service {
        let mut service: Service =
            toml::from_str(&format!("name = \"a\"\nimage = \"{image}\"")).unwrap();
        service.make = make.map(str::to_owned);
        service
    }

    fn find(base: &Path, image: &str, make: Option<&str>) -> Result<Image> {
        super::find(&service(image, make), base, &AtomicBool::new(false))
    }

    #[test]
    fn a_missing_image_is_made() {
        let base = tempfile::tempdir().unwrap();
        let image = find(base.path(), "a.tar", Some("printf abc > a.tar")).unwrap();
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            image.digest,
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        // One that is there is left alone.
        find(base.path(), "a.tar", Some("false")).unwrap();
        for (make, says) in [
            (None, "does not say how to make it"),
            (Some("true"), "did not make"),
            (
                Some("echo no luck; exit 3"),
                "failed (exit status: 3): no luck",
            ),
        ] {
            let error = find(base.path(), "b.tar", make).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn making_ends_when_the_user_wants_it() {
        let base = tempfile::tempdir().unwrap();
        let cancel = AtomicBool::new(true);
        let error = super::find(&service("a", Some("sleep 60 & wait")), base.path(), &cancel);
        assert!(matches!(error, Err(Error::Interrupted)));
    }

    #[test]
    fn a_folder_is_named_by_all_that_is_in_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("root");
        fs::create_dir_all(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/a"), "1").unwrap();
        let one = find(base.path(), "root", None).unwrap().digest;
        assert_eq!(one, find(base.path(), "root", None).unwrap().digest);
        fs::write(folder.join("bin/a"), "2").unwrap();
        let two = find(base.path(), "root", None).unwrap().digest;
        fs::rename(folder.join("bin/a"), folder.join("bin/b")).unwrap();
        let three = find(base.path(), "root", None).unwrap().digest;
        assert!(one != two && two != three);
    }
}
