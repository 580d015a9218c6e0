// SPDX-License-Identifier: Apache-2.0
//! Volumes with wrong bytes in them: everything is done that a program can do, errors are answers, nothing is read or
//! written beyond the disk, and nothing takes for ever. The input is a list of bytes to change in a sound volume that has a
//! journal to replay: block (two bytes, among those in use), position in it (two bytes), value.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, OnceLock};

use coracle_core::Result;
use coracle_core::device::BlockDevice;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::memory::Page;
use coracle_fs::ext::{Volume, VolumeOptions};
use coracle_fs::vfs::{
    FileSystem, Follow, MountOptions, NewKind, NewNode, OpenRequest, Rename, Vfs,
};

const BLOCK: usize = 4096;
/// Blocks of the volume.
const BLOCKS: u64 = 4096;
// Values of Linux's ABI.
const O_RDWR: u32 = 0o2;
const O_CREAT: u32 = 0o100;
const O_DIRECTORY: u32 = 0o200_000;

type Blocks = BTreeMap<u64, [u8; BLOCK]>;

/// A disk in memory; blocks that are not there are zero.
struct Disk(Mutex<Blocks>);

impl Disk {
    fn blocks(sector: u64, pages: &[Page]) -> impl Iterator<Item = (u64, &Page)> {
        assert!(sector.is_multiple_of(8), "whole blocks");
        let first = sector / 8;
        assert!(first + pages.len() as u64 <= BLOCKS, "within the disk");
        (first..).zip(pages)
    }
}

impl BlockDevice for Disk {
    fn sectors(&self) -> u64 {
        BLOCKS * 8
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, sector: u64, pages: &[Page]) -> Result<()> {
        let content = self.0.lock().expect("no panic before");
        for (number, page) in Self::blocks(sector, pages) {
            page.write(0, content.get(&number).unwrap_or(&[0; BLOCK]));
        }
        Ok(())
    }

    fn write(&self, sector: u64, pages: &[Page]) -> Result<()> {
        let mut content = self.0.lock().expect("no panic before");
        for (number, page) in Self::blocks(sector, pages) {
            page.read(0, content.entry(number).or_insert([0; BLOCK]));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn run(data: &[u8]) {
    static SAMPLE: OnceLock<Blocks> = OnceLock::new();
    let mut blocks = SAMPLE.get_or_init(sample).clone();
    let used: Vec<u64> = blocks.keys().copied().collect();
    for change in data.chunks_exact(5).take(64) {
        let [b0, b1, a0, a1, value] = *change else {
            continue;
        };
        let number = used[usize::from(u16::from_le_bytes([b0, b1])) % used.len()];
        let at = usize::from(u16::from_le_bytes([a0, a1])) % BLOCK;
        blocks.get_mut(&number).expect("in use")[at] = value;
    }
    let disk = Arc::new(Disk(Mutex::new(blocks)));
    for read_only in [true, false] {
        with(&disk, read_only, |mounted, volume| {
            exercise(mounted);
            volume.status();
            let _ = volume.settle();
        });
    }
}

/// Mounts the disk and lets go of everything behind `work`.
fn with(disk: &Arc<Disk>, read_only: bool, work: impl FnOnce(&Vfs, &Volume)) {
    let options = VolumeOptions {
        read_only,
        cache_bytes: 1 << 20,
        device_number: 7,
    };
    if let Ok(volume) = Volume::mount(disk.clone(), &options) {
        let mounted = Vfs::new(volume.clone(), MountOptions { read_only });
        work(&mounted, &volume);
        drop(mounted);
        volume.forget();
    }
}

/// A volume with a bit of everything, whose last changes are in the journal only.
fn sample() -> Blocks {
    let path = std::env::temp_dir().join(format!("coracle-fuzz-ext-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a file in the temporary folder");
    std::fs::remove_file(&path).expect("it was made just now");
    let bytes = BLOCKS * BLOCK as u64;
    coracle_volume::format(&file, bytes, [3; 16], 1_700_000_000).expect("a size that is allowed");
    let mut blocks = Blocks::new();
    for number in 0..BLOCKS {
        let mut block = [0; BLOCK];
        file.read_exact_at(&mut block, number * BLOCK as u64)
            .expect("within the file");
        if block != [0; BLOCK] {
            blocks.insert(number, block);
        }
    }
    let disk = Arc::new(Disk(Mutex::new(blocks)));
    with(&disk, false, |mounted, volume| {
        make(mounted, "d", NewKind::Directory);
        make(mounted, "d/sub", NewKind::Directory);
        make(mounted, "link", NewKind::Symlink(&[b'l'; 100]));
        put(mounted, "d/file", &[1; 5000]);
        // Reached through one, two and three blocks of pointers.
        for block in [20, 2000, 2_000_000] {
            write(mounted, "d/file", block * BLOCK as u64, &[2; 100]);
        }
        volume.settle().expect("a sound disk");
    });
    with(&disk, false, |mounted, volume| {
        for n in 0..8 {
            put(mounted, &format!("d/sub/{n}"), &[n; 3000]);
        }
        let far = mounted.resolve(mounted.root(), b"d/file", Follow::Yes);
        let far = far.and_then(|place| place.inode.metadata());
        assert_eq!(far.map(|m| m.size), Ok(2_000_000 * BLOCK as u64 + 100));
        let request = OpenRequest::new(O_RDWR);
        let open = mounted.open(mounted.root(), b"d/sub/7", &request);
        assert!(open.is_ok());
        let _ = mounted.unlink(mounted.root(), b"d/sub/7");
        volume.sync().expect("a sound disk");
        drop(open);
    });
    let content = disk.0.lock().expect("no panic before");
    content.clone()
}

fn make(mounted: &Vfs, path: &str, kind: NewKind<'_>) {
    let node = NewNode {
        kind,
        mode: 0o755,
        uid: 1,
        gid: 2,
    };
    let _ = mounted.create(mounted.root(), path.as_bytes(), &node);
}

fn write(mounted: &Vfs, path: &str, at: u64, content: &[u8]) {
    let request = OpenRequest {
        mode: 0o644,
        ..OpenRequest::new(O_RDWR | O_CREAT)
    };
    if let Ok(open) = mounted.open(mounted.root(), path.as_bytes(), &request) {
        let mut source = IoSrc::kernel(content);
        let _ = open.file().write_at(at, false, &mut source);
    }
}

fn put(mounted: &Vfs, path: &str, content: &[u8]) {
    write(mounted, path, 0, content);
}

/// Everything that a program can do.
fn exercise(mounted: &Vfs) {
    let root = mounted.root();
    for path in ["d/file", "link", "d/sub/0", "d/sub/6"] {
        let _ = mounted.resolve(root, path.as_bytes(), Follow::Yes);
        for access in [0, O_RDWR] {
            let request = OpenRequest::new(access);
            let Ok(open) = mounted.open(root, path.as_bytes(), &request) else {
                continue;
            };
            let mut out = [0; 5000];
            for block in [0, 20, 2000, 2_000_000] {
                let at = block * BLOCK as u64;
                let _ = open.file().read_at(at, &mut IoDst::kernel(&mut out));
                let _ = open
                    .file()
                    .write_at(at + 5000, false, &mut IoSrc::kernel(b"changed"));
            }
            let _ = open.file().sync();
            let _ = open.file().truncate(100);
        }
    }
    for path in ["", "d", "d/sub"] {
        let request = OpenRequest::new(O_DIRECTORY);
        if let Ok(open) = mounted.open(root, format!("/{path}").as_bytes(), &request) {
            let mut last = 0;
            let _ = open.file().read_directory(0, &mut |entry| {
                assert!(entry.next > last, "reading a directory comes to an end");
                last = entry.next;
                assert!(!entry.name.is_empty() && entry.name.len() <= 255);
                true
            });
            let _ = open.file().read_directory(4097, &mut |_| true);
        }
    }
    for n in 0..8 {
        let (old, new) = (format!("d/sub/{n}"), format!("d/renamed{n}"));
        let _ = mounted.rename(
            (root, old.as_bytes()),
            (root, new.as_bytes()),
            Rename::Replace,
        );
        put(mounted, &format!("d/new{n}"), &[1; 5000]);
        let _ = mounted.unlink(root, new.as_bytes());
    }
    make(mounted, "d/more", NewKind::Directory);
    let _ = mounted.rename((root, b"d/sub"), (root, b"moved"), Rename::Replace);
    let _ = mounted.unlink(root, b"d/file");
    let _ = mounted.remove_directory(root, b"moved");
}
