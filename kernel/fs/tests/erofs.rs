// SPDX-License-Identifier: Apache-2.0
//! Images made by mkfs.erofs, in each layout, against the folder they were made of; images that are damaged or cut short;
//! and the fuzzer's corpus.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../../../fuzz/targets/erofs.rs"]
mod erofs;
#[path = "../../../fuzz/targets/replay.rs"]
mod replay;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coracle_core::device::BlockDevice;
use coracle_core::io::IoDst;
use coracle_core::memory::Page;
use coracle_core::{Errno, Result};
use coracle_fs::erofs::{Erofs, MountError};
use coracle_fs::vfs::{FileSystem, Inode, Kind};

const PAGE: usize = 4096;

/// A disk in memory that may become shorter, and counts its requests.
struct Disk {
    bytes: Vec<u8>,
    readable: AtomicU64,
    requests: AtomicU64,
}

impl Disk {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            readable: AtomicU64::new(bytes.len() as u64),
            bytes,
            requests: AtomicU64::new(0),
        })
    }
}

impl BlockDevice for Disk {
    fn sectors(&self) -> u64 {
        self.bytes.len() as u64 / 512
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, pages: &[Page]) -> Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let end = sector * 512 + (pages.len() * PAGE) as u64;
        if end > self.readable.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        let start = usize::try_from(sector * 512).unwrap();
        for (page, bytes) in pages.iter().zip(self.bytes[start..].chunks(PAGE)) {
            page.write(0, bytes);
        }
        Ok(())
    }

    fn write(&self, _sector: u64, _pages: &[Page]) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn image(folder: &Path, options: &[&str]) -> Vec<u8> {
    let to = folder.with_extension("erofs");
    let made = Command::new("mkfs.erofs")
        .args(options)
        .args([&to, folder])
        .output()
        .expect("mkfs.erofs (package erofs-utils)");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "mkfs.erofs {options:?}: {said}");
    fs::read(to).unwrap()
}

/// One of everything.
fn source(root: &Path) {
    fs::create_dir_all(root.join("empty/.hidden")).unwrap();
    fs::create_dir(root.join("many")).unwrap();
    for size in [0, 1, 4031, 4032, 4095, 4096, 4097, 8192, 300_000] {
        let content: Vec<u8> = (0..size).map(|at: u32| (at / 7).to_le_bytes()[0]).collect();
        fs::write(root.join(format!("size-{size}")), content).unwrap();
    }
    for number in 0..2000 {
        let name = format!("{number:04}-{}", "n".repeat(number % 200));
        fs::write(root.join("many").join(name), number.to_string()).unwrap();
    }
    fs::write(root.join("many").join("x".repeat(200)), "long").unwrap();
    symlink("size-4097", root.join("link")).unwrap();
    symlink("x/".repeat(2040), root.join("long-link")).unwrap();
    fs::hard_link(root.join("size-4097"), root.join("empty/hard")).unwrap();
    fs::set_permissions(root.join("size-1"), PermissionsExt::from_mode(0o4751)).unwrap();
    let fifo = Command::new("mkfifo").arg(root.join("pipe")).status();
    assert!(fifo.unwrap().success());
    for (name, attribute, value) in [
        ("size-1", "user.kind", "small"),
        // Those that many have are stored once.
        ("size-0", "user.shared", "by all of them"),
        ("size-1", "user.shared", "by all of them"),
        ("size-4095", "user.shared", "by all of them"),
        ("size-4096", "user.shared", "by all of them"),
        ("size-4096", "user.large", &"v".repeat(1500)),
        ("empty", "user.empty", ""),
        ("empty", "trusted.for-root", "value"),
    ] {
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::lsetxattr(root.join(name), attribute, value.as_bytes(), flags);
        if let Err(error) = set {
            eprintln!("no {attribute} here, so it is not tested: {error}");
        }
    }
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
}

fn read_all(inode: &Arc<dyn Inode>) -> Result<Vec<u8>> {
    let file = inode.clone().open(0)?;
    let size = usize::try_from(inode.metadata()?.size).unwrap();
    let mut content = vec![0; size + 10];
    let mut done = 0;
    // In odd steps, so that reads cross pages.
    while done < size {
        let end = (done + 7777).min(content.len());
        let mut dst = IoDst::kernel(&mut content[done..end]);
        match file.read_at(done as u64, &mut dst)? {
            0 => break,
            count => done += count,
        }
    }
    content.truncate(done);
    for index in 0..size.div_ceil(PAGE) {
        if file.page(index as u64, false) == Err(Errno::EAGAIN) {
            file.fetch(index as u64, false)?;
        }
        let page = file.page(index as u64, false)?;
        let len = PAGE.min(size - index * PAGE);
        let mut bytes = vec![0; len];
        page.read(0, &mut bytes);
        assert_eq!(bytes, content[index * PAGE..][..len]);
    }
    assert!(file.page(size.div_ceil(PAGE) as u64, false).is_err());
    Ok(content)
}

fn entries(inode: &Arc<dyn Inode>) -> BTreeMap<Vec<u8>, (u64, u8)> {
    let directory = inode.clone().open(0).unwrap();
    let mut found = BTreeMap::new();
    let mut cursor = 0;
    loop {
        // A few at a time, as getdents(2) with a small buffer does.
        let mut room = 5;
        let before = found.len();
        let mut next = cursor;
        let mut emit = |entry: coracle_core::file::DirEntry<'_>| {
            if room == 0 {
                return false;
            }
            room -= 1;
            next = entry.next;
            found.insert(entry.name.to_vec(), (entry.inode, entry.kind));
            true
        };
        directory.read_directory(cursor, &mut emit).unwrap();
        cursor = next;
        if found.len() == before {
            return found;
        }
    }
}

/// Extended attributes of the kinds that are answered.
fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut buffer).unwrap_or(0);
    let names = buffer[..len].split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty() && !name.starts_with(b"system."));
    let value = |name: &[u8]| {
        let mut value = vec![0; 1 << 16];
        let len = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

fn compare(inode: &Arc<dyn Inode>, path: &Path, links: bool) {
    let of = |name: Vec<u8>| (name.clone(), inode.extended(&name).unwrap());
    let ours: BTreeMap<_, _> = inode
        .extended_names()
        .unwrap()
        .into_iter()
        .map(of)
        .collect();
    assert_eq!(ours, attributes(path), "{}", path.display());
    assert_eq!(inode.extended(b"user.none"), Err(Errno::ENODATA));
    let (ours, theirs) = (
        inode.metadata().unwrap(),
        fs::symlink_metadata(path).unwrap(),
    );
    assert_eq!(ours.mode, theirs.mode(), "{}", path.display());
    assert_eq!((ours.uid, ours.gid), (theirs.uid(), theirs.gid()));
    if links {
        assert_eq!(u64::from(ours.links), theirs.nlink(), "{}", path.display());
    }
    let kind = theirs.file_type();
    if kind.is_dir() {
        let mut found = entries(inode);
        let (own, _) = found.remove(&b"."[..]).unwrap();
        assert_eq!(own, ours.inode);
        assert!(found.remove(&b".."[..]).is_some());
        let mut expected = 0;
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            let (number, kind) = found[name.as_bytes()];
            let child = inode.lookup(name.as_bytes()).unwrap();
            assert_eq!(child.metadata().unwrap().inode, number);
            assert_eq!(child.kind().dirent_type(), kind);
            if child.kind() == Kind::Directory {
                let (parent, name) = child.parent().unwrap();
                assert!(Arc::ptr_eq(&parent, inode), "one object for an inode");
                assert_eq!(name, entry.file_name().as_bytes());
            }
            compare(&child, &entry.path(), links);
            expected += 1;
        }
        assert_eq!(found.len(), expected);
        for name in [&b"no such name"[..], b"", b"0", b"zzzz", &[0xff; 255]] {
            assert_eq!(inode.lookup(name).err(), Some(Errno::ENOENT));
        }
    } else if kind.is_symlink() {
        let text = fs::read_link(path).unwrap();
        assert_eq!(inode.read_link().unwrap(), text.as_os_str().as_bytes());
    } else if kind.is_file() {
        assert_eq!(read_all(inode).unwrap(), fs::read(path).unwrap());
    } else {
        assert!(kind.is_fifo() && inode.pipe().is_some());
    }
}

#[test]
fn images_hold_what_the_folder_holds() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    source(&root);
    for options in [
        &[][..],
        &["-E", "noinline_data"],
        &["-E", "force-inode-extended"],
        &["-E", "force-inode-compact"],
        &["--chunksize=4096"],
        &["--chunksize=65536"],
        &["-E", "nosbcrc"],
        &["-x", "1000"],
    ] {
        let disk = Disk::new(image(&root, options));
        let mounted = Erofs::mount(disk).unwrap_or_else(|e| panic!("{options:?}: {e}"));
        assert_eq!(mounted.type_name(), "erofs");
        assert!(mounted.root().parent().is_none());
        compare(&mounted.root(), &root, true);
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), vec![b'x'; 100_000]).unwrap();
    let fail = |bytes: Vec<u8>| Erofs::mount(Disk::new(bytes)).err().unwrap();
    let good = image(&root, &["--chunksize=4096"]);

    assert_eq!(fail(Vec::new()), MountError::NotErofs);
    assert_eq!(fail(vec![0; 8192]), MountError::NotErofs);
    let mut bytes = good.clone();
    bytes[1024 + 64] ^= 1;
    assert_eq!(fail(bytes), MountError::Checksum);
    let mut bytes = good.clone();
    bytes[1024 + 12] = 9;
    assert_eq!(fail(bytes), MountError::BlockBits(9));
    let bytes = good[..good.len() - PAGE].to_vec();
    let line = fail(bytes).to_string();
    assert!(line.contains("cut short"), "{line}");

    // Compression by LZ4 alone has no bit of its own: the file says so when it is read.
    let packed =
        Erofs::mount(Disk::new(image(&root, &["-zlz4"]))).map(|image| image.root().lookup(b"file"));
    match packed {
        Ok(file) => assert_eq!(file.err(), Some(Errno::EOPNOTSUPP)),
        Err(error) => assert!(matches!(error, MountError::Feature(_)), "{error}"),
    }
}

#[test]
fn an_image_cut_short_below_us_gives_errors() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let content: Vec<u8> = (0..400_000u32)
        .map(|at| (at / 100).to_le_bytes()[0])
        .collect();
    fs::write(root.join("file"), &content).unwrap();
    let disk = Disk::new(image(&root, &["-E", "noinline_data"]));
    let mounted = Erofs::mount(disk.clone()).unwrap();
    let inode = mounted.root().lookup(b"file").unwrap();
    let file = inode.open(0).unwrap();
    let cut = disk.bytes.len() as u64 - 200_000;
    disk.readable.store(cut, Ordering::Relaxed);
    let mut out = vec![0; content.len()];
    let count = file.read_at(0, &mut IoDst::kernel(&mut out)).unwrap();
    assert!(
        (150_000..300_000).contains(&count),
        "what is there is read: {count}"
    );
    assert_eq!(out[..count], content[..count]);
    let behind = count as u64;
    let again = file.read_at(behind, &mut IoDst::kernel(&mut out));
    assert_eq!(again, Err(Errno::EIO));
    assert_eq!(file.fetch(90, false), Err(Errno::EIO));
    assert_eq!(file.page(90, false), Err(Errno::EAGAIN));
}

#[test]
fn reading_ahead_saves_requests() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), vec![7; 8 << 20]).unwrap();
    let disk = Disk::new(image(&root, &[]));
    let mounted = Erofs::mount(disk.clone()).unwrap();
    let file = mounted.root().lookup(b"file").unwrap().open(0).unwrap();
    let before = disk.requests.load(Ordering::Relaxed);
    let mut out = [0; PAGE];
    for at in 0..2048 {
        let count = file.read_at(at * PAGE as u64, &mut IoDst::kernel(&mut out));
        assert_eq!(count, Ok(PAGE));
    }
    let requests = disk.requests.load(Ordering::Relaxed) - before;
    assert!(requests < 45, "2048 pages in {requests} requests");
}

#[test]
fn corpus() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), "erofs", erofs::run);
}

/// A little of what the fuzzer does, on every run: single bytes of good images changed.
#[test]
fn changed_bytes_harm_nobody() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/erofs");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 8).unwrap() % below
    };
    for name in ["plain", "extended", "chunks"] {
        let good = fs::read(corpus.join(name)).unwrap();
        for _ in 0..300 {
            let mut bytes = good.clone();
            for _ in 0..1 + next(4) {
                let at = 1024 + next(bytes.len() - 1024);
                bytes[at] = next(256).to_le_bytes()[0];
            }
            erofs::run(&bytes);
        }
    }
}
