// SPDX-License-Identifier: Apache-2.0
//! Images are read back by three readers: `fsck.erofs`, Linux itself through a loop mount, and our own.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use coracle_imager::erofs::{BLOCK, Data, Reader, Writer};
use coracle_imager::folder;
use coracle_imager::tree::{DeviceNumber, Inode, Kind, Meta, Tree, Xattrs};

fn image(source: &Path, to: &Path) -> Vec<u8> {
    let mut writer = Writer::new(File::create(to).unwrap()).unwrap();
    let tree = folder::read(source, &mut writer).unwrap();
    let (_, size) = writer.finish(&tree).unwrap();
    let bytes = fs::read(to).unwrap();
    assert_eq!(bytes.len() as u64, size);
    bytes
}

/// One of everything.
fn source(dir: &Path) -> PathBuf {
    let root = dir.join("root");
    fs::create_dir_all(root.join("empty/.hidden")).unwrap();
    fs::create_dir_all(root.join("many")).unwrap();
    for size in [
        0, 1, 4031, 4032, 4064, 4065, 4095, 4096, 4097, 8192, 100_000,
    ] {
        let content: Vec<u8> = (0..size).map(|at: u32| (at / 7).to_le_bytes()[0]).collect();
        fs::write(root.join(format!("size-{size}")), content).unwrap();
    }
    // Folders of exactly one block and around it, and of many.
    for number in 0..3000 {
        let name = format!("{number:04}-{}", "n".repeat(number % 200));
        fs::write(root.join("many").join(name), number.to_string()).unwrap();
    }
    for (folder, last) in [("below", 38), ("exact", 39), ("above", 40)] {
        let folder = root.join(folder);
        fs::create_dir(&folder).unwrap();
        // 27 bytes for `.` and `..`; 40 entries of 100 bytes; one of the rest.
        for number in 0..40 {
            fs::write(folder.join(format!("{number:088}")), "").unwrap();
        }
        fs::write(folder.join("x".repeat(last)), "").unwrap();
    }
    symlink("size-4097", root.join("link")).unwrap();
    symlink("x/".repeat(2040), root.join("long-link")).unwrap();
    symlink("/empty/../link", root.join("empty/to-link")).unwrap();
    fs::hard_link(root.join("size-4097"), root.join("empty/hard")).unwrap();
    fs::hard_link(root.join("size-1"), root.join("many/hard")).unwrap();
    fs::set_permissions(root.join("size-1"), PermissionsExt::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("empty"), PermissionsExt::from_mode(0o1777)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    let file = File::options().append(true).open(root.join("size-4096"));
    file.unwrap().set_modified(time).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff")), "x").unwrap();
    root
}

#[test]
fn fsck_finds_nothing_and_linux_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let root = source(dir.path());
    for (name, value) in [
        ("user.one", "1"),
        ("user.two", ""),
        ("user.long", &"v".repeat(900)),
    ] {
        xattr::set(root.join("size-8192"), name, value.as_bytes()).unwrap();
        xattr::set(root.join("many"), name, value.as_bytes()).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        for (path, uid) in [("size-0", 70_000), ("size-1", 1000), ("many", 65_535)] {
            std::os::unix::fs::chown(root.join(path), Some(uid), Some(uid + 1)).unwrap();
        }
        let made = Command::new("mknod")
            .arg(root.join("null"))
            .args(["c", "1", "3"])
            .status();
        assert!(made.unwrap().success());
        let made = Command::new("mknod")
            .arg(root.join("disk"))
            .args(["b", "259", "70000"])
            .status();
        assert!(made.unwrap().success());
    }
    let path = dir.path().join("image.erofs");
    let bytes = image(&root, &path);
    assert_eq!(
        bytes,
        image(&root, &dir.path().join("again")),
        "not deterministic"
    );
    fsck(&path);
    mounted(&path, dir.path(), |mount| {
        same(&listing(&root), &listing(mount))
    });

    let reader = Reader::new(File::open(&path).unwrap()).unwrap();
    for (name, entry) in listing(&root) {
        let (Some(content), Some(name)) = (entry.content, name.to_str()) else {
            continue;
        };
        if entry.kind & 0o170_000 == 0o100_000 {
            let found = reader.find(name).unwrap();
            let found = found.unwrap_or_else(|| panic!("{name}: not found"));
            let read = reader.read(&found, 0, u64::MAX).unwrap();
            assert!(read == content, "{name}");
        }
    }
    // A folder has the same again, but for extended attributes.
    let copy = dir.path().join("copy");
    fs::create_dir(&copy).unwrap();
    coracle_imager::erofs::extract(&reader, &copy).unwrap();
    let (mut expected, mut found) = (listing(&root), listing(&copy));
    for entry in expected.values_mut().chain(found.values_mut()) {
        entry.xattrs.clear();
    }
    same(&expected, &found);
    let through = reader.find("/many/../empty/to-link").unwrap().unwrap();
    assert_eq!(through.size, 4097);
    assert_eq!(reader.read(&through, 4090, 100).unwrap().len(), 7);
    assert!(reader.find("/size-1/x").unwrap().is_none());
    assert!(reader.find("/long-link").unwrap().is_none());
}

/// A damaged image is refused or gives other files, but nothing outside of the folder, and it ends.
#[test]
fn damaged_images_are_extracted_into_their_folder_only() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("root");
    fs::create_dir_all(source.join("a/b")).unwrap();
    fs::write(source.join("a/file"), "content").unwrap();
    fs::write(source.join("a/b/large"), vec![0; 9000]).unwrap();
    symlink("file", source.join("a/link")).unwrap();
    let path = dir.path().join("image.erofs");
    let good = image(&source, &path);
    let place = dir.path().join("place");
    let mut refused = 0;
    for at in (1024..good.len()).filter(|at| good[*at] != 0 || at % 127 == 0) {
        for value in [good[at] ^ 0x81, b'/'] {
            let mut bytes = good.clone();
            bytes[at] = value;
            fs::write(&path, &bytes).unwrap();
            fs::create_dir_all(place.join("inside")).unwrap();
            let Ok(reader) = Reader::new(File::open(&path).unwrap()) else {
                refused += 1;
                continue;
            };
            let result = coracle_imager::erofs::extract(&reader, &place.join("inside"));
            refused += usize::from(result.is_err());
            assert_eq!(
                fs::read_dir(&place).unwrap().count(),
                1,
                "byte {at} = {value}"
            );
            fs::remove_dir_all(&place).unwrap();
        }
    }
    assert!(refused > 50, "{refused}");
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        2,
        "the root and the image"
    );
}

#[test]
fn a_page_of_a_file_is_a_block_of_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.erofs");
    let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
    let content: Vec<u8> = (0..10_000_u32).flat_map(|n| n.to_le_bytes()).collect();
    let mut tree = Tree::default();
    let data = writer
        .data(content.len() as u64, content.as_slice())
        .unwrap();
    tree.add(b"file", plain(Kind::File(data))).unwrap();
    writer.finish(&tree).unwrap();
    let bytes = fs::read(&path).unwrap();
    let page = &content[BLOCK..2 * BLOCK];
    let at = (0..bytes.len() / BLOCK).find(|at| &bytes[at * BLOCK..(at + 1) * BLOCK] == page);
    assert!(at.is_some());
    let early = Writer::new(File::create(&path).unwrap())
        .unwrap()
        .data(5000, &b"short"[..]);
    assert!(
        early
            .unwrap_err()
            .to_string()
            .contains("ends after 5 of 5000 bytes")
    );
}

#[test]
fn what_a_host_folder_rarely_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.erofs");
    let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
    let mut tree = Tree::default();
    let long = Xattrs::from([
        (b"user.big".to_vec(), vec![7; 60_000]),
        (b"trusted.t".to_vec(), b"1".to_vec()),
        (b"security.capability".to_vec(), vec![1; 20]),
        (b"other.not-recorded".to_vec(), b"1".to_vec()),
    ]);
    let small = writer.data(5, &b"small"[..]).unwrap();
    let mut file = plain(Kind::File(small));
    file.xattrs = long;
    file.meta = Meta {
        permissions: 0o644,
        uid: u32::MAX - 1,
        gid: 5,
        mtime_s: -5,
        mtime_ns: 9,
    };
    tree.add(b"usr/lib/file", file).unwrap();
    let device = DeviceNumber {
        major: 4095,
        minor: 0xf_ffff,
    };
    for (name, kind) in [
        ("char", Kind::Character(device)),
        ("block", Kind::Block(device)),
        ("fifo", Kind::Fifo),
        ("socket", Kind::Socket),
        ("!before-dot", Kind::Symlink(b"x".to_vec())),
    ] {
        tree.add(name.as_bytes(), plain(kind)).unwrap();
    }
    for number in 0..70_000 {
        tree.link(format!("links/{number}").as_bytes(), b"fifo")
            .unwrap();
    }
    writer.finish(&tree).unwrap();
    fsck(&path);
    mounted(&path, dir.path(), |mount| {
        let file = mount.join("usr/lib/file").metadata().unwrap();
        assert_eq!((file.uid(), file.gid(), file.size()), (u32::MAX - 1, 5, 5));
        assert_eq!((file.mtime(), file.mtime_nsec()), (-5, 9));
        assert_eq!(fs::read(mount.join("usr/lib/file")).unwrap(), b"small");
        let names = xattr::list(mount.join("usr/lib/file")).unwrap();
        assert_eq!(names.count(), 3);
        let big = xattr::get(mount.join("usr/lib/file"), "user.big").unwrap();
        assert_eq!(big, Some(vec![7; 60_000]));
        for name in ["char", "block"] {
            let device = mount.join(name).metadata().unwrap().rdev();
            assert_eq!(device, rustix::fs::makedev(4095, 0xf_ffff));
        }
        assert_eq!(mount.join("fifo").metadata().unwrap().nlink(), 70_001);
        assert_eq!(fs::read_dir(mount).unwrap().count(), 7);
    });
}

fn plain(kind: Kind<Data>) -> Inode<Data> {
    let meta = Meta {
        permissions: 0o755,
        ..Meta::default()
    };
    Inode {
        meta,
        xattrs: Xattrs::new(),
        kind,
    }
}

/// What can be compared of a file.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    kind: u32,
    owner: (u32, u32),
    time: (i64, i64),
    links: u64,
    device: u64,
    content: Option<Vec<u8>>,
    xattrs: Xattrs,
}

fn listing(root: &Path) -> BTreeMap<PathBuf, Listed> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = path.symlink_metadata().unwrap();
        let names = xattr::list(&path).unwrap();
        let value = |name: std::ffi::OsString| {
            let value = xattr::get(&path, &name).unwrap().unwrap();
            (name.as_bytes().to_vec(), value)
        };
        let content = if meta.is_symlink() {
            Some(
                fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            )
        } else {
            meta.is_file().then(|| fs::read(&path).unwrap())
        };
        let listed = Listed {
            kind: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            time: (meta.mtime(), meta.mtime_nsec()),
            links: meta.nlink(),
            device: meta.rdev(),
            content,
            xattrs: names.map(value).collect(),
        };
        found.insert(path.strip_prefix(root).unwrap().to_owned(), listed);
        if meta.is_dir() {
            todo.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    found
}

fn same(expected: &BTreeMap<PathBuf, Listed>, found: &BTreeMap<PathBuf, Listed>) {
    assert!(expected.keys().eq(found.keys()), "other names");
    for (name, listed) in expected {
        let other = &found[name];
        // A folder has as many links as the host's file system counts for it.
        let links = if listed.kind & 0o170_000 == 0o040_000 {
            other.links
        } else {
            listed.links
        };
        let (kind, owner, time) = (listed.kind, listed.owner, listed.time);
        let expected = (kind, owner, time, links, listed.device);
        let found = (
            other.kind,
            other.owner,
            other.time,
            other.links,
            other.device,
        );
        assert_eq!(expected, found, "{}", name.display());
        assert!(
            listed.content == other.content,
            "content of {}",
            name.display()
        );
        assert!(
            listed.xattrs == other.xattrs,
            "attributes of {}",
            name.display()
        );
    }
}

fn fsck(image: &Path) {
    match Command::new("fsck.erofs").arg(image).output() {
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => eprintln!("SKIPPED: fsck.erofs (erofs-utils): {error}"),
    }
}

/// Mounts the image where that can be done, and looks.
fn mounted(image: &Path, dir: &Path, look: impl FnOnce(&Path)) {
    struct Mount(PathBuf);
    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let target = dir.join("mount");
    fs::create_dir(&target).unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "erofs", "-o", "loop,ro"])
        .arg(image)
        .arg(&target);
    match mount.output() {
        Ok(output) if output.status.success() => {
            let _mount = Mount(target.clone());
            look(&target);
        }
        // Without the rights, the loop device or EROFS in this kernel, fsck.erofs has looked.
        Ok(output) => eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("SKIPPED: mount: {error}"),
    }
}
