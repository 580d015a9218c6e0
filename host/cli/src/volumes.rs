// SPDX-License-Identifier: Apache-2.0
//! `-v`, `--tmpfs` and `--mount`: what of the host the guest sees, and where.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use coracle_imager::config::Mount;
use coracle_vmm::{Disk, Share};
use coracle_volume::Store;

use crate::error::Failure;

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A folder of the host.
    Folder(PathBuf),
    /// One file of the host.
    File(PathBuf),
    /// A named volume (`coracle volume`).
    Named(String),
    /// A volume that is made for this instance.
    New,
    /// Memory of the guest, with these options.
    Memory(Vec<String>),
}

/// Something to be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) source: Source,
    /// Where, absolute.
    pub(crate) destination: String,
    pub(crate) read_only: bool,
}

/// All volumes of a command line, checked.
pub(crate) fn volumes(
    volume: &[String],
    tmpfs: &[String],
    mount: &[String],
) -> Result<Vec<Volume>, Failure> {
    let mut all = Vec::new();
    for text in mount {
        all.push(self::mount(text)?);
    }
    for text in volume {
        all.push(bind(text)?);
    }
    for text in tmpfs {
        all.push(memory(text)?);
    }
    for (at, volume) in all.iter().enumerate() {
        if is_covered(&all[..at], &volume.destination) {
            return Err(Failure::new(format!(
                "two volumes at {}; give each a place of its own",
                volume.destination
            )));
        }
    }
    in_order(&mut all);
    Ok(all)
}

/// Whether something is mounted at `destination`.
fn is_covered(volumes: &[Volume], destination: &str) -> bool {
    let at = |volume: &Volume| {
        Path::new(&volume.destination)
            .components()
            .eq(Path::new(destination).components())
    };
    volumes.iter().any(at)
}

/// What lies deeper is mounted later.
fn in_order(volumes: &mut [Volume]) {
    volumes.sort_by_key(|volume| Path::new(&volume.destination).components().count());
}

/// Adds a new volume for each VOLUME of the image called `name` that nothing is mounted at.
pub(crate) fn add_image_volumes(
    volumes: &mut Vec<Volume>,
    name: &str,
    paths: &[String],
) -> Result<(), Failure> {
    for path in paths {
        // Builders write what was said, absolute or not.
        let guest = format!("/{}", path.trim_matches('/'));
        let destination =
            destination(&format!("{name}: VOLUME {path}"), &guest).map_err(|failure| {
                Failure::new(format!("{}; or use --image-volume ignore", failure.message))
            })?;
        if !is_covered(volumes, &destination) {
            volumes.push(Volume {
                source: Source::New,
                destination,
                read_only: false,
            });
        }
    }
    in_order(volumes);
    Ok(())
}

/// `HOST:GUEST[:OPTIONS]`, or `GUEST` for a new volume. The path of the host may contain colons: the guest's begins at the last colon before a slash.
fn bind(text: &str) -> Result<Volume, Failure> {
    let form = "write HOST:GUEST or HOST:GUEST:ro, with an absolute path in the guest";
    let (rest, read_only) = match text.rsplit_once(':') {
        Some((rest, options)) if !options.starts_with('/') && rest.contains(":/") => {
            (rest, options_of(text, options)?)
        }
        _ => (text, false),
    };
    if text.starts_with('/') && !text.contains(':') {
        return Ok(Volume {
            source: Source::New,
            destination: destination(&format!("-v {text}"), text)?,
            read_only: false,
        });
    }
    let Some(at) = rest.rfind(":/").filter(|at| *at > 0) else {
        return Err(Failure::new(format!("-v {text}: {form}")));
    };
    let (host, guest) = (&rest[..at], &rest[at + 1..]);
    Ok(Volume {
        source: source(&format!("-v {text}"), host)?,
        destination: destination(&format!("-v {text}"), guest)?,
        read_only,
    })
}

/// `ro`, `rw`; labels of SELinux (`z`, `Z`) mean nothing here, since QEMU runs as the user.
fn options_of(text: &str, options: &str) -> Result<bool, Failure> {
    let mut read_only = false;
    for option in options.split(',') {
        match option {
            "ro" => read_only = true,
            "rw" => read_only = false,
            "z" | "Z" => {}
            _ => {
                return Err(Failure::new(format!(
                    "-v {text}: unknown option {option:?}; there are ro and rw"
                )));
            }
        }
    }
    Ok(read_only)
}

/// A name is a volume's, anything with a slash or that is `.` or `..` a path, as with podman.
fn source(what: &str, host: &str) -> Result<Source, Failure> {
    if host.is_empty() {
        return Err(Failure::new(format!(
            "{what}: no path of the host before the colon"
        )));
    }
    if !host.contains('/') && host != "." && host != ".." {
        return Ok(Source::Named(host.to_owned()));
    }
    let path = fs::canonicalize(host).map_err(|error| {
        Failure::new(match error.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{what}: no file or folder {host}; make it first: mkdir -p {host}")
            }
            _ => format!("{what}: {host}: {error}"),
        })
    })?;
    let meta = fs::metadata(&path).map_err(|error| Failure::new(format!("{what}: {error}")))?;
    if meta.is_dir() {
        fs::read_dir(&path).map_err(|error| Failure::new(format!("{what}: {host}: {error}")))?;
        Ok(Source::Folder(path))
    } else if meta.is_file() {
        Ok(Source::File(path))
    } else {
        Err(Failure::new(format!(
            "{what}: {host} is neither a file nor a folder"
        )))
    }
}

fn destination(what: &str, guest: &str) -> Result<String, Failure> {
    if !guest.starts_with('/') || guest.split('/').any(|part| part == "..") {
        return Err(Failure::new(format!(
            "{what}: {guest:?} is no absolute path without '..' in the guest"
        )));
    }
    if guest.chars().all(|c| c == '/') {
        return Err(Failure::new(format!(
            "{what}: the root itself cannot be a volume; mount below it"
        )));
    }
    Ok(guest.to_owned())
}

/// `PATH[:size=SIZE,mode=MODE]`
fn memory(text: &str) -> Result<Volume, Failure> {
    let (path, options) = text.split_once(':').unwrap_or((text, ""));
    let what = format!("--tmpfs {text}");
    let mut read_only = false;
    let mut kept = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => read_only = true,
            "rw" => read_only = false,
            _ => kept.push(memory_option(&what, option)?),
        }
    }
    Ok(Volume {
        source: Source::Memory(kept),
        destination: destination(&what, path)?,
        read_only,
    })
}

fn memory_option(what: &str, option: &str) -> Result<String, Failure> {
    let is_size = |size: &str| {
        let digits = size.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
        digits.len() + 1 >= size.len() && digits.parse::<u32>().is_ok()
    };
    let is_mode = |mode: &str| u32::from_str_radix(mode, 8).is_ok_and(|mode| mode <= 0o7777);
    let sound = match option.split_once('=') {
        Some(("size", size)) => is_size(size),
        Some(("mode", mode)) => is_mode(mode),
        _ => matches!(
            option,
            "noexec" | "nosuid" | "nodev" | "exec" | "suid" | "dev"
        ),
    };
    if sound {
        return Ok(option.to_owned());
    }
    Err(Failure::new(format!(
        "{what}: {option:?}; there are size=64m, mode=0755, ro and rw"
    )))
}

/// `type=bind|volume|tmpfs,source=HOST,target=GUEST[,readonly]`
fn mount(text: &str) -> Result<Volume, Failure> {
    let what = format!("--mount {text}");
    let (mut kind, mut host, mut guest, mut read_only) = ("volume", None, None, false);
    let mut options = Vec::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            "type" => kind = value,
            "source" | "src" => host = Some(value),
            "target" | "destination" | "dst" => guest = Some(value),
            "readonly" | "ro" => match value {
                "" | "true" => read_only = true,
                "false" => read_only = false,
                _ => {
                    return Err(Failure::new(format!("{what}: {key} is true or false")));
                }
            },
            "tmpfs-size" => options.push(memory_option(&what, &format!("size={value}"))?),
            "tmpfs-mode" => options.push(memory_option(&what, &format!("mode={value}"))?),
            _ => {
                return Err(Failure::new(format!(
                    "{what}: unknown key {key:?}; there are type, source, target, readonly, tmpfs-size and tmpfs-mode"
                )));
            }
        }
    }
    let guest = guest.ok_or_else(|| Failure::new(format!("{what}: target=PATH is missing")))?;
    let path = || host.ok_or_else(|| Failure::new(format!("{what}: source= is missing")));
    let source = match kind {
        "bind" => match source(&what, path()?)? {
            Source::Named(name) => source(&what, &format!("./{name}"))?,
            path => path,
        },
        "volume" => match host {
            Some(name) => Source::Named(name.to_owned()),
            None => Source::New,
        },
        "tmpfs" => Source::Memory(options),
        _ => {
            return Err(Failure::new(format!(
                "{what}: unknown type {kind:?}; there are bind, volume and tmpfs"
            )));
        }
    };
    Ok(Volume {
        source,
        destination: destination(&what, guest)?,
        read_only,
    })
}

/// What the guest is told to mount, and the folders that the VMM shares for that. Files are then linked into
/// folders of their own by [`link_files`]. Volumes become disks in their order, see [`disks`], behind those that the
/// guest has already.
pub(crate) fn shares(
    volumes: &[Volume],
    disks_before: usize,
) -> Result<(Vec<Mount>, Vec<Share>), Failure> {
    let (mut mounts, mut shares) = (Vec::new(), Vec::new());
    let mut letters = ('a'..='z').skip(disks_before);
    for volume in volumes {
        let mut options: Vec<String> = Vec::new();
        if volume.read_only {
            options.push("ro".into());
        }
        let mut share = |path: &Path| {
            let tag = format!("share{}", shares.len());
            shares.push(Share {
                path: path.to_owned(),
                tag: tag.clone(),
                read_only: volume.read_only,
            });
            tag
        };
        let (kind, source) = match &volume.source {
            Source::Folder(path) => ("9p", share(path)),
            Source::File(path) => {
                options.push(format!("file={FILE}"));
                ("9p", share(path))
            }
            Source::Memory(more) => {
                options.extend(more.iter().cloned());
                ("tmpfs", "tmpfs".into())
            }
            Source::Named(_) | Source::New => {
                let letter = letters.next().ok_or_else(|| {
                    let place = &volume.destination;
                    Failure::new(format!("volume at {place}: a guest has at most 26 disks"))
                })?;
                ("ext4", format!("/dev/vd{letter}"))
            }
        };
        mounts.push(Mount {
            destination: volume.destination.clone(),
            kind: kind.into(),
            source,
            options,
        });
    }
    Ok((mounts, shares))
}

/// The disks of the volumes, and those volumes that the caller makes when nothing can go wrong any more. Named volumes are
/// made now if they are not there, as podman does; `for_new` is where others will be.
pub(crate) fn disks(
    volumes: &[Volume],
    for_new: &Store,
) -> Result<(Vec<Disk>, Vec<coracle_volume::Volume>), Failure> {
    let mut disks: Vec<Disk> = Vec::new();
    let mut new = Vec::new();
    for volume in volumes {
        let path = match &volume.source {
            Source::Named(name) => {
                let found = crate::volume::store()?.open_or_create(name)?;
                found.check_available(volume.read_only)?;
                found.disk()
            }
            Source::New => {
                let volume = for_new.unnamed();
                let disk = volume.disk();
                new.push(volume);
                disk
            }
            Source::Folder(_) | Source::File(_) | Source::Memory(_) => continue,
        };
        if disks.iter().any(|other| other.path == path) {
            return Err(Failure::new(format!(
                "the volume at {} is given twice; a volume is mounted at one place of a guest",
                volume.destination
            )));
        }
        disks.push(Disk {
            path,
            read_only: volume.read_only,
            locked: true,
        });
    }
    Ok((disks, new))
}

/// Name of the only file in a share of one file.
const FILE: &str = "file";

/// Puts each file that is shared alone into a folder of its own below `dir`, by a hard link: the guest's kernel must not
/// be able to reach the file's neighbours.
pub(crate) fn link_files(shares: &mut [Share], dir: &Path) -> Result<(), Failure> {
    for share in shares {
        let Ok(meta) = fs::metadata(&share.path) else {
            continue; // gone since it was checked; QEMU says so
        };
        if meta.is_dir() {
            continue;
        }
        let alone = dir.join(&share.tag);
        let refused = |error: std::io::Error| {
            let folder = share.path.parent().unwrap_or(Path::new("/"));
            let why = match fs::metadata(dir) {
                Ok(here) if here.dev() != meta.dev() => {
                    format!("it is on another file system than {}", dir.display())
                }
                _ => error.to_string(),
            };
            Failure::new(format!(
                "-v {}: a file alone cannot be shared: {why}; share its folder {}",
                share.path.display(),
                folder.display()
            ))
        };
        let _ = fs::remove_dir_all(&alone);
        fs::create_dir_all(&alone).map_err(refused)?;
        fs::hard_link(&share.path, alone.join(FILE)).map_err(refused)?;
        share.path = alone;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Volume {
        bind(text).unwrap()
    }

    fn wrong(text: &str) -> String {
        bind(text).unwrap_err().message
    }

    #[test]
    fn paths_names_and_options_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().canonicalize().unwrap();
        fs::create_dir(host.join("a,b:c")).unwrap();
        fs::write(host.join("f"), "x").unwrap();
        let at = |name: &str| host.join(name);
        let text = |name: &str, rest: &str| format!("{}:{rest}", at(name).display());
        let folder = one(&text("a,b:c", "/data:ro"));
        assert_eq!(folder.source, Source::Folder(at("a,b:c")));
        assert_eq!((&*folder.destination, folder.read_only), ("/data", true));
        let file = one(&text("f", "/etc/f.conf:rw,Z"));
        assert_eq!(file.source, Source::File(at("f")));
        assert!(!file.read_only);
        assert_eq!(one("cache:/c").source, Source::Named("cache".into()));
        assert!(matches!(one(".:/here").source, Source::Folder(_)));
        assert!(wrong(&text("none", "/x")).contains("no file or folder"));
        assert!(wrong("only").contains("write HOST:GUEST"));
        assert!(wrong(&text("f", "/x:rx")).contains("unknown option \"rx\""));
        assert!(wrong(&text("f", "/a/../b")).contains("no absolute path"));
        assert!(wrong(&text("f", "//")).contains("root itself"));
        assert!(wrong(&text("f", "x")).contains("write HOST:GUEST"));
    }

    #[test]
    fn long_forms_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path().canonicalize().unwrap();
        let text = format!("type=bind,src={},dst=/d,ro", host.display());
        assert_eq!(
            mount(&text).unwrap(),
            one(&format!("{}:/d:ro", host.display()))
        );
        let tmpfs = memory("/t:size=64m,mode=0700").unwrap();
        assert_eq!(
            mount("type=tmpfs,target=/t,tmpfs-size=64m,tmpfs-mode=0700").unwrap(),
            tmpfs
        );
        assert_eq!(
            mount("src=v,target=/t").unwrap().source,
            Source::Named("v".into())
        );
        for (text, why) in [
            ("type=nfs,src=/,target=/t", "unknown type"),
            ("type=bind,target=/t", "source= is missing"),
            ("type=volume", "target=PATH is missing"),
            ("type=tmpfs", "target=PATH is missing"),
            ("type=tmpfs,target=/t,size=1", "unknown key"),
            ("type=tmpfs,target=/t,tmpfs-size=x", "there are size=64m"),
        ] {
            assert!(mount(text).unwrap_err().message.contains(why), "{text}");
        }
        assert!(memory("/t:size=-1").is_err() && memory("t").is_err());
    }

    #[test]
    fn places_are_used_once_and_in_order() {
        let tmpfs = ["/a/b".to_owned(), "/a".to_owned()];
        let found = volumes(&[], &tmpfs, &[]).unwrap();
        assert_eq!(
            (&*found[0].destination, &*found[1].destination),
            ("/a", "/a/b")
        );
        let twice = ["/a".to_owned(), "/a/".to_owned()];
        assert!(
            volumes(&[], &twice, &[])
                .unwrap_err()
                .message
                .contains("two volumes")
        );
    }

    #[test]
    fn a_file_is_shared_without_its_neighbours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "x").unwrap();
        let volume = Volume {
            source: Source::File(path),
            destination: "/s".into(),
            read_only: true,
        };
        let (mounts, mut shares) = shares(&[volume], 0).unwrap();
        assert_eq!(mounts[0].options, ["ro", "file=file"]);
        link_files(&mut shares, &dir.path().join("i")).unwrap();
        let names: Vec<_> = fs::read_dir(&shares[0].path).unwrap().flatten().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(fs::read(names[0].path()).unwrap(), b"x");
    }
}
