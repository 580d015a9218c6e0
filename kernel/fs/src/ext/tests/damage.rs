// SPDX-License-Identifier: Apache-2.0
//! Volumes with wrong bytes in their metadata: an error is an answer, a panic or a loop without end is none.

use super::*;

/// A small volume with a bit of everything, and a journal to be replayed.
fn sample() -> Arc<Disk> {
    let disk = Disk::formatted(16);
    {
        let m = mount(&disk);
        m.make("d", NewKind::Directory).unwrap();
        m.make("d/sub", NewKind::Directory).unwrap();
        m.put("d/file", &pattern(1, 6_000_000)).unwrap();
        m.make("link", NewKind::Symlink(&[b'l'; 100])).unwrap();
        m.volume.settle().unwrap();
        for n in 0..40 {
            m.put(&format!("d/sub/{n}"), &pattern(n, 3000)).unwrap();
        }
        let open = m.create("open");
        m.remove("open").unwrap();
        m.volume.sync_all().unwrap();
        drop(open);
    }
    disk
}

/// Does everything to a volume that a program can do, and does not care for errors.
fn exercise(disk: &Arc<Disk>) {
    let Ok(volume) = Volume::mount(disk.clone(), &OPTIONS) else {
        return;
    };
    let vfs = Some(Vfs::new(volume.clone(), MountOptions::default()));
    let m = Mounted { volume, vfs };
    for path in ["d/file", "link", "d/sub/7", "d/sub/39"] {
        let _ = m.get(path);
        if let Ok(open) = m.open(path, g::O_RDWR) {
            let _ = open
                .file()
                .write_at(5000, false, &mut IoSrc::kernel(b"changed"));
            let _ = open.file().truncate(100);
            let _ = open.file().sync();
        }
        let _ = m
            .vfs()
            .resolve(m.vfs().root(), path.as_bytes(), Follow::Yes);
    }
    for n in 0..40 {
        let _ = m.rename(
            &format!("d/sub/{n}"),
            &format!("d/renamed{n}"),
            Rename::Replace,
        );
        let _ = m.put(&format!("d/new{n}"), &[1; 5000]);
        let _ = m.remove(&format!("d/renamed{n}"));
    }
    let _ = m.make("d/more", NewKind::Directory);
    let _ = m.rename("d/sub", "moved", Rename::Replace);
    let _ = m.remove("d/file");
    let _ = m.vfs().remove_directory(m.vfs().root(), b"moved");
    if let Ok(open) = m.open("d", g::O_RDONLY | g::O_DIRECTORY) {
        let _ = open.file().read_directory(0, &mut |_| true);
        let _ = open.file().read_directory(4097, &mut |_| true);
    }
    m.volume.status();
    let _ = m.volume.settle();
}

#[test]
fn wrong_bytes_are_errors_at_worst() {
    let sample = sample();
    let used = sample.used_blocks();
    let mut random = pattern(99, 1 << 20).into_iter().map(u64::from);
    let mut next = move |below: u64| (random.next().unwrap() << 8 | random.next().unwrap()) % below;
    for _ in 0..150 {
        let disk = sample.snapshot();
        for _ in 0..=next(4) {
            let block = used[usize::try_from(next(used.len() as u64)).unwrap()];
            // Most fields that matter lie near the start of their block.
            let at = if next(2) == 0 {
                next(4096)
            } else {
                next(256) + if block == 0 { 1024 } else { 0 }
            };
            let byte = [0, 0xff, 1, 0x80, u8::try_from(next(256)).unwrap()]
                [usize::try_from(next(5)).unwrap()];
            disk.damage(block, usize::try_from(at).unwrap(), byte);
        }
        exercise(&disk);
    }
}

#[test]
fn a_volume_cut_short_is_refused() {
    let disk = sample();
    let short = Disk::cut(&disk, 2000);
    let error = Volume::mount(short, &OPTIONS).err().unwrap();
    assert_eq!(
        error,
        crate::ext::MountError::Damaged("it is longer than the disk")
    );
    let empty = Disk::cut(&Disk::formatted(16), 0);
    assert!(Volume::mount(empty, &OPTIONS).is_err());
}
