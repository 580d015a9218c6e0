// SPDX-License-Identifier: Apache-2.0
//! Bundles are read back by two readers that know nothing of the writer: one of our own here, and cpio(1) where it is
//! installed.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use coracle_imager::bundle::Written;
use coracle_imager::{Bundle, Config, ProgramError, Root, RootError};

/// An entry as the archive records it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: u32,
    size: usize,
    data_at: usize,
}

/// Reads a newc archive from its specification alone.
fn read(archive: &[u8]) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    let mut at = 0;
    loop {
        assert_eq!(&archive[at..at + 6], b"070701", "magic at {at}");
        let field = |number: usize| {
            let from = at + 6 + number * 8;
            let text = std::str::from_utf8(&archive[from..from + 8]).unwrap();
            u32::from_str_radix(text, 16).unwrap()
        };
        let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
        let name_bytes = &archive[at + 110..at + 110 + name_size];
        assert_eq!(name_bytes.last(), Some(&0));
        let name =
            std::str::from_utf8(name_bytes.split(|&byte| byte == 0).next().unwrap()).unwrap();
        let data_at = (at + 110 + name_size).next_multiple_of(4);
        if name == "TRAILER!!!" {
            return entries;
        }
        let entry = Entry {
            mode,
            size,
            data_at,
        };
        assert!(
            entries.insert(name.to_owned(), entry).is_none(),
            "{name} twice"
        );
        at = (data_at + size).next_multiple_of(4);
    }
}

fn write(root: Root, to: &Path) -> (Written, Vec<u8>) {
    let config = Config::new(vec!["/app".into()], vec!["A=b".into()]);
    let written = Bundle { root, config }
        .write(File::create(to).unwrap())
        .unwrap();
    let bytes = fs::read(to).unwrap();
    assert_eq!(written.size_bytes, bytes.len() as u64);
    (written, bytes)
}

/// A folder with one of everything.
fn sample(dir: &Path) {
    fs::create_dir_all(dir.join("usr/bin")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    fs::write(dir.join("usr/bin/app"), vec![7; 10_000]).unwrap();
    fs::set_permissions(dir.join("usr/bin/app"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::write(dir.join("page"), vec![1; 4096]).unwrap();
    fs::write(dir.join("nothing"), []).unwrap();
    symlink("usr/bin", dir.join("bin")).unwrap();
    for length in 1..120 {
        fs::write(dir.join("n".repeat(length)), vec![9; length]).unwrap();
    }
    make_fifo(&dir.join("fifo"));
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn every_file_comes_back_and_large_ones_start_on_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    sample(&root);
    let (written, archive) = write(Root::Directory(root.clone()), &dir.path().join("bundle"));
    let entries = read(&archive);

    assert!(archive.starts_with(b"070701"));
    let names: Vec<&String> = entries.keys().collect();
    assert_eq!(names[0], "config.json");
    let config = &entries["config.json"];
    let config: serde_json::Value =
        serde_json::from_slice(&archive[config.data_at..config.data_at + config.size]).unwrap();
    assert_eq!(config["process"]["args"], serde_json::json!(["/app"]));
    assert_eq!(config["process"]["env"], serde_json::json!(["A=b"]));

    for (name, entry) in &entries {
        if entry.mode & 0o170_000 == 0o100_000 {
            assert!(
                entry.size < 4096 || entry.data_at % 4096 == 0,
                "{name} starts at {}",
                entry.data_at
            );
            if let Some(path) = name.strip_prefix("rootfs/") {
                let data = &archive[entry.data_at..entry.data_at + entry.size];
                assert_eq!(data, fs::read(root.join(path)).unwrap(), "{name}");
            }
        }
    }
    assert_eq!(entries["rootfs/usr/bin/app"].mode, 0o104_755);
    assert_eq!(entries["rootfs/empty"].mode & 0o170_000, 0o040_000);
    let link = &entries["rootfs/bin"];
    assert_eq!(link.mode & 0o170_000, 0o120_000);
    assert_eq!(&archive[link.data_at..link.data_at + link.size], b"usr/bin");
    // The 120 small files lie side by side.
    assert!(archive.len() < 4096 + 12_288 + 4096 + 120 * 400 + 3 * 4096);
    assert_eq!(written.skipped, [root.join("fifo")]);
    assert!(!entries.contains_key("rootfs/fifo"));
}

#[test]
fn the_first_entry_of_the_archive_is_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("app"), "x").unwrap();
    let (_, archive) = write(
        Root::Executable(dir.path().join("app")),
        &dir.path().join("bundle"),
    );
    assert_eq!(&archive[110..122], b"config.json\0");
    let app = &read(&archive)["rootfs/app"];
    assert_eq!((app.mode, app.size), (0o100_755, 1));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    sample(&root);
    let (_, first) = write(Root::Directory(root.clone()), &dir.path().join("one"));
    let (_, second) = write(Root::Directory(root), &dir.path().join("two"));
    assert!(first == second);
}

#[test]
fn cpio_reads_the_archive() {
    if Command::new("cpio")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("skipped: cpio is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    sample(&root);
    let (_, archive) = write(Root::Directory(root.clone()), &dir.path().join("bundle"));
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let mut cpio = Command::new("cpio")
        .args(["-i", "-d", "--quiet"])
        .current_dir(&out)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    cpio.stdin.take().unwrap().write_all(&archive).unwrap();
    assert!(cpio.wait().unwrap().success());
    for name in read(&archive)
        .keys()
        .filter(|name| !name.ends_with("rootfs"))
    {
        let Some(path) = name.strip_prefix("rootfs/") else {
            continue;
        };
        let (there, here) = (out.join(name), root.join(path));
        assert_eq!(
            there.symlink_metadata().unwrap().file_type(),
            here.symlink_metadata().unwrap().file_type(),
            "{name}"
        );
        if here.is_file() {
            assert_eq!(fs::read(there).unwrap(), fs::read(here).unwrap(), "{name}");
        }
    }
}

#[test]
fn programs_are_found_as_the_guest_would_find_them() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    let outside = dir.path().join("outside");
    fs::copy("/proc/self/exe", &outside).unwrap();
    fs::copy("/proc/self/exe", root.join("usr/bin/app")).unwrap();
    symlink("/usr/bin", root.join("bin")).unwrap();
    symlink("../../../../../../usr/bin/app", root.join("usr/up")).unwrap();
    symlink(&outside, root.join("usr/bin/escape")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let root = Root::Directory(root);
    let find = |program: &str| root.program(Some(program), "/none:/usr/bin");

    // This test program is dynamic: finding it ends in the question for its loader, which names the program found.
    let named = |program: &str| match find(program) {
        Err(RootError::NoInterpreter { program, .. }) => program,
        other => panic!("{program}: {other:?}"),
    };
    assert_eq!(named("app"), "/usr/bin/app");
    assert_eq!(named("/bin/app"), "/bin/app");
    assert_eq!(named("/usr/up"), "/usr/up");
    assert!(
        matches!(find("/usr/bin/escape"), Err(RootError::NotFound { .. })),
        "a link never leads out of the root"
    );
    assert!(matches!(find("/loop"), Err(RootError::NotFound { .. })));
    assert!(matches!(
        find("/usr/bin"),
        Err(RootError::NotExecutable { .. })
    ));
    assert!(matches!(
        root.program(None, ""),
        Err(RootError::NoProgram { .. })
    ));
}

#[test]
fn damaged_headers_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    let whole = fs::read("/proc/self/exe").unwrap();
    let head = &whole[..4096.min(whole.len())];
    for at in 0..64 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = head.to_vec();
            bytes[at] = value;
            fs::write(&path, &bytes).unwrap();
            if let Err(ProgramError::Read { source, .. }) = coracle_imager::program::inspect(&path)
            {
                panic!("byte {at} = {value}: {source}");
            }
        }
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let mut archive = coracle_imager::cpio::Writer::new(Vec::new());
    let error = archive
        .file(
            "short",
            coracle_imager::cpio::Meta::default(),
            10,
            &b"12345"[..],
        )
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    let error = archive
        .file(
            "huge",
            coracle_imager::cpio::Meta::default(),
            1 << 32,
            std::io::empty(),
        )
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn the_two_parts_make_the_archive() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    sample(&root);
    let root = Root::Directory(root);
    let (_, whole) = write(root.clone(), &dir.path().join("whole"));
    let bundle = Bundle {
        root: root.clone(),
        config: Config::new(vec!["/app".into()], vec!["A=b".into()]),
    };
    let (mut config, mut files) = (Vec::new(), Vec::new());
    let size = bundle.write_config(&mut config).unwrap();
    root.write(&mut files).unwrap();
    assert_eq!(size, config.len() as u64);
    assert_eq!(
        (config.len() % 4096, files.len() % 4096),
        (0, 0),
        "each can be mapped as pages"
    );
    assert!([config, files].concat() == whole);
}
