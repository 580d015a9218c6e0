// SPDX-License-Identifier: Apache-2.0
//! Single operations, and what is on the disk after them.

use super::*;

#[test]
fn content_is_there_after_an_orderly_end() {
    let disk = Disk::formatted(32);
    let big = pattern(1, 9_000_000);
    {
        let m = mount(&disk);
        m.make("dir", NewKind::Directory).unwrap();
        m.make("dir/sub", NewKind::Directory).unwrap();
        m.put("dir/sub/big", &big).unwrap();
        m.put("small", b"hello").unwrap();
        m.make("link", NewKind::Symlink(b"dir/sub/big")).unwrap();
        let long = [b'x'; 200];
        m.make("long", NewKind::Symlink(&long)).unwrap();
        m.make("pipe", NewKind::Fifo).unwrap();
        m.make(
            "disk",
            NewKind::BlockDevice(crate::vfs::device_number(254, 300)),
        )
        .unwrap();
        m.make("null", NewKind::CharDevice(crate::vfs::device_number(1, 3)))
            .unwrap();
        m.make("socket", NewKind::Socket).unwrap();
        assert_eq!(m.get("link").unwrap(), big);
        m.volume.settle().unwrap();
    }
    disk.check(false);
    let m = mount(&disk);
    assert_eq!(m.get("dir/sub/big").unwrap(), big);
    assert_eq!(m.get("link").unwrap(), big);
    assert_eq!(m.get("small").unwrap(), b"hello");
    let all = [
        "dir", "disk", "link", "long", "null", "pipe", "small", "socket",
    ];
    assert_eq!(m.names("/"), all);
    let stat = |path: &str| {
        m.vfs()
            .resolve(m.vfs().root(), path.as_bytes(), Follow::No)
            .unwrap()
            .inode
            .metadata()
            .unwrap()
    };
    assert_eq!(
        stat("disk").special_device,
        crate::vfs::device_number(254, 300)
    );
    assert_eq!(stat("null").special_device, crate::vfs::device_number(1, 3));
    assert_eq!(stat("dir").links, 3);
    assert_eq!(
        (stat("dir").uid, stat("dir").gid, stat("dir").mode),
        (1, 2, 0o40755)
    );
    assert_eq!(stat("long").size, 200);
}

#[test]
fn removing_everything_gives_everything_back() {
    let disk = Disk::formatted(32);
    let m = mount(&disk);
    let before = m.volume.status();
    m.put("a", &pattern(2, 5_000_000)).unwrap();
    m.make("d", NewKind::Directory).unwrap();
    for n in 0..500 {
        m.put(&format!("d/file-with-a-name-{n}"), b"x").unwrap();
    }
    m.volume.settle().unwrap();
    disk.check(false);
    for n in 0..500 {
        m.remove(&format!("d/file-with-a-name-{n}")).unwrap();
    }
    assert_eq!(m.vfs().remove_directory(m.vfs().root(), b"d"), Ok(()));
    m.remove("a").unwrap();
    m.volume.settle().unwrap();
    assert_eq!(m.volume.status(), before);
    disk.check(false);
}

#[test]
fn a_large_directory_is_fast_to_look_up_and_whole() {
    let disk = Disk::formatted(64);
    let m = mount_with(
        &disk,
        &VolumeOptions {
            cache_bytes: 16 << 20,
            ..OPTIONS
        },
    );
    m.make("d", NewKind::Directory).unwrap();
    for n in 0..10_000 {
        m.create(&format!("d/{n:05}"));
    }
    let names = m.names("d");
    assert_eq!(names.len(), 10_000);
    assert_eq!(names[9_999], "09999");
    for n in (0..10_000).step_by(2) {
        m.remove(&format!("d/{n:05}")).unwrap();
    }
    for n in 0..3_000 {
        m.create(&format!("d/again-{n:05}"));
    }
    assert_eq!(m.names("d").len(), 8_000);
    m.volume.settle().unwrap();
    drop(m);
    disk.check(false);
    assert_eq!(mount(&disk).names("d").len(), 8_000);
}

#[test]
fn holes_are_holes_and_large_files_work() {
    let disk = Disk::formatted(32);
    {
        let m = mount(&disk);
        let open = m.create("sparse");
        let far = 5 << 30;
        write(&open, far, b"end").unwrap();
        write(&open, 60_000, b"middle").unwrap();
        let inode = m
            .vfs()
            .resolve(m.vfs().root(), b"sparse", Follow::No)
            .unwrap()
            .inode;
        assert_eq!(inode.seek_content(0, false), Ok(57344));
        assert_eq!(inode.seek_content(57344, true), Ok(61440));
        assert_eq!(inode.seek_content(70_000, false), Ok(far));
        let mut part = [7; 10];
        open.file()
            .read_at(59_998, &mut IoDst::kernel(&mut part))
            .unwrap();
        assert_eq!(&part, b"\0\0middle\0\0");
        m.volume.settle().unwrap();
        disk.check(false);
        open.file().truncate(60_003).unwrap();
        open.file().truncate(60_010).unwrap();
        let mut part = [7; 12];
        open.file()
            .read_at(59_998, &mut IoDst::kernel(&mut part))
            .unwrap();
        assert_eq!(&part, b"\0\0mid\0\0\0\0\0\0\0");
        open.file().allocate(0, 100_000, 50_000).unwrap();
        assert_eq!(open.file().metadata().unwrap().size, 150_000);
        let punch = g::FALLOC_FL_PUNCH_HOLE | g::FALLOC_FL_KEEP_SIZE;
        open.file().allocate(punch, 60_001, 60_000).unwrap();
        m.volume.settle().unwrap();
    }
    disk.check(false);
    let m = mount(&disk);
    let content = m.get("sparse").unwrap();
    assert_eq!(content.len(), 150_000);
    assert_eq!(&content[59_998..60_003], b"\0\0m\0\0");
    assert!(content[60_001..].iter().all(|b| *b == 0));
}

#[test]
fn an_open_file_without_a_name_lives_until_it_is_closed() {
    let disk = Disk::formatted(32);
    let content = pattern(3, 3_000_000);
    let before = {
        let m = mount(&disk);
        m.volume.status().free_blocks
    };
    {
        let m = mount(&disk);
        m.put("gone", &content).unwrap();
        let open = m.open("gone", g::O_RDONLY).unwrap();
        m.remove("gone").unwrap();
        m.volume.sync_all().unwrap();
        assert!(m.volume.status().free_blocks < before);
        let mut read = vec![0; content.len()];
        open.file()
            .read_at(0, &mut IoDst::kernel(&mut read))
            .unwrap();
        assert!(read == content);
        // The machine ends here, with the file open.
    }
    disk.check(true);
    let m = mount(&disk);
    assert_eq!(m.volume.status().free_blocks, before);
    m.put("gone", &content).unwrap();
    let open = m.open("gone", g::O_RDONLY).unwrap();
    m.remove("gone").unwrap();
    drop(open);
    assert_eq!(m.volume.status().free_blocks, before);
    m.volume.settle().unwrap();
    disk.check(false);
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    let disk = Disk::formatted(16);
    let m = mount(&disk);
    let open = m.create("fill");
    let chunk = pattern(4, 1 << 20);
    let mut at = 0;
    let error = loop {
        let mut src = IoSrc::kernel(&chunk);
        match open.file().write_at(at, false, &mut src) {
            Ok((count, _)) => at += count as u64,
            Err(error) => break error,
        }
        assert!(at < 16 << 20);
    };
    assert_eq!(error, Errno::ENOSPC);
    assert_eq!(open.file().metadata().unwrap().size, at);
    assert_eq!(m.make("no-room", NewKind::Directory), Err(Errno::ENOSPC));
    sync(&open);
    m.volume.settle().unwrap();
    disk.check(false);
    // What is freed can be used at once.
    drop(open);
    m.remove("fill").unwrap();
    m.put("again", &chunk).unwrap();
    assert_eq!(m.get("again").unwrap(), chunk);
    m.volume.settle().unwrap();
    disk.check(false);
    let open = m.create("more");
    assert_eq!(open.file().allocate(0, 0, 1 << 30), Err(Errno::ENOSPC));
    assert_eq!(open.file().metadata().unwrap().size, 0);
}

#[test]
fn renames() {
    let disk = Disk::formatted(32);
    let m = mount(&disk);
    for dir in ["a", "b", "a/inner"] {
        m.make(dir, NewKind::Directory).unwrap();
    }
    m.put("a/one", b"1").unwrap();
    m.put("b/two", b"2").unwrap();
    assert_eq!(
        m.rename("a/one", "b/two", Rename::NoReplace),
        Err(Errno::EEXIST)
    );
    m.rename("a/one", "b/two", Rename::Exchange).unwrap();
    assert_eq!(
        (m.get("a/one").unwrap(), m.get("b/two").unwrap()),
        (b"2".to_vec(), b"1".to_vec())
    );
    m.rename("a/one", "b/two", Rename::Replace).unwrap();
    assert_eq!(m.get("b/two").unwrap(), b"2");
    assert_eq!(
        m.rename("a", "a/inner/x", Rename::Replace),
        Err(Errno::EINVAL)
    );
    m.rename("a/inner", "b/inner", Rename::Replace).unwrap();
    m.rename("a", "b/inner/a-very-much-longer-name", Rename::Replace)
        .unwrap();
    m.make("c", NewKind::Directory).unwrap();
    m.rename("c", "b/inner", Rename::Exchange).unwrap();
    m.make("e", NewKind::Directory).unwrap();
    m.rename("e", "b/inner", Rename::Replace).unwrap();
    assert_eq!(m.names("c"), ["a-very-much-longer-name"]);
    assert_eq!(m.names("/"), ["b", "c"]);
    m.volume.settle().unwrap();
    disk.check(false);
}

#[test]
fn hard_links_and_unnamed_files() {
    let disk = Disk::formatted(32);
    let m = mount(&disk);
    m.put("one", b"content").unwrap();
    let one = m.vfs().resolve(m.vfs().root(), b"one", Follow::No).unwrap();
    m.vfs().link(&one, m.vfs().root(), b"two").unwrap();
    assert_eq!(one.inode.metadata().unwrap().links, 2);
    m.remove("one").unwrap();
    assert_eq!(m.get("two").unwrap(), b"content");
    let unnamed = m.open("/", g::O_TMPFILE | g::O_RDWR).unwrap();
    write(&unnamed, 0, b"late").unwrap();
    let place = unnamed.downcast::<VnodeFile>().unwrap().place().clone();
    m.vfs().link(&place, m.vfs().root(), b"three").unwrap();
    let lost = m.open("/", g::O_TMPFILE | g::O_RDWR).unwrap();
    write(&lost, 0, b"never").unwrap();
    drop((unnamed, place, lost, one));
    m.volume.settle().unwrap();
    assert_eq!(m.get("three").unwrap(), b"late");
    assert_eq!(m.names("/"), ["three", "two"]);
    disk.check(false);
}

#[test]
fn a_small_append_costs_one_write_and_one_flush() {
    let disk = Disk::formatted(32);
    let m = mount(&disk);
    let open = m.create("log");
    write(&open, 0, &[1; 100]).unwrap();
    sync(&open);
    let mut at = 100;
    for _ in 0..10 {
        disk.requests();
        write(&open, at, &[2; 100]).unwrap();
        at += 100;
        open.file().sync_data().unwrap();
        assert_eq!(disk.requests(), (1, 1));
    }
    // Nothing new: nothing to do.
    open.file().sync_data().unwrap();
    sync(&open);
    assert_eq!(disk.requests(), (0, 0));
    // Much content goes to its place first.
    write(&open, at, &pattern(1, 1 << 20)).unwrap();
    sync(&open);
    let (writes, flushes) = disk.requests();
    assert!(writes < 20 && flushes <= 4, "{writes} {flushes}");
}

#[test]
fn a_read_only_mount_replays_in_memory_and_writes_nothing() {
    let disk = Disk::formatted(32);
    {
        let m = mount(&disk);
        let open = m.create("file");
        write(&open, 0, b"synced").unwrap();
        sync(&open);
    }
    disk.record();
    {
        let m = mount_with(
            &disk,
            &VolumeOptions {
                read_only: true,
                ..OPTIONS
            },
        );
        assert_eq!(m.get("file").unwrap(), b"synced");
        assert_eq!(
            m.open("new", g::O_CREAT | g::O_RDWR).err(),
            Some(Errno::EROFS)
        );
        assert_eq!(m.remove("file"), Err(Errno::EROFS));
        m.volume.settle().unwrap();
    }
    assert!(disk.events().is_empty());
}

#[test]
fn content_is_read_ahead_and_given_back() {
    let disk = Disk::formatted(64);
    let content = pattern(5, 20 << 20);
    {
        let m = mount(&disk);
        m.put("big", &content).unwrap();
        m.volume.settle().unwrap();
    }
    let m = mount(&disk);
    disk.reads();
    let open = m.open("big", g::O_RDONLY).unwrap();
    let mut part = vec![0; 4096];
    for at in (0..content.len()).step_by(4096) {
        open.file()
            .read_at(at as u64, &mut IoDst::kernel(&mut part))
            .unwrap();
        assert!(part == content[at..at + 4096]);
    }
    let reads = disk.reads();
    assert!(reads < 200, "{reads} reads for 5120 pages");
    let cached = m.volume.state.lock().cached;
    assert!(cached <= 256 + 32, "{cached} pages of a cache of 256");
}

#[test]
fn a_disk_that_fails_makes_the_volume_read_only() {
    let disk = Disk::formatted(32);
    let m = mount(&disk);
    m.put("before", b"before").unwrap();
    m.volume.sync_all().unwrap();
    let open = m.create("file");
    write(&open, 0, b"lost").unwrap();
    disk.fail_after(0);
    assert_eq!(open.file().sync(), Err(Errno::EIO));
    assert_eq!(open.file().sync(), Err(Errno::EIO));
    assert_eq!(m.put("other", b"x"), Err(Errno::EROFS));
    assert_eq!(m.get("before").unwrap(), b"before");
    drop(open);
    drop(m);
    let disk = disk.snapshot();
    disk.check(true);
    assert_eq!(mount(&disk).get("before").unwrap(), b"before");
}

#[test]
fn linux_finds_what_was_written() {
    let disk = Disk::formatted(32);
    let content = pattern(6, 300_000);
    {
        let m = mount(&disk);
        m.make("d", NewKind::Directory).unwrap();
        m.put("d/file", &content).unwrap();
        m.volume.settle().unwrap();
    }
    let image = disk.image();
    let debugfs = std::process::Command::new("/usr/sbin/debugfs")
        .args(["-R", "cat /d/file"])
        .arg(image.path())
        .output();
    match debugfs {
        Ok(output) => assert!(output.stdout == content),
        Err(_) => eprintln!("no debugfs here: not checked"),
    }
}

#[test]
fn volumes_made_by_mke2fs_are_used_and_others_refused() {
    let make = |options: &[&str]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 20).unwrap();
        let made = std::process::Command::new("/usr/sbin/mke2fs")
            .args(["-q", "-F", "-b", "4096"])
            .args(options)
            .arg(file.path())
            .status();
        made.is_ok_and(|status| status.success())
            .then(|| Disk::from_file(file.reopen().unwrap()))
    };
    let Some(disk) = make(&["-t", "ext3", "-I", "256"]) else {
        eprintln!("no mke2fs here: not checked");
        return;
    };
    {
        let m = mount(&disk);
        m.put("lost+found/file", b"content").unwrap();
        m.volume.settle().unwrap();
    }
    disk.check(false);
    let refused = Volume::mount(make(&["-t", "ext4"]).unwrap(), &OPTIONS)
        .err()
        .unwrap();
    assert!(refused.to_string().contains("extents"), "{refused}");
    let refused = Volume::mount(make(&["-t", "ext2", "-I", "256"]).unwrap(), &OPTIONS)
        .err()
        .unwrap();
    assert!(refused.to_string().contains("ext2"), "{refused}");
}
