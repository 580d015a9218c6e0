// SPDX-License-Identifier: Apache-2.0

//! The root file system of a service, the same for every platform: the unikernel takes the image as it is, the others a
//! folder with the same files, made once by `coracle-imager` from the same flattened image.
//!
//! What is started is found as `coracle run` finds it: entry point and command of the image, environment with a default
//! `PATH`, user and working folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use coracle_imager::erofs;
use coracle_imager::image::root::{Image as OciImage, from_tar};
use coracle_imager::image::start::ImageRoot;
use coracle_imager::image::{Store, source};
use coracle_imager::root::DEFAULT_PATH;
use nix::fcntl::{Flock, FlockArg};

use super::tool::folder_bytes;
use super::{Image, Order, Prepared, folders};
use crate::experiment::Service;
use crate::network::Link;
use crate::{Error, Result};

/// The roots of services on a platform of the host, which needs nothing else on disk.
#[derive(Debug, Default)]
pub(super) struct HostRoots(BTreeMap<String, Root>);

impl HostRoots {
    pub(super) fn prepare(&mut self, service: &Service, image: &Image) -> Result<Prepared> {
        let root = Root::prepare(service, image)?;
        let image_bytes = folder_bytes(&root.folder);
        self.0.insert(service.name.clone(), root);
        Ok(Prepared {
            image_bytes,
            shared_bytes: 0,
        })
    }

    /// The root of a service that was prepared, and the network namespace it is to be started in.
    pub(super) fn find<'a>(
        &'a self,
        order: &'a Order<'_>,
        name: &str,
    ) -> Result<(&'a Root, &'a str)> {
        let root = super::prepared(&self.0, order.service)?;
        match order.link {
            Link::Namespace { namespace, .. } => Ok((root, namespace)),
            _ => Err(super::wrong_link(name)),
        }
    }
}

/// A root folder and what is started in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// The files. Nobody writes to it.
    pub(crate) folder: PathBuf,
    /// Names files made from it in the cache.
    pub(crate) key: String,
    /// Program (absolute) and arguments.
    pub(crate) argv: Vec<String>,
    /// `NAME=value`.
    pub(crate) env: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Folders that outlive the root, absolute.
    pub(crate) volumes: Vec<String>,
}

impl Root {
    /// Makes the root of a service, or finds it in the cache.
    pub(crate) fn prepare(service: &Service, image: &Image) -> Result<Root> {
        let path = &image.path;
        let unfit = |error: &dyn std::fmt::Display| {
            Error::Input(format!(
                "service {}: {}: {error}",
                service.name,
                path.display()
            ))
        };
        let store = Store::new(&folders::lab_cache()?.join("images"));
        if is_elf(path).map_err(Error::file(path))? {
            return single(service, image);
        }
        if !path.is_dir() || path.join("oci-layout").is_file() {
            let found = source::find(path, &store, None).map_err(|error| unfit(&error))?;
            let Some(found) = found else {
                let erofs = from_tar(path, &store).map_err(|error| unfit(&error))?;
                let erofs = erofs.ok_or_else(|| {
                    unfit(&"neither an image, nor an executable, nor a folder, nor a tar archive")
                })?;
                let key = key_of(&image.digest);
                let folder = extracted(&erofs, &key)?;
                return in_folder(service, folder, key).map_err(|error| unfit(&error));
            };
            let name = path.display().to_string();
            let image = OciImage::read(&name, &found.manifest, found.source.as_ref())
                .map_err(|error| unfit(&error))?;
            let erofs = image
                .root(&store, found.source.as_ref())
                .map_err(|error| unfit(&error))?;
            let key = image.root_key().short().to_owned();
            let folder = extracted(&erofs, &key)?;
            return in_image(service, &image, &erofs, folder, key).map_err(|error| unfit(&error));
        }
        let folder = std::path::absolute(path).map_err(Error::file(path))?;
        in_folder(service, folder, key_of(&image.digest)).map_err(|error| unfit(&error))
    }
}

impl Root {
    /// The folder of the image that a volume at `path` begins with, if the image has one there. A link is not followed.
    pub(super) fn volume_origin(&self, path: &str) -> Option<PathBuf> {
        let mut folder = self.folder.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            folder.push(name);
            let meta = folder.symlink_metadata().ok()?;
            if !meta.is_dir() {
                return None;
            }
        }
        Some(folder)
    }

    /// User and group of a volume's top folder: the image's, or those the program runs as.
    pub(super) fn volume_owner(&self, path: &str) -> (u32, u32) {
        use std::os::unix::fs::MetadataExt;
        let origin = self
            .volume_origin(path)
            .and_then(|folder| folder.metadata().ok());
        origin.map_or((self.uid, self.gid), |meta| (meta.uid(), meta.gid()))
    }
}

fn is_elf(path: &Path) -> std::io::Result<bool> {
    use std::io::Read;
    if path.is_dir() {
        return Ok(false);
    }
    let mut magic = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut magic)?;
    Ok(magic == b"\x7fELF")
}

/// Twelve hexadecimal digits of a digest.
fn key_of(digest: &str) -> String {
    let hex = digest.rsplit(':').next().unwrap_or(digest);
    hex.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(12)
        .collect()
}

/// Built in, then the image's, then the service's; a later value replaces an earlier one.
fn environment(home: &str, image: &[String], service: &BTreeMap<String, String>) -> Vec<String> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| {
        all.retain(|(known, _)| known != name);
        all.push((name.into(), value.into()));
    };
    set("PATH", DEFAULT_PATH);
    set("HOME", home);
    for (name, value) in image.iter().filter_map(|text| text.split_once('=')) {
        set(name, value);
    }
    for (name, value) in service {
        set(name, value);
    }
    all.into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn search(env: &[String]) -> &str {
    env.iter()
        .find_map(|text| text.strip_prefix("PATH="))
        .unwrap_or(DEFAULT_PATH)
}

type Boxed<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn in_image(
    service: &Service,
    image: &OciImage,
    erofs: &Path,
    folder: PathBuf,
    key: String,
) -> Boxed<Root> {
    let root = ImageRoot::open(&image.name, erofs)?;
    let execution = &image.config.config;
    let user = root.user(&execution.user)?;
    let env = environment(&root.home(user)?, &execution.env, &service.env);
    let cwd = format!("/{}", execution.working_dir.trim_matches('/'));
    let mut argv = root.arguments(execution, None, &service.args)?;
    argv[0] = root.program(&argv[0], &cwd, search(&env))?;
    // Those of the service alone: an image's own VOLUMEs are in memory or a scratch layer on every platform, as with
    // `coracle run` without -v.
    Ok(Root {
        folder,
        key,
        argv,
        env,
        cwd,
        uid: user.uid,
        gid: user.gid,
        volumes: service.volumes.clone(),
    })
}

fn in_folder(service: &Service, folder: PathBuf, key: String) -> Boxed<Root> {
    let env = environment("/", &[], &service.env);
    let root = coracle_imager::Root::Directory(folder.clone());
    let program = root.program(service.args.first().map(String::as_str), search(&env))?;
    let rest = service.args.iter().skip(1).cloned();
    Ok(Root {
        folder,
        key,
        argv: std::iter::once(program).chain(rest).collect(),
        env,
        cwd: "/".into(),
        uid: 0,
        gid: 0,
        volumes: service.volumes.clone(),
    })
}

/// A root with one file: the executable, where `coracle run` puts it.
fn single(service: &Service, image: &Image) -> Result<Root> {
    let unfit =
        |error: &dyn std::fmt::Display| Error::Input(format!("service {}: {error}", service.name));
    let program = coracle_imager::Root::Executable(image.path.clone())
        .program(None, DEFAULT_PATH)
        .map_err(|error| unfit(&error))?;
    let name = program.trim_start_matches('/').to_owned();
    let key = format!("{}-{}", key_of(&image.digest), name.replace('/', "-"));
    let folder = in_cache("roots", &key, |folder| {
        let to = folder.join(&name);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(Error::file(parent))?;
        }
        fs::copy(&image.path, &to).map_err(Error::file(&to))?;
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(Error::file(&to))
    })?;
    Ok(Root {
        folder,
        key,
        argv: std::iter::once(program)
            .chain(service.args.iter().cloned())
            .collect(),
        env: environment("/", &[], &service.env),
        cwd: "/".into(),
        uid: 0,
        gid: 0,
        volumes: service.volumes.clone(),
    })
}

fn extracted(image: &Path, key: &str) -> Result<PathBuf> {
    in_cache("roots", key, |folder| {
        let file = File::open(image).map_err(Error::file(image))?;
        let broken =
            |error: &dyn std::fmt::Display| Error::Input(format!("{}: {error}", image.display()));
        let reader = erofs::Reader::new(file).map_err(|error| broken(&error))?;
        erofs::extract(&reader, folder).map_err(|error| match error {
            erofs::ExtractError::Write { path, source } => Error::File { path, source },
            other => broken(&other),
        })
    })
}

/// The folder `KIND/KEY` of the lab's cache, made by `make` if it is not there. It is made aside and renamed, so that an
/// interrupted run leaves no half folder; of two runs one makes it.
pub(crate) fn in_cache(
    kind: &str,
    key: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let base = folders::lab_cache()?.join(kind);
    let done = base.join(key);
    fs::create_dir_all(&base).map_err(Error::file(&base))?;
    let lock = base.join(".lock");
    let file = File::create(&lock).map_err(Error::file(&lock))?;
    let _lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| Error::File {
        path: lock.clone(),
        source: error.into(),
    })?;
    if done.exists() {
        return Ok(done);
    }
    // What a killed run left aside is removed with what is made now.
    let aside = base.join(format!(".{key}.new"));
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(Error::file(&aside))?;
    }
    fs::create_dir(&aside).map_err(Error::file(&aside))?;
    let made = make(&aside).and_then(|()| fs::rename(&aside, &done).map_err(Error::file(&done)));
    if made.is_err() {
        drop(fs::remove_dir_all(&aside));
    }
    made.map(|()| done)
}

#[cfg(test)]
mod tests {
    use super::{environment, key_of};

    #[test]
    fn later_variables_replace_earlier_ones() {
        let image = ["PATH=/bin".to_owned(), "A=1".to_owned()];
        let service = [("A".to_owned(), "2".to_owned())].into();
        assert_eq!(
            environment("/root", &image, &service),
            ["HOME=/root", "PATH=/bin", "A=2"]
        );
    }

    #[test]
    fn keys_are_short_and_fit_file_names() {
        assert_eq!(key_of("sha256:0123456789abcdef"), "0123456789ab");
        assert_eq!(key_of("../x"), "x");
    }
}
