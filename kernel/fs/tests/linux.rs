// SPDX-License-Identifier: Apache-2.0
//! The name space and the file system in memory against the oracle: the same random calls on Linux (a folder of its own
//! in `/dev/shm`, a tmpfs) and here must have the same results and leave the same trees.
//!
//! No path leaves the folder: none is absolute or has `..`, and neither has any symbolic link.

use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use coracle_abi::convert::{u64_from, usize_from_u32};
use coracle_abi::raw::general as g;
use coracle_core::file::OpenFile;
use coracle_core::io::{IoDst, IoSrc};
use coracle_core::{Errno, Result};
use coracle_fs::tmpfs::TmpFs;
use coracle_fs::vfs::{Follow, MountOptions, NewKind, NewNode, OpenRequest, Place, Rename, Vfs};
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::sample::select;
use rustix::fs::{self as linux, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};

const NAMES: &[&str] = &[
    "", ".", "./", "a", "b", "c", "d", "l", "a/", "b/", "l/", "./a", "a/x", "b/y", "d/.", "d/./e",
    "l/x", "m//q", "a/x/z", "no/x",
];
const TARGETS: &[&str] = &["a", "b", "l", "no", "a/", "./d", "a/x"];

#[derive(Debug, Clone)]
enum Op {
    Mkdir(&'static str, u32),
    Rmdir(&'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str, u32),
    Link(&'static str, &'static str, bool),
    Symlink(&'static str, &'static str),
    Fifo(&'static str),
    Stat(&'static str, bool),
    ReadLink(&'static str),
    Chmod(&'static str, u32),
    Open(&'static str, u32),
    Close(usize),
    Write(usize, usize, u8),
    Read(usize, usize),
    Seek(usize, u64),
    Truncate(usize, u64),
    Punch(usize, u64, u64),
    List(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let name = || select(NAMES);
    let mode = || select(&[0o755u32, 0o700, 0o711][..]);
    let fd = || 0..4usize;
    let len = || select(&[0usize, 1, 100, 4096, 9000][..]);
    let at = || select(&[0u64, 1, 4095, 4096, 20_000][..]);
    let flags = (
        select(&[g::O_RDONLY, g::O_WRONLY, g::O_RDWR][..]),
        any::<u8>(),
    )
        .prop_map(|(access, bits)| {
            let all = [
                g::O_CREAT,
                g::O_CREAT,
                g::O_EXCL,
                g::O_TRUNC,
                g::O_APPEND,
                g::O_DIRECTORY,
                g::O_NOFOLLOW,
                g::O_PATH,
            ];
            let chosen = all
                .iter()
                .enumerate()
                .filter(|(bit, _)| bits >> bit & 1 != 0);
            let flags = chosen.fold(access | g::O_NONBLOCK, |flags, (_, flag)| flags | flag);
            // Linux refuses the two together since version 6.4 only.
            match flags & g::O_CREAT {
                0 => flags,
                _ => flags & !g::O_DIRECTORY,
            }
        });
    prop_oneof![
        3 => (name(), mode()).prop_map(|(p, m)| Op::Mkdir(p, m)),
        2 => name().prop_map(Op::Rmdir),
        2 => name().prop_map(Op::Unlink),
        4 => (name(), name(), 0..3u32).prop_map(|(p, q, how)| Op::Rename(p, q, how)),
        2 => (name(), name(), any::<bool>()).prop_map(|(p, q, f)| Op::Link(p, q, f)),
        2 => (select(TARGETS), name()).prop_map(|(t, p)| Op::Symlink(t, p)),
        1 => name().prop_map(Op::Fifo),
        2 => (name(), any::<bool>()).prop_map(|(p, f)| Op::Stat(p, f)),
        1 => name().prop_map(Op::ReadLink),
        1 => (name(), mode()).prop_map(|(p, m)| Op::Chmod(p, m)),
        6 => (name(), flags).prop_map(|(p, f)| Op::Open(p, f)),
        2 => (name(), Just(g::O_CREAT | g::O_RDWR)).prop_map(|(p, f)| Op::Open(p, f)),
        1 => fd().prop_map(Op::Close),
        3 => (fd(), len(), any::<u8>()).prop_map(|(f, n, b)| Op::Write(f, n, b)),
        3 => (fd(), len()).prop_map(|(f, n)| Op::Read(f, n)),
        2 => (fd(), at()).prop_map(|(f, at)| Op::Seek(f, at)),
        2 => (fd(), at()).prop_map(|(f, at)| Op::Truncate(f, at)),
        1 => (fd(), at(), 1..9000u64).prop_map(|(f, at, n)| Op::Punch(f, at, n)),
        1 => fd().prop_map(Op::List),
    ]
}

/// What a call returned, in numbers and bytes that both sides can compare.
type Answer = std::result::Result<(u64, Vec<u8>), i32>;

fn nothing<T>(_: T) -> (u64, Vec<u8>) {
    (0, Vec::new())
}

/// What is compared of `stat`: type and mode, links, and the size of what is no directory.
fn described(mode: u32, links: u64, size: u64) -> (u64, Vec<u8>) {
    let size = if mode & g::S_IFMT == g::S_IFDIR {
        0
    } else {
        size
    };
    (size, format!("{mode:o} {links}").into_bytes())
}

struct Ours {
    vfs: Vfs,
    files: Vec<Arc<OpenFile>>,
}

impl Ours {
    fn new_node(kind: NewKind<'_>, mode: u32) -> NewNode<'_> {
        NewNode {
            kind,
            mode,
            uid: 0,
            gid: 0,
        }
    }

    fn resolve(&self, path: &str, follow: bool) -> Result<Place> {
        let follow = if follow { Follow::Yes } else { Follow::No };
        self.vfs.resolve(self.vfs.root(), path.as_bytes(), follow)
    }

    fn run(&mut self, op: &Op) -> Answer {
        self.call(op).map_err(Errno::number)
    }

    fn call(&mut self, op: &Op) -> Result<(u64, Vec<u8>)> {
        let vfs = &self.vfs;
        let root = vfs.root();
        let create =
            |path: &str, kind, mode| vfs.create(root, path.as_bytes(), &Self::new_node(kind, mode));
        match *op {
            Op::Mkdir(path, mode) => create(path, NewKind::Directory, mode).map(nothing),
            Op::Rmdir(path) => vfs.remove_directory(root, path.as_bytes()).map(nothing),
            Op::Unlink(path) => vfs.unlink(root, path.as_bytes()).map(nothing),
            Op::Rename(from, to, how) => {
                let how =
                    [Rename::Replace, Rename::NoReplace, Rename::Exchange][usize_from_u32(how)];
                let ends = ((root, from.as_bytes()), (root, to.as_bytes()));
                vfs.rename(ends.0, ends.1, how).map(nothing)
            }
            Op::Link(from, to, follow) => {
                let target = self.resolve(from, follow)?;
                vfs.link(&target, root, to.as_bytes()).map(nothing)
            }
            Op::Symlink(target, path) => {
                create(path, NewKind::Symlink(target.as_bytes()), 0).map(nothing)
            }
            Op::Fifo(path) => create(path, NewKind::Fifo, 0o644).map(nothing),
            Op::Stat(path, follow) => {
                let stat = self.resolve(path, follow)?.inode.metadata()?;
                Ok(described(stat.mode, stat.links.into(), stat.size))
            }
            Op::ReadLink(path) => Ok((0, self.resolve(path, false)?.inode.read_link()?)),
            Op::Chmod(path, mode) => {
                let change = coracle_fs::vfs::AttributeChange {
                    mode: Some(mode),
                    ..Default::default()
                };
                vfs.change(&self.resolve(path, true)?, &change).map(nothing)
            }
            Op::Open(path, flags) => {
                let request = OpenRequest {
                    mode: 0o644,
                    ..OpenRequest::new(flags)
                };
                let open = vfs.open(root, path.as_bytes(), &request)?;
                self.files.push(open);
                Ok((0, Vec::new()))
            }
            Op::Close(fd) => Ok(nothing(self.files.remove(fd))),
            Op::Write(fd, len, byte) => {
                let bytes = vec![byte; len];
                let count = self.files[fd].write(&mut IoSrc::kernel(&bytes))?;
                Ok((u64_from(count), Vec::new()))
            }
            Op::Read(fd, len) => {
                let mut out = vec![0; len];
                let count = self.files[fd].read(&mut IoDst::kernel(&mut out))?;
                out.truncate(count);
                Ok((u64_from(count), out))
            }
            Op::Seek(fd, at) => {
                *self.files[fd].position().lock() = at;
                Ok((at, Vec::new()))
            }
            Op::Truncate(fd, size) => self.files[fd].file().truncate(size).map(nothing),
            Op::Punch(fd, at, len) => {
                let mode = g::FALLOC_FL_PUNCH_HOLE | g::FALLOC_FL_KEEP_SIZE;
                self.files[fd].file().allocate(mode, at, len).map(nothing)
            }
            Op::List(fd) => {
                let mut names = Vec::new();
                self.files[fd].file().read_directory(0, &mut |entry| {
                    names.push(format!("{}:{}", entry.name.escape_ascii(), entry.kind));
                    true
                })?;
                names.sort();
                Ok((0, names.join(" ").into_bytes()))
            }
        }
    }
}

struct Linux {
    folder: PathBuf,
    root: OwnedFd,
    files: Vec<OwnedFd>,
}

impl Linux {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!(
            "/dev/shm/coracle-fs-{}-{number}",
            std::process::id()
        ));
        std::fs::create_dir(&folder).expect("a folder in /dev/shm");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = linux::open(&folder, flags, Mode::empty()).expect("the folder");
        linux::fchmod(&root, Mode::from_raw_mode(0o755)).expect("the folder is ours");
        Self {
            folder,
            root,
            files: Vec::new(),
        }
    }

    fn run(&mut self, op: &Op) -> Answer {
        self.call(op).map_err(rustix::io::Errno::raw_os_error)
    }

    fn call(&mut self, op: &Op) -> rustix::io::Result<(u64, Vec<u8>)> {
        let root = &self.root;
        let flag = |set: bool, flag: AtFlags| if set { flag } else { AtFlags::empty() };
        match *op {
            Op::Mkdir(path, mode) => {
                linux::mkdirat(root, path, Mode::from_raw_mode(mode)).map(nothing)
            }
            Op::Rmdir(path) => linux::unlinkat(root, path, AtFlags::REMOVEDIR).map(nothing),
            Op::Unlink(path) => linux::unlinkat(root, path, AtFlags::empty()).map(nothing),
            Op::Rename(from, to, how) => {
                let how = [
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                ][usize_from_u32(how)];
                linux::renameat_with(root, from, root, to, how).map(nothing)
            }
            Op::Link(from, to, follow) => {
                let follow = flag(follow, AtFlags::SYMLINK_FOLLOW);
                linux::linkat(root, from, root, to, follow).map(nothing)
            }
            Op::Symlink(target, path) => linux::symlinkat(target, root, path).map(nothing),
            Op::Fifo(path) => linux::mknodat(
                root,
                path,
                linux::FileType::Fifo,
                Mode::from_raw_mode(0o644),
                0,
            )
            .map(nothing),
            Op::Stat(path, follow) => {
                let stat = linux::statat(root, path, flag(!follow, AtFlags::SYMLINK_NOFOLLOW))?;
                Ok(described(
                    stat.st_mode,
                    stat.st_nlink,
                    stat.st_size.cast_unsigned(),
                ))
            }
            Op::ReadLink(path) => Ok((0, linux::readlinkat(root, path, Vec::new())?.into_bytes())),
            Op::Chmod(path, mode) => {
                linux::chmodat(root, path, Mode::from_raw_mode(mode), AtFlags::empty()).map(nothing)
            }
            Op::Open(path, flags) => {
                let flags = OFlags::from_bits_retain(flags) | OFlags::CLOEXEC;
                self.files.push(linux::openat(
                    root,
                    path,
                    flags,
                    Mode::from_raw_mode(0o644),
                )?);
                Ok((0, Vec::new()))
            }
            Op::Close(fd) => Ok(nothing(self.files.remove(fd))),
            Op::Write(fd, len, byte) => {
                let count = rustix::io::write(&self.files[fd], &vec![byte; len])?;
                Ok((u64_from(count), Vec::new()))
            }
            Op::Read(fd, len) => {
                let mut out = vec![0; len];
                let count = rustix::io::read(&self.files[fd], &mut out[..])?;
                out.truncate(count);
                Ok((u64_from(count), out))
            }
            Op::Seek(fd, at) => {
                let at = linux::seek(&self.files[fd], linux::SeekFrom::Start(at))?;
                Ok((at, Vec::new()))
            }
            Op::Truncate(fd, size) => linux::ftruncate(&self.files[fd], size).map(nothing),
            Op::Punch(fd, at, len) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                linux::fallocate(&self.files[fd], mode, at, len).map(nothing)
            }
            Op::List(fd) => {
                let folder = linux::openat(
                    &self.files[fd],
                    ".",
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                let mut names = Vec::new();
                // Not `Dir`, which takes a folder that was removed (`ENOENT`) for an empty one.
                let mut buffer = Vec::with_capacity(8192);
                let mut entries = linux::RawDir::new(&folder, buffer.spare_capacity_mut());
                while let Some(entry) = entries.next() {
                    let entry = entry?;
                    let kind = entry.file_type().as_raw_mode() >> 12;
                    names.push(format!(
                        "{}:{kind}",
                        entry.file_name().to_bytes().escape_ascii()
                    ));
                }
                names.sort();
                Ok((0, names.join(" ").into_bytes()))
            }
        }
    }

    /// Whether descriptor calls on this file are compared: those that the checks of the system-call layer precede
    /// (access mode, `O_PATH`, type) are its business and not that of the file system.
    fn kind_of(&self, fd: usize) -> Option<(linux::FileType, OFlags)> {
        let file = self.files.get(fd)?.as_fd();
        let stat = linux::fstat(file).ok()?;
        let flags = linux::fcntl_getfl(file).ok()?;
        Some((linux::FileType::from_raw_mode(stat.st_mode), flags))
    }

    fn is_comparable(&self, op: &Op) -> bool {
        let (fd, writes) = match *op {
            Op::Write(fd, ..) | Op::Truncate(fd, _) | Op::Punch(fd, ..) => (fd, true),
            Op::Read(fd, _) | Op::Seek(fd, _) => (fd, false),
            Op::Close(fd) => return fd < self.files.len(),
            Op::List(fd) => {
                return self.kind_of(fd).is_some_and(|(kind, flags)| {
                    kind == linux::FileType::Directory && !flags.contains(OFlags::PATH)
                });
            }
            _ => return true,
        };
        self.kind_of(fd).is_some_and(|(kind, flags)| {
            let access = flags & OFlags::RWMODE;
            let allowed = if writes {
                access != OFlags::RDONLY
            } else {
                access != OFlags::WRONLY
            };
            kind == linux::FileType::RegularFile && !flags.contains(OFlags::PATH) && allowed
        })
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn answers_as_linux_does(ops in proptest::collection::vec(op(), 1..60)) {
        let mut theirs = Linux::new();
        let mut ours = Ours {
            vfs: Vfs::new(TmpFs::new(1 << 24, 0o755), MountOptions::default()),
            files: Vec::new(),
        };
        for (at, op) in ops.iter().enumerate() {
            if theirs.is_comparable(op) {
                let (want, got) = (theirs.run(op), ours.run(op));
                assert_same(&got, &want, &ops[..=at]);
            }
        }
    }
}

#[track_caller]
fn assert_same(got: &Answer, want: &Answer, ops: &[impl Debug]) {
    assert!(got == want, "after {ops:#?}\nours {got:?}, Linux {want:?}");
}
