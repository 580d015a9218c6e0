// SPDX-License-Identifier: Apache-2.0
//! A small archive, written by hand, becomes a tree.

use super::*;
use crate::vfs::{Follow, MountOptions, Vfs};
use coracle_abi::raw::general as g;

struct Writer(Vec<u8>);

impl Writer {
    fn add(&mut self, name: &str, mode: u32, ino: u32, nlink: u32, data: &[u8]) {
        let fields = [
            ino,
            mode,
            10,
            20,
            nlink,
            1_000,
            data.len().try_into().unwrap(),
            0,
            0,
            1,
            3,
            (name.len() + 1).try_into().unwrap(),
            0,
        ];
        self.0.extend(b"070701");
        for field in fields {
            self.0.extend(format!("{field:08x}").bytes());
        }
        self.0.extend(name.bytes().chain([0]));
        self.pad();
        self.0.extend(data);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.0.len().is_multiple_of(4) {
            self.0.push(0);
        }
    }

    fn finish(mut self) -> &'static [u8] {
        self.add("TRAILER!!!", 0, 0, 1, b"");
        self.0.leak()
    }
}

fn unpacked(entries: &[(&str, u32, u32, u32, &[u8])]) -> Result<Vfs, ArchiveError> {
    let mut writer = Writer(Vec::new());
    for (name, mode, ino, nlink, data) in entries {
        writer.add(name, *mode, *ino, *nlink, data);
    }
    let fs = TmpFs::new(1 << 20, 0o755);
    unpack(&fs, writer.finish(), b"rootfs/", |_| None)?;
    Ok(Vfs::new(fs, MountOptions::default()))
}

#[test]
fn entries_become_files() {
    let vfs = unpacked(&[
        ("config.json", 0o100644, 1, 1, b"{}"),
        ("rootfs/usr/bin/app", 0o100755, 2, 2, b""),
        ("rootfs/app", 0o100755, 2, 2, b"ELF"),
        ("rootfs/usr", 0o40711, 3, 2, b""),
        ("rootfs/link", 0o120777, 4, 1, b"usr/bin/app"),
        ("./rootfs/null", 0o20666, 5, 1, b""),
    ])
    .unwrap();
    let at = |path: &str| {
        let place = vfs
            .resolve(vfs.root(), path.as_bytes(), Follow::Yes)
            .unwrap();
        place.inode.metadata().unwrap()
    };
    assert!(
        vfs.resolve(vfs.root(), b"/config.json", Follow::Yes)
            .is_err()
    );
    let app = at("/link");
    assert_eq!((app.size, app.links, app.mode), (3, 2, g::S_IFREG | 0o755));
    assert_eq!(
        (app.uid, app.gid, app.modified_ns),
        (10, 20, 1_000_000_000_000)
    );
    assert_eq!(app.inode, at("/app").inode);
    assert_eq!(at("/usr").mode, g::S_IFDIR | 0o711);
    assert_eq!(at("/usr").modified_ns, 1_000_000_000_000);
    assert_eq!(at("/usr/bin").mode, g::S_IFDIR | 0o755);
    assert_eq!(at("/null").special_device, device_number(1, 3));
}

#[test]
fn nonsense_is_named() {
    let climbing = unpacked(&[("rootfs/../etc", 0o100644, 1, 1, b"")]);
    assert!(matches!(
        climbing,
        Err(ArchiveError::Entry(_, Errno::EINVAL))
    ));
    let twice = unpacked(&[
        ("rootfs/a", 0o100644, 1, 1, b""),
        ("rootfs/a", 0o100644, 2, 1, b""),
    ]);
    let error = twice.err().unwrap();
    assert_eq!(error.to_string(), "archive entry rootfs/a: EEXIST");
    let below = unpacked(&[
        ("rootfs/a", 0o100644, 1, 1, b""),
        ("rootfs/a/b", 0o100644, 2, 1, b""),
    ]);
    assert!(matches!(below, Err(ArchiveError::Entry(_, Errno::ENOTDIR))));
}
